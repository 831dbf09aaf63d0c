"""What training came to: accuracy epoch by epoch, and models delivered against what was promised."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from realfm_jax.plots import _style as style

if TYPE_CHECKING:
    from xarray import Dataset

    from realfm_jax.federated.delivery import Delivery
    from realfm_jax.federated.training import Run

APART = 0.02
"""Between the markers of two deliveries that promise the same, as a share of the axis."""


@style.styled
def learning(runs: "Mapping[str, Run | Dataset] | Run | Dataset", ax: Axes | None = None) -> Axes:
    """Test accuracy after each epoch: of the federated model, or of devices that train alone.

    The latter as the mean over the devices, in a band from the least to the most.

    Args:
      runs: what `train_federated` and `train_local` returned (or the `curves` of it), by name.
      ax: where to draw.

    >>> import xarray
    >>> from matplotlib.figure import Figure
    >>> accuracy = ("epoch", "device"), [[0.5, 0.7], [0.6, 0.9]]
    >>> alone = xarray.Dataset({"accuracy": accuracy}, {"epoch": [1, 2]})
    >>> ax = learning({"alone": alone}, ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [0.6, 0.75]
    """
    named: Any = runs if _is_named(runs) else {"": runs}
    if not named:
        raise ValueError("runs must name at least one run; got none")
    ax = style.axes_of(ax)
    band = False
    for i, (name, run) in enumerate(named.items()):
        curves, drawn = getattr(run, "curves", run), style.look(i)
        epochs, (mean, low, high) = curves["epoch"].values, _accuracy(name, curves)
        scored = np.isfinite(mean)
        epochs, mean, low, high = (values[scored] for values in (epochs, mean, low, high))
        every = max(1, epochs.size // 10)
        ax.plot(epochs, mean, label=name or _kind(curves), markevery=every, **drawn)
        if (low < high).any():
            band = True
            ax.fill_between(epochs, low, high, color=drawn["color"], alpha=0.2, linewidth=0)
    ax.set(xlabel="Epoch", ylabel="Test accuracy")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = ax.get_legend_handles_labels()
    if band:
        handles, labels = [*handles, Patch(color="0.8")], [*labels, "least to most device"]
    style.legend(ax, columns=2, handles=handles, labels=labels)
    return ax


def _is_named(given: Any) -> bool:
    """Whether it is several results by name; a Dataset, which is a Mapping too, is one result."""
    return isinstance(given, Mapping) and not hasattr(given, "data_vars")


def _kind(curves: "Dataset") -> str:
    return "federated model" if "global_accuracy" in curves else "devices alone, mean"


def _accuracy(name: str, curves: "Dataset") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, least and most over what was trained: one model, or one per device."""
    if "global_accuracy" in curves:
        return (curves["global_accuracy"].values,) * 3
    if "accuracy" not in curves:
        has = ", ".join(map(str, curves.data_vars))
        raise ValueError(f"learning needs global_accuracy or accuracy of run {name!r}; it has {has}")
    values = curves["accuracy"]
    return values.mean("device").values, values.min("device").values, values.max("device").values


@style.styled
def delivery(deliveries: "Mapping[str, Delivery] | Delivery", ax: Axes | None = None) -> Axes:
    """Accuracy of the models delivered against what was promised, with 95 % confidence intervals.

    Measured on fresh images if there were any. Open markers: what a device has after fine-tuning the model
    on its own data, if `win_back` was asked; the best epoch, on the held-out images.

    Args:
      deliveries: what `deliver` or `win_back` returned; several by name.
      ax: where to draw.
    """
    named: Any = deliveries if _is_named(deliveries) else {"delivered": deliveries}
    if not named:
        raise ValueError("deliveries must name at least one delivery; got none")
    ax = style.axes_of(ax, height=3.0)
    promises = np.concatenate([one.promised for one in named.values()])
    low, high = min(promises.min(), 0.1), max(one.accuracy for one in named.values())
    ax.plot([low, high], [low, high], color="black", linewidth=0.8, linestyle=":", label="as promised")
    for accuracy in {one.accuracy for one in named.values()}:
        ax.axhline(accuracy, color="0.5", linewidth=0.8, linestyle="--", label="the federated model")
    for i, (name, one) in enumerate(named.items()):
        # Side by side, or equal ones would hide one another.
        at = one.promised + APART * (high - low) * (i - (len(named) - 1) / 2)
        _points(ax, name, one, at, style.look(i))
    if any(one.regained is not None for one in named.values()):
        ax.plot([], [], "o", color="0.35", fillstyle="none", label="after fine-tuning")
    ax.set(xlabel="Accuracy promised", ylabel="Accuracy delivered")
    handles, labels = ax.get_legend_handles_labels()
    each = dict(zip(labels, handles, strict=True))
    style.legend(ax, columns=2, handles=list(each.values()), labels=list(each))
    return ax


def _points(ax: Axes, name: str, one: "Delivery", at: np.ndarray, drawn: dict[str, Any]) -> None:
    """One delivery's accuracies with their intervals, and above them what fine-tuning makes of them."""
    accuracy, interval = one.achieved, one.interval
    if one.fresh is not None and one.fresh_interval is not None:
        accuracy, interval = one.fresh, one.fresh_interval
    color, marker = drawn["color"], drawn["marker"]
    ax.vlines(at, *np.transpose(interval), color=color, linewidth=1.3)
    ax.plot(at, accuracy, marker, color=color, markeredgewidth=0, label=name)
    if one.regained is not None:
        best = one.regained.max(0)
        ax.vlines(at, accuracy, best, color=color, linewidth=0.4, linestyle=":")
        ax.plot(at, best, marker, color=color, fillstyle="none", label=f"_{name}, fine-tuned")
