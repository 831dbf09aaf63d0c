"""Frozen dataclasses that are pytrees, and the check of what a person typed into them."""

import copy
import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_T = TypeVar("_T")

Numbers = ArrayLike | Sequence[Any]
"""What a person may write for numbers."""


def static(**kwargs: Any) -> Any:
    """A dataclass field that is part of the tree's structure, not a leaf."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def struct(cls: type[_T]) -> type[_T]:
    """Make `cls` a frozen dataclass and a pytree whose rebuilding skips `__post_init__`.

    `jax.tree_util.register_dataclass` rebuilds through the constructor, so every `tree.map` would
    check values again (and wait for the accelerator to see them); here only a person's call does.
    """
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(made)
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    fixed = [f.name for f in fields if f.metadata.get("static")]

    def flatten(tree: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(tree, name) for name in leaves], tuple(getattr(tree, n) for n in fixed)

    def flatten_with_keys(tree: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, aux = flatten(tree)
        keys = map(jax.tree_util.GetAttrKey, leaves)
        return list(zip(keys, children, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        tree = object.__new__(made)
        for name, value in zip(leaves + fixed, (*children, *aux), strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


def floating(value: Any) -> jax.Array:
    """A floating array of whatever a person may write for numbers: int, float, list, array."""
    array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def check(tree: Any, field: str, allowed: str, ok: Callable[[np.ndarray], Any]) -> None:
    """Turn one field of a struct into a floating array and refuse values that are not `allowed`.

    Traced values pass unchecked: inside `jit` nothing raises.
    """
    name, value = f"{type(tree).__name__}.{field}", getattr(tree, field)
    object.__setattr__(tree, field, checked(name, value, allowed, ok))


def checked(name: str, value: Any, allowed: str, ok: Callable[[np.ndarray], Any]) -> jax.Array:
    """`value` as a floating array, or a ValueError that names it, what is wrong and what is allowed."""
    try:
        array = floating(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be {allowed}; got {value!r}") from error
    if not isinstance(array, jax.core.Tracer):
        # Checked at the precision it was typed in: float32 rounds 1 - 1e-9 to 1.
        typed = np.asarray(array if isinstance(value, jax.Array) else value, dtype=float)
        wrong = np.atleast_1d(~(np.isfinite(typed) & ok(typed)))
        if wrong.any():
            first = np.unravel_index(wrong.argmax(), wrong.shape)
            place = f" at index {', '.join(map(str, first))}" if typed.ndim else ""
            raise ValueError(f"{name} must be {allowed}; got {float(np.atleast_1d(typed)[first])!r}{place}")
    return array


def callable_tree(value: Any) -> Any:
    """What can be called, as a pytree: a plain function becomes one without leaves."""
    return jax.tree_util.Partial(value) if isinstance(value, types.FunctionType) else value


def check_callable(tree: Any, field: str) -> None:
    """Refuse a field that cannot be called."""
    value = getattr(tree, field)
    if not callable(value):
        raise ValueError(f"{type(tree).__name__}.{field} must be callable; got {value!r}")
    object.__setattr__(tree, field, callable_tree(value))


def with_field(tree: _T, field: str, value: Any) -> _T:
    """A copy of `tree` with one field replaced, unchecked (the value is computed, not typed in)."""
    new = copy.copy(tree)
    object.__setattr__(new, field, value)
    return new
