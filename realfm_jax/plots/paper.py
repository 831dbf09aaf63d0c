"""The paper's two theoretical figures, with its parameters as defaults."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, NullLocator, SymmetricalLogLocator

from realfm_jax.accuracy import GeneralizationBound
from realfm_jax.game import Devices
from realfm_jax.local import local_optimum, local_utility
from realfm_jax.payoff import LinearPayoff, Payoff, PowerPayoff
from realfm_jax.plots import _style as style


def paper_payoffs() -> dict[str, Payoff]:
    """The paper's phi(a) = 1/(1 - a)^2 - 1 and phi(a) = a."""
    return {"power": PowerPayoff(), "linear": LinearPayoff()}


@style.styled
def cost_comparison(
    costs: ArrayLike | None = None,
    ks: Sequence[float] = (1.0, 10.0, 100.0),
    payoffs: Mapping[str, Payoff] | None = None,
    a_opt: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """How much data a device collects alone, against its cost (the paper's fig:cost-comparison).

    A curve ends where no amount of data pays any more, and m_i^o is 0.

    Args:
      costs: c, utility per sample, > 0; `None`: 1e-5 to 1e-1, as in the paper.
      ks: k of the accuracy curve (eq:gen-bound), a colour each.
      payoffs: phi by name, a line style each; `None`: the paper's two.
      a_opt: of the accuracy curve, in (0, 1).
      ax: where to draw.

    >>> ax = cost_comparison(costs=[1e-4, 1e-3], ks=[10.0], ax=Figure().subplots())
    >>> [line.get_label() for line in ax.lines]
    ['power, k = 10', 'linear, k = 10']
    """
    payoffs = paper_payoffs() if payoffs is None else payoffs
    cost = np.logspace(-5, -1, 401) if costs is None else np.asarray(costs, float)
    ax = style.axes_of(ax, height=2.8)
    for j, (name, payoff) in enumerate(payoffs.items()):
        for i, k in enumerate(ks):
            devices = Devices(cost=cost, accuracy=GeneralizationBound(a_opt, k), payoff=payoff)
            m = np.asarray(local_optimum(devices).contribution)
            drawn = style.look(i) | {"linestyle": style.LINES[j % len(style.LINES)]}
            # A marker now and then tells the curves apart without colour, each at places of its own.
            every = (0.02 + 0.05 * i, 0.2)
            m = np.where(m > 0, m, np.nan)
            ax.plot(cost, m, label=f"{name}, k = {k:g}", markevery=every, **drawn)
    ax.set(xscale="log", yscale="log")
    ax.set_xlabel("Marginal cost $c_i$ (utility / sample)")
    ax.set_ylabel("Local optimum $m_i^o$ (samples)")
    style.legend(ax, columns=len(payoffs))
    return ax


@style.styled
def utility_comparison(
    costs: Sequence[float] = (1e-4, 1e-3, 1e-2),
    payoffs: Mapping[str, Payoff] | None = None,
    a_opt: float = 0.95,
    k: float = 1.0,
    contributions: ArrayLike | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Utility of training alone against data, a panel per cost (the paper's fig:utility-comparison).

    The local optimum is marked; where the utility is never positive it is m_i^o = 0, and the panel says so.

    Args:
      costs: c, utility per sample, > 0.
      payoffs: phi by name; `None`: the paper's two.
      a_opt: of the accuracy curve (eq:gen-bound), in (0, 1).
      k: of the accuracy curve.
      contributions: m, samples, > 0; `None`: 1 to 1e7, as in the paper.
      figure: where to draw, with constrained layout; `None`: a new one.

    >>> figure = utility_comparison(costs=[1e-3], figure=Figure(layout="constrained"))
    >>> figure.axes[0].get_title()
    'c = 0.001 utility / sample'
    """
    payoffs = paper_payoffs() if payoffs is None else payoffs
    m = np.logspace(0, 7, 701) if contributions is None else np.asarray(contributions, float)
    figure = style.figure_of(figure, style.PAGE, 2.5)
    panels = figure.subplots(1, len(costs), sharex=True, sharey=True, squeeze=False)[0]
    for ax, cost in zip(panels, costs, strict=True):
        style.dressed(ax)
        found = []
        for i, (name, payoff) in enumerate(payoffs.items()):
            device = Devices(cost=cost, accuracy=GeneralizationBound(a_opt, k), payoff=payoff)
            alone = local_optimum(device)
            best, most = float(alone.contribution[0]), float(alone.utility[0])
            drawn = style.look(i)
            marker = drawn.pop("marker")
            ax.plot(m, local_utility(device, jnp.asarray(m)), label=f"{name} payoff", **drawn)
            if best > 0:
                ax.plot(best, most, marker, color=drawn["color"], markersize=6, markeredgecolor="white")
            found.append(f"{name}: " + (f"$m_i^o$ = {best:,.0f}" if best > 0 else "stays out"))
        ax.text(0.04, 0.05, "\n".join(found), transform=ax.transAxes)
        ax.set_title(f"c = {cost:g} utility / sample")
        ax.set_xlabel("Contribution $m_i$ (samples)")
    panels[0].set(xscale="log", ylabel="Utility of training alone")
    panels[0].set_yscale("symlog", linthresh=1.0)
    panels[0].xaxis.set_major_locator(LogLocator(numticks=8))
    panels[0].xaxis.set_minor_locator(NullLocator())
    panels[0].yaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=1.0))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(payoffs))
    return figure
