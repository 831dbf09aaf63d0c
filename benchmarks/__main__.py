"""Print and save the tables: time per equilibrium, here and by its peers, same run, same answers.

Every answer is checked before it is timed. JAX programs, ours and optimistix's, are compiled for vectors of
512 bits, as `sweep` does. Times are the shortest of several runs, in turns with the others of the table,
compiling apart, on all cores for what JAX compiled and on one for NumPy and SciPy. Ratios are to the first
row of a table.
"""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import realfm_jax as rfm
from benchmarks import peers
from benchmarks.machine import machine
from benchmarks.peers import Answers, Drawn, agreed, draw
from benchmarks.rows import Row, table
from realfm_jax.batch import COMPILER_OPTIONS
from realfm_jax.record import provenance, save_json


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure, and on what.

    Attributes:
      seconds: for each row; a run in every round at the least.
      few: games given to slow peers.
      sizes: numbers of devices of one game.
      cold: whether to forget everything compiled before, so that compile times are a newcomer's.
    """

    seconds: float = 1.0
    few: int = 20
    sizes: tuple[int, ...] = (16, 1_000, 100_000, 1_000_000)
    cold: bool = True

    def best(self, runs: Sequence[Callable[[], Any]]) -> list[float]:
        """The shortest time of each, seconds; in turns, because a shared machine changes its pace."""
        times: list[list[float]] = [[] for _ in runs]
        for turn in range(1, ROUNDS + 1):
            for run, taken in zip(runs, times, strict=True):
                while len(taken) < turn or sum(taken) < self.seconds * turn / ROUNDS:
                    begun = time.perf_counter()
                    jax.block_until_ready(run())
                    taken.append(time.perf_counter() - begun)
        return [min(taken) for taken in times]

    def timed(self, checked: Sequence[tuple[Row, Callable[[], Any]]]) -> list[Row]:
        """Rows whose answers have been checked, with the times of their runs; ratios are to the first."""
        seconds = self.best([run for _, run in checked])
        rows = [dataclasses.replace(row, seconds=t) for (row, _), t in zip(checked, seconds, strict=True)]
        return [dataclasses.replace(row, ratio=row.each / rows[0].each) for row in rows]

    def compiled(self, f: Callable[..., Any], *args: Any) -> tuple[Any, float]:
        """f compiled for these arguments, and the seconds that took."""
        if self.cold:
            jax.clear_caches()
        begun = time.perf_counter()
        program = jax.jit(f, compiler_options=COMPILER_OPTIONS).lower(*args).compile()
        return program, time.perf_counter() - begun


OPTIMISTIX = "optimistix: Newton, n-dimensional, jitted"
ROUNDS = 5
"""In which all rows of a table have their turn."""
QUICK = Effort(seconds=0.0, few=2, sizes=(16,), cold=False)


def game_of(cost: Any, scale: Any) -> rfm.Game:
    """The game that the peers play, for this package."""
    curve = rfm.GeneralizationBound(peers.A_OPT, peers.K)
    devices = rfm.Devices(cost, curve, rfm.PowerPayoff(scale, exponent=2.0))
    return rfm.Game(devices, rfm.Server(), rfm.RealFM(shaping="taylor", epsilon=peers.EPSILON))


def aggregate(game: rfm.Game) -> rfm.Equilibrium:
    """The complete equilibrium, so that a compiler may leave nothing out."""
    return rfm.solve(game, method="aggregate")


def answers_of(eq: rfm.Equilibrium) -> Answers:
    """What is compared of ours."""
    local = eq.local.contribution
    return Answers(local, eq.contribution, eq.server_error, eq.error, eq.utility, eq.server_utility)


def many_games(games: int, devices: int, effort: Effort) -> list[Row]:
    """A: games with costs and payoffs of their own, [games, devices], solved together."""
    cost, scale = draw(games, devices)
    few, inputs = min(effort.few, games), jax.device_put((cost, scale))
    solve, seconds = effort.compiled(jax.vmap(lambda c, z: aggregate(game_of(c, z))), *inputs)
    answers = answers_of(solve(*inputs))
    bisection = functools.partial(peers.with_numpy, cost, scale)

    def one_by_one(solve: Callable[..., Answers]) -> Answers:
        found = [solve(c, z) for c, z in zip(cost[:few], scale[:few], strict=True)]
        return Answers(*map(np.stack, zip(*found, strict=True)))

    off = agreed("NumPy", bisection(), answers, 1e-9)
    slow = []
    for how, peer in {
        "each device by itself": peers.with_each_device,
        "one root for all": peers.with_nelder_mead,
        "one root, tuned": peers.with_tuned_nelder_mead,
    }.items():
        run = functools.partial(one_by_one, peer)
        differs = agreed(how, run(), [x[:few] for x in answers], 1e-6)
        slow.append((Row(f"SciPy: Nelder-Mead, hybrid root; {how}", few, difference=differs), run))
    rows = effort.timed(
        [
            (
                Row("realfm_jax: jit(vmap(solve))", games, compile_seconds=seconds),
                lambda: solve(*inputs),
            ),
            through_sweep((cost, scale), answers),
            (Row("NumPy: vectorised bisection", games, difference=off), bisection),
            *slow,
            limit(answers.contribution, effort),
        ]
    )
    return [*rows[:-1], dataclasses.replace(rows[-1], more={"curves_per_solve": 1 / rows[-1].ratio})]


def through_sweep(drawn: Drawn, answers: Answers) -> tuple[Row, Callable[[], Any]]:
    """The same games through the labelled front door."""
    cost, scale = drawn
    game = game_of(cost[0], scale[0])

    def run() -> Any:
        return rfm.sweep(game, matched=True, cost=cost, payoff_scale=scale)

    jax.clear_caches()
    begun = time.perf_counter()
    ds = run()
    first = time.perf_counter() - begun
    errors = 1 - ds.server_accuracy, 1 - ds.accuracy
    found = ds.local_contribution, ds.contribution, *errors, ds.utility, ds.server_utility
    off = agreed("sweep", found, answers, 1e-9)
    name = "realfm_jax: sweep, labelled Dataset"
    return Row(name, len(cost), compile_seconds=first, difference=off), run


def limit(m: jax.Array, effort: Effort) -> tuple[Row, Callable[[], Any]]:
    """What no solver can go below: the accuracy curve, evaluated once per device."""
    curve = rfm.GeneralizationBound(peers.A_OPT, peers.K)
    evaluate, seconds = effort.compiled(lambda curve, m: curve.error(m), curve, m)
    off = agreed("accuracy curve", [evaluate(curve, m)], [peers.error(np.asarray(m))], 1e-12)
    name = "limit: one curve per device"
    return Row(name, len(m), compile_seconds=seconds, difference=off), lambda: evaluate(curve, m)


def general_tools(devices: int, effort: Effort) -> list[Row]:
    """B: one game of some devices, against tools that know nothing of its structure."""
    cost, scale = draw(devices)
    game = game_of(cost, scale)
    solve, seconds = effort.compiled(aggregate, game)
    root = functools.partial(peers.with_root, cost, scale)
    answers = answers_of(solve(game))
    off = agreed("SciPy root", root(), answers, 1e-9)
    ours = Row("realfm_jax: jit(solve)", 1, compile_seconds=seconds), lambda: solve(game)
    scipy = Row("SciPy: hybrid root, n-dimensional", 1, difference=off), root
    newton = with_optimistix((cost, scale), answers, effort)
    if newton is None:
        return [*effort.timed([ours, scipy]), Row(f"{OPTIMISTIX} (missing: pip install optimistix)", 1)]
    return effort.timed([ours, newton, scipy])


def with_optimistix(drawn: Drawn, answers: Answers, effort: Effort) -> tuple[Row, Callable[[], Any]] | None:
    """Its row; `None` where it is not installed."""
    newton = peers.optimistix_solver()
    if newton is None:
        return None
    inputs = jax.device_put(drawn)
    solve, seconds = effort.compiled(newton, *inputs)
    off = agreed(OPTIMISTIX, solve(*inputs), answers, 1e-9)
    return Row(OPTIMISTIX, 1, compile_seconds=seconds, difference=off), lambda: solve(*inputs)


def many_devices(effort: Effort) -> list[Row]:
    """C: one game, ever more devices, no two alike."""
    return effort.timed([one_size(n, effort) for n in effort.sizes])


def one_size(n: int, effort: Effort) -> tuple[Row, Callable[[], Any]]:
    """One game of n devices: time and memory of its solution, and time of its gradient."""
    cost, scale = draw(n)
    game = game_of(cost, scale)
    solve, seconds = effort.compiled(aggregate, game)
    answers = [x[None] for x in answers_of(solve(game))]
    off = agreed(f"NumPy, {n} devices", peers.with_numpy(cost[None], scale[None]), answers, 1e-9)
    more = {"temporary_bytes_per_device": solve.memory_analysis().temp_size_in_bytes / n}
    more |= gradient(game, effort)
    row = Row(f"realfm_jax: {n:,} devices", n, compile_seconds=seconds, difference=off, more=more)
    return row, lambda: solve(game)


def gradient(game: rfm.Game, effort: Effort) -> dict[str, float]:
    """Time of the server's utility with its gradient by the whole game, over that of the utility alone."""

    def utility(game: rfm.Game) -> jax.Array:
        return aggregate(game).server_utility

    value, _ = effort.compiled(utility, game)
    both, compile_seconds = effort.compiled(jax.value_and_grad(utility), game)
    step, cost = 1e-3, game.devices.cost
    slope = (both(game)[1].devices.cost * cost).sum()
    up, down = (value(rfm.replace(game, cost=cost * (1 + h))) for h in (step, -step))
    agreed("gradient against finite differences", [slope], [(up - down) / (2 * step)], 1e-4)
    slower, faster = effort.best([lambda: both(game), lambda: value(game)])
    return {"gradient_over_value": slower / faster, "gradient_compile_seconds": compile_seconds}


