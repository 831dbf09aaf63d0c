"""Each device's best answer to the others, and the point where all answers agree, for any mechanism.

The others matter to a device only through two sums, S_-i = sum of m_j and T_-i = sum of m_j a_opt_j. So the
Jacobian of all best responses is a diagonal plus a matrix of rank two, and Newton's method costs O(n).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from realfm_jax.accuracy import PLENTY, Curve, error_at, server_curve
from realfm_jax.game import Devices, Game, Mechanism, Server
from realfm_jax.local import LocalOptimum
from realfm_jax.mechanism import device_utility, federate
from realfm_jax.payoff import value_at
from realfm_jax.scalar import argmax, lesser

MAX_STEPS = 300
MIN_SHIFT = 1e-3
"""Short of a full Newton step, which would amplify rounding where only the sum of several devices'
contributions is determined (equal devices under EqualShare)."""


class Opponents(NamedTuple):
    """All that a device needs to know about the others.

    Attributes:
      total: S_-i, [], samples.
      quality: T_-i, [], samples x a_opt.
    """

    total: Array
    quality: Array


class Position(NamedTuple):
    """One device in a game: everything its utility depends on but its own contribution."""

    server: Server
    curve: Curve
    mechanism: Mechanism
    device: Devices
    alone: LocalOptimum
    opponents: Opponents


def utility_of(contribution: Array, position: Position) -> Array:
    """u_i^r(m_i; m_-i) of one device (eq:util-quasiconcave)."""
    server, curve, mechanism, device, alone, opponents = position
    total = opponents.total + contribution
    quality = opponents.quality + contribution * getattr(device.accuracy, "a_opt", 0.0)
    error, money = mechanism.offer(device, alone, contribution, federate(server, curve, total, quality))
    return device_utility(device, contribution, error, money)


def opponents_of(devices: Devices, contribution: Array) -> Opponents:
    """For each device the sums over the others, [n]."""
    quality = contribution * devices.a_opt
    # Not total - own: that cancels for a device that gives nearly everything.
    return Opponents(_sum_of_others(contribution), _sum_of_others(quality))


def _sum_of_others(x: Array) -> Array:
    before = jnp.concatenate([jnp.zeros_like(x[:1]), jnp.cumsum(x)[:-1]])
    after = jnp.concatenate([jnp.cumsum(x[::-1])[::-1][1:], jnp.zeros_like(x[:1])])
    return before + after


def in_position(game: Game, f: Any, alone: LocalOptimum, opponents: Opponents, *args: Any) -> Any:
    """Map f(position, *args) over the devices of a game."""

    def one(device: Devices, alone: LocalOptimum, opponents: Opponents, *args: Array) -> Any:
        curve = game.server_accuracy_curve
        # The devices' curve, so far with one a_opt each: any will do, `federate` sets the mean.
        curve = server_curve(curve, 0.0)
        return f(Position(game.server, curve, game.mechanism, device, alone, opponents), *args)

    return game.devices.map(one, alone, opponents, *args)


def best_error(game: Game) -> Array:
    """The lowest error anybody can reach in this game, []."""
    curve = server_curve(game.server_accuracy_curve, game.devices.a_opt.max())
    own = game.devices.map(lambda device: error_at(device.accuracy, PLENTY))
    return lesser(error_at(curve, PLENTY), own.min())


def largest_sensible(game: Game) -> Array:
    """For each device an amount of data that no reward can pay for, [n]."""
    error = best_error(game)
    value = game.devices.map(lambda device: value_at(device.payoff, error))
    return (value + value_at(game.server.payoff, error)) / game.devices.cost


def best_responses(game: Game, alone: LocalOptimum, opponents: Opponents) -> Array:
    """argmax over m_i >= 0 of u_i^r(m_i; m_-i), for each device, globally, [n]."""

    def one(position: Position, upper: Array) -> Array:
        m, local = argmax(utility_of, position, upper), position.alone.contribution
        # Just above m_i^o shaped and own model are tangent, and rounding decides which one looks better.
        near = jnp.abs(m - local) <= 1e-6 * local
        return jnp.where(near & (utility_of(local, position) >= utility_of(m, position)), local, m)

    return in_position(game, one, alone, opponents, largest_sensible(game))


class _Response(NamedTuple):
    """Best responses, and how they move with S_-i and T_-i, each [n]."""

    value: Array
    by_total: Array
    by_quality: Array


def _responses(game: Game, alone: LocalOptimum, m: Array) -> _Response:
    here = opponents_of(game.devices, m)
    one, zero = jnp.ones_like(m), jnp.zeros_like(m)

    def answer(opponents: Opponents) -> Array:
        return best_responses(game, alone, opponents)

    value, moves = jax.linearize(answer, here)
    return _Response(value, moves(Opponents(one, zero)), moves(Opponents(zero, one)))


def _solve_linear(response: _Response, a_opt: Array, shift: Array | float, y: Array) -> Array:
    """x with (I - dB/dm + shift) x = y, B the best responses: diagonal plus rank two, O(n)."""
    _, p, q = response
    diagonal = 1 + shift + p + q * a_opt
    # Exactly 0 where a device just fills up what the others leave open.
    diagonal = jnp.where(jnp.abs(diagonal) < 1e-7, 1e-7, diagonal)
    u, v = jnp.stack([p, q], axis=1), jnp.stack([jnp.ones_like(a_opt), a_opt], axis=1)
    small = jnp.eye(2, dtype=y.dtype) - v.T @ (u / diagonal[:, None])
    sums = jnp.linalg.solve(small, v.T @ (y / diagonal))
    return (y + u @ sums) / diagonal


class FixedPoint(NamedTuple):
    """Contributions at which everybody's best response is what it does already.

    Attributes:
      contribution: m_i, [n].
      residual: largest relative distance to the best response, [].
      steps: iterations taken, [].
    """

    contribution: Array
    residual: Array
    steps: Array


class _State(NamedTuple):
    m: Array
    residual: Array
    shift: Array
    best: Array
    best_residual: Array
    stalled: Array
    steps: Array


@jax.custom_jvp
def fixed_point(game: Game, alone: LocalOptimum, start: Array, wanted: Array) -> FixedPoint:
    """Follow the best responses from `start` to a Nash equilibrium (thm:pure-equ).

    Implicit Euler on dm/dt = B(m) - m: steps grow as the residual falls, from careful best-response
    dynamics to Newton's method. Stops at once where `wanted` is False.
    """
    eps = jnp.finfo(start.dtype).eps
    upper, a_opt = largest_sensible(game), game.devices.a_opt.astype(start.dtype)

    def step(state: _State) -> _State:
        response = _responses(game, alone, state.m)
        move = response.value - state.m
        scale = jnp.maximum(jnp.maximum(state.m, response.value), 1e-9 * state.m.sum() + 1e-12 * upper)
        residual = jnp.max(jnp.abs(move) / scale)
        shift = jnp.clip(state.shift * residual / state.residual, MIN_SHIFT, 10.0)
        shift = jnp.where(state.steps == 0, 1.0, shift)
        m = jnp.clip(state.m + _solve_linear(response, a_opt, shift, move), 0.0, upper)
        m = jnp.where((response.value == 0) & (m < 1e-6 * upper), 0.0, m)
        better = residual < state.best_residual
        return _State(
            m,
            residual,
            shift,
            best=jnp.where(better, m, state.best),
            best_residual=jnp.where(better, residual, state.best_residual),
            stalled=jnp.where(residual < 0.5 * state.best_residual, 0, state.stalled + 1),
            steps=state.steps + 1,
        )

    def unfinished(state: _State) -> Array:
        # Rounding keeps ill-conditioned games from the last digits: good enough once it stalls.
        settled = (state.best_residual <= eps**0.6) & (state.stalled >= 5)
        done = (state.best_residual <= eps**0.8) | settled | (state.steps >= MAX_STEPS)
        return wanted & ~done

    infinite, zero = jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), int)
    first = _State(start, infinite, jnp.ones_like(infinite), start, infinite, zero, zero)
    last = lax.while_loop(unfinished, step, first)
    return FixedPoint(last.best, last.best_residual, last.steps)


@fixed_point.defjvp
def _fixed_point_jvp(primals: Any, tangents: Any) -> Any:
    """Implicit derivative: (I - dB/dm) dm = dB at fixed contributions."""
    game, alone, start, wanted = primals
    found = fixed_point(game, alone, start, wanted)
    m = found.contribution

    def answer(game: Game, alone: LocalOptimum) -> Array:
        return best_responses(game, alone, opponents_of(game.devices, m))

    _, speed = jax.jvp(answer, (game, alone), tangents[:2])
    response = _responses(game, alone, m)
    a_opt = game.devices.a_opt.astype(m.dtype)
    moved = _solve_linear(response, a_opt, 0.0, speed)
    steps: Any = np.zeros(found.steps.shape, jax.dtypes.float0)
    return found, FixedPoint(moved, jnp.zeros_like(found.residual), steps)
