"""Small models and shards of the embedded digits, for tests of training; also run as a program by them."""

import hashlib
import sys
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
from jax import Array

from realfm_jax import federated


class Plain(nn.Module):
    """No batch statistics, no dropout."""

    classes: int = 10

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(nn.Dense(16)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.classes)(x)


class Rich(nn.Module):
    """Batch statistics and dropout; no kinks, where rounding errors turn into other gradients."""

    classes: int = 10

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        x = nn.tanh(nn.Dense(16)(x.reshape(x.shape[0], -1)))
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = nn.Dropout(0.25, deterministic=not train)(x)
        return nn.Dense(self.classes)(x)


SGD = optax.sgd(0.1, momentum=0.9)
"""One object for all tests, so that what is compiled for it is compiled once."""


def shards(*sizes: int, alpha: float | None = None) -> federated.Partition:
    """Disjoint shards of the digits."""
    return federated.partition(federated.load("digits").train.labels, sizes, key=1, alpha=alpha)


def bits(tree: Any) -> str:
    """A digest of every bit of a tree."""
    return hashlib.sha256(
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    ).hexdigest()


def rich_run(epochs: int = 3, **options: Any) -> federated.Run:
    """Three unequal devices, everything that has state."""
    recipe = federated.Recipe(SGD, epochs=epochs, batch=16, local_steps=2)
    return federated.train_federated(
        Rich(), federated.load("digits"), shards(96, 64, 40), recipe, key=3, **options
    )


if __name__ == "__main__":
    checkpoints, result, epochs, devices = sys.argv[1:]
    federated.use_cores(int(devices))
    run = rich_run(int(epochs), checkpoint=None if checkpoints == "-" else checkpoints, save_every=0.0)
    values = {name: np.asarray(values) for name, values in run.curves.data_vars.items()}
    leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(run.clients))}
    np.savez(result, **values, **leaves)
