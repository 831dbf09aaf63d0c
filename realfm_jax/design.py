"""Choose the parameters of a game so that its equilibrium is best: by gradient, through the equilibrium."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from realfm_jax.certificate import Certificate, certify
from realfm_jax.equilibrium import Equilibrium, Method, solve
from realfm_jax.game import Game
from realfm_jax.mechanism import RealFM
from realfm_jax.parameters import numbers, replace, unknown
from realfm_jax.sensitivity import OUTPUTS
from realfm_jax.shaping import EPSILON

Objective = str | Callable[[Equilibrium], Any]
"""A name of `NAMES`, or any differentiable function of the equilibrium that gives one number."""
NAMES = {name: output.of for name, output in OUTPUTS.items() if not output.each}
NAMES["total_contribution"] = NAMES["total"]
LOWEST = 16
"""How many of the devices with the least utility a floor on it watches at once."""
CLIMBS = 3
"""From how many of the best starts a search climbs: one alone now and then ends on a lesser hill."""


@dataclasses.dataclass(frozen=True)
class Design:
    """The parameters found, and what they lead to; `str()` of it is a report.

    Attributes:
      parameters: their values, by name.
      game: the game with them.
      equilibrium: its equilibrium.
      objective: name of what was maximised.
      value: of it, there.
      path: by name, the values of the parameters and of the "objective" at each accepted iterate of the
        climb that won, from its start on. Without a floor the objective never falls along it.
      bounds: within which each parameter was sought.
      floor: what had to be reached, by name.
      solves: equilibria computed, for all starts and climbs; one with its gradient counts once.
      converged: whether the search ended at a maximum.
      message: why it ended.
    """

    parameters: dict[str, float]
    game: Game
    equilibrium: Equilibrium
    objective: str
    value: float
    path: dict[str, np.ndarray]
    bounds: dict[str, tuple[float, float]]
    floor: dict[str, float]
    solves: int
    converged: bool
    message: str

    @functools.cached_property
    def certificate(self) -> Certificate:
        """The check of the equilibrium by `certify`, made when first asked for."""
        return certify(self.game, self.equilibrium, probes=0)

    def __str__(self) -> str:
        """The report."""
        lines = [f"{self.objective} {self.value:.8g} after {self.solves} equilibria: {self.message}"]
        for name, value in self.parameters.items():
            low, high = self.bounds[name]
            place = " (lower bound)" if value == low else " (upper bound)" if value == high else ""
            lines.append(f"  {name:<20} {value:.8g}{place}")
        for name, least in self.floor.items():
            lines.append(f"  {name:<20} {float(NAMES[name](self.equilibrium)):.8g}, floor {least:.8g}")
        return "\n".join(lines)


def design(
    game: Game,
    objective: Objective = "server_utility",
    over: Sequence[str] = ("profit_margin", "epsilon"),
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    floor: Mapping[str, float] | None = None,
    start: Mapping[str, float] | None = None,
    starts: int = 16,
    method: Method = "auto",
) -> Design:
    """The parameters within bounds whose equilibrium maximises an objective.

    The best of some starts spread over the bounds are climbed by SciPy's L-BFGS-B (of its methods the one
    that never went down and took the fewest equilibria), with a floor by SLSQP; in logarithms where
    bounds span a decade or more.

    Args:
      game: the game; its own parameters are the first start.
      objective: "server_utility", "total_contribution", "welfare", ... (`NAMES`), or a function of the
        `Equilibrium` that gives one number.
      over: the parameters to choose, by the names of `parameters`; each must be one number.
      bounds: (low, high) by name; profit_margin has (0, 1), epsilon (1e-9, lowest cost) of its own.
      floor: least values, by the names of objectives: {"min_utility": 60.0} keeps every device at 60.
      start: by name, to climb from there only; what is not named is as in the game.
      starts: how many there are otherwise.
      method: of `solve`. "aggregate" compiles in a fraction of the time, and passes over parameters at
        which money makes a device go beyond what RealFM rewards in full.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices([1e-3, 2e-3], rfm.InverseSqrt(a_opt=0.9, k=0.25), rfm.LinearPayoff())
    >>> game = rfm.Game(devices, rfm.Server(), rfm.RealFM(epsilon=1e-4))
    >>> found = design(game, over=["epsilon"], bounds={"epsilon": (1e-6, 1e-3)}, method="aggregate")
    >>> found.parameters, found.converged
    ({'epsilon': 1e-06}, True)
    """
    box = _box(game, (over,) if isinstance(over, str) else tuple(over), bounds or {})
    name, goal = _goal(objective)
    search = _Search(game, box, goal, _checked_floor(floor or {}), _methods(game, method))
    begin = [_position(game, box, start)] if start else [_position(game, box, {}), *box.spread(starts - 1)]
    climb = search.best(begin)
    path = [search.at(x) for x in climb.path]
    values = np.stack([box.values(x) for x in climb.path])
    found = search.equilibrium(climb.path[-1])
    chosen = dict(zip(box.names, map(float, values[-1]), strict=True))
    passed = sum(not point.settled for point in search.points.values())
    return Design(
        parameters=chosen,
        game=replace(game, **chosen),
        equilibrium=found,
        objective=name,
        value=path[-1].value,
        path=dict(zip(box.names, values.T, strict=True)) | {"objective": np.array([p.value for p in path])},
        bounds={name: (float(a), float(b)) for name, a, b in zip(box.names, box.low, box.high, strict=True)},
        floor=search.floor,
        solves=search.solves,
        converged=climb.converged,
        message=climb.message + (f"; {passed} points without an equilibrium passed over" if passed else ""),
    )


def _goal(objective: Objective) -> tuple[str, Callable[[Equilibrium], Any]]:
    if callable(objective):
        return getattr(objective, "__name__", type(objective).__name__), objective
    if objective not in NAMES:
        raise unknown("objective", objective, NAMES)
    return objective, NAMES[objective]


def _checked_floor(floor: Mapping[str, float]) -> dict[str, float]:
    for name, least in floor.items():
        if name not in NAMES:
            raise unknown("floor", name, NAMES)
        if not np.isfinite(least):
            raise ValueError(f"floor[{name!r}] must be finite; got {least!r}")
    return {name: float(least) for name, least in floor.items()}


def _methods(game: Game, method: Method) -> tuple[Method, ...]:
    """What to try in turn: gradients of best responses compile slowly, so only for a game that needs them."""
    if method != "auto":
        return (method,)
    return ("aggregate", "best_response") if isinstance(game.mechanism, RealFM) else ("best_response",)


@dataclasses.dataclass(frozen=True)
class _Box:
    """Parameters as coordinates in [0, 1], logarithmic where `low` and `high` are a decade apart."""

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    def scaled(self, values: np.ndarray) -> np.ndarray:
        return np.log(values, out=values.copy(), where=(self.low > 0) & (self.high >= 10 * self.low))

    def values(self, x: np.ndarray) -> np.ndarray:
        low, high = self.scaled(self.low), self.scaled(self.high)
        inside = low + x * (high - low)
        inside = np.exp(inside, out=inside.copy(), where=(self.low > 0) & (self.high >= 10 * self.low))
        return np.where(x == 0, self.low, np.where(x == 1, self.high, inside))
