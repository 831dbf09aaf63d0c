"""A model worth what was promised: the mechanism pays a device with a model of a certain accuracy.

From the federated model a way leads to poorer and poorer ones (`paths`): noise on the weights, or continued
training on a skewed subset. Delivered is the first model on it whose accuracy, measured on held-out images,
has fallen to the promise: never more than was promised, and the less, the further along the way.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax
from jax import Array

from realfm_jax.federated import clients as many
from realfm_jax.federated.clients import Layout, Task, Tree
from realfm_jax.federated.crossing import Aim, bracket, crossings
from realfm_jax.federated.data import Dataset, Split
from realfm_jax.federated.models import check_outputs
from realfm_jax.federated.partition import Partition
from realfm_jax.federated.paths import Leg, Noise, Skew, unlabelled
from realfm_jax.federated.training import Recipe, train_local
from realfm_jax.progress import bar

_NONE = optax.identity()  # one value, or every call would compile anew: measuring trains nothing
Z = 1.959963984540054
"""Of a 95 % confidence interval."""


@dataclass(frozen=True, eq=False)
class Delivery:
    """Models of promised accuracies, and what they turned out to be, in the order of the targets.

    Intervals are Wilson's of 95 % confidence, [targets, 2]. The held-out images chose the model; fresh
    ones, if there are any, had no part in it.
    """

    method: Noise | Skew
    accuracy: float
    """Of the model that all were made from, on the held-out images."""
    promised: np.ndarray
    """The targets, [targets]."""
    achieved: np.ndarray
    """Accuracy on the held-out images, [targets]: at most the promise, and less by `tolerance` at most."""
    interval: np.ndarray
    distance: np.ndarray
    """Legs of the way gone, [targets]; 0 is the model itself, 1 (noise) all of it replaced by noise."""
    models: Tree
    """Variables, [targets, ...] each: what `train_local(start=...)` takes."""
    evaluations: int
    """How many models were measured."""
    fresh: np.ndarray | None = None
    """Accuracy on images that the search never saw, [targets], if there were any."""
    fresh_interval: np.ndarray | None = None
    regained: np.ndarray | None = None
    """By `win_back`: held-out accuracy after each epoch of fine-tuning, [epochs, targets]."""

    def model(self, target: int) -> Tree:
        """The variables of one target's model."""
        return jax.tree.map(lambda leaf: leaf[target], self.models)

    def __str__(self) -> str:
        heads = ["promised", "achieved", "95 % interval", "fresh", "fine-tuned"]
        rows = [f"{type(self.method).__name__.lower()}: from a model of {self.accuracy:.4f}"]
        rows += ["  ".join(f"{head:>16}" for head in heads)]
        for i, promised in enumerate(self.promised):
            low, high = self.interval[i]
            words = [f"{promised:.4f}", f"{self.achieved[i]:.4f}", f"{low:.4f} - {high:.4f}"]
            words += ["" if self.fresh is None else f"{self.fresh[i]:.4f}"]
            words += ["" if self.regained is None else f"{self.regained[:, i].max():.4f}"]
            rows.append("  ".join(f"{word:>16}" for word in words))
        return "\n".join(rows)


