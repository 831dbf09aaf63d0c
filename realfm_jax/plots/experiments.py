"""Figures of recorded experiments: ours as bars, dots and curves, the paper's own values as diamonds."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from realfm_jax.plots import _style as style

LOOKS = {
    "RealFM": 0,
    "Linear RealFM": 1,
    "local": 2,
    "EqualShare": 3,
    "EqualShare if nobody rides free": 3,
    "RealFM exact": 4,
}
"""Mechanisms, and which of the colours, hatches and markers each has in every figure."""
PAPER: dict[str, Any] = {"marker": "D", "markersize": 3.5, "markerfacecolor": "white", "linestyle": "none"}
"""The paper's values: white inside, to be seen on anything."""
SLOT, BAR = 0.3, 0.17
"""Widths, groups being 1 apart: of a bar and the paper's value to its right, and of the bar alone."""
WHISKER: dict[str, Any] = {"color": "0.5", "linewidth": 1.2}
"""From the least to the most of several seeds."""
DEEPEST = 1e-6
"""Of the largest value: what an axis that has to show zero does not resolve any more."""


class Bar(NamedTuple):
    """One quantity in one setting: its value for each seed, and the paper's if there is one.

    >>> Bar((1.0, 3.0)).mean
    2.0
    """

    seeds: tuple[float, ...]
    paper: float | None = None

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.seeds))

    @property
    def values(self) -> list[float]:
        """All that is drawn of it."""
        return [*self.seeds, *([] if self.paper is None else [self.paper])]


class Curve(NamedTuple):
    """Accuracy after epochs, with a band from `low` to `high`, and what the paper reached in the end."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    paper: float | None = None


Panel = Mapping[str, Mapping[str, Bar]]
"""Bars by group and mechanism."""
Place = tuple[str, str]
"""Of a panel: names of its row and its column."""


@style.styled
def comparison(panels: Mapping[Place, Panel], label: str) -> Figure:
    """Mechanisms beside one another, a row for each data set and a column for each distribution of labels.

    Args:
      panels: bars by (row, column), then group, then mechanism; places that are not given are left empty.
      label: what the bars show, with its unit.
    """
    figure, axes = _grid(panels, height=1.45)
    most = max(len(panel) for panel in panels.values())
    for row in dict.fromkeys(place[0] for place in panels):
        line = {place: axes[place] for place in axes if place[0] == row}
        for place, ax in line.items():
            groups(ax, panels[place], most) if place in panels else _empty(ax)
        here = [bar for place in line for bar in _bars(panels.get(place, {}))]
        words = [logarithmic(ax, here) for ax in line.values()]
        next(iter(line.values())).set_ylabel(label + words[0])
    if {group for panel in panels.values() for group in panel} != {"uniform"}:
        figure.supxlabel("C, P: costs, payoffs of the devices", fontsize=style.SIZE)
    _legend(figure, [bar for panel in panels.values() for bar in _bars(panel)], _names(panels.values()))
    return figure


def groups(ax: Axes, panel: Panel, most: int) -> Axes:
    """Groups of bars, the paper's values beside them; as wide as if there were `most` groups."""
    names = _names([panel])
    for i, group in enumerate(panel.values()):
        for name, bar in group.items():
            left = i + (names.index(name) - len(names) / 2) * SLOT
            ax.bar(left + BAR / 2, bar.mean, BAR, label=name, **_filling(name))
            if len(bar.seeds) > 1:
                ax.vlines(left + BAR / 2, min(bar.seeds), max(bar.seeds), **WHISKER)
            if bar.paper is not None:
                ax.plot(
                    left + (SLOT + BAR) / 2, bar.paper, color="black", label="paper", clip_on=False, **PAPER
                )
    style.ticks_at(ax.xaxis, panel)
    middle = (len(panel) - 1) / 2
    ax.set_xlim(middle - most / 2, middle + most / 2)
    ax.tick_params(axis="x", length=0)
    ax.grid(False, axis="x")
    return ax


