"""Shards: which device holds which labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator

from realfm_jax.plots import _style as style

if TYPE_CHECKING:
    from realfm_jax.federated.partition import Partition

FULL = 0.9
"""Length of the longest bar, where columns are 1 apart."""
LONG = 24
"""Characters of all labels' names together from which they are written upright."""


@style.styled
def labels(partition: "Partition", ax: Axes | None = None, classes: Sequence[str] | None = None) -> Axes:
    """Samples by device and label: a column for every label, in it a bar for every device that holds it.

    Bars are as long as the samples are many, on one scale, which is written above.

    Args:
      partition: what `partition` returned.
      ax: where to draw.
      classes: the labels' names, such as those of a `Dataset`; None: their numbers.

    >>> from matplotlib.figure import Figure
    >>> from types import SimpleNamespace
    >>> shards = SimpleNamespace(counts=np.array([[3000, 0], [5, 25]]))
    >>> ax = labels(shards, ax=Figure().subplots(), classes=("cat", "dog"))
    >>> [tick.get_text() for tick in ax.get_xticklabels()], ax.get_title("right")
    (['cat', 'dog'], 'longest bar: 3,000 samples')
    """
    counts = np.asarray(partition.counts)
    devices, columns = counts.shape
    names = [str(label) for label in range(columns)] if classes is None else list(classes)
    if len(names) < columns:
        raise ValueError(f"classes must name all {columns} labels; got {len(names)} names")
    upright = 0.5 if _long(names) else 0.0
    ax = style.axes_of(ax, height=min(max(style.HEIGHT, 0.9 + 0.11 * devices), 6.0) + upright)
    ax.add_collection(PolyCollection(list(_bars(counts)), facecolor=style.COLORS[0], linewidth=0))
    ax.set(
        xlim=(-FULL / 2, columns - FULL / 2), ylim=(devices - 0.5, -0.5), xlabel="Label", ylabel="Device"
    )
    ax.set_title(f"longest bar: {counts.max():,} samples", loc="right")
    ax.grid(False)
    for edge in np.arange(1, columns) - FULL / 2:  # where the bars of a column begin
        ax.axvline(edge, color="0.6", linewidth=0.5, zorder=0.5)
    _ticks(ax, names[:columns], devices)
    return ax


def _bars(counts: np.ndarray) -> np.ndarray:
    """Corners of a bar for every count above 0, [bars, 4, 2]; those of many devices touch each other."""
    device, label = np.nonzero(counts)
    half = 0.4 if len(counts) <= 64 else 0.5
    left = label - FULL / 2
    right = left + FULL * counts[device, label] / counts.max()
    corners = [(left, device - half), (right, device - half), (right, device + half), (left, device + half)]
    return np.stack([np.stack(corner, -1) for corner in corners], 1)


def _long(names: list[str]) -> bool:
    return len("".join(names)) > LONG


def _ticks(ax: Axes, names: list[str], devices: int) -> None:
    """Labels by name, upright if the names are long, or thinned out if they are many."""
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], nbins=min(devices, 8)))
    if len(names) > 20:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    style.ticks_at(ax.xaxis, names)
    if _long(names):
        ax.tick_params(axis="x", labelrotation=90)
