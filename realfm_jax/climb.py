"""The search behind `design`: a box of parameters, equilibria with gradients in it, climbs to the top."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from realfm_jax.equilibrium import Equilibrium, Method, solve
from realfm_jax.game import Game
from realfm_jax.parameters import replace
from realfm_jax.sensitivity import OUTPUTS

Goal = Callable[[Equilibrium], Any]
Leaves = list[Array | None]
"""Of an equilibrium; `None` for those that are not floating."""
LOWEST = 16
"""How many of the devices with the least utility a floor on it watches at once."""
CLIMBS = 3
"""From how many of the best starts a search climbs: one alone now and then ends on a lesser hill."""


@dataclasses.dataclass(frozen=True)
class Box:
    """Bounds of some parameters, and coordinates x in [0, 1] for what lies between them, [d] each.

    Coordinates are logarithmic where `low` is positive and `high` a decade or more above it.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @property
    def log(self) -> np.ndarray:
        """Which coordinates are logarithmic."""
        return (self.low > 0) & (self.high >= 10 * self.low)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """The values, or their logarithms."""
        return np.log(values, out=np.array(values), where=self.log)

    @property
    def span(self) -> np.ndarray:
        """Width of the box in `scaled` values."""
        return self.scaled(self.high) - self.scaled(self.low)

    def values(self, x: np.ndarray) -> np.ndarray:
        """The parameters at x; at 0 and 1 exactly the bounds.

        >>> Box(("epsilon",), np.array([1e-9]), np.array([1e-5])).values(np.array([0.5])).round(12)
        array([1.e-07])
        """
        between = self.scaled(self.low) + x * self.span
        between = np.exp(between, out=between.copy(), where=self.log)
        return np.where(x <= 0, self.low, np.where(x >= 1, self.high, between))

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """d values / dx."""
        return self.span * np.where(self.log, self.values(x), 1.0)

    def place(self, values: np.ndarray) -> np.ndarray:
        """The coordinates of values; of the nearest in the box, for values outside."""
        inside = np.clip(values, self.low, self.high)
        return np.clip((self.scaled(inside) - self.scaled(self.low)) / self.span, 0.0, 1.0)

    def spread(self, count: int) -> np.ndarray:
        """Points that fill the box evenly, [count, d]: multiples of a generalised golden ratio."""
        dimensions = len(self.names)
        ratio = 2.0
        for _ in range(64):
            ratio = (1 + ratio) ** (1 / (dimensions + 1))
        return (0.5 + np.outer(np.arange(1, count + 1), ratio ** -np.arange(1.0, dimensions + 1))) % 1


class Point(NamedTuple):
    """What is known of one point of the box.

    Attributes:
      value: of the goal.
      slack: how far what has floors lies above them, [floors], the least device utilities one by one.
      slopes: d (value, slack) / dx, [1 + floors, d]; `None` if not computed.
      settled: whether an equilibrium was found, with everything finite.
    """

    value: float
    slack: np.ndarray
    slopes: Any
    settled: bool

    @property
    def allowed(self) -> bool:
        """Whether all floors are kept."""
        return self.settled and bool((self.slack >= 0).all())


class Climb(NamedTuple):
    """A climb: its accepted iterates, whether it ended at a maximum, and why it ended."""

    path: list[np.ndarray]
    converged: bool
    message: str


def _outputs(found: Equilibrium, goal: Goal, floor: tuple[str, ...]) -> Array:
    """The goal and all that has a floor; the least device utilities one by one, for each is smooth."""
    value = jnp.asarray(goal(found))
    if value.shape:
        raise ValueError(f"objective must give one number; got shape {value.shape}")
    watched = [
        jnp.sort(found.utility)[:LOWEST] if name == "min_utility" else OUTPUTS[name].of(found)[None]
        for name in floor
    ]
    return jnp.concatenate([value[None], *watched])


@functools.partial(jax.jit, static_argnames=("names", "method"))
def _solve_with_slopes(
    game: Game, values: Array, names: tuple[str, ...], method: Method
) -> tuple[Leaves, Equilibrium]:
    """The equilibrium, and the derivatives of its floating leaves, [..., d] (few parameters: forward).

    Knows no objective: the long compilation serves them all.
    """

    def at(values: Array) -> tuple[Leaves, Equilibrium]:
        found = solve(replace(game, **dict(zip(names, values, strict=True))), method)
        return _floating(found), found

    return jax.jacfwd(at, has_aux=True)(values)