def tables(games: int, devices: int, measured: dict[str, list[Row]]) -> str:
    """What was measured, as it is printed, and quoted in the README."""
    memory = {"temporary_bytes_per_device": "bytes / device", "gradient_over_value": "gradient / value"}
    limit = {"curves_per_solve": "curves / solve"}
    sections = {
        "many_games": (f"A. {games:,} games of {devices} devices", "game", "us", limit),
        "one_game": (f"B. One game of {devices} devices", "game", "us", {}),
        "many_devices": ("C. One game, many devices", "device", "ns", memory),
    }
    return "\n".join(
        table(title, measured[name], of, unit, extras)
        for name, (title, of, unit, extras) in sections.items()
        if name in measured
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--games", type=int, default=10_000, help="games solved together (default 10000)")
    parser.add_argument("--devices", type=int, default=16, help="devices in each (default 16)")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs and agrees")
    parser.add_argument("--out", default="realfm-results/benchmarks.json", help="where to save the tables")
    options = parser.parse_args(arguments)
    if options.games < 1 or options.devices < 2:
        got = f"{options.games} and {options.devices}"
        parser.error(f"--games must be at least 1 and --devices at least 2; got {got}")
    effort, where = QUICK if options.quick else Effort(), machine()
    versions = f"JAX {jax.__version__}, SciPy {where['scipy']}, optimistix {where['optimistix']}"
    print(f"{where['cpu']}, {where['cores']} cores, load {where['load']:.1f}; float64; {versions}\n")
    measured: dict[str, list[Row]] = {}
    for name, measure in {
        "many_games": lambda: many_games(options.games, options.devices, effort),
        "one_game": lambda: general_tools(options.devices, effort),
        "many_devices": lambda: many_devices(effort),
    }.items():
        measured[name] = measure()
        print(tables(options.games, options.devices, {name: measured[name]}), flush=True)
    about = provenance(vars(options)) | {"hardware": where}
    print("saved", save_json(options.out, {"provenance": about, **measured}))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)  # a second run would report no compile time
    main()
