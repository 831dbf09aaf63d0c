"""Ways from a good model to a poor one: continuous and seeded, so that every accuracy between is on them.

A way is a row of legs. On each the weights move from one model to the next, and their batch statistics are
those of the model in between, measured on images without labels: a device can do that as well, so a model
that was made poor by statistics that do not fit would be repaired for nothing.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from realfm_jax.federated import clients as many
from realfm_jax.federated.batches import draw
from realfm_jax.federated.clients import Layout, Task, Tree
from realfm_jax.federated.data import Dataset, Split
from realfm_jax.federated.models import train_logits

SEEN = 2000
"""Images, at most, on which batch statistics are measured."""
STATISTICS = "batch_stats"


_LION = optax.lion(1e-3, weight_decay=5.0)


class Leg(NamedTuple):
    """The part of a way between two models; straight, or a turn on which weights keep their size."""

    start: Tree
    end: Tree
    turns: bool
    cells: int
    """Equal pieces in which the first crossing of an accuracy is looked for."""
    first: bool
    """Whether it starts at the model itself, whose statistics then change into measured ones gradually."""

    def at(self, share: float, seen: Array, task: Task, places: Layout) -> Tree:
        """The model at this share of the leg, [0, 1]."""
        new = min(1.0, share * self.cells) if self.first else 1.0
        shares = np.float32(share), np.float32(new)
        return _between(self.start, self.end, *shares, seen, task=task, places=places, turns=self.turns)


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on the weights: each array w becomes cos(t) w + sin(t) rms(w) z, z ~ Normal(0, 1).

    From t = 0, the model, to a quarter turn, nothing but noise of the same size; small turns are noise of t
    times the weights' size, whatever their layer. If that is still too good, it goes on to other noise.
    """

    cells: int = 8
    """Pieces of a leg in which the first crossing is looked for."""
    turns: int = 16
    """Legs after which the search gives up."""

    def legs(
        self, task: Task, variables: Tree, data: Dataset, held_out: Split, key: Array
    ) -> Iterator[Leg]:
        """From the model to noise, and from noise to noise."""
        here = variables
        for number in range(self.turns):
            there = {**variables, "params": _noise(variables["params"], jax.random.fold_in(key, number))}
            yield Leg(here, there, True, self.cells, number == 0)
            here = there


@dataclass(frozen=True)
class Skew:
    """Continued training on a skewed subset: some classes only, so that the model forgets the others.

    Each leg is a few steps of training, straight from the weights before them to those after.
    """

    classes: int = 1
    """Classes that are kept, drawn by the key: accuracy falls to their share of the held-out images. Of one
    that is kept that is no more than chance."""
    optimizer: optax.GradientTransformation = _LION
    """By default one that goes by the signs of gradients: they all but vanish once the subset is learnt,
    and others then stop forgetting early. Its weight decay keeps them from vanishing altogether, so that
    accuracy falls to chance."""
    batch: int = 32
    steps: int = 8
    """Steps of a leg."""
    rounds: int = 200
    """Legs after which the search gives up."""

    def legs(
        self, task: Task, variables: Tree, data: Dataset, held_out: Split, key: Array
    ) -> Iterator[Leg]:
        """One client's training, seen every few steps."""
        task, places = task._replace(optimizer=self.optimizer), many.layout(1, 1)
        chosen, dropout = jax.random.split(key)
        kept = self.keep(data, held_out, chosen)
        shard = (np.flatnonzero(np.isin(data.train.labels, kept)),)
        seed = tuple(int(word) for word in jax.random.key_data(chosen))
        own = variables, self.optimizer.init(variables["params"])
        state = many.Clients(
            *places.put(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], own)),
            *places.copy((jax.random.key_data(dropout), np.int32(0))),
        )
        here = variables
        for number in range(self.rounds):
            drawn = draw(shard, seed, number * self.steps, self.steps, self.batch)
            drawn = drawn[:, None]  # one round
            batch = data.train.images[drawn], data.train.labels[drawn].astype(np.int32)
            state, _ = many.advance(state, *places.put(batch), np.ones(1, np.float32), task, places, False)
            there = jax.tree.map(lambda leaf: np.asarray(leaf[0]), state.variables)
            yield Leg(here, there, False, 1, number == 0)
            here = there

    def keep(self, data: Dataset, held_out: Split, key: Array) -> np.ndarray:
        """The labels that are kept, of those that there are training images of."""
        classes = len(data.classes)
        if not 1 <= self.classes < classes:
            raise ValueError(f"classes must be from 1 to {classes - 1}, those to keep; got {self.classes}")
        order = np.asarray(jax.random.permutation(key, np.unique(data.train.labels)))
        frequent = np.bincount(held_out.labels, minlength=classes) * classes > len(held_out.labels)
        return order[np.argsort(frequent[order], kind="stable")][: self.classes]


