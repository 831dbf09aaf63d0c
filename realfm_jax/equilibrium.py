"""The Nash equilibrium of a game, and everything that follows from it."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from realfm_jax._struct import Numbers, struct
from realfm_jax.aggregate import aggregate, full_replies
from realfm_jax.best_response import FixedPoint, best_error, fixed_point
from realfm_jax.game import Federation, Game
from realfm_jax.local import LocalOptimum, local_optimum
from realfm_jax.mechanism import RealFM, Rewards, checked_contribution, rewards_at

Method = Literal["auto", "aggregate", "best_response"]


@struct
class Equilibrium(Rewards):
    """A Nash equilibrium and what everybody gets in it; see `Rewards` for the inherited fields.

    Attributes:
      contribution: m_i, [n], samples.
      local: what each device reaches on its own.
      better_alone: [n], devices whose local model beats the federated one (assumption 3 violated).
      residual: relative distance from equilibrium, [].
      steps: iterations taken, [].
      converged: whether `residual` is down at rounding level, [].
    """

    contribution: Array
    local: LocalOptimum
    better_alone: Array
    residual: Array
    steps: Array
    converged: Array


def solve(game: Game, method: Method = "auto", start: Numbers | None = None) -> Equilibrium:
    """The Nash equilibrium of the game (thm:main); of several, the one with the most data.

    Args:
      game: the game.
      method: "aggregate" finds RealFM's equilibrium as a root in the total contribution, O(n) and fast;
        "best_response" follows every device's best response, for any mechanism; "auto" takes the first
        where it applies, and goes on with the second where a device would still move.
      start: contributions to start the best responses from, [n]; `None`: from above (RealFM), else
        from an equal share of the local optimum.

    No failure to converge raises: look at `.converged`. Can be jitted, vmapped and differentiated.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=jnp.full(16, 2.5e-4), accuracy=rfm.GeneralizationBound(0.95, 10.0))
    >>> eq = solve(rfm.Game(devices, rfm.Server(), rfm.RealFM()))
    >>> round(float(eq.server_accuracy), 4)
    0.9438
    """
    check_method(method, game)
    realfm = isinstance(game.mechanism, RealFM)
    if start is not None:
        start = checked_contribution(game, start)
    if method == "best_response" or not realfm:
        return _by_best_response(game, start)
    if method == "aggregate":
        return _by_aggregate(game)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(game)):
        return _by_either(game)
    # Outside jit the second method is compiled only for a game that needs it.
    found = _by_aggregate(game)
    return (
        found
        if found.converged
        else _by_best_response(game, _restart(game, found.local, found.contribution))
    )


def check_method(method: str, game: Game) -> None:
    """Refuse a method that does not exist, or not for this game."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}; got {method!r}")
    if method == "aggregate" and not isinstance(game.mechanism, RealFM):
        name = type(game.mechanism).__name__
        raise ValueError(f"method 'aggregate' needs the mechanism RealFM; got {name}")


@jax.jit
def _by_aggregate(game: Game) -> Equilibrium:
    alone = local_optimum(game.devices)
    return _equilibrium(game, alone, aggregate(game, alone))


@jax.jit
def _by_best_response(game: Game, start: Array | None) -> Equilibrium:
    alone = local_optimum(game.devices)
    begin = (starts(game, alone)[0] if start is None else start).astype(alone.contribution.dtype)
    return _equilibrium(game, alone, fixed_point(game, alone, begin, jnp.asarray(True)))


@jax.jit
def _by_either(game: Game) -> Equilibrium:
    alone = local_optimum(game.devices)
    found = aggregate(game, alone)
    settled = found.residual <= _tolerance(found.residual)
    # Under vmap both branches run; `~settled` then keeps the second from iterating without need.
    found = lax.cond(
        settled,
        lambda: found,
        lambda: fixed_point(game, alone, _restart(game, alone, found.contribution), ~settled),
    )
    return _equilibrium(game, alone, found)


def _restart(game: Game, alone: LocalOptimum, m: Array) -> Array:
    """Where best responses go on from: from above if nobody contributed."""
    return jnp.where(m.sum() > 0, m, starts(game, alone)[0])


def _tolerance(x: Array) -> float:
    return 100 * float(jnp.finfo(x.dtype).eps) ** 0.6


def _equilibrium(game: Game, alone: LocalOptimum, found: FixedPoint) -> Equilibrium:
    m = found.contribution
    given = rewards_at(game, alone, m)
    return Equilibrium(
        **{name: getattr(given, name) for name in Rewards.__dataclass_fields__},
        contribution=m,
        local=alone,
        better_alone=given.federation.error > alone.error,
        residual=lax.stop_gradient(found.residual),
        steps=found.steps,
        converged=found.residual <= _tolerance(found.residual),
    )


def starts(game: Game, alone: LocalOptimum) -> Array:
    """Contributions to start best responses from, [starts, n]; the first is the default.

    From above (replies to the best possible model) for RealFM, else from an equal share of the local
    optimum; then twice and half the local optimum.
    """
    first = alone.contribution / len(game.devices)
    if isinstance(game.mechanism, RealFM):
        zero = jnp.zeros_like(first[0])
        first = full_replies(game, alone, Federation(zero, best_error(game), zero))
    return jnp.stack([first, 2 * alone.contribution, alone.contribution / 2])


def outcome_at(game: Game, contribution: Numbers) -> Equilibrium:
    """The outcome of any contributions of yours, equilibrium or not, e.g. for `certify`."""
    m = checked_contribution(game, contribution)
    nowhere = jnp.full((), jnp.nan, m.dtype)
    return _equilibrium(game, local_optimum(game.devices), FixedPoint(m, nowhere, jnp.zeros((), int)))
