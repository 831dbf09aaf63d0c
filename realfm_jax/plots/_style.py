"""How every plot looks. Nothing global is changed: `styled` sets matplotlib up for one call only."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from matplotlib.ticker import FuncFormatter

COLUMN, HEIGHT = 3.4, 2.5
"""Width of a paper's column and the usual height, inches."""
PAGE = 7.0
"""Width of two columns, inches."""
SIZE = 8
"""Of all text, points."""

COLORS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
"""Okabe and Ito's, ordered so that the first four are as far apart in grey as they can be (L* 46, 72, 0,
58); yellow is left out, which does not show on white."""
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
HATCHES = ("", "/////", "", ".....", "xxxxx", "-----", "|||||")
COLORMAP = "cividis"
"""The same to the colour-blind and, in grey, from dark to light."""

_RC: Any = {
    "font.size": SIZE,
    "axes.labelsize": SIZE,
    "axes.titlesize": SIZE,
    "legend.fontsize": SIZE,
    "legend.title_fontsize": SIZE,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.use_mathtext": True,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "mathtext.default": "regular",
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def styled(plot: Callable[_P, _R]) -> Callable[_P, _R]:
    """`plot`, drawn in the style of the package, and only it."""

    @functools.wraps(plot)
    def inside(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with matplotlib.rc_context(_RC):
            return plot(*args, **kwargs)

    return inside


def figure_of(figure: Figure | SubFigure | None, width: float, height: float) -> Figure | SubFigure:
    """The figure given, or a new one of this size in inches."""
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout="constrained") if figure is None else figure


def axes_of(ax: Axes | None, height: float = HEIGHT) -> Axes:
    """The axes given, or those of a new figure one column wide; either way with our ticks and grid."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(COLUMN, height), layout="constrained")
    return dressed(ax)


def dressed(ax: Axes) -> Axes:
    """`ax` with our ticks and grid; said to it, because ticks are made when drawn, outside `styled`."""
    ax.tick_params(which="both", labelsize=SIZE, width=0.6)
    ax.tick_params(which="major", length=3)
    ax.tick_params(which="minor", length=1.5)
    ax.grid(True, color="0.88", linewidth=0.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(SIZE)
    return ax


def legend(ax: Axes, columns: int, at: str = "center", **kwargs: Any) -> Legend:
    """The legend above the axes, where it hides no data; `at` their center or their right end."""
    loc: Any = f"lower {at}"
    anchor = (0.5 if at == "center" else 1.0, 1.0)
    return ax.legend(loc=loc, bbox_to_anchor=anchor, ncols=columns, borderaxespad=0.2, **kwargs)


def sentence(words: str) -> str:
    """Words with a capital first letter, underscores as spaces; a symbol such as k stays as it is."""
    words = words.replace("_", " ")
    return words[:1].upper() + words[1:] if words[1:2].isalpha() else words


def label(name: str, units: str = "1") -> str:
    """What an axis shows, with units in parentheses if it has any that its name does not say already.

    >>> label("server_accuracy"), label("total contribution", "samples"), label("utility", "utility")
    ('Server accuracy', 'Total contribution (samples)', 'Utility')
    """
    return sentence(name) + ("" if units in ("", "1") or units in name else f" ({units})")


def short(value: float, _: object = None) -> str:
    """A number with k, M or G for thousands, millions and thousands of millions.

    >>> short(782164.0), short(1.5e6), short(20.0)
    ('782.164k', '1.5M', '20')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def wide(values: Any) -> bool:
    """Whether values are all positive and span two decades or more: a case for a logarithmic axis."""
    finite = np.asarray(values, float)[np.isfinite(np.asarray(values, float))]
    return finite.size > 1 and finite.min() > 0 and finite.max() >= 99.9 * finite.min()


def scale(axis: Axis, values: Any) -> None:
    """A logarithmic axis where the values ask for it, else ticks in thousands where they are large."""
    if wide(values):
        horizontal = axis is axis.axes.xaxis
        (axis.axes.set_xscale if horizontal else axis.axes.set_yscale)("log")
    elif np.nanmax(np.abs(np.asarray(values, float)), initial=0.0) >= 1e4:
        axis.set_major_formatter(FuncFormatter(short))


def look(index: int) -> dict[str, Any]:
    """Colour, line style and marker of the index-th of several curves."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def ticks_at(axis: Axis, names: Iterable[object]) -> None:
    """Name the places 0, 1, 2, ... of an axis."""
    words = [str(name) for name in names]
    axis.set_ticks(range(len(words)), words)