@style.styled
def settings(panels: Mapping[str, Panel], ratio: str = "") -> Figure:
    """Several values of each setting as markers in a row of their own; one or two panels of the same rows.

    Args:
      panels: by what is shown, with its unit; then by setting, from above to below, and by mechanism.
      ratio: words for how many times the first value of a row the last one is; "": do not say.

    >>> rows = {"MNIST": {"RealFM": Bar((10.0,)), "RealFM exact": Bar((25.0,))}}
    >>> [text.get_text() for text in settings({"Samples": rows}, ratio="exact / Taylor").axes[0].texts]
    ['x 2.5']
    """
    rows, names = next(iter(panels.values())), _names(panels.values())
    width = style.COLUMN if len(panels) == 1 else style.PAGE
    height = 0.9 + len(rows) * (0.08 + 0.08 * len(names))
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (label, panel) in zip(axes, panels.items(), strict=True):
        _rows(style.dressed(ax), panel, names)
        words = [label + logarithmic(ax, _bars(panel), "x"), *([f"(x: {ratio})"] if ratio else [])]
        ax.set_xlabel("\n".join(words), loc="right" if len(panels) == 1 else "center")
        for i, row in enumerate(panel.values() if ratio else ()):
            first, *_, last = (bar.mean for bar in row.values())
            ax.text(1.02, i, f"x {last / first:.3g}", transform=ax.get_yaxis_transform(), va="center")
    handles = [Line2D([], [], **_point(name)) for name in names]
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), handlelength=1.0)
    return figure


def _rows(ax: Axes, panel: Panel, names: list[str]) -> None:
    for i, row in enumerate(panel.values()):
        for name, bar in row.items():
            # One below the other, or equal values would hide one another.
            at = i + 0.7 * ((names.index(name) + 0.5) / len(names) - 0.5)
            ax.plot(bar.mean, at, label=name, **_point(name))
            if len(bar.seeds) > 1:
                ax.hlines(at, min(bar.seeds), max(bar.seeds), **WHISKER)
    style.ticks_at(ax.yaxis, panel)
    ax.set_ylim(len(panel) - 0.5, -0.5)
    ax.yaxis.set_minor_locator(FixedLocator([i - 0.5 for i in range(len(panel) + 1)]))
    ax.grid(False, axis="y")
    ax.grid(True, axis="y", which="minor", color="0.7", linewidth=0.5)
    ax.tick_params(axis="y", which="both", length=0)


def _point(name: str) -> dict[str, Any]:
    return style.look(LOOKS[name]) | {"linestyle": "none", "markersize": 5}


