"""Is it an equilibrium? Numbers, not promises.

Every claim of the paper about an outcome is recomputed from the game itself: regret by a global search over
each device's deviations, participation, budget, the assumptions on the range in play, uniqueness from
several starts, and how much of the federated model's value came for free. Of very many devices a sample is
searched, and the certificate says so.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from realfm_jax._struct import struct, with_field
from realfm_jax.accuracy import error_at
from realfm_jax.best_response import (
    FixedPoint,
    Position,
    best_responses,
    fixed_point,
    in_position,
    opponents_of,
    utility_of,
)
from realfm_jax.equilibrium import Equilibrium, starts
from realfm_jax.game import Devices, Game
from realfm_jax.payoff import value_at
from realfm_jax.scalar import derivative

ASSUMPTIONS = {
    "accuracy": "1: accuracy non-decreasing and concave in data",
    "payoff": "2: payoff increasing and convex in accuracy, concave in data",
    "federation": "3: the federated model beats the local one",
    "third_derivative": "phi''' >= 0, which Taylor shaping needs",
}
POINTS = 128
"""Of the grids on which assumptions are checked."""
SAMPLE = 4096
"""As many devices are searched at most, unless you ask for more."""


@struct
class Certificate:
    """What was found about an outcome; `str()` of it is a report.

    Attributes:
      searched: [s], the devices whose deviations and assumptions were looked into: all n, or a sample.
      regret: [s], utility gained by the best unilateral deviation, >= 0.
      deviation: [s], the contribution that gains it, samples.
      ir_slack: [n], utility beyond the local optimum's.
      paid: [], money paid to all devices; `allowance`: what the server set aside, (1 - p_m) phi_C.
      assumptions: by name (see `ASSUMPTIONS`) whether each device satisfies it, [s].
      free_ride: [n], in [0, 1]: the share of the value of the accuracy that a device got beyond its local
        one for which it gave nothing (its net gain over that value).
      totals: total contribution reached from several starts, NaN where the best responses did not settle.
      total: that of the outcome itself.
      largest_utility: the scale against which regret is small.
      tolerance: how small, relative to it, regret has to be.
      rounding: what floating point cannot tell from no regret, given the values and costs in play.
    """

    searched: Array
    regret: Array
    deviation: Array
    ir_slack: Array
    paid: Array
    allowance: Array
    assumptions: dict[str, Array]
    free_ride: Array
    totals: Array
    total: Array
    largest_utility: Array
    tolerance: Array
    rounding: Array

    @property
    def relative_regret(self) -> float:
        """The largest regret, beyond rounding, as a share of the largest utility."""
        return float(jnp.maximum(self.regret.max() - self.rounding, 0.0) / self.largest_utility)

    @property
    def is_equilibrium(self) -> bool:
        """Nobody gains by deviating."""
        return self.relative_regret <= float(self.tolerance)

    @property
    def is_rational(self) -> bool:
        """Nobody is worse off than alone (individual rationality)."""
        return bool(self.ir_slack.min() >= -self.tolerance * self.largest_utility - self.rounding)

    @property
    def budget(self) -> float:
        """What is left of the money that the server set aside."""
        return float(self.allowance - self.paid)

    @property
    def within_budget(self) -> bool:
        """The server pays no more than it set aside."""
        return self.budget >= -float(self.allowance * self.tolerance)

    @property
    def unique(self) -> bool:
        """Every start that settled led to the same total."""
        totals = np.asarray(self.totals)
        settled = totals[np.isfinite(totals)]
        near = np.abs(settled - float(self.total)) <= 1e-6 * max(float(self.total), 1e-300)
        return bool(near.all())

    def __str__(self) -> str:
        """The report."""
        sampled = self.searched.size < self.ir_slack.size
        of = f", of which {self.searched.size} sampled by contribution were searched" if sampled else ""
        return "\n".join(
            [f"Certificate for {self.ir_slack.size} device(s){of}", *map("  ".join, self._lines())]
        )

    def _lines(self) -> list[tuple[str, str, str]]:
        worst, poorest, free = (
            int(i) for i in (self.regret.argmax(), self.ir_slack.argmin(), self.free_ride.argmax())
        )
        settled = np.isfinite(np.asarray(self.totals)).sum()
        lines = [
            (
                _mark(self.is_equilibrium),
                "equilibrium  ",
                f"best unilateral deviation gains {self.relative_regret:.1e} of the largest utility "
                f"(device {int(self.searched[worst])}, to {float(self.deviation[worst]):.6g} samples)",
            ),
            (
                _mark(self.is_rational),
                "participation",
                f"smallest gain over training alone {float(self.ir_slack[poorest]):.4g} (device {poorest})",
            ),
            (
                _mark(self.within_budget),
                "budget       ",
                f"{float(self.paid):.6g} paid of {float(self.allowance):.6g} set aside",
            ),
            (
                _mark(self.unique) if self.totals.size else "    ",
                "uniqueness   ",
                f"{settled} of {self.totals.size} starts settled, "
                + ("none on another total" if self.unique else f"totals {_list(self.totals)}")
                if self.totals.size
                else "not looked into",
            ),
        ]
        for name, meaning in ASSUMPTIONS.items():
            failing = np.asarray(self.searched)[~np.asarray(self.assumptions[name])]
            where = "" if not failing.size else f": not for device(s) {_list(failing)}"
            lines.append((_mark(not failing.size), "assumption   ", meaning + where))
        lines.append(
            (
                "    ",
                "free riding  ",
                f"share of the federated value got for nothing: mean {float(self.free_ride.mean()):.3f}, "
                f"most {float(self.free_ride[free]):.3f} (device {free})",
            )
        )
        return lines


def _mark(good: bool) -> str:
    return "ok  " if good else "FAIL"


def _list(values: Array | np.ndarray, most: int = 8) -> str:
    shown = ", ".join(f"{v:.6g}" for v in np.asarray(values)[:most])
    return shown + (f", ... ({values.size} in all)" if values.size > most else "")


@functools.partial(jax.jit, static_argnames=("probes", "sample"))
def certify(game: Game, outcome: Equilibrium, probes: int = 3, sample: int = SAMPLE) -> Certificate:
    """Check an outcome of a game: regret, participation, budget, assumptions, uniqueness, free riding.

    Args:
      game: the game.
      outcome: what `solve` returned, or any contributions of yours as `outcome_at(game, m)`.
      probes: from how many starts (0 to 3) to look for another equilibrium; none if there are more
        devices than `sample`.
      sample: of how many devices to search the deviations, spread evenly from the least contribution to
        the largest; memory grows with it, not with the number of devices.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=[1e-3, 2e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> game = rfm.Game(devices, rfm.Server(), rfm.EqualShare())
    >>> [round(float(share), 3) for share in certify(game, rfm.solve(game), probes=0).free_ride]
    [0.0, 1.0]
    """
    m, alone, n = outcome.contribution, outcome.local, len(game.devices)
    searched = jnp.arange(n)
    if n > sample:
        searched = jnp.argsort(m)[jnp.linspace(0, n - 1, sample).astype(int)]
        probes = 0
    regret, deviation = _regret(game, outcome, searched)
    value = _value(game, outcome.error)
    ahead = value - _value(game, alone.error)
    ahead = jnp.where(ahead > 1e-6 * value, ahead, 0.0)
    free = (outcome.utility - alone.utility) / jnp.where(ahead > 0, ahead, 1.0)
    largest = jnp.maximum(jnp.abs(outcome.utility).max(), alone.utility.max())
    return Certificate(
        searched=searched,
        regret=regret,
        deviation=deviation,
        ir_slack=outcome.utility - alone.utility,
        paid=outcome.money.sum(),
        allowance=outcome.reward_rate * m.sum(),
        assumptions=_assumptions(game, outcome, searched),
        free_ride=jnp.where(ahead > 0, jnp.clip(free, 0.0, 1.0), 0.0),
        totals=_totals(game, outcome, probes),
        total=m.sum(),
        largest_utility=jnp.where(largest > 0, largest, 1.0),
        tolerance=jnp.asarray(1e-8 if m.dtype == jnp.float64 else 1e-4, m.dtype),
        rounding=256 * jnp.finfo(m.dtype).eps * (value + game.devices.cost * m).max(),
    )


def _regret(game: Game, outcome: Equilibrium, searched: Array) -> tuple[Array, Array]:
    """Of some devices what the best deviation gains, and the deviation, [s] each."""
    everybody = outcome.contribution, outcome.local, opponents_of(game.devices, outcome.contribution)
    m, alone, here = jax.tree.map(lambda leaf: leaf[searched], everybody)
    some = with_field(game, "devices", game.devices.take(searched))
    found = best_responses(some, alone, here)

    def gain(position: Position, to: Array, at: Array) -> Array:
        return utility_of(to, position) - utility_of(at, position)

    # Staying, leaving and the local optimum are deviations that the search itself might miss.
    candidates = jnp.stack([m, jnp.zeros_like(m), alone.contribution, found])
    gains = jnp.stack([in_position(some, gain, alone, here, to, m) for to in candidates])
    best = gains.argmax(axis=0)
    return gains.max(axis=0), jnp.take_along_axis(candidates, best[None], axis=0)[0]


def _value(game: Game, error: Array) -> Array:
    return game.devices.map(lambda device, e: value_at(device.payoff, e), error)


def _totals(game: Game, outcome: Equilibrium, probes: int) -> Array:
    """Total contributions that best responses reach from several starts, NaN where they do not settle."""
    if not probes:
        return jnp.zeros((0,), outcome.contribution.dtype)

    def one(start: Array) -> FixedPoint:
        return fixed_point(game, outcome.local, start, jnp.asarray(True))

    found = jax.lax.map(one, starts(game, outcome.local)[:probes])
    settled = found.residual <= outcome.contribution.dtype.type(1e-6)
    return jnp.where(settled, found.contribution.sum(axis=1), jnp.nan)


def _assumptions(game: Game, outcome: Equilibrium, searched: Array) -> dict[str, Array]:
    """Which of some devices satisfy each assumption, on the data and the accuracies in play."""
    top = jnp.maximum(outcome.contribution.sum(), outcome.local.contribution.max())
    low = outcome.federation.error

    def one(device: Devices, local_error: Array) -> dict[str, Array]:
        m = jnp.maximum(top, 1.0) * jnp.exp(jnp.linspace(-23.0, 0.0, POINTS, dtype=top.dtype))
        best = jnp.minimum(low, local_error)
        seen = best + (1 - best) * jnp.linspace(0.0, 1.0, POINTS, dtype=top.dtype)
        shaped = best + (local_error - best) * jnp.linspace(0.0, 1.0, POINTS, dtype=top.dtype)
        bought = jax.vmap(lambda m: error_at(device.accuracy, m))(m) < 1

        def accuracy(x: Array) -> Array:
            return 1 - error_at(device.accuracy, x)

        def payoff(a: Array) -> Array:
            return value_at(device.payoff, 1 - a)

        def composed(x: Array) -> Array:
            return value_at(device.payoff, error_at(device.accuracy, x))

        return {
            "accuracy": _increasing(accuracy, m, bought) & _bends(accuracy, m, bought, -1),
            "payoff": _increasing(payoff, 1 - seen, True)
            & _bends(payoff, 1 - seen, True, 1)
            & _bends(composed, m, bought, -1),
            "federation": low <= local_error,
            "third_derivative": _bends(derivative(payoff), 1 - shaped, True, 1),
        }

    return game.devices.take(searched).map(one, outcome.local.error[searched])


def _increasing(f: Callable[..., Array], x: Array, matters: Array | bool) -> Array:
    return jnp.all(jnp.where(matters, jax.vmap(derivative(f))(x) >= 0, True))


def _bends(f: Callable[..., Array], x: Array, matters: Array | bool, sign: int) -> Array:
    """Convex (sign 1) or concave (sign -1) wherever it matters, up to rounding."""
    first, second = jax.vmap(derivative(f))(x), jax.vmap(derivative(derivative(f)))(x)
    slack = 1e3 * jnp.finfo(x.dtype).eps * jnp.abs(first) / jnp.maximum(jnp.abs(x), 1e-3)
    return jnp.all(jnp.where(matters, sign * second >= -slack, True))
