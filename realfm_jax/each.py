"""A function of one device for all of them, and sums over them, at the speed of a processor's vectors.

XLA's code for CPUs uses no vector instructions where an array's length is odd, and takes several times as
long. So many devices of an odd number are filled up.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

LANES = 16
"""A length that vectors divide: 512 bits of float32."""
FEW = 32 * LANES
"""Devices that are not worth the trouble."""


def map_each(f: Callable[..., Any], size: int, rows: Any) -> Any:
    """f(row) for each of `size` rows (the leaves' leading axis), stacked.

    >>> map_each(lambda row: row[0] * row[1], 2, (jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))).tolist()
    [3.0, 8.0]
    """
    if _fits(size):
        return jax.vmap(f, axis_size=size)(rows)
    halves = lax.map(jax.vmap(f), _halves(rows, size))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], halves)


def sum_each(f: Callable[..., Array], size: int, rows: Any) -> Array:
    """The sum of f(row), a scalar, over `size` rows.

    >>> float(sum_each(lambda x: x**2, 2, jnp.array([1.0, 2.0])))
    5.0
    """
    if _fits(size):
        return add_up(jax.vmap(f, axis_size=size)(rows))

    def half(rows: tuple[Any, Array]) -> Array:
        return add_up(jnp.where(rows[1], jax.vmap(f)(rows[0]), 0.0))

    there = jnp.arange(2 * _half(size)).reshape(2, -1) < size
    return lax.map(half, (_halves(rows, size), there)).sum()


def add_up(x: Array) -> Array:
    """The sum over [n], as products with ones: a fraction of the time of `sum` on a CPU.

    XLA fuses a sum with what is summed, and then computes all of it without vector instructions, or writes
    every scalar in it out as an array; it does neither with the product of a matrix and a vector.
    """
    rows = len(x) // LANES
    if rows < 2:
        return _dot(x)
    whole, rest = x[: rows * LANES].reshape(rows, LANES), x[rows * LANES :]
    total = _dot(_dot(whole))
    return total + _dot(rest) if len(rest) else total


def _dot(x: Array) -> Array:
    return jnp.dot(x, jnp.ones(x.shape[-1], x.dtype), precision="highest")


def _fits(size: int) -> bool:
    return size % 2 == 0 or size <= FEW


def _half(size: int) -> int:
    return -(-size // (2 * LANES)) * LANES


def _halves(rows: Any, size: int) -> Any:
    """Every leaf [size, ...] as [2, half, ...], filled up with its last row.

    Two, because a loop of one turn is no loop to XLA: it would compute what is asked for, and no more.
    """

    def one(x: Array) -> Array:
        missing = 2 * _half(size) - size
        x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))])
        return x.reshape(2, -1, *x.shape[1:])

    return jax.tree.map(one, rows)
