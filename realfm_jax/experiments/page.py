"""One page of pictures of a run: how it learnt, who gave what, what was handed out, who gained what."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from realfm_jax.plots import _style as style
from realfm_jax.plots import learning
from realfm_jax.record import whole

if TYPE_CHECKING:
    from realfm_jax.experiments.run import Finished


def save_page(result: dict[str, Any], finished: "Finished", path: Path) -> None:
    """Draw the page and save it, whole or not at all."""
    figure = page(
        result, {"together": finished.trained.federated.curves, "alone": finished.trained.local.curves}
    )
    with whole(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=200)


@style.styled
def page(result: dict[str, Any], curves: dict[str, Any]) -> Figure:
    """Four pictures of a run: `result` is its document, `curves` what its trainings recorded, by name."""
    figure = Figure(figsize=(style.PAGE, 5.4), layout="constrained")
    axes = figure.subplots(2, 2)
    learning(curves, axes[0, 0])
    contributions(result, axes[0, 1])
    promises(result, axes[1, 0])
    gains(result, axes[1, 1])
    return figure


@style.styled
def contributions(result: dict[str, Any], ax: Axes) -> Axes:
    """Samples of each device: alone, brought to the federation, and what shaping asks for."""
    devices, mechanisms = result["devices"], result["mechanisms"]
    bars = {
        "alone": devices["samples_alone"],
        "trained together": devices["samples_together"],
        "asked, Taylor": mechanisms["RealFM"]["contribution"],
        "asked, exact": mechanisms["RealFM exact"]["contribution"],
    }
    style.dressed(ax)
    _grouped(ax, bars)
    ax.set(xlabel="Device", ylabel="Contribution (samples)")
    style.scale(ax.yaxis, np.concatenate(list(bars.values())))
    style.legend(ax, columns=2)
    return ax


@style.styled
def promises(result: dict[str, Any], ax: Axes) -> Axes:
    """Accuracy of the models handed out against what was promised, with 95 % intervals."""
    style.dressed(ax)
    names = {"gave": "for what was given", "half": "for half of what is asked"}
    values = [result["accuracy_federated"]]
    for i, (case, label) in enumerate(names.items()):
        given, look = result["rewards"][case], style.look(i)
        made = ~np.asarray(given["keeps_own_model"], bool)
        promised, achieved = np.asarray(given["promised"])[made], np.asarray(given["achieved"])[made]
        interval = np.asarray(given["interval"], float)[made]
        if made.any():
            ax.vlines(promised, *interval.T, color=look["color"], linewidth=0.8)
            ax.plot(promised, achieved, look["marker"], color=look["color"], label=label)
            values += [*promised, *achieved]
    ends = [min(values), max(values)]
    ax.plot(ends, ends, color="black", linewidth=0.8, linestyle=":", label="as promised")
    ax.set(xlabel="Accuracy promised", ylabel="Accuracy delivered")
    style.legend(ax, columns=2)
    return ax


@style.styled
def gains(result: dict[str, Any], ax: Axes) -> Axes:
    """Utility of the server and, in the mean, of the devices under each mechanism, by their own payoff."""
    found = result["mechanisms"]
    bars = {
        "server": [one["server_utility"] for one in found.values()],
        "device, mean": [float(np.mean(one["utility"])) for one in found.values()],
    }
    style.dressed(ax)
    _grouped(ax, bars)
    linear = result["experiment"]["payoff"] == "linear"
    style.ticks_at(
        ax.xaxis,
        [f"Linear\n{name}" if linear and "RealFM" in name else name.replace(" ", "\n") for name in found],
    )
    ax.set_ylabel("Utility")
    style.scale(ax.yaxis, np.concatenate(list(bars.values())))
    style.legend(ax, columns=2)
    return ax


def _grouped(ax: Axes, bars: dict[str, Any]) -> None:
    """Bars of several kinds side by side, at 0, 1, 2, ..."""
    width = 0.8 / len(bars)
    for i, (label, heights) in enumerate(bars.items()):
        at = np.arange(len(heights)) + (i - (len(bars) - 1) / 2) * width
        look: Any = {
            "color": style.COLORS[i],
            "hatch": style.HATCHES[i],
            "edgecolor": "white",
            "linewidth": 0,
        }
        ax.bar(at, heights, width, label=label, **look)
    count = len(next(iter(bars.values())))
    ax.set_xticks(range(0, count, max(1, count // 8)))
