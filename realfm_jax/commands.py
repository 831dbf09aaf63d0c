"""What the commands do: solve, sweep, design and plot."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from realfm_jax import formats
from realfm_jax.comparison import Outcome, play, rivals, table
from realfm_jax.config import Config
from realfm_jax.game import Game
from realfm_jax.plan import Plan, make_plan
from realfm_jax.record import plain, provenance, save_json

if TYPE_CHECKING:
    import xarray as xr

FORMATS = {
    "solve": ("json", "csv"),
    "sweep": ("zarr", "netcdf", "csv", "json"),
    "design": ("json",),
    "plot": ("png", "pdf", "svg"),
}
"""Of each command's result, the default first."""
PER_DEVICE = 2**27
"""Numbers per variable up to which a summary also looks at every device."""


class Output(NamedTuple):
    """Where a result is to go: --out, --format and --force."""

    out: Path | None = None
    format: str | None = None
    force: bool = False

    def place(self, command: str, name: str) -> tuple[Path, str]:
        """The path and format of a command's result."""
        return formats.place(self.out, self.format, FORMATS[command], name, self.force)


def solve(config: Config, output: Output) -> None:
    """The game under every mechanism, or the one that [game] names: certified, printed, saved."""
    setting = config.setting
    playing, judge = _playing(config)
    path, format_ = output.place("solve", f"{config.name()}-seed-{setting.seed}")
    drawn_as = config.file or f"{config.setting_name} setting"
    print(f"{len(judge.devices)} devices, {drawn_as}, seed {setting.seed}", flush=True)
    outcomes: dict[str, Outcome] = {}
    for number, (name, game) in enumerate(playing.items(), start=1):
        begun = time.perf_counter()
        _progress(f"[{number}/{len(playing)}] {name}: solving and certifying ...")
        outcomes[name] = play(game, measured_by=judge)
        jax.block_until_ready(outcomes[name].common_utility)
        _progress(f"[{number}/{len(playing)}] {name}: {time.perf_counter() - begun:.1f} s\n")
    shown = "RealFM" if "RealFM" in outcomes else next(iter(outcomes))
    print(f"\n{table(outcomes)}\n\n{shown}: {outcomes[shown].certificate}\n")
    about = {"provenance": provenance(config.record("solve"))}
    if format_ == "csv":
        formats.save_rows(path, _rows(outcomes), about)
    else:
        save_json(path, about | {"mechanisms": outcomes})
    print(f"saved {path}")


def _playing(config: Config) -> tuple[dict[str, Game], Game]:
    """The games to solve, by name, and the one whose payoffs measure all of them."""
    game = config.game()
    if not config.names_a_mechanism:
        found = rivals(game.devices, game.server, config.setting.epsilon)
        return found, found["RealFM"]
    linear = "Linear " if config.table("game").get("payoff") == "linear" else ""
    exact = " exact" if config.table("game").get("shaping") == "exact" else ""
    return {f"{linear}{type(game.mechanism).__name__}{exact}": game}, game


def _rows(outcomes: dict[str, Outcome]) -> list[dict[str, Any]]:
    """One row per mechanism and device."""
    rows = []
    for name, outcome in outcomes.items():
        found, check = outcome.equilibrium, outcome.certificate
        regret = np.full(len(found.contribution), np.nan)  # of devices that no sample contained: unknown
        regret[np.asarray(check.searched)] = check.regret
        columns = {
            "contribution": found.contribution,
            "accuracy": found.accuracy,
            "money": found.money,
            "utility": found.utility,
            "common_utility": outcome.common_utility,
            "local_contribution": found.local.contribution,
            "local_utility": found.local.utility,
            "regret": regret,
            "free_ride": check.free_ride,
        }
        lists = {key: np.asarray(values).tolist() for key, values in columns.items()}
        for device in range(len(found.contribution)):
            row = {key: values[device] for key, values in lists.items()}
            rows.append({"mechanism": name, "device": device} | row)
    return rows


