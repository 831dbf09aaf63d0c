"""What a training run looked like, epoch by epoch, labelled."""

from typing import TYPE_CHECKING, Any

import numpy as np

from realfm_jax.federated.data import Dataset
from realfm_jax.federated.partition import Partition
from realfm_jax.record import provenance

if TYPE_CHECKING:
    import xarray as xr

_MEANING = {
    "loss": "training loss of the device's model",
    "accuracy": "test accuracy of the device's model",
    "own_accuracy": "accuracy of the device's model on the device's own mix of labels",
    "global_accuracy": "test accuracy of the federated model",
    "global_own_accuracy": "accuracy of the federated model on the device's own mix of labels",
}


def curves(reached: Any, epoch: int, data: Dataset, partition: Partition) -> "xr.Dataset":
    """Losses and accuracies of each epoch, from what a run counted; `epoch` is the rounds in one.

    A device's own accuracy weighs the accuracy on each class by the share of that class in its shard: what
    the device itself sees of a model, where the test set shows what everybody does (assumption 3).
    """
    import xarray as xr

    totals = np.bincount(data.test.labels, minlength=len(data.classes))
    found = {"loss": np.stack(reached.losses).reshape(-1, epoch, len(partition.indices)).mean(1)}
    if reached.device_scores:
        counted = np.stack(reached.device_scores)
        right = np.where(counted < 0, np.nan, counted)
        found["accuracy"] = right.sum(-1) / totals.sum()
        found["own_accuracy"] = own_accuracy(right, totals, partition.proportions)
    if reached.model_scores:
        right = np.stack(reached.model_scores)
        found["global_accuracy"] = right.sum(-1) / totals.sum()
        found["global_own_accuracy"] = own_accuracy(right[:, None], totals, partition.proportions)
    variables = {
        name: (("epoch", "device")[: values.ndim], values, {"long_name": _MEANING[name], "units": "1"})
        for name, values in found.items()
    }
    coordinates = {
        "epoch": np.arange(1, len(found["loss"]) + 1),
        "device": np.arange(len(partition.indices)),
        "samples": ("device", partition.sizes, {"long_name": "samples in the shard", "units": "samples"}),
    }
    return xr.Dataset(variables, coordinates, {"data": str(dict(data.provenance))} | _versions())


def own_accuracy(right: np.ndarray, totals: np.ndarray, proportions: np.ndarray) -> np.ndarray:
    """Accuracy on a mix of labels, from the test images of each class that were classified right.

    >>> own_accuracy(np.array([9, 5]), np.array([10, 10]), np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([0.9, 0.7])
    """
    return (right / np.maximum(totals, 1) * proportions).sum(-1)


def _versions() -> dict[str, str]:
    about = provenance({})
    return {name: about[name] for name in ("realfm_jax", "jax", "machine", "backend", "written")}
