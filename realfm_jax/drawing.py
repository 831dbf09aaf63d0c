"""What `realfm plot` draws: a picture of each kind from a sweep's result, or from the tables of a file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realfm_jax._version import __version__
from realfm_jax.comparison import rivals
from realfm_jax.config import Config, SourcedError
from realfm_jax.design import design
from realfm_jax.equilibrium import solve
from realfm_jax.parameters import unknown
from realfm_jax.pareto import pareto
from realfm_jax.record import plain, whole
from realfm_jax.schema import KINDS
from realfm_jax.sensitivity import sensitivity
from realfm_jax.sweep import sweep

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

TAKES = {
    "lines": ("variable", "x", "hue", "select"),
    "heatmap": ("variable", "x", "y", "select"),
    "utility": ("device",),
}
"""Keys of [plot] that a kind takes beside `kind` and `dpi`; the others take none."""
SWEPT = ("lines", "heatmap")
"""Kinds that draw a sweep."""
DPI = 300


def draw(config: Config, dataset: "xr.Dataset | None") -> "tuple[str, Figure]":
    """The picture that [plot] asks for, and its kind; solves what it needs and no `dataset` holds."""
    import matplotlib

    matplotlib.use("Agg")  # files only: works without a display
    from realfm_jax import plots

    kind = config.table("plot").get("kind")
    with config.blame("plot"):
        if dataset is not None and kind not in (None, *SWEPT):
            raise ValueError(
                f"a plot of kind {kind} starts from a TOML file; of a sweep: {', '.join(SWEPT)}"
            )
        _check_given(config, kind)
        if dataset is None and (kind in SWEPT or (kind is None and config.table("sweep"))):
            dataset = _swept(config)
        kind = kind or _suiting(config, dataset)
        _check_given(config, kind)
        drawn = _of_game(config, kind, plots) if dataset is None else _of_sweep(config, kind, dataset)
    return kind, drawn if hasattr(drawn, "savefig") else drawn.figure


def _suiting(config: Config, dataset: "xr.Dataset | None") -> str:
    """The kind for who asked for none: a sweep over two numbers is a heat map."""
    if dataset is None:
        return "utility"
    numbers = [dim for dim in dataset.dims if dim != "device" and dataset[dim].dtype.kind in "fiu"]
    return "heatmap" if len(numbers) > 1 and "hue" not in config.table("plot") else "lines"


def _check_given(config: Config, kind: str | None) -> None:
    """Refuse what was asked for on the command line and plays no part in this kind of plot."""
    allowed = ("kind", "dpi", *TAKES.get(kind or "", ()))
    for key in config.given if kind else ():
        table, name, *_ = key.split(".")
        if table == "plot" and name not in allowed:
            part = f"{name} plays no part in a plot of kind {kind}; it takes {', '.join(allowed)}"
            raise SourcedError(f"command line: {part}")


def _swept(config: Config) -> "xr.Dataset":
    call = config.sweep()
    return sweep(call.game, **call.options, **call.parameters).assign_coords(call.coordinates)


def _of_sweep(config: Config, kind: str, dataset: "xr.Dataset") -> Any:
    from realfm_jax.plots import heatmap, lines

    given = config.table("plot")
    for name, value in given.get("select", {}).items():
        if name not in dataset.dims:
            raise unknown("dimension in select", name, map(str, dataset.dims))
        if isinstance(value, str) != (dataset[name].dtype.kind in "OUST"):
            raise ValueError(f"select.{name} must be like {dataset[name].values[0]!r}; got {value!r}")
        if isinstance(value, str) and value not in dataset[name].values:
            raise unknown(f"value of {name}", value, map(str, dataset[name].values))
        dataset = dataset.sel({name: value}, method=None if isinstance(value, str) else "nearest")
    chosen = {key: given[key] for key in TAKES[kind] if key in given and key != "select"}
    chosen.setdefault("variable", "server_utility")
    many = len([dim for dim, length in dataset.sizes.items() if dim != "device" and length > 1]) > 2
    try:
        return (heatmap if kind == "heatmap" else lines)(dataset, **chosen)
    except ValueError as error:
        hint = "; here: --select NAME=VALUE" if many else ""
        raise ValueError(f"{error}{hint}") from error


def _of_game(config: Config, kind: str, plots: Any) -> Any:
    game = config.game()
    fixed = {key: config.table("game")[key] for key in ("a_opt", "k") if key in config.table("game")}
    if kind == "utility":
        return plots.utility(game, solve(game), device=config.table("plot").get("device", 0))
    if kind == "mechanisms":
        found = rivals(game.devices, game.server, config.setting.epsilon)
        return plots.mechanisms({name: solve(one) for name, one in found.items()})
    if kind == "pareto":
        call = config.sweep()
        known = ("profit_margin", "epsilon", "shaping")
        for name in call.parameters:
            if name not in known:
                raise ValueError(f"a front is drawn over {', '.join(known)} only; [sweep] also has {name}")
        return plots.pareto(pareto(game, method=call.options.get("method", "auto"), **call.parameters))
    if kind == "sensitivity":
        return plots.sensitivity(sensitivity(game))
    if kind == "design-path":
        with config.blame("design"):
            return plots.design_path(design(game, **config.design()))
    if kind == "cost-comparison":
        return plots.cost_comparison(**{key: fixed[key] for key in fixed if key == "a_opt"})
    assert kind == "utility-comparison", KINDS
    return plots.utility_comparison(**fixed)


def save(figure: "Figure", path: Path, format_: str, dpi: int | None, about: dict[str, Any]) -> Path:
    """Write a picture, whole or not at all; its metadata say what it takes to draw it again."""
    import matplotlib.pyplot as plt

    maker, story = {"png": ("Software", "Description"), "pdf": ("Creator", "Subject")}.get(
        format_, ("Creator", "Description")
    )
    metadata: Any = {maker: f"realfm_jax {__version__}", story: json.dumps(plain(about))}
    with whole(path) as unfinished:
        figure.savefig(unfinished, format=format_, dpi=dpi or DPI, metadata=metadata)
    plt.close(figure)
    return path
