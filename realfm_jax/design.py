"""Choose the parameters of a game so that its equilibrium is best: by gradient, through the equilibrium."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from realfm_jax.certificate import Certificate, certify
from realfm_jax.climb import Box, Search
from realfm_jax.equilibrium import Equilibrium, Method
from realfm_jax.game import Game
from realfm_jax.mechanism import RealFM
from realfm_jax.parameters import numbers, replace, unknown
from realfm_jax.sensitivity import OUTPUTS
from realfm_jax.shaping import EPSILON

Objective = str | Callable[[Equilibrium], Any]
"""A name of `NAMES`, or any differentiable function of the equilibrium that gives one number."""
NAMES = {name: output.of for name, output in OUTPUTS.items() if not output.each}
"""What can be maximised, or kept above a floor, by name."""


@dataclasses.dataclass(frozen=True, eq=False)
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

    The best of some starts spread over the bounds are climbed by SciPy's L-BFGS-B (of its methods for
    bounds the one that never went down, with as few equilibria as any), with a floor by SLSQP; in
    logarithms where bounds span a decade or more.

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
    search = Search(game, box, goal, _checked_floor(floor or {}), _methods(game, method))
    if starts < 1:
        raise ValueError(f"starts must be at least 1; got {starts}")
    begin = [_position(game, box, start or {}), *box.spread(0 if start else starts - 1)]
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
        bounds={
            name: (float(a), float(b)) for name, a, b in zip(box.names, box.low, box.high, strict=True)
        },
        floor=search.floor,
        solves=search.solves,
        converged=climb.converged,
        message=climb.message + (f"; {passed} points without an equilibrium passed over" if passed else ""),
    )


def _goal(objective: Objective) -> tuple[str, Callable[[Equilibrium], Any]]:
    if callable(objective):
        return getattr(objective, "__name__", type(objective).__name__), objective
    return objective, NAMES[_known("objective", objective)]


def _known(kind: str, name: str) -> str:
    """The name of an output that is one number."""
    name = "total" if name == "total_contribution" else name
    if name not in NAMES:
        raise unknown(kind, name, NAMES)
    return name


def _checked_floor(floor: Mapping[str, float]) -> dict[str, float]:
    for name, least in floor.items():
        if not np.isfinite(least):
            raise ValueError(f"floor[{name!r}] must be finite; got {least!r}")
    return {_known("floor", name): float(least) for name, least in floor.items()}


def _methods(game: Game, method: Method) -> tuple[Method, ...]:
    """What to try in turn: best responses compile slowly, so only for a game that needs them."""
    if method != "auto":
        return (method,)
    return ("aggregate", "best_response") if isinstance(game.mechanism, RealFM) else ("best_response",)


def _box(game: Game, over: tuple[str, ...], bounds: Mapping[str, tuple[float, float]]) -> Box:
    """The checked parameters and bounds."""
    known = numbers(game)
    single = [name for name, leaf in known.items() if not jnp.ndim(leaf)]
    for name in over:
        if name not in known:
            raise unknown("parameter", name, known)
        if name not in single:
            raise ValueError(
                f"over must name parameters that are one number ({', '.join(single)}); got {name!r}, "
                f"of shape {jnp.shape(known[name])}"
            )
    if not over or len(set(over)) < len(over):
        raise ValueError(f"over must name at least one parameter, and each once; got {over!r}")
    if strange := set(bounds) - set(over):
        raise ValueError(f"bounds must be of parameters in over ({', '.join(over)}); got {min(strange)!r}")
    cost = float(jnp.min(game.devices.cost))
    natural = {"profit_margin": (0.0, 1.0), "epsilon": (EPSILON, max(cost, 10 * EPSILON))}
    pairs = np.array([_pair(game, name, (natural | dict(bounds)).get(name)) for name in over])
    return Box(over, pairs[:, 0], pairs[:, 1])


def _pair(game: Game, name: str, pair: tuple[float, float] | None) -> tuple[float, float]:
    """The bounds of one parameter, admissible for the game at both ends."""
    try:
        low, high = map(float, pair or ())
    except (TypeError, ValueError):
        raise ValueError(f"bounds[{name!r}] must be two numbers (low, high); got {pair!r}") from None
    if not low < high:
        raise ValueError(f"bounds[{name!r}] must be (low, high) with low < high; got {pair!r}")
    for end in (low, high):
        try:
            replace(game, **{name: end})
        except ValueError as error:
            raise ValueError(f"bounds[{name!r}] = {pair!r}: {error}") from error
    return low, high


def _position(game: Game, box: Box, start: Mapping[str, float]) -> np.ndarray:
    """Where the game's own parameters lie in the box, those in `start` replaced."""
    ends = dict(zip(box.names, zip(box.low, box.high, strict=True), strict=True))
    for name, value in start.items():
        if name not in ends:
            raise unknown("start", name, ends)
        low, high = ends[name]
        if not low <= value <= high:
            raise ValueError(
                f"start[{name!r}] must be within its bounds [{low:g}, {high:g}]; got {value!r}"
            )
    own = numbers(game) | dict(start)
    return box.place(np.array([float(own[name]) for name in box.names]))
