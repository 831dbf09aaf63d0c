"""Who holds which samples: disjoint shards of exact size, alike or with label proportions of their own."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of each device.

    Args:
      indices: one int64 array per device, into the labels that were shared out; disjoint, in random order.
      counts: samples by device and label, [devices, classes].
      alpha: of the Dirichlet distribution of label proportions; None: every device draws alike (IID).
      drawn: label proportions that each device drew, [devices, classes], rows sum to 1; None if IID.
        `counts` follow them to within one sample as long as no label runs out.
    """

    indices: tuple[np.ndarray, ...]
    counts: np.ndarray
    alpha: float | None
    drawn: np.ndarray | None = None

    @property
    def sizes(self) -> np.ndarray:
        """Samples of each device, m_i, [devices]."""
        return self.counts.sum(1)

    @property
    def proportions(self) -> np.ndarray:
        """Labels of each device as shares of its samples, [devices, classes], rows sum to 1."""
        return self.counts / self.sizes[:, None]

    @property
    def weights(self) -> np.ndarray:
        """m_i / sum m, [devices]: a device's weight when models are averaged."""
        return self.sizes / self.sizes.sum()


def partition(
    labels: np.ndarray | Sequence[int], sizes: Any, key: int | jax.Array, alpha: float | None = None
) -> Partition:
    """Share samples out: disjoint shards of exactly the sizes asked for.

    With `alpha`, each device draws label proportions from a symmetric Dirichlet distribution (the paper:
    0.6 and 0.3; the smaller, the fewer labels a device has). If devices want more of a label than there is,
    each gets a part in proportion to what it wants, and fills up with labels that are left.

    Args:
      labels: of all samples, integers >= 0, [N].
      sizes: samples of each device, integers >= 1, [devices], at most N together.
      key: a seed, 0 to 2^63 - 1, or a `jax.random.key`; the same one gives the same shards.
      alpha: > 0, or None for shards drawn alike (IID).

    >>> shards = partition([0, 0, 0, 1, 1, 1, 2, 2], sizes=[3, 4], key=0, alpha=0.5)
    >>> shards.sizes.tolist(), len(set(np.concatenate(shards.indices).tolist()))
    ([3, 4], 7)
    """
    labels, wanted = _labels(labels), _sizes(sizes)
    if wanted.sum() > len(labels):
        raise ValueError(
            f"sizes must sum to at most the {len(labels)} samples there are; got {wanted.sum()}"
        )
    if alpha is not None and not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be finite and > 0, or None for IID shards; got {alpha}")
    random = np.random.default_rng(_words(key))
    available = np.bincount(labels)
    if alpha is None:
        order = random.permutation(len(labels))[: wanted.sum()]
        indices = tuple(np.split(order, np.cumsum(wanted)[:-1]))
        counts = np.stack([np.bincount(labels[shard], minlength=len(available)) for shard in indices])
        return Partition(indices, counts, None)
    drawn = _proportions(random, alpha, len(wanted), available > 0)
    counts = allocate(drawn, wanted, available)
    return Partition(_pick(random, labels, counts), counts, float(alpha), drawn)


def allocate(proportions: np.ndarray, sizes: np.ndarray, available: np.ndarray) -> np.ndarray:
    """Samples by device and label, [devices, classes]: rows sum to `sizes`, columns to at most `available`.

    In rounds: every device asks for its missing samples by its proportions, among the labels that are left;
    a label of which too much is asked is divided in proportion and is gone. A round either serves everybody
    or uses up a label, so there are no more rounds than labels.

    >>> allocate(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([4, 4]), np.array([5, 9])).tolist()
    [[3, 1], [2, 2]]
    """
    counts = np.zeros(proportions.shape, np.int64)
    left = available.astype(np.int64)
    missing = np.asarray(sizes, np.int64)
    weights = proportions
    while missing.any():
        asked = _rounded(weights, missing)
        scarce = asked.sum(0) > left
        asked[:, scarce] = _rounded(asked[:, scarce].T.astype(float), left[scarce]).T
        counts += asked
        left = left - asked.sum(0)
        missing = missing - asked.sum(1)
        # From now on also by what is left, so that what is nearly gone is not what everybody asks for next.
        weights = proportions * left
        # A device that wanted next to nothing of all that is left takes it as it comes.
        weights[weights.sum(1) <= 1e-12 * left.sum()] = left
    return counts


def _rounded(weights: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Integers in proportion to each row of weights that sum to its total, by largest remainders."""
    exact = weights / weights.sum(1, keepdims=True) * totals[:, None]
    floor = np.floor(exact)
    rank = np.argsort(np.argsort(floor - exact, axis=1, kind="stable"), axis=1)
    return (floor + (rank < (totals - floor.sum(1))[:, None])).astype(np.int64)


def _proportions(random: np.random.Generator, alpha: float, devices: int, there: np.ndarray) -> np.ndarray:
    """Dirichlet draws, [devices, classes], over the labels that occur; others have 0."""
    drawn = np.zeros((devices, len(there)))
    drawn[:, there] = random.dirichlet(np.full(there.sum(), alpha), devices)
    return drawn


def _pick(random: np.random.Generator, labels: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Random samples for given counts: each label's samples are shuffled and cut, then each shard."""
    shards: list[list[np.ndarray]] = [[] for _ in counts]
    for label, column in enumerate(counts.T):
        pool = random.permutation(np.flatnonzero(labels == label))
        pieces = np.split(pool[: column.sum()], np.cumsum(column)[:-1])
        for shard, piece in zip(shards, pieces, strict=True):
            shard.append(piece)
    return tuple(random.permutation(np.concatenate(shard)) for shard in shards)


def _labels(labels: Any) -> np.ndarray:
    found = np.asarray(labels)
    if found.ndim != 1 or not found.size or not np.issubdtype(found.dtype, np.integer) or found.min() < 0:
        raise ValueError(f"labels must be integers >= 0, [N]; got {found.dtype} {list(found.shape)}")
    return found.astype(np.int64)


def _sizes(sizes: Any) -> np.ndarray:
    found = np.asarray(sizes)
    if found.ndim != 1 or not found.size or not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"sizes must be integers, [devices]; got {found.dtype} {list(found.shape)}")
    if found.min() < 1:
        device = int(found.argmin())
        raise ValueError(f"sizes must be at least 1; got {found[device]} for device {device}")
    return found.astype(np.int64)


def _words(key: int | jax.Array) -> list[int]:
    """A key as 32-bit words; a seed as those that `jax.random.key` makes of it."""
    if isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.ndim:
            raise ValueError(f"key must be one key; got keys of shape {list(key.shape)}")
        return np.asarray(jax.random.key_data(key)).tolist()
    try:
        seed = operator.index(key)
    except TypeError as error:
        raise ValueError(f"key must be an integer or a jax.random.key; got {key!r}") from error
    if not 0 <= seed < 2**63:
        raise ValueError(f"key must be from 0 to 2^63 - 1; got {seed}")
    return [seed >> 32, seed & 0xFFFFFFFF]
