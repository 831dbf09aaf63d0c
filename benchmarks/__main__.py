"""Print and save the table: time per equilibrium, here and by its peers, same run, same answers."""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import realfm_jax as rfm
from benchmarks.peers import A_OPT, EPSILON, K, with_numpy, with_scipy
from realfm_jax.record import provenance, save_json


def best_time(f: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs, seconds."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(f())
        times.append(time.perf_counter() - begun)
    return min(times)


def one(cost: jax.Array, scale: jax.Array) -> jax.Array:
    """The contributions of one game, through the public API."""
    devices = rfm.Devices(cost, rfm.GeneralizationBound(A_OPT, K), rfm.PowerPayoff(scale))
    game = rfm.Game(devices, rfm.Server(), rfm.RealFM(epsilon=EPSILON))
    return rfm.solve(game, method="aggregate").contribution


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--games", type=int, default=2000, help="games solved together (default 2000)")
    parser.add_argument("--devices", type=int, default=16, help="devices in each (default 16)")
    parser.add_argument("--out", default="realfm-results/benchmarks.json", help="where to save the table")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    shape = (options.games, options.devices)
    cost, scale = rng.normal(2.5e-4, 1.25e-5, shape), rng.uniform(0.9, 1.1, shape)

    begun = time.perf_counter()
    solve = jax.jit(jax.vmap(one)).lower(cost, scale).compile()
    compiled = time.perf_counter() - begun
    ours = np.asarray(solve(cost, scale))
    few = min(20, options.games)
    scipy_answers = np.stack([with_scipy(c, z) for c, z in zip(cost[:few], scale[:few], strict=True)])
    numpy_answers = with_numpy(cost, scale)
    # Answers first: SciPy's minimiser stops near sqrt(eps), bisection goes to the last digits.
    assert np.abs(scipy_answers / ours[:few] - 1).max() < 1e-5
    assert np.abs(numpy_answers / ours - 1).max() < 1e-9

    times = {
        "realfm_jax, vmapped solve": best_time(lambda: solve(cost, scale), 5) / options.games,
        "NumPy, vectorised bisection": best_time(lambda: with_numpy(cost, scale), 2) / options.games,
        "SciPy, scalar minimiser + hybrid root": best_time(
            lambda: [with_scipy(c, z) for c, z in zip(cost[:few], scale[:few], strict=True)], 1
        )
        / few,
    }
    fastest = times["realfm_jax, vmapped solve"]
    print(f"{options.games} games of {options.devices} devices, float64; compiled in {compiled:.1f} s")
    print(f"{'':40s}{'us / game':>12s}{'ratio':>10s}")
    for name, seconds in times.items():
        print(f"{name:40s}{1e6 * seconds:12.2f}{seconds / fastest:10.1f}")
    record = {"seconds_per_game": times, "compile_seconds": compiled}
    print("saved", save_json(options.out, {"provenance": provenance(vars(options)), **record}))


if __name__ == "__main__":
    main()
