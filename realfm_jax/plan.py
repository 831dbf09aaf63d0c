"""What a sweep solves: which parameters take which values, and in which pieces."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from realfm_jax.batch import CERTIFIED, FIELDS, Field, batch
from realfm_jax.equilibrium import Method, check_method
from realfm_jax.game import Game
from realfm_jax.parameters import numbers, parameters, replace, unknown


class Axis(NamedTuple):
    """One parameter and the values it takes.

    Attributes:
      name: of the parameter.
      values: numbers, [length] or [length, n], or a list of choices.
      dimension: of the result along which it varies.
      extremes: the least and the largest of the numbers; empty for a choice, which changes the structure of
        the game, hence what is compiled.
    """

    name: str
    values: Any
    dimension: str
    extremes: tuple[float, ...] = ()

    @property
    def is_choice(self) -> bool:
        """Whether its values are choices rather than numbers."""
        return not self.extremes


class Plan(NamedTuple):
    """What is to be solved.

    Attributes:
      game: what everything else is taken from.
      axes: the parameters that vary.
      shape: games along each dimension of the result ("device" comes last, and is not among them).
      block: games along each dimension of a piece.
      devices: the largest number of devices.
      fields: the variables of the result.
      method: of `solve`.
      certificate: whether to certify.
    """

    game: Game
    axes: tuple[Axis, ...]
    shape: dict[str, int]
    block: dict[str, int]
    devices: int
    fields: dict[str, Field]
    method: Method
    certificate: bool

    @property
    def games(self) -> int:
        """Their number."""
        return math.prod(self.shape.values())

    def blocks(self) -> Iterator[tuple[int, ...]]:
        """Where the pieces are, counted in pieces along each dimension."""
        return itertools.product(
            *(range(-(-length // self.block[name])) for name, length in self.shape.items())
        )

    def region(self, at: tuple[int, ...]) -> tuple[slice, ...]:
        """The part of the result that one piece fills."""
        return tuple(
            slice(i * self.block[name], min((i + 1) * self.block[name], length))
            for i, (name, length) in zip(at, self.shape.items(), strict=True)
        )

    def sizes(self, at: tuple[int, ...]) -> tuple[int, ...]:
        """Of that part."""
        return tuple(part.stop - part.start for part in self.region(at))

    def dimensions(self, field: Field) -> dict[str, int]:
        """Of a variable of the result, with their lengths."""
        return self.shape | ({"device": self.devices} if field.per_device else {})

    def games_of(self, at: tuple[int, ...]) -> tuple[Game, dict[str, np.ndarray]]:
        """The game with the choices of one piece, and the numbers varying in it, one row per game."""
        region, sizes = dict(zip(self.shape, self.region(at), strict=True)), self.sizes(at)
        chosen = {a.name: a.values[region[a.dimension].start] for a in self.axes if a.is_choice}
        game = replace(self.game, **chosen)
        rows = {}
        for axis in self.axes:
            if not axis.is_choice:
                values = axis.values[region[axis.dimension]]
                values = values[:, : len(game.devices)] if values.ndim > 1 else values
                place = list(self.shape).index(axis.dimension)
                before, after = math.prod(sizes[:place]), math.prod(sizes[place + 1 :])
                values = values if after == 1 else np.repeat(values, after, axis=0)
                rows[axis.name] = values if before == 1 else np.concatenate([values] * before)
        return game, rows


def make_plan(
    game: Game, given: dict[str, Any], matched: bool, method: Method, certificate: bool, chunk: int | None
) -> Plan:
    """What a person asked for, checked, and cut into pieces of at most `chunk` games."""
    if not given:
        raise ValueError(f"nothing to sweep; give values for any of {', '.join(parameters(game))}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}")
    axes = tuple(_axis(game, name, values, matched) for name, values in given.items())
    shape: dict[str, int] = {}
    for axis in axes:
        length = shape.setdefault(axis.dimension, len(axis.values))
        if length != len(axis.values):
            found = f"{len(axis.values)} of {axis.name} after {length} of those before"
            raise ValueError(f"matched parameters need equally many values; got {found}")
    variants = list(_variants(game, axes))
    for variant in variants:
        check_method(method, variant)
        for values in _extremes(len(variant.devices), axes):
            replace(variant, **values)
    devices = max(len(variant.devices) for variant in variants)
    left, block = chunk or batch(devices), {}
    for name, length in reversed(shape.items()):
        fixed = any(axis.is_choice for axis in axes if axis.dimension == name)
        # As equal as can be: the last piece is filled up to the size of the others.
        block[name] = 1 if fixed else -(-length // -(-length // left))
        left = max(1, left // block[name])
    fields = FIELDS | (CERTIFIED if certificate else {})
    return Plan(game, axes, shape, {d: block[d] for d in shape}, devices, fields, method, certificate)


def _axis(game: Game, name: str, values: Any, matched: bool) -> Axis:
    """One keyword argument of `sweep`, checked for shape."""
    if name not in numbers(game):
        known = parameters(game)
        if name not in known:
            raise unknown("parameter", name, known)
        values = [values] if isinstance(values, str) else list(values)
        if not values:
            raise ValueError(f"{name} has no values to sweep over")
        return Axis(name, values, name)
    n = len(game.devices)
    array = np.asarray(values, float)
    rows = array.ndim == 2
    if array.ndim not in (1, 2) or (rows and array.shape[1] != n):
        allowed = f"a list of numbers, or rows of {n} numbers, one per device"
        raise ValueError(f"{name} must be {allowed}; got shape {array.shape}")
    extremes = (float(array.min()), float(array.max())) if len(array) else (np.nan,)
    if not np.isfinite(extremes).all():  # not-a-number anywhere is the least and the largest
        raise ValueError(f"{name} must have at least one value, all finite; got {values!r:.80}")
    return Axis(name, array, "game" if matched else f"{name}_row" if rows else name, extremes)


def _extremes(devices: int, axes: tuple[Axis, ...]) -> Iterator[dict[str, Any]]:
    """What to check: what is allowed is always an interval, so the extremes speak for all values."""
    numbers = [axis for axis in axes if not axis.is_choice]
    if devices > 1 and all(axis.values.ndim > 1 for axis in numbers):  # both, among the devices of one game
        yield {axis.name: np.resize(axis.extremes, devices) for axis in numbers}
        return
    for end in (0, 1):
        ends = {axis.name: (axis.extremes[end], axis.values.ndim > 1) for axis in numbers}
        yield {name: np.full(devices, x) if row else x for name, (x, row) in ends.items()}


def _variants(game: Game, axes: tuple[Axis, ...]) -> Iterator[Game]:
    """The game with every combination of choices."""
    choices = {axis.name: axis.values for axis in axes if axis.is_choice}
    for picked in itertools.product(*choices.values()):
        yield replace(game, **dict(zip(choices, picked, strict=True)))