@style.styled
def accuracies(panels: Mapping[Place, Mapping[str, Curve]], band: str) -> Figure:
    """Test accuracy epoch by epoch, a row for each data set and a column for each distribution of labels.

    Args:
      panels: curves by (row, column), then by what was trained.
      band: what the bands are of.
    """
    figure, axes = _grid(panels, height=1.4, sharey=False)
    for place, ax in axes.items():
        for i, (name, curve) in enumerate(panels.get(place, {}).items()):
            drawn = style.look(i)
            ax.plot(curve.epochs, curve.mean, label=name, markevery=max(1, len(curve.epochs) // 6), **drawn)
            ax.fill_between(
                curve.epochs, curve.low, curve.high, color=drawn["color"], alpha=0.2, linewidth=0
            )
            if curve.paper is not None:
                # At the right edge: the paper trains for other numbers of epochs.
                edge = {"transform": ax.get_yaxis_transform(), "clip_on": False, "color": drawn["color"]}
                ax.plot(1.0, curve.paper, label="paper", zorder=3, **(edge | PAPER))
        if place not in panels:
            _empty(ax)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if place[0] == list(axes)[-1][0]:
            ax.set_xlabel("Epoch")
        if place[1] == next(iter(axes))[1]:
            ax.set_ylabel("Test accuracy")
    drawn_names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    handles: list[Any] = [Line2D([], [], **style.look(i)) for i, _ in enumerate(drawn_names)]
    handles.append(Patch(color="0.8"))
    names = [*drawn_names, band]
    if any(curve.paper is not None for panel in panels.values() for curve in panel.values()):
        handles.append(Line2D([], [], color="black", **PAPER))
        names.append("paper, when trained")
    figure.legend(handles, names, loc="outside upper center", ncols=_columns(figure, len(names)))
    return figure


@style.styled
def headline(contribution: Panel, server_utility: Panel) -> Figure:
    """Samples per device and utility of the server, side by side, with our numbers over the bars."""
    figure = Figure(figsize=(style.PAGE, 2.5), layout="constrained")
    panels = {
        "Contribution (samples per device)": contribution,
        "Server utility (own payoff)": server_utility,
    }
    for ax, (label, panel) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        groups(style.dressed(ax), panel, len(panel))
        ax.set_ylabel(label + logarithmic(ax, _bars(panel)))
        for patch, bar in zip(ax.patches, _bars(panel), strict=True):
            top = patch.get_x() + patch.get_width() / 2, max(bar.seeds)
            number = style.short(float(f"{bar.mean:.2g}"))
            ax.annotate(number, top, (0, 2), textcoords="offset points", ha="center")
    _legend(figure, [*_bars(contribution), *_bars(server_utility)], _names(panels.values()))
    return figure


def logarithmic(ax: Axes, bars: Iterable[Bar], which: str = "y") -> str:
    """Make an axis logarithmic; if not all is positive, linear around zero, and return words for that."""
    values = np.array([value for bar in bars for value in bar.values], float)
    values = values[np.isfinite(values)]
    set_scale, set_limits = (ax.set_yscale, ax.set_ylim) if which == "y" else (ax.set_xscale, ax.set_xlim)
    axis = ax.yaxis if which == "y" else ax.xaxis
    if not values.size:
        return ""
    if values.min() > 0:
        set_scale("log")
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())
        # Bars begin at a power of ten, the smallest with something to see of it.
        low = 10.0 ** np.floor(np.log10(values.min() / 1.5)) if which == "y" else values.min() / 3
        set_limits(low, values.max() * (2 if which == "y" else 3))
        return ""
    sizes = np.abs(values[values != 0])
    near = 10.0 ** np.floor(np.log10(max(sizes.min(), DEEPEST * sizes.max()))) if sizes.size else 1.0
    set_scale("symlog", linthresh=near, linscale=0.5)
    powers = np.arange(1, np.ceil(np.log10(sizes.max() / near)) + 1) if sizes.size else np.array([])
    tens = near * 10.0 ** powers[:: 1 + len(powers) // 4]
    axis.set_major_locator(FixedLocator([*-tens[::-1], 0.0, *tens]))
    axis.set_minor_locator(NullLocator())
    set_limits(min(values.min() * 2, -0.3 * near), max(values.max() * 2, near))
    (ax.axhline if which == "y" else ax.axvline)(0.0, color="black", linewidth=0.8)
    return f"\n(linear within ±{near:g})"


def _grid(
    panels: Mapping[Place, Any], height: float, sharey: bool = True
) -> tuple[Figure, dict[Place, Axes]]:
    rows = list(dict.fromkeys(row for row, _ in panels))
    # Not as they come, because data sets differ in what they have; backwards: IID, D-0.6, D-0.3.
    columns = sorted({column for _, column in panels}, reverse=True)
    width = style.COLUMN if len(columns) == 1 else style.PAGE
    figure = Figure(figsize=(width, 0.6 + height * len(rows)), layout="constrained")
    found = figure.subplots(len(rows), len(columns), sharey="row" if sharey else False, squeeze=False)
    axes = {(row, column): found[i, j] for i, row in enumerate(rows) for j, column in enumerate(columns)}
    for (row, column), ax in axes.items():
        style.dressed(ax).set_title(f"{row}, {column}")
    return figure, axes


def _empty(ax: Axes) -> None:
    ax.text(0.5, 0.5, "no run", transform=ax.transAxes, ha="center", va="center", color="0.4")
    ax.tick_params(length=0, labelbottom=False, labelleft=False)
    ax.grid(False)


def _legend(figure: Figure, bars: list[Bar], names: list[str]) -> None:
    handles: list[Any] = [Patch(**_filling(name)) for name in names]
    if any(len(bar.seeds) > 1 for bar in bars):
        handles.append(Line2D([], [], color="0.45", linestyle="none", marker="|", markersize=8))
        names = [*names, "least to most seed"]
    if any(bar.paper is not None for bar in bars):
        handles.append(Line2D([], [], color="black", **PAPER))
        names = [*names, "paper"]
    figure.legend(handles, names, loc="outside upper center", ncols=_columns(figure, len(names)))


def _columns(figure: Figure, entries: int) -> int:
    return entries if figure.get_figwidth() > style.COLUMN else 2


def _filling(name: str) -> dict[str, Any]:
    i = LOOKS[name]
    return {"facecolor": style.COLORS[i], "hatch": style.HATCHES[i], "edgecolor": "white", "linewidth": 0}


def _names(panels: Iterable[Panel]) -> list[str]:
    """Mechanisms in the panels, in the usual order."""
    found = dict.fromkeys(name for panel in panels for group in panel.values() for name in group)
    return sorted(found, key=LOOKS.__getitem__)


def _bars(panel: Panel) -> list[Bar]:
    return [bar for group in panel.values() for bar in group.values()]
