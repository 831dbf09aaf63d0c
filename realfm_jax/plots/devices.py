"""What devices do and get: one device around its equilibrium, all of them under every mechanism."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from realfm_jax._struct import with_field
from realfm_jax.accuracy import error_at
from realfm_jax.best_response import (
    Opponents,
    Position,
    in_position,
    largest_sensible,
    opponents_of,
    utility_of,
)
from realfm_jax.comparison import Outcome
from realfm_jax.equilibrium import Equilibrium
from realfm_jax.game import Game
from realfm_jax.local import LocalOptimum, local_utility
from realfm_jax.mechanism import federate
from realfm_jax.plots import _style as style

POINTS = 801
"""Of a utility curve."""
REGIONS = {"own model": "1.0", "shaped accuracy": "0.93", "federated model": "0.84"}
"""The three intervals of eq:mech-utility, and the grey behind each."""


@style.styled
def utility(game: Game, equilibrium: Equilibrium, device: int = 0, ax: Axes | None = None) -> Axes:
    """Utility of one device against its contribution, the others at equilibrium (eq:mech-utility).

    Behind it the intervals in which it uses its own model, gets shaped accuracy, or the federated model;
    marked are its local optimum and its equilibrium; dashed, what it would get alone.

    Args:
      game: the game.
      equilibrium: what `solve` returned for it (or `outcome_at`, for contributions of yours).
      device: which device, 0 to n - 1.
      ax: where to draw.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=[1e-3, 2e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    >>> ax = utility(game, rfm.solve(game, method="aggregate"), device=1, ax=Figure().subplots())
    >>> ax.get_xlabel()
    'Contribution of device 1 (samples)'
    """
    n = len(game.devices)
    if not 0 <= device < n:
        raise ValueError(f"device must be in 0 to {n - 1}; got {device}")
    if equilibrium.contribution.shape != (n,):
        got = equilibrium.contribution.shape
        raise ValueError(f"equilibrium must be one of this game's {n} device(s); got shape {got}")
    here, local = (float(x[device]) for x in (equilibrium.contribution, equilibrium.local.contribution))
    most = 1.3 * max(here, local) or float(largest_sensible(game)[device])
    m = np.unique([*np.linspace(0.0, most, POINTS), here, local])
    at, regions = _around(game, equilibrium, device, m)
    alone = _one(game.devices, device)

    ax = style.axes_of(ax, height=3.1)
    for name, start, end in _stretches(m, regions):
        ax.axvspan(start, end, color=REGIONS[name], linewidth=0, zorder=0)
    ax.plot(m, local_utility(alone, jnp.asarray(m)), color=style.COLORS[1], linestyle="--", label="alone")
    ax.plot(m, at, color=style.COLORS[0], label="utility")
    # The smaller mark on the larger one: under some mechanisms both are at the same place.
    marks = {"local optimum": (local, "s", 8), "equilibrium": (here, "o", 5)}
    for i, (name, (x, marker, size)) in enumerate(marks.items()):
        look: dict[str, Any] = {
            "color": style.COLORS[2 + 2 * i],
            "markersize": size,
            "markeredgecolor": "white",
        }
        ax.plot(x, at[m == x], marker, label=name, clip_on=False, zorder=3, **look)
    ax.margins(x=0)
    style.scale(ax.xaxis, m)
    style.scale(ax.yaxis, at)
    ax.set_xlabel(f"Contribution of device {device} (samples)")
    ax.set_ylabel("Its utility")
    _utility_legend(ax)
    return ax


def _utility_legend(ax: Axes) -> None:
    """A column of curves and marks, a column of intervals."""
    drawn: dict[str, Line2D | Patch] = {str(line.get_label()): line for line in ax.lines}
    for name, grey in REGIONS.items():
        drawn[name] = Patch(facecolor=grey, edgecolor="0.5", linewidth=0.5)
    order = ("utility", "alone", "local optimum", "equilibrium", *REGIONS)
    style.legend(ax, columns=2, handles=[drawn[name] for name in order], labels=list(order))


def _one(tree: Any, device: int) -> Any:
    """One device's part of a tree with leaves [] or [n]; leaves that all devices share stay as they are."""
    return jax.tree.map(lambda leaf: leaf[device : device + 1] if jnp.ndim(leaf) else leaf, tree)


def _around(
    game: Game, equilibrium: Equilibrium, device: int, m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Utility of a device at contributions m, [points], and in which of the intervals each lies."""
    alone = with_field(game, "devices", _one(game.devices, device))
    others = _one(opponents_of(game.devices, equilibrium.contribution), device)
    local = _one(equilibrium.local, device)
    points = jnp.asarray(m, equilibrium.contribution.dtype)[None]
    at, error, own, federated = (np.asarray(x[0]) for x in _offers(alone, local, others, points))
    eps = np.finfo(error.dtype).eps
    # At the equilibrium the shaped accuracy reaches the federated one: equal but for the solver's rounding.
    got = np.where(error <= federated * (1 + np.sqrt(eps)), "federated model", "shaped accuracy")
    mine = (m <= float(local.contribution[0])) & (error >= own * (1 - eps**0.5))
    return at, np.where(mine | (error >= own * (1 - 64 * eps)), "own model", got)


@jax.jit
def _offers(game: Game, alone: LocalOptimum, others: Opponents, m: Array) -> tuple[Array, ...]:
    """Utility, and errors of the model that counts, the own and the federated one, [1, points] each."""

    def one(position: Position, m: Array) -> tuple[Array, ...]:
        server, curve, mechanism, device, alone, others = position
        quality = others.quality + m * getattr(device.accuracy, "a_opt", 0.0)
        federation = federate(server, curve, others.total + m, quality)
        error, _ = mechanism.offer(device, alone, m, federation)
        return utility_of(m, position), error, error_at(device.accuracy, m), federation.error

    def along(position: Position, m: Array) -> tuple[Array, ...]:
        return jax.vmap(one, in_axes=(None, 0))(position, m)

    return in_position(game, along, alone, others, m)


def _stretches(m: np.ndarray, names: np.ndarray) -> list[tuple[str, float, float]]:
    """(name, start, end) of each run of equal names; a run ends where the next one starts.

    The own model's last point is m_i^o itself, so there the next run starts with it.
    """
    first = np.flatnonzero(np.r_[True, names[1:] != names[:-1]])
    starts = [float(m[i - 1] if i and names[i - 1] == "own model" else m[i]) for i in first]
    return [
        (str(names[i]), a, b) for i, a, b in zip(first, starts, [*starts[1:], float(m[-1])], strict=True)
    ]


@style.styled
def mechanisms(
    outcomes: Mapping[str, Outcome] | Mapping[str, Equilibrium], figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    r"""What each device contributes and gets (a model and money) under several mechanisms.

    Args:
      outcomes: by mechanism, what `comparison.play` or `solve` returned. Money is in utility as the
        mechanism's own devices measure it (Linear RealFM: phi(a) = a).
      figure: where to draw, with constrained layout; `None`: a new one.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=[1e-3, 2e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    >>> found = {"ours": rfm.outcome_at(game, [50.0, 50.0])}
    >>> [ax.get_ylabel() for ax in mechanisms(found, figure=Figure(layout="constrained")).axes]
    ['Contribution\n(samples)', 'Accuracy', 'Money (utility)']
    """
    if not outcomes:
        raise ValueError("outcomes must name at least one mechanism; got none")
    found = {name: o.equilibrium if isinstance(o, Outcome) else o for name, o in outcomes.items()}
    devices = max(given.contribution.size for given in found.values())
    crowded = devices * len(found) > 40
    figure = style.figure_of(figure, style.PAGE if crowded else style.COLUMN, 4.4)
    panels = figure.subplots(3, 1, sharex=True)
    quantities = {
        "contribution": "Contribution\n(samples)",
        "accuracy": "Accuracy",
        "money": "Money (utility)",
    }
    for ax, (quantity, words) in zip(panels, quantities.items(), strict=True):
        style.dressed(ax)
        values = {name: np.asarray(getattr(given, quantity)) for name, given in found.items()}
        for i, (name, value) in enumerate(values.items()):
            # Side by side, or equal values would hide one another.
            place = np.arange(value.size) + 0.8 * ((i + 0.5) / len(found) - 0.5)
            drawn = style.look(i) | {"linestyle": "none", "markeredgewidth": 0}
            ax.plot(place, value, label=name, **drawn)
        _scale(ax, np.concatenate(list(values.values())))
        ax.set_ylabel(words)
        _apart(ax, devices)
    panels[-1].set_xlabel("Device")
    handles = panels[0].get_legend_handles_labels()
    space = {"handlelength": 1.0, "handletextpad": 0.4}
    figure.legend(*handles, loc="outside upper center", ncols=len(found) if crowded else 3, **space)
    figure.align_ylabels()
    return figure


def _apart(ax: Axes, devices: int) -> None:
    """Lines between the devices rather than at them."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(False, axis="x")
    if devices <= 64:
        ax.xaxis.set_minor_locator(FixedLocator([i - 0.5 for i in range(devices + 1)]))
        ax.grid(True, axis="x", which="minor", color="0.88", linewidth=0.5)
        ax.tick_params(axis="x", which="minor", length=0)
    ax.set_xlim(-0.5, devices - 0.5)


def _scale(ax: Axes, values: np.ndarray) -> None:
    """As `style.scale`, with room for zeros below a logarithmic axis: some devices give nothing."""
    positive = values[values > 0]
    if not ((values == 0).any() and style.wide(positive)):
        return style.scale(ax.yaxis, values)
    first, last = np.floor(np.log10(positive.min())), np.ceil(np.log10(positive.max()))
    ax.set_yscale("symlog", linthresh=10.0**first)
    ax.yaxis.set_major_locator(FixedLocator([0.0, *10.0 ** np.arange(first, last + 1)]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylim(-0.3 * 10.0**first, 2 * positive.max())
