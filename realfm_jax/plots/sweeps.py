"""Sweeps: lines and heat maps of a labelled grid of equilibria."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from realfm_jax.parameters import unknown
from realfm_jax.plots import _style as style

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

DEVICE = "device"
WHATEVER = ("local_", "converged", "residual", "steps")
"""Variables that mean something even where there is no equilibrium."""
MEAN = ",\nmean over devices"


@style.styled
def lines(
    dataset: "Dataset", variable: str, x: str | None = None, hue: str | None = None, ax: Axes | None = None
) -> Axes:
    """A variable of a sweep against one parameter, a line for each value of another.

    What devices differ in is drawn as the mean over them, in a band from the least to the most. Where the
    search did not converge, lines have a gap.

    Args:
      dataset: what `sweep` returned.
      variable: the name of one of its variables.
      x: a dimension (or a coordinate along one) of numbers; `None`: the longest dimension of numbers.
      hue: the dimension of the lines; `None`: the one that is left, if there is one.
      ax: where to draw.

    >>> import xarray
    >>> from matplotlib.figure import Figure
    >>> data = xarray.Dataset({"total": (("shaping", "cost"), [[3.0, 2.0], [9.0, 4.0]])},
    ...                       {"shaping": ["taylor", "exact"], "cost": [0.1, 0.2]})
    >>> ax = lines(data, "total", ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.lines[1].get_label()
    ('Cost', 'exact')
    """
    array = _variable(dataset, variable, x, hue)
    x = x or _longest(array, hue)
    if not _numeric(array[x]):
        raise ValueError(f"x must be a dimension of numbers; got {x!r}: give hue={x!r} instead")
    hue = hue or next((dim for dim in _swept(array) if dim != _dim(array, x)), None)
    _refuse_others(array, variable, x, hue)

    ax = style.axes_of(ax)
    groups = _groups(array, x, hue)
    band = False
    for drawn, (name, group) in zip(_looks(len(groups)), groups, strict=True):
        group = group.isel({_dim(array, x): np.argsort(group[x].values)})
        at, (mean, low, high) = group[x].values, _over_devices(group)
        few = at.size <= 12
        ax.plot(at, mean, label=name, **drawn, markevery=None if few else max(1, at.size // 8))
        if (low < high).any():
            band = True
            ax.fill_between(at, low, high, color=drawn["color"], alpha=0.2, linewidth=0)
    _axis(ax.xaxis, array[x])
    style.scale(ax.yaxis, array.values)
    ax.set_ylabel(_label(array, MEAN if DEVICE in array.dims and x != DEVICE else ""))
    _legend(ax, None if hue is None else _label(array[hue]), band)
    return ax


@style.styled
def heatmap(
    dataset: "Dataset", variable: str, x: str | None = None, y: str | None = None, ax: Axes | None = None
) -> Axes:
    """A variable of a sweep over two parameters, as colours; the mean over devices where they differ.

    Where the search did not converge, the map is white.

    Args:
      dataset: what `sweep` returned.
      variable: the name of one of its variables.
      x: the dimension from left to right; `None`: the longest dimension of numbers.
      y: the dimension upwards; `None`: the one that is left, or the devices if none is.
      ax: where to draw.

    >>> import xarray
    >>> from matplotlib.figure import Figure
    >>> data = xarray.Dataset({"total": (("shaping", "cost"), [[3.0, 2.0], [9.0, 4.0]])},
    ...                       {"shaping": ["taylor", "exact"], "cost": [0.1, 0.2]})
    >>> ax = heatmap(data, "total", ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['taylor', 'exact']
    """
    array = _variable(dataset, variable, x, y)
    x = x or _longest(array, y)
    left = [dim for dim in _swept(array) if dim != _dim(array, x)]
    y = y or next(iter(left), DEVICE if DEVICE in array.dims else None)
    if y is None:
        raise ValueError(f"{variable} varies along {x} only; a heat map needs two dimensions: use lines")
    if _dim(array, x) == _dim(array, y):
        raise ValueError(f"x and y must be of two dimensions; got {x!r} and {y!r}")
    _refuse_others(array, variable, x, y)
    words = _label(array)
    if DEVICE in array.dims and DEVICE not in (x, y):
        words = _label(array, MEAN)
        array = array.mean(DEVICE, keep_attrs=True)
    for name in (x, y):
        if _numeric(array[name]):
            array = array.sortby(name)
    values = array.transpose(_dim(array, y), _dim(array, x)).values.astype(float)

    ax = style.axes_of(ax)
    ax.grid(False)
    norm = LogNorm() if style.wide(values) else None
    cmap = colormaps[style.COLORMAP].with_extremes(bad="white")
    edges = (_edges(array[x]), _edges(array[y]))
    mesh = ax.pcolormesh(*edges, values, cmap=cmap, norm=norm, rasterized=True)
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        _axis(axis, array[name])
    bar = ax.figure.colorbar(mesh, ax=ax)
    bar.set_label(words)
    bar.ax.tick_params(labelsize=style.SIZE, width=0.6)
    if norm is None and np.nanmax(np.abs(values), initial=0.0) >= 1e4:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(style.short))
    return ax


def _variable(dataset: "Dataset", variable: str, *named: str | None) -> "DataArray":
    """The variable, without the dimensions of length 1 that nobody asked for."""
    if variable not in dataset.data_vars:
        raise unknown("variable", variable, map(str, dataset.data_vars))
    array = dataset[variable]
    if "converged" in dataset and not variable.startswith(WHATEVER):
        array = array.where(dataset["converged"])
    known = [str(name) for name in {**dict.fromkeys(array.dims), **dict.fromkeys(array.coords)}]
    for name in named:
        if name is not None and name not in known:
            raise unknown(f"dimension of {variable}", name, known)
        if name is not None and array[name].ndim != 1:
            dims = ", ".join(map(str, array[name].dims)) or "none: it is one value"
            raise ValueError(f"{name!r} must lie along one dimension; its dimensions are {dims}")
    asked = {_dim(array, name) for name in named if name is not None}
    alone = [dim for dim in array.dims if array.sizes[dim] == 1 and dim not in (DEVICE, *asked)]
    return array.squeeze(alone) if len(alone) < len(_swept(array)) else array.squeeze(alone[1:])


def _dim(array: "DataArray", name: str) -> str:
    """The dimension along which a coordinate lies."""
    return str(array[name].dims[0])


def _swept(array: "DataArray") -> list[str]:
    return [str(dim) for dim in array.dims if dim != DEVICE]


def _numeric(coordinate: "DataArray") -> bool:
    return bool(np.issubdtype(coordinate.dtype, np.number))


def _longest(array: "DataArray", other: str | None) -> str:
    """The longest dimension of numbers, of those that the other name leaves; else any that is left."""
    left = [dim for dim in _swept(array) if other is None or dim != _dim(array, other)]
    if not left:
        raise ValueError(
            f"{array.name} has no swept dimension left to draw along; it has {_names(array.dims)}"
        )
    return max(left, key=lambda dim: (_numeric(array[dim]), array.sizes[dim]))


def _names(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names)) or "none"


def _refuse_others(array: "DataArray", variable: str, *used: str | None) -> None:
    taken = {_dim(array, name) for name in used if name is not None}
    others = [dim for dim in _swept(array) if dim not in taken]
    if others:
        first = ", ".join(f"{dim}={array[dim].values[:1].tolist()[0]!r}" for dim in others)
        raise ValueError(
            f"{variable} also varies along {_names(others)}; select one value of each first, "
            f"e.g. dataset.sel({first})"
        )


def _groups(array: "DataArray", x: str, hue: str | None) -> list[tuple[str, "DataArray"]]:
    """The lines, by name. Hue may lie along the dimension of x too (a matched sweep): then it is split."""
    if hue is None:
        return [("", array)]
    values, dim = array[hue].values, _dim(array, hue)
    if dim != _dim(array, x):
        return [(_name(value), array.isel({dim: i})) for i, value in enumerate(values)]
    each = list(dict.fromkeys(values.tolist()))
    return [(_name(value), array.isel({dim: np.flatnonzero(values == value)})) for value in each]


def _name(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value)


def _looks(count: int) -> list[dict[str, Any]]:
    """How the lines look; more than there are colours run from dark to light."""
    looks = [style.look(i) for i in range(count)]
    if count > len(style.COLORS):
        ramp = colormaps[style.COLORMAP](np.linspace(0.0, 0.85, count))
        looks = [look | {"color": tuple(color)} for look, color in zip(looks, ramp, strict=True)]
    return looks


def _over_devices(group: "DataArray") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, least and most over the devices; the values themselves where there is one for all."""
    values = group.astype(float)
    if DEVICE not in values.dims or len(values.dims) == 1:
        return (values.values,) * 3
    return values.mean(DEVICE).values, values.min(DEVICE).values, values.max(DEVICE).values


def _label(array: "DataArray", more: str = "") -> str:
    return style.label(array.attrs.get("long_name", str(array.name)) + more, array.attrs.get("units", "1"))


def _legend(ax: Axes, title: str | None, band: bool) -> None:
    handles, labels = ax.get_legend_handles_labels() if title else ([], [])
    if band:
        handles, labels = [*handles, Patch(color="0.8")], [*labels, "least to most"]
    if handles:
        columns = 4 if max(map(len, labels)) < 8 else 3
        style.legend(ax, columns=columns, handles=handles, labels=labels, title=title)


def _edges(coordinate: "DataArray") -> np.ndarray:
    """Borders of the cells around each value: half-way between neighbours, on the axis as it is drawn."""
    if not _numeric(coordinate):
        return np.arange(coordinate.size + 1) - 0.5
    values = coordinate.values.astype(float)
    if values.size == 1:
        return values[0] + np.array([-0.5, 0.5]) * (abs(values[0]) or 1.0)
    log = style.wide(values)
    at = np.log(values) if log else values
    middle = (at[1:] + at[:-1]) / 2
    edges = np.r_[2 * at[0] - middle[0], middle, 2 * at[-1] - middle[-1]]
    return np.exp(edges) if log else edges


def _axis(axis: Axis, coordinate: "DataArray") -> None:
    if not _numeric(coordinate):
        style.ticks_at(axis, coordinate.values)
    else:
        if np.issubdtype(coordinate.dtype, np.integer):
            axis.set_major_locator(MaxNLocator(integer=True))
        style.scale(axis, coordinate.values)
    axis.set_label_text(_label(coordinate))