@jax.jit
def _noise(params: Tree, key: Array) -> Tree:
    """Gaussian noise of the size (root mean square) of each array."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noise = [
        jnp.sqrt(jnp.mean(leaf**2)) * jax.random.normal(key, jnp.shape(leaf), jnp.float32)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, noise)


@functools.partial(jax.jit, static_argnames=("task", "places", "turns"))
def _between(
    start: Tree, end: Tree, share: Array, new: Array, seen: Array, task: Task, places: Layout, turns: bool
) -> Tree:
    """The model at a share of a leg; of its statistics a share `new` is its own, the rest the start's."""
    angle = share * (np.pi / 2)
    near, far = (jnp.cos(angle), jnp.sin(angle)) if turns else (1 - share, share)
    params = jax.tree.map(lambda a, b: (near * a + far * b).astype(a.dtype), start["params"], end["params"])
    model = {**start, "params": params}
    if STATISTICS not in model:
        return model
    measured = statistics(model, seen, task, places)
    return {**model, STATISTICS: jax.tree.map(lambda a, b: a + new * (b - a), model[STATISTICS], measured)}


def statistics(variables: Tree, seen: Array, task: Task, places: Layout) -> Tree:
    """Batch statistics of a model on images [blocks, size, H, W, C]: the mean over the blocks.

    A module moves its running statistics by some momentum towards those of a batch, s' = m s + (1 - m) b.
    Two values of s give b, whatever the momentum (and the batch passes through the module once: it does not
    depend on s). Dropout is off, as it will be when the model is used.
    """

    def one(variables: Tree, images: Array) -> Tree:
        def updated(running: Tree) -> Tree:
            given, x = {**variables, STATISTICS: running}, task.floats(images)
            with nn.intercept_methods(_without_dropout):
                return train_logits(task.module, given, x, jax.random.key(0))[1][STATISTICS]

        low = updated(jax.tree.map(jnp.zeros_like, variables[STATISTICS]))
        probe = jax.tree.map(lambda leaf: 1 + jnp.abs(leaf), low)
        return jax.tree.map(_limit, low, probe, updated(probe), variables[STATISTICS])

    blocks = places._replace(together=1).over(one, variables, seen)
    return jax.tree.map(lambda leaf: leaf.mean(0, dtype=leaf.dtype), blocks)


def _limit(low: Array, probe: Array, high: Array, old: Array) -> Array:
    """b of s' = m s + (1 - m) b, if s = 0 gives `low` and s = `probe` gives `high`; `old` if m is 1."""
    if not jnp.issubdtype(old.dtype, jnp.floating):  # a counter, say
        return old
    moved = 1 - (high - low) / probe
    return jnp.where(moved > 1e-4, low / jnp.maximum(moved, 1e-4), old)


def _without_dropout(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
    if isinstance(context.module, nn.Dropout) and context.method_name == "__call__":
        return args[0]
    return call(*args, **kwargs)


def unlabelled(images: np.ndarray, places: Layout) -> np.ndarray:
    """Some of the images, evenly chosen, in equal blocks for the JAX devices: [blocks, size, H, W, C]."""
    count = places.padded(-(-min(len(images), SEEN) // many.SCORED))
    size = min(len(images), SEEN) // count
    chosen = np.linspace(0, len(images) - 1, count * size).astype(int)
    return images[chosen].reshape(count, size, *images.shape[1:])