def sweep(config: Config, output: Output) -> None:
    """The games of [sweep]: streamed to a Zarr store that resumes, or written at the end."""
    from realfm_jax.sweep import sweep as solve_all

    call = config.sweep()
    path, format_ = output.place("sweep", config.name())
    defaults = {"matched": False, "method": "auto", "certificate": False, "chunk": None}
    options: Any = defaults | call.options
    with config.blame("sweep"):
        plan = make_plan(call.game, call.parameters, *options.values())
        if format_ != "zarr":
            formats.check_size(plan)
    about = json.dumps(plain(config.record("sweep")))
    if format_ == "zarr":
        if output.force:
            formats.discard(path)
        try:
            _prepare(plan, path, call.coordinates, about)
            found = solve_all(call.game, store=path, **options, **call.parameters)
        except KeyboardInterrupt:
            kept = f"{formats.share_done(plan, path):.1%} of the games are kept in {path}"
            raise KeyboardInterrupt(f"{kept}; the same command goes on from there") from None
    else:
        try:
            found = solve_all(call.game, **options, **call.parameters)
        except KeyboardInterrupt:
            hint = "nothing was written (an --out that ends in .zarr keeps what is done)"
            raise KeyboardInterrupt(hint) from None
        found = found.assign_coords(call.coordinates).assign_attrs(config=about)
        formats.save_dataset(found, path, format_)
    print(summary(found))
    print(f"saved {path} ({formats.size(path)})")


def _prepare(plan: Plan, path: Path, coordinates: dict[str, Any], about: str) -> None:
    """The store of a sweep, and a word if there is something in it already."""
    try:
        formats.prepare(plan, path, coordinates, about)
    except FileExistsError as error:
        replaced = " (--force does)" if (path / ".zattrs").exists() else ""
        raise FileExistsError(f"{error}{replaced}") from error
    done = formats.share_done(plan, path)
    if done == 1:
        print(f"{path} is complete: nothing is left to solve", flush=True)
    elif done:
        print(f"resuming {path}: {done:.1%} done", flush=True)


def summary(dataset: "xr.Dataset") -> str:
    """What a sweep holds and how far its numbers reach, in a few lines."""
    sizes = {str(name): length for name, length in dataset.sizes.items() if name != "device"}
    games, devices = int(np.prod(list(sizes.values()))), dataset.sizes["device"]
    shape = " x ".join(f"{name} {length}" for name, length in sizes.items())
    lines = [f"{games:,} equilibria: {shape}; {devices} device{'s' if devices > 1 else ''}"]
    converged = dataset["converged"].values
    lines.append(f"  {'converged':<18} {100 * converged.mean():.4g} %")
    names = ["total", "server_accuracy", "server_utility"]
    if games * devices <= PER_DEVICE:
        names += ["contribution", "accuracy", "utility", *(n for n in ("regret",) if n in dataset)]
    for name in names if converged.any() else ():
        values = dataset[name].values[converged]
        reach = f"{np.nanmin(values):.6g} to {np.nanmax(values):.6g}"
        units = dataset[name].attrs["units"]
        lines.append(f"  {name:<18} {reach}{'' if units == '1' else ' ' + units}")
    return "\n".join(lines)


def design(config: Config, output: Output) -> None:
    """The parameters that [design] asks for: printed and saved."""
    from realfm_jax.design import design as choose

    game = config.game()
    path, _ = output.place("design", config.name())
    _progress("searching ...")
    with config.blame("design"):
        found = choose(game, **config.design())
    _progress("")
    print(found)
    content: dict[str, Any] = {"provenance": provenance(config.record("design")), "design": found}
    if config.table("design").get("certificate"):
        content["certificate"] = found.certificate
        print(f"\n{found.certificate}")
    print(f"saved {save_json(path, content)}")


def plot(config: Config, output: Output, result: Path | None = None) -> None:
    """A picture of a sweep's result, or of what the tables of a file say."""
    from realfm_jax import drawing

    dataset = None if result is None else formats.load_dataset(result)
    asked = config.table("plot").get("kind", "plot")
    name = config.name() if result is None else f"{result.stem}-{asked}"
    path, format_ = output.place("plot", name)
    _progress("drawing ...")
    kind, figure = drawing.draw(config, dataset)
    _progress("")
    about = config.record("plot")
    if dataset is not None:
        made = json.loads(dataset.attrs.get("config", "null"))
        about = {"command": "plot", "plot": config.table("plot"), "result": str(result), "made by": made}
    print(f"saved {drawing.save(figure, path, format_, config.table('plot').get('dpi'), about)} ({kind})")


def _progress(text: str) -> None:
    """Progress goes to the terminal only, so that a redirected run stays clean."""
    if sys.stderr.isatty():
        print("\r\033[K" + text, end="", file=sys.stderr, flush=True)
