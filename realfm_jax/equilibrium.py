"""The Nash equilibrium of a game, and everything that follows from it."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from realfm_jax._struct import Numbers, struct, with_field
from realfm_jax.accuracy import Curve
from realfm_jax.best_response import (
    FixedPoint,
    Position,
    best_error,
    fixed_point,
    in_position,
    opponents_of,
    utility_of,
)
from realfm_jax.game import Devices, Federation, Game
from realfm_jax.local import LocalOptimum, local_optimum
from realfm_jax.mechanism import (
    RealFM,
    Rewards,
    checked_contribution,
    device_utility,
    federate,
    reward_rate,
    rewards_at,
)
from realfm_jax.payoff import LinearPayoff, PowerPayoff
from realfm_jax.scalar import SPAN, add_up, derivative, greater, log, root

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
    return _equilibrium(game, alone, _aggregate(game, alone))


@jax.jit
def _by_best_response(game: Game, start: Array | None) -> Equilibrium:
    alone = local_optimum(game.devices)
    begin = (starts(game, alone)[0] if start is None else start).astype(alone.contribution.dtype)
    return _equilibrium(game, alone, fixed_point(game, alone, begin, jnp.asarray(True)))


@jax.jit
def _by_either(game: Game) -> Equilibrium:
    alone = local_optimum(game.devices)
    found = _aggregate(game, alone)
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


def _replies(game: Game, alone: LocalOptimum, federation: Federation) -> Array:
    """m_i^* of every device at given aggregates, [n]."""
    mechanism: Any = game.mechanism

    def one(device: Devices, alone: LocalOptimum) -> Array:
        return mechanism.full_reward_contribution(device, alone, federation)

    return game.devices.map(one, alone)


def starts(game: Game, alone: LocalOptimum) -> Array:
    """Contributions to start best responses from, [starts, n]; the first is the default.

    From above (replies to the best possible model) for RealFM, else from an equal share of the local
    optimum; then twice and half the local optimum.
    """
    first = alone.contribution / len(game.devices)
    if isinstance(game.mechanism, RealFM):
        zero = jnp.zeros_like(first[0])
        first = _replies(game, alone, Federation(zero, best_error(game), zero))
    return jnp.stack([first, 2 * alone.contribution, alone.contribution / 2])


def outcome_at(game: Game, contribution: Numbers) -> Equilibrium:
    """The outcome of any contributions of yours, equilibrium or not, e.g. for `certify`."""
    m = checked_contribution(game, contribution)
    nowhere = jnp.full((), jnp.nan, m.dtype)
    return _equilibrium(game, local_optimum(game.devices), FixedPoint(m, nowhere, jnp.zeros((), int)))


def _aggregate(game: Game, alone: LocalOptimum) -> FixedPoint:
    """RealFM's equilibrium as a root of sum of m_i^*(S, A) = S in the total S.

    A, the mean a_opt weighted by contribution, is a second unknown where devices differ in it: then the
    root S(A) is a function inside the root in A.
    """
    curve, a_opt = game.server_accuracy_curve, game.devices.a_opt
    if len(game.devices) == 1:  # a federation of one has nothing to give, and its root is a double one
        return FixedPoint(alone.contribution, _lure(game), jnp.zeros((), int))
    local_total = add_up(alone.contribution)
    highest = _highest_total(game, alone)
    lowest = greater(local_total, _no_use(curve, highest))

    def replies(log_total: Array, mean_a_opt: Array) -> Array:
        total = jnp.exp(log_total)
        return _replies(game, alone, federate(game.server, curve, total, total * mean_a_opt))

    def log_total(mean_a_opt: Array) -> tuple[Array, Array]:
        def excess(x: Array) -> Array:
            return _log(add_up(replies(x, mean_a_opt))) - x

        return root(excess, log(lowest), log(greater(highest, lowest)))

    def mean_excess(mean_a_opt: Array) -> Array:
        m = replies(log_total(mean_a_opt)[0], mean_a_opt)
        return add_up(m * (a_opt - mean_a_opt)) / greater(add_up(m), lowest)

    mean, outer_steps = a_opt[0], jnp.ones((), int)
    if jnp.ndim(getattr(game.devices.accuracy, "a_opt", 0.0)):
        mean, outer_steps = root(mean_excess, a_opt.min(), a_opt.max())
    x, steps = log_total(mean)
    m = replies(x, mean)
    balance = jnp.abs(_log(add_up(m)) - x)
    # All costs prohibitive and no way up: nobody contributes anything.
    nobody = (local_total == 0) & (balance > 1e-3)
    m = jnp.where(nobody, 0.0, m)
    residual = jnp.where(nobody, _lure(game), jnp.maximum(balance, _unrest(game, alone, m)))
    return FixedPoint(m, lax.stop_gradient(residual), steps * outer_steps)


def _lure(game: Game) -> Array:
    """Unrest where the federation has nothing to give: unknown (inf) if money might still attract, []."""
    return lax.stop_gradient(jnp.where(game.server.profit_margin < 1, jnp.inf, 0.0))


def _log(x: Array) -> Array:
    return log(greater(x, jnp.finfo(x.dtype).tiny))


def _no_use(curve: Curve, highest: Array) -> Array:
    """A total so small that the federated model is useless, []."""
    return curve.useless if hasattr(curve, "useless") else highest * jnp.exp(-SPAN)


def _highest_total(game: Game, alone: LocalOptimum) -> Array:
    """An upper bound of the equilibrium's total: all value handed out, over the lowest cost."""
    mechanism: Any = game.mechanism
    error = best_error(game)
    one, cost = jnp.ones_like(error), game.devices.cost
    extra = _replies(game, alone, Federation(one, error, 0 * one)) - alone.contribution
    value = add_up((cost + mechanism.epsilon) * extra) + reward_rate(game.server, error, one)
    return add_up(alone.contribution) + value / cost.min()