def deliver(
    module: nn.Module,
    variables: Tree,
    targets: Any,
    data: Dataset,
    key: Any,
    *,
    method: Noise | Skew = Noise(),  # noqa: B008 (frozen)
    ways: Literal["own", "shared"] = "own",
    held_out: Split | None = None,
    fresh: Split | None = None,
    tolerance: float = 1e-3,
    progress: bool | None = None,
) -> Delivery:
    """Models of the accuracies promised, made from a better one.

    Args:
      module, variables: the model, say `run.module` and `run.model` of a federated run.
      targets: accuracies promised, [targets], from 1 / classes to the model's own on the held-out images;
        exactly its own gets the model itself.
      data: its images are normalised alike; `Skew` trains on its training images.
      key: a seed or `jax.random.key`; the same one gives the same models.
      method: `Noise()` or `Skew()`.
      ways: "own": a way of its own for each target. "shared": one for all, which saves evaluations; but two
        devices that put their models together can then work out the model itself.
      held_out: images on which accuracy is measured; None: `data.test`.
      fresh: other images, for a check that the search had no part in.
      tolerance: how far below the promise a model may be; never less than one image. It is never above.
      progress: show a bar; by default in a terminal.
    """
    held_out = data.test if held_out is None else held_out
    check_outputs(module, data.train.images.shape[1:], len(data.classes))
    if ways not in ("own", "shared"):
        raise ValueError(f'ways must be "own" or "shared"; got {ways!r}')
    with jax.enable_x64(False):  # models are float32 whatever the mechanism is computed in
        key = jax.random.key(key) if isinstance(key, int) else key
        variables = jax.tree.map(_host, variables)
        task = Task(module, _NONE, data.mean, data.std)
        scale = _Scale(task, held_out, len(data.classes))
        own = scale.weigh(variables)
        aims = _aims(targets, own, scale.total, len(data.classes), tolerance)
        found = {i: _Found(variables, own, 0.0) for i, aim in aims.items() if aim.most >= own}
        rest = {i: aim for i, aim in aims.items() if i not in found}
        groups = {i: {i: aim} for i, aim in rest.items()} if ways == "own" else {0: rest}
        with bar(len(aims), "target", progress, done=len(found)) as shown:
            for number, group in groups.items():
                legs = method.legs(task, variables, data, held_out, jax.random.fold_in(key, number))
                found |= _walk(legs, scale, own, group, shown)
        _warn(aims, found, scale.total)
        return _delivery(method, targets, own, found, scale, fresh)


def win_back(
    module: nn.Module,
    delivery: Delivery,
    data: Dataset,
    partition: Partition,
    recipe: Recipe,
    key: Any,
    *,
    held_out: Split | None = None,
    **options: Any,
) -> Delivery:
    """What a dishonest device would try: fine-tune the model it was given on its own shard.

    Target i is device i's. Returns the delivery with `regained`, the accuracy after each of the recipe's
    epochs on the held-out images (None: `data.test`); `options` as `train_local`.
    """
    devices, targets = len(partition.indices), len(delivery.promised)
    if devices != targets:
        raise ValueError(
            f"partition must have a device for each of the {targets} targets; it has {devices}"
        )
    seen = data if held_out is None else replace(data, test=held_out)
    run = train_local(module, seen, partition, recipe, key, start=delivery.models, **options)
    return replace(delivery, regained=run.curves["accuracy"].transpose("epoch", "device").values)


def wilson(right: Any, total: int) -> np.ndarray:
    """Wilson's 95 % confidence interval of a share of which `right` of `total` were seen, [..., 2].

    >>> wilson([0, 50, 100], 100).round(3).tolist()
    [[0.0, 0.037], [0.404, 0.596], [0.963, 1.0]]
    """
    share = np.asarray(right) / total
    middle = share + Z**2 / (2 * total)
    half = Z * np.sqrt(share * (1 - share) / total + (Z / (2 * total)) ** 2)
    return np.clip(np.stack([middle - half, middle + half], -1) / (1 + Z**2 / total), 0.0, 1.0)


class _Found(NamedTuple):
    model: Tree
    right: int
    distance: float


