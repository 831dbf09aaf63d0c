"""Training simulated clients, each alone or together by FedAvg, on shards of one data set."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from realfm_jax.federated.clients import Task, Tree, average, layout
from realfm_jax.federated.curves import curves
from realfm_jax.federated.data import Dataset
from realfm_jax.federated.loop import Setting, run
from realfm_jax.federated.models import check_outputs
from realfm_jax.federated.partition import Partition

if TYPE_CHECKING:
    import xarray as xr

Kind = Literal["local", "federated"]


@dataclass(frozen=True)
class Recipe:
    """How to train. A client takes the same steps alone and in a federation, so that the two compare.

    Args:
      optimizer: from optax; its learning rate may be a schedule, counted in steps of a client.
      epochs: passes over the largest shard, to the nearest whole round; smaller ones come round more often.
      batch: samples per step.
      local_steps: h, steps between two averagings.
    """

    optimizer: optax.GradientTransformation
    epochs: int
    batch: int = 128
    local_steps: int = 6

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "local_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    def rounds_per_epoch(self, largest: int) -> int:
        """Rounds of `local_steps` in one pass over so many samples.

        >>> Recipe(optax.sgd(0.1), epochs=1).rounds_per_epoch(3750)  # 29.3 steps: 5 rounds of 6
        5
        """
        return max(1, round(largest / (self.batch * self.local_steps)))


@dataclass(frozen=True)
class Run:
    """What training gave: the models, and how they became so."""

    kind: Kind
    module: nn.Module
    clients: Tree
    """Each device's model (a Flax tree of variables) after its last local steps, [devices, ...]."""
    weights: Array
    """m_i / sum m, [devices]: what each counts in the average."""
    curves: "xr.Dataset"
    """Loss and accuracies per epoch: `loss`, `accuracy`, `own_accuracy` (epoch, device) of the devices'
    models; of the federated one `global_accuracy` (epoch), `global_own_accuracy` (epoch, device). "Own"
    is on the device's own mix of labels."""

    @property
    def model(self) -> Tree:
        """The federated model: the average of the devices'. There is none after training alone."""
        if self.kind == "local":
            raise ValueError("devices that trained alone have no common model; use device_model(i)")
        return average(self.clients, self.weights)

    def device_model(self, device: int) -> Tree:
        """One device's model."""
        return jax.tree.map(lambda leaf: leaf[device], self.clients)


class Options(TypedDict, total=False):
    """How a training run goes about it; `together` changes rounding only, and only `start` the training.

    Attributes:
      checkpoint: directory to save the state to, and to resume from if the same run was cut short.
      save_every: seconds between checkpoints (30); one more is written at the end and at Ctrl-C.
      start: variables to start from instead of new ones: one model's, or [devices, ...] of each device.
      together: clients computed at once on a JAX device: 1 on a CPU, 64 on an accelerator.
      score: "all" scores every device's own model each epoch as well, "global" the average only: 16 devices
        on 10,000 test images are 160,000 images, where an epoch of MNIST trains on 60,000.
      score_every: epochs from one scoring of the devices' own models to the next, counted back from the
        last (1); accuracies of the epochs between are not-a-number. The average is scored every epoch.
      progress: show a bar; by default in a terminal.
    """

    checkpoint: str | Path | None
    save_every: float
    start: Tree | None
    together: int | None
    score: Literal["all", "global"]
    score_every: int
    progress: bool | None


def train_local(
    module: nn.Module,
    data: Dataset,
    partition: Partition,
    recipe: Recipe,
    key: Any,
    **options: Unpack[Options],
) -> Run:
    """Each device trains alone, all from the same initial model; arguments as in `train_federated`."""
    return _train("local", module, data, partition, recipe, key, **options)


def train_federated(
    module: nn.Module,
    data: Dataset,
    partition: Partition,
    recipe: Recipe,
    key: Any,
    **options: Unpack[Options],
) -> Run:
    """FedAvg: every h steps all models, batch statistics too, become their mean weighted by m_i / sum m.

    Args:
      module: a Flax linen module, called as `module(x)` or `module(x, train)`, that gives logits.
      data: what `load` or `from_arrays` returns.
      partition: what `partition` returns.
      recipe: optimizer, epochs, batch and local steps.
      key: a seed or `jax.random.key`; initial weights, order of samples and dropout follow from it.
      options: `checkpoint`, `save_every`, `start`, `together`, `score`, `score_every`, `progress`: see
        `Options`.
    """
    return _train("federated", module, data, partition, recipe, key, **options)


def use_cores(count: int | None = None) -> None:
    """Make each core of the CPU a JAX device, so that each works on a client of its own.

    To be called before JAX computes anything in this process. GPUs are used as they are.
    """
    count = len(os.sched_getaffinity(0)) if count is None else count
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError("use_cores must be called before JAX computes anything") from error


def _train(
    kind: Kind,
    module: nn.Module,
    data: Dataset,
    partition: Partition,
    recipe: Recipe,
    key: Any,
    *,
    checkpoint: str | Path | None = None,
    save_every: float = 30.0,
    start: Tree | None = None,
    together: int | None = None,
    score: Literal["all", "global"] = "all",
    score_every: int = 1,
    progress: bool | None = None,
) -> Run:
    if score not in ("all", "global"):
        raise ValueError(f'score must be "all" or "global"; got {score!r}')
    if score_every < 1:
        raise ValueError(f"score_every must be at least 1, in epochs; got {score_every}")
    _check_shards(partition, data)
    check_outputs(module, data.train.images.shape[1:], len(data.classes))
    with jax.enable_x64(False):  # models are float32 whatever the mechanism is computed in
        setting = Setting(
            task=Task(module, recipe.optimizer, data.mean, data.std),
            data=data,
            shards=partition.indices,
            places=layout(len(partition.indices), together),
            key=np.asarray(jax.random.key_data(jax.random.key(key) if isinstance(key, int) else key)),
            batch=recipe.batch,
            local_steps=recipe.local_steps,
            epoch=recipe.rounds_per_epoch(int(partition.sizes.max())),
            averaging=kind == "federated",
            score_devices=kind == "local" or score == "all",
            due=lambda epoch: (recipe.epochs - epoch) % score_every == 0,
            start=start,
        )
        place = None if checkpoint is None else Path(checkpoint)
        reached = run(setting, recipe.epochs, place, save_every, progress)
    devices = len(partition.indices)
    return Run(
        kind,
        module,
        jax.tree.map(lambda leaf: leaf[:devices], reached.clients.variables),
        jnp.asarray(setting.weights[:devices]),
        curves(reached, setting.epoch, data, partition),
    )


def _check_shards(partition: Partition, data: Dataset) -> None:
    largest = max(int(shard.max()) for shard in partition.indices)
    if largest >= len(data.train.labels):
        raise ValueError(
            f"partition refers to sample {largest}; {data.name} has {len(data.train.labels)} for training"
        )