def _unrest(game: Game, alone: LocalOptimum, m: Array) -> Array:
    """What a sample more or less would still bring the devices, relative to its cost, summed, []."""
    game, alone, m = lax.stop_gradient((game, alone, m))
    federation, more = _incentives(game, alone, m)
    # A device that is offered no better model can still be moved by money, if it has something to sell.
    unshaped = jnp.where(m > 0, federation.reward_rate, 0.0)
    unrest = jnp.where(m > alone.contribution, more, unshaped)
    if not _shaping_pays(game):
        unrest = jnp.maximum(unrest, _regret_of_last_samples(game, alone, m))
    return add_up(greater(unrest / game.devices.cost, 0.0))


def _incentives(game: Game, alone: LocalOptimum, m: Array) -> tuple[Federation, Array]:
    """The federation, and for each device du_i^r/dm_i at m_i, from the right where it has a kink, [n]."""
    curve, a_opt = game.server_accuracy_curve, game.devices.a_opt

    def federation_of(total: Array, quality: Array) -> Federation:
        return federate(game.server, curve, total, quality)

    sums = add_up(m), add_up(m * a_opt)
    one, zero = jnp.ones_like(sums[0]), jnp.zeros_like(sums[0])
    federation, by_total = jax.jvp(federation_of, sums, (one, zero))
    _, by_quality = jax.jvp(federation_of, sums, (zero, one))
    # With a federated model a hair worse than it is, shaping has certainly reached it at m_i^*.
    hair = jnp.sqrt(jnp.finfo(m.dtype).eps)
    beyond = with_field(federation, "error", federation.error * (1 + hair))

    def slope(device: Devices, alone: LocalOptimum, m: Array) -> Array:
        own = getattr(device.accuracy, "a_opt", 0.0)
        moves = jax.tree.map(lambda total, quality: total + own * quality, by_total, by_quality)

        def utility(m: Array, federation: Federation) -> Array:
            return device_utility(device, m, *game.mechanism.offer(device, alone, m, federation))

        return jax.jvp(utility, (m, beyond), (jnp.ones_like(m), moves))[1]

    return federation, game.devices.map(slope, alone, m)


def _shaping_pays(game: Game) -> bool:
    """Whether every sample up to m_i^* pays for sure: exact shaping, or third derivative of phi >= 0."""
    mechanism: Any = game.mechanism
    return mechanism.shaping == "exact" or isinstance(game.devices.payoff, PowerPayoff | LinearPayoff)


def _regret_of_last_samples(game: Game, alone: LocalOptimum, m: Array) -> Array:
    """-du_i^r/dm_i just below m_i, [n]."""
    nudge = jnp.sqrt(jnp.finfo(m.dtype).eps)

    def one(position: Position, m: Array) -> Array:
        return jnp.where(m > 0, -derivative(utility_of)(m * (1 - nudge), position), 0.0)

    return in_position(game, one, alone, opponents_of(game.devices, m), m)