class _Scale:
    """Weighs models: how many of some images they get right. All JAX devices share the work."""

    def __init__(self, task: Task, split: Split, classes: int) -> None:
        self.task, self.classes, self.total = task, classes, len(split.labels)
        self.places: Layout = many.layout(-(-self.total // many.SCORED))
        self.blocks = self.places.put(many.blocks(split.images, split.labels, self.places))
        self.seen: Array = self.places.put(unlabelled(split.images, self.places))
        self.weighed = 0

    def weigh(self, variables: Tree) -> int:
        """How many images this model gets right."""
        self.weighed += 1
        right = many.score_one(
            variables, *self.blocks, task=self.task, places=self.places, classes=self.classes
        )
        return int(right.sum())

    def model(self, leg: Leg, share: float) -> Tree:
        """The model at a share of a leg."""
        return leg.at(share, self.seen, self.task, self.places)

    def count(self, leg: Leg, shown: Callable[..., None], share: float) -> int:
        """How many images the model at a share of a leg gets right; says so beside the bar."""
        right = self.weigh(self.model(leg, share))
        shown(0, accuracy=f"{right / self.total:.4f}", measured=self.weighed)
        return right


def _aims(targets: Any, own: int, total: int, classes: int, tolerance: float) -> dict[int, Aim]:
    """What counts as a hit of each target; a ValueError for one that cannot be."""
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be >= 0, in accuracy; got {tolerance}")
    wanted = np.asarray(targets, float)
    if wanted.ndim != 1 or not wanted.size:
        raise ValueError(f"targets must be accuracies, [targets], at least one; got shape {wanted.shape}")
    aims = {}
    for i, target in enumerate(wanted):
        images = target * total
        # A thousandth of an image is rounding: an accuracy measured in float32 is a target that can be met.
        if not images <= own + 1e-3:
            raise ValueError(
                f"target {i} must be at most the model's accuracy, {own / total:.6g} ({own} of {total} "
                f"held-out images); got {target:.6g}"
            )
        if target < 1 / classes - 1e-7:
            raise ValueError(f"target {i} must be at least chance, 1 / {classes}; got {target:.6g}")
        most = math.floor(images + 1e-3)
        aims[i] = Aim(min(most, math.ceil(images - tolerance * total - 1e-3)), most)
    return aims


def _walk(
    legs: Iterator[Leg], scale: _Scale, own: int, aims: dict[int, Aim], shown: Callable[..., None]
) -> dict[int, _Found]:
    """Go along a way, leg by leg, until every target has been met."""
    found: dict[int, _Found] = {}
    right = lowest = own
    for number, leg in enumerate(legs if aims else ()):
        known = crossings(partial(scale.count, leg, shown), right, list(aims.values()), leg.cells)
        for i, aim in aims.items():
            if (met := bracket(known, aim)) is not None:
                found[i] = _Found(scale.model(leg, met.first), known[met.first], number + met.first)
                shown(1)
        aims = {i: aim for i, aim in aims.items() if i not in found}
        if not aims:
            break
        right, lowest = known[1.0], min(lowest, *known.values())
    if aims:
        least = min(aim.most for aim in aims.values())
        raise RuntimeError(
            f"at the end of the way a model gets {lowest} of {scale.total} images right, not the {least} "
            "or fewer that were promised: promise more, or use another method or key"
        )
    return found


def _warn(aims: dict[int, Aim], found: dict[int, _Found], total: int) -> None:
    """Say which models are poorer than the tolerance allows, because accuracy jumps where they lie."""
    for i, aim in aims.items():
        if found[i].right < aim.least:
            got, promised = found[i].right / total, aim.most / total
            warnings.warn(
                f"target {i}: accuracy jumps from above {promised:.4f} to {got:.4f}", stacklevel=3
            )


def _host(leaf: Any) -> np.ndarray:
    """A leaf of variables off the JAX devices; float32 if it is of floating point."""
    array = np.asarray(leaf)
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array


def _delivery(
    method: Noise | Skew,
    targets: Any,
    own: int,
    found: dict[int, _Found],
    scale: _Scale,
    fresh: Split | None,
) -> Delivery:
    """What was found, in the order of the targets, and what it is worth on fresh images."""
    ordered = [found[i] for i in sorted(found)]
    right, evaluations = np.array([one.right for one in ordered]), scale.weighed
    done = Delivery(
        method=method,
        accuracy=own / scale.total,
        promised=np.asarray(targets, float),
        achieved=right / scale.total,
        interval=wilson(right, scale.total),
        distance=np.array([one.distance for one in ordered]),
        models=jax.tree.map(lambda *leaves: np.stack(leaves), *(one.model for one in ordered)),
        evaluations=evaluations,
    )
    if fresh is None:
        return done
    other = _Scale(scale.task, fresh, scale.classes)
    right = np.array([other.weigh(one.model) for one in ordered])
    return replace(done, fresh=right / other.total, fresh_interval=wilson(right, other.total))
