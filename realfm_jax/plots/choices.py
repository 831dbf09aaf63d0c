"""What a server may choose, and what matters most: fronts, elasticities, the path of a design."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from realfm_jax.plots import _style as style
from realfm_jax.sensitivity import OUTPUTS

if TYPE_CHECKING:
    from xarray import Dataset

    from realfm_jax.design import Design

NOTHING, SMALL = 0.005, 0.1
"""Elasticities that two decimals do not show, and those below which a logarithmic axis is linear."""


@style.styled
def pareto(dataset: "Dataset", ax: Axes | None = None) -> Axes:
    """What the server and the devices get under each design, and the designs that none beats for both.

    Args:
      dataset: what `pareto` returned: server_utility, mean_utility, efficient (among designs of the same
        shaping) and efficient_overall, along "shaping" and others; what did not converge is left out.
      ax: where to draw.
    """
    _needs("pareto", dataset, "server_utility", "mean_utility", "efficient", "efficient_overall")
    ax = style.axes_of(ax, height=3.0)
    other: dict[str, Any] = {
        "linestyle": "none",
        "fillstyle": "none",
        "markersize": 3,
        "markeredgewidth": 0.6,
    }
    for i, part in enumerate(_by_shaping(dataset)):
        drawn = style.look(i)
        part = part.where(part["converged"]) if "converged" in part else part
        devices, server = part["mean_utility"].values.ravel(), part["server_utility"].values.ravel()
        best = part["efficient"].values.ravel().astype(bool)
        ax.plot(devices[~best], server[~best], marker=drawn["marker"], color=drawn["color"], **other)
        front = np.flatnonzero(best)[np.argsort(devices[best])]
        ax.plot(devices[front], server[front], label=f"{part['shaping'].item()} front", **drawn)
    ax.plot([], [], marker="o", color="0.35", label="other designs", **other)
    best = dataset["efficient_overall"].values.astype(bool)
    ring = other | {"markersize": 8, "color": "0.35"}
    over = dataset["mean_utility"].values[best], dataset["server_utility"].values[best]
    ax.plot(*over, marker="o", label="efficient overall", **ring)
    ax.set_xlabel("Mean utility of the devices  (better \N{RIGHTWARDS ARROW})")
    ax.set_ylabel("Utility of the server  (better \N{RIGHTWARDS ARROW})")
    for axis, values in ((ax.xaxis, dataset["mean_utility"]), (ax.yaxis, dataset["server_utility"])):
        style.scale(axis, values.values)
    style.legend(ax, columns=2)
    return ax


def _by_shaping(dataset: "Dataset") -> "list[Dataset]":
    if "shaping" not in dataset.coords:
        raise ValueError(
            f"pareto needs a coordinate shaping; this Dataset has {', '.join(map(str, dataset.coords))}"
        )
    if "shaping" not in dataset.dims:
        return [dataset]
    return [dataset.isel(shaping=i) for i in range(dataset.sizes["shaping"])]


@style.styled
def sensitivity(dataset: "Dataset", ax: Axes | None = None) -> Axes:
    """By how many per cent each result changes when a parameter grows by 1 %, the largest on top.

    Args:
      dataset: variable elasticity (output, parameter), as `sensitivity` returned it.
      ax: where to draw.

    >>> import xarray
    >>> data = xarray.Dataset({"elasticity": (("output", "parameter"), [[0.1, -2.0]])},
    ...                       {"output": ["total"], "parameter": ["k", "cost"]})
    >>> from matplotlib.figure import Figure
    >>> [tick.get_text() for tick in sensitivity(data, ax=Figure().subplots()).get_yticklabels()]
    ['cost', 'k']
    """
    _needs("sensitivity", dataset, "elasticity")
    table = dataset["elasticity"].transpose("parameter", "output")
    size = np.nanmax(np.abs(table.values), axis=1, initial=0.0)
    table = table.isel(parameter=np.argsort(-size, kind="stable"))
    rows, groups = table.shape
    ax = style.axes_of(ax, height=0.7 + rows * (0.1 + 0.12 * groups))
    height = 0.8 / groups
    for i, output in enumerate(table["output"].values):
        values, place = table.values[:, i], np.arange(rows) + (i - (groups - 1) / 2) * height
        look: dict[str, Any] = {"color": style.COLORS[i % len(style.COLORS)]}
        look |= {"hatch": style.HATCHES[i % len(style.HATCHES)], "edgecolor": "white", "linewidth": 0}
        bars = ax.barh(place, values, height, label=style.sentence(str(output)), **look)
        ax.bar_label(bars, list(map(_percent, values)), padding=2, fontsize=style.SIZE - 1)
    ax.axvline(0.0, color="black", linewidth=0.8)
    style.ticks_at(ax.yaxis, table["parameter"].values)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    # To the right, because the names on the left may be longer than the axes are wide.
    ax.set_xlabel("Change per +1 % of the parameter (%)", loc="right")
    style.legend(ax, columns=2, at="right")
    if style.wide(np.abs(table.values[np.abs(table.values) >= NOTHING])):
        ax.set_xscale("symlog", linthresh=SMALL, linscale=0.5)
        ax.xaxis.set_major_locator(FixedLocator([-1000, -100, -10, -1, 0, 1, 10, 100, 1000]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:g}")
    ax.margins(x=0.22)  # room for the numbers
    return ax


def _percent(value: float) -> str:
    """With its sign; what two decimals do not show is next to nothing."""
    if abs(value) < NOTHING:
        return "\N{ALMOST EQUAL TO} 0"
    return f"{value:+.2f}" if abs(value) < 1 else f"{value:+.2g}"


@style.styled
def design_path(design: "Design", ax: Axes | None = None) -> Axes:
    """How the objective of a design rose from its start to what was found.

    Args:
      design: what `design` returned.
      ax: where to draw.
    """
    ax = style.axes_of(ax)
    climbed = np.asarray(design.path["objective"], float)
    ax.plot(np.arange(climbed.size), climbed, marker="o", color=style.COLORS[0], label="accepted iterates")
    found: dict[str, Any] = {"color": style.COLORS[4], "markersize": 7.0, "markeredgecolor": "white"}
    ax.plot(climbed.size - 1, design.value, "s", label="found", zorder=3, **found)
    known = OUTPUTS.get(design.objective)
    ax.set_ylabel(style.label(known.long_name, known.units) if known else style.sentence(design.objective))
    ax.set_xlabel("Iterate")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.scale(ax.yaxis, climbed)
    style.legend(ax, columns=2)
    return ax


def _needs(plot: str, dataset: "Dataset", *variables: str) -> None:
    missing = [name for name in variables if name not in dataset]
    if missing:
        has = ", ".join(map(str, dataset.data_vars))
        raise ValueError(f"{plot} needs a Dataset with {', '.join(missing)}; this one has {has}")