@functools.partial(jax.jit, static_argnames=("goal", "floor"))
def _outputs_with_slopes(
    found: Equilibrium, slopes: Leaves, goal: Goal, floor: tuple[str, ...]
) -> tuple[Array, Array]:
    """`_outputs` and their derivatives, [outputs, d], by the chain rule."""
    flat, tree = jax.tree.flatten(found)

    def outputs(moved: Leaves) -> Array:
        leaves = [old if new is None else new for old, new in zip(flat, moved, strict=True)]
        return _outputs(jax.tree.unflatten(tree, leaves), goal, floor)

    def along(tangent: Leaves) -> tuple[Array, Array]:
        return jax.jvp(outputs, (_floating(found),), (tangent,))

    return jax.vmap(along, in_axes=-1, out_axes=(None, -1))(slopes)


def _floating(found: Equilibrium) -> Leaves:
    leaves = jax.tree.leaves(found)
    return [leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else None for leaf in leaves]


class Search:
    """The highest point of a box: every equilibrium on the way is remembered, and counted.

    `floor` holds least values of outputs by name; `methods` of `solve` are tried in turn at every point.
    """

    def __init__(
        self, game: Game, box: Box, goal: Goal, floor: dict[str, float], methods: tuple[Method, ...]
    ) -> None:
        self.game, self.box, self.goal, self.floor, self.methods = game, box, goal, floor, methods
        lowest = min(len(game.devices), LOWEST)
        self.watched = [name for name in floor for _ in range(lowest if name == "min_utility" else 1)]
        self.least = np.array([floor[name] for name in self.watched])
        self.points: dict[bytes, Point] = {}
        self.solves = 0
        self.eps = float(jnp.finfo(jnp.asarray(1.0).dtype).eps)

    def at(self, x: np.ndarray, slopes: bool = True) -> Point:
        """The point at x, with slopes if needed."""
        x = np.clip(x, 0.0, 1.0)
        known = self.points.get(x.tobytes())
        if known is None or (slopes and known.slopes is None):
            known = self.points[x.tobytes()] = self._solve(x, slopes)[0]
        return known

    def equilibrium(self, x: np.ndarray) -> Equilibrium:
        """The equilibrium at x, solved once more: those on the way may be too large to keep."""
        return self._solve(x, True)[1]

    def _solve(self, x: np.ndarray, slopes: bool) -> tuple[Point, Equilibrium]:
        values, floor = jnp.asarray(self.box.values(x)), tuple(self.floor)
        for method in self.methods:
            self.solves += 1
            if slopes or method == self.methods[0]:
                moved, found = _solve_with_slopes(self.game, values, self.box.names, method)
                each, by_value = _outputs_with_slopes(found, moved, self.goal, floor)
                by_x = np.asarray(by_value, float) * self.box.slopes(x)
            else:  # gradients of best responses take a minute to compile: not before a climb needs them
                found = solve(replace(self.game, **dict(zip(self.box.names, values, strict=True))), method)
                each, by_x = _outputs(found, self.goal, floor), None
            each = np.asarray(each, float)
            finite = np.isfinite(each).all() and (by_x is None or np.isfinite(by_x).all())
            if settled := bool(found.converged and finite):
                break
        return Point(float(each[0]), each[1:] - self.least, by_x, settled), found

    def best(self, starts: Sequence[np.ndarray]) -> Climb:
        """The highest of the climbs from the best starts."""
        settled = [x for x in starts if self.at(x, slopes=False).settled]
        if not settled:
            raise ValueError(
                f"bounds must hold parameters whose equilibrium method {' or '.join(self.methods)} finds; "
                f"got none from {len(starts)} start(s)"
            )
        allowed = [x for x in settled if self.at(x, slopes=False).allowed]
        tops = sorted(allowed or [self._reach(settled)], key=lambda x: -self.at(x, slopes=False).value)
        return max(map(self._climb, tops[:CLIMBS]), key=lambda climb: self.at(climb.path[-1]).value)

    def _climb(self, start: np.ndarray) -> Climb:
        from scipy.optimize import minimize

        first, path = self.at(start), [start]
        scale = abs(first.value) or 1.0
        if not first.settled:
            return Climb(path, False, "no gradient at the start")
        # SLSQP takes constraints, but now and then goes down; a climb along a wall has to end some time.
        options = {"ftol": 64 * self.eps, "gtol": self.eps**0.5, "maxfun": 150}
        how = self._slsqp(start) if self.floor else {"method": "L-BFGS-B", "options": options}

        def descent(x: np.ndarray) -> tuple[float, np.ndarray]:
            point = self.at(x)
            if not point.settled:  # a wall, from which the line search turns back
                return 1 - first.value / scale, np.zeros_like(x)
            return -point.value / scale, -point.slopes[0] / scale

        ended = minimize(
            descent,
            start,
            jac=True,
            bounds=[(0.0, 1.0)] * len(start),
            callback=lambda x: path.append(np.clip(x, 0.0, 1.0)),
            **how,
        )
        seen = [self.at(x) for x in path]
        last = max((point.value, i) for i, point in enumerate(seen) if point.allowed)[1]
        ascent = np.clip(path[last] + seen[last].slopes[0] / scale, 0.0, 1.0) - path[last]
        level = not self.floor and np.abs(ascent).max() <= self.eps**0.4
        reason = "a maximum" if ended.success or level else f"stopped before a maximum: {ended.message}"
        return Climb(path[: last + 1], bool(ended.success or level), reason)

    def _slsqp(self, start: np.ndarray, reach: bool = False) -> dict[str, Any]:
        """With all slacks positive or, to `reach` that, above a last variable; relative to their size."""
        size = self._sizes(start)
        margin = self.eps**0.6  # the solver ends this close to a floor, but may end below it
        last = [[-1.0]] if reach else np.zeros((1, 0))

        def slack(z: np.ndarray) -> np.ndarray:
            point = self.at(z[: len(start)])
            above = point.slack / size - margin if point.settled else np.full_like(size, -1.0)
            return above - z[-1] if reach else above

        def slopes(z: np.ndarray) -> np.ndarray:
            each = np.nan_to_num(self.at(z[: len(start)]).slopes[1:]) / size[:, None]
            return np.hstack([each, np.repeat(last, len(each), axis=0)])

        constraint = {"type": "ineq", "fun": slack, "jac": slopes}
        return {"method": "SLSQP", "options": {"ftol": self.eps**0.75}, "constraints": constraint}

    def _sizes(self, x: np.ndarray) -> np.ndarray:
        """What slacks are measured against."""
        size = np.maximum(np.abs(self.least), np.abs(self.at(x, slopes=False).slack))
        return np.where(size > 0, size, 1.0)

    def _reach(self, starts: Sequence[np.ndarray]) -> np.ndarray:
        """A point that keeps all floors, from starts that do not: the least slack t is maximised."""
        from scipy.optimize import minimize

        def shortest(x: np.ndarray) -> float:
            return float((self.at(x, slopes=False).slack / sizes).min())

        sizes, tried = self._sizes(starts[0]), list(starts)
        for start in sorted(starts, key=shortest)[: -CLIMBS - 1 : -1]:
            minimize(
                lambda z: (-z[-1], -np.eye(len(z))[-1]),
                np.append(start, shortest(start)),
                jac=True,
                bounds=[(0.0, 1.0)] * len(start) + [(None, 1e-3)],
                callback=lambda z: tried.append(np.clip(z[:-1], 0.0, 1.0)),
                **self._slsqp(start, reach=True),
            )
        nearest = max((x for x in tried if self.at(x, slopes=False).settled), key=shortest)
        if not self.at(nearest).allowed:
            slack = self.at(nearest).slack
            lacking = int((slack / sizes).argmin())
            name, least, most = self.watched[lacking], self.least[lacking], (self.least + slack)[lacking]
            also = " together with the other floors" if len(self.floor) > 1 else ""
            if not all(point.settled for point in self.points.values()):
                also += f" (where {' or '.join(self.methods)} finds an equilibrium)"
            found = f"{most:.6g}, the most found within the bounds{also}"
            raise ValueError(f"floor[{name!r}] must be at most {found}; got {least:.6g}")
        return nearest
