"""RealFM's equilibrium as a root in what everybody contributes together.

gamma inverts in closed form, so at a given total each device's answer is known at once, and the equilibrium
is where the answers add up to that total: O(n) a step, no n x n matrix.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from realfm_jax.accuracy import Curve
from realfm_jax.best_response import FixedPoint, Position, best_error, in_position, opponents_of, utility_of
from realfm_jax.each import add_up
from realfm_jax.game import Devices, Federation, Game
from realfm_jax.local import LocalOptimum
from realfm_jax.mechanism import device_utility, federate, reward_rate, rewards_at
from realfm_jax.payoff import LinearPayoff, PowerPayoff
from realfm_jax.scalar import SPAN, derivative, greater, log, root


def aggregate(game: Game, alone: LocalOptimum) -> FixedPoint:
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

    def federation_at(log_total: Array, game: Game, mean_a_opt: Array) -> Federation:
        total = jnp.exp(log_total)
        return federate(game.server, game.server_accuracy_curve, total, total * mean_a_opt)

    def excess(x: Array, game: Game, alone: LocalOptimum, mean_a_opt: Array) -> Array:
        return _log(_total_of_full_replies(game, alone, federation_at(x, game, mean_a_opt))) - x

    def replies(x: Array, mean_a_opt: Array) -> Array:
        return full_replies(game, alone, federation_at(x, game, mean_a_opt))

    def log_total(mean_a_opt: Array) -> tuple[Array, Array]:
        # The upper bound is near, so one plain step fewer; where it is missed, safe steps go on.
        bounds = log(lowest), log(greater(highest, lowest))
        return root(excess, *bounds, (game, alone, mean_a_opt), plain_steps=3)

    def mean_excess(mean_a_opt: Array) -> Array:
        return mean_excess_of(replies(log_total(mean_a_opt)[0], mean_a_opt), mean_a_opt)

    def mean_excess_of(m: Array, mean_a_opt: Array) -> Array:
        return add_up(m * (a_opt - mean_a_opt)) / greater(add_up(m), lowest)

    mean, outer_steps = a_opt[0], jnp.ones((), int)
    if game.devices.differ_in_a_opt:
        # Devices join and leave as the mean moves: too many kinks for plain steps.
        mean, outer_steps = root(mean_excess, a_opt.min(), a_opt.max(), plain_steps=0)
    x, steps = log_total(mean)
    m = replies(x, mean)
    balance = jnp.abs(_log(add_up(m)) - x)
    if game.devices.differ_in_a_opt:
        balance += jnp.abs(mean_excess_of(m, mean))
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
    one = jnp.ones_like(error)

    def value(device: Devices, alone: LocalOptimum) -> Array:
        full = mechanism.full_reward_contribution(device, alone, Federation(one, error, 0 * one))
        return (device.cost + mechanism.epsilon) * (full - alone.contribution)

    given = game.devices.total(value, alone) + reward_rate(game.server, error, one)
    return add_up(alone.contribution) + given / game.devices.cost.min()


def _unrest(game: Game, alone: LocalOptimum, m: Array) -> Array:
    """What a sample more or less would still bring the devices, relative to its cost, summed, []."""
    game, alone, m = lax.stop_gradient((game, alone, m))
    given = rewards_at(game, alone, m)
    federation, moves = _marginal_federation(game, m)
    less = jnp.zeros_like(m) if _shaping_pays(game) else _regret_of_last_samples(game, alone, m)

    def one(device: Devices, alone: LocalOptimum, m: Array, error: Array, less: Array) -> Array:
        # A device that is offered no better model can still be moved by money, if it has something to sell.
        by_money = jnp.where(m > 0, federation.reward_rate, 0.0)
        shaped = (m > alone.contribution) & (error >= federation.error)
        more = jnp.where(shaped, _gain_beyond(device, alone, m, federation, moves(device)), by_money)
        return greater(greater(more, less) / device.cost, 0.0)

    return game.devices.total(one, alone, m, given.error, less)


def _marginal_federation(game: Game, m: Array) -> tuple[Federation, Any]:
    """The federation, and how one more sample of a device changes it, as a function of the device."""
    curve = game.server_accuracy_curve

    def federation_of(total: Array, quality: Array) -> Federation:
        return federate(game.server, curve, total, quality)

    sums = add_up(m), game.devices.quality(m)
    one, zero = jnp.ones_like(sums[0]), jnp.zeros_like(sums[0])
    federation, by_total = jax.jvp(federation_of, sums, (one, zero))
    _, by_quality = jax.jvp(federation_of, sums, (zero, one))

    def moves(device: Devices) -> Federation:
        own = getattr(device.accuracy, "a_opt", 0.0)
        return jax.tree.map(lambda total, quality: total + own * quality, by_total, by_quality)

    return federation, moves


def _gain_beyond(
    device: Devices, alone: LocalOptimum, m: Array, federation: Federation, moves: Federation
) -> Array:
    """What a device that has the federated model gains by one more sample, []:
    phi_i'(a_C) da_C/dm_i + d/dm_i [r(m) (m_i - m_i^o)] - c_i (the third interval of eq:mech).
    """

    def utility(m: Array, federation: Federation) -> Array:
        money = federation.reward_rate * (m - alone.contribution)
        return device_utility(device, m, federation.error, money)

    return jax.jvp(utility, (m, federation), (jnp.ones_like(m), moves))[1]


def _shaping_pays(game: Game) -> bool:
    """Whether every sample up to m_i^* pays for sure: exact shaping, or third derivative of phi >= 0; and
    nobody's data worsen the federated model, as those of a device with a low a_opt may.
    """
    mechanism: Any = game.mechanism
    proven = mechanism.shaping == "exact" or isinstance(game.devices.payoff, PowerPayoff | LinearPayoff)
    return proven and not game.devices.differ_in_a_opt


def _regret_of_last_samples(game: Game, alone: LocalOptimum, m: Array) -> Array:
    """-du_i^r/dm_i just below m_i, [n]."""
    nudge = jnp.sqrt(jnp.finfo(m.dtype).eps)

    def one(position: Position, m: Array) -> Array:
        return jnp.where(m > 0, -derivative(utility_of)(m * (1 - nudge), position), 0.0)

    return in_position(game, one, alone, opponents_of(game.devices, m), m)


def full_replies(game: Game, alone: LocalOptimum, federation: Federation) -> Array:
    """m_i^* of every device at given aggregates, [n]."""
    return game.devices.map(_full_reply(game, federation), alone)


def _total_of_full_replies(game: Game, alone: LocalOptimum, federation: Federation) -> Array:
    """Their sum, []."""
    return game.devices.total(_full_reply(game, federation), alone)


def _full_reply(game: Game, federation: Federation) -> Any:
    """m_i^* of one device, as a function of the device and its local optimum."""
    mechanism: Any = game.mechanism
    return lambda device, alone: mechanism.full_reward_contribution(device, alone, federation)
