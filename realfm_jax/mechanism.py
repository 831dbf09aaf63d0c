"""What a mechanism gives each device for its contribution: a model and money."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from realfm_jax._struct import Numbers, check, checked, static, struct
from realfm_jax.accuracy import Curve, error_at, server_curve
from realfm_jax.each import add_up
from realfm_jax.game import Devices, Federation, Game, Mechanism, Server
from realfm_jax.local import LocalOptimum, local_optimum
from realfm_jax.payoff import value_at
from realfm_jax.scalar import greater, lesser
from realfm_jax.shaping import EPSILON, Shaping, check_shaping, gain, worth

Money = Literal["capped", "paper"]


@struct
class RealFM(Mechanism):
    """The paper's mechanism (eq:mech): shaped accuracy and money for data beyond the local optimum.

    With `LinearPayoff` devices it is Linear RealFM, the federated version of Karimireddy et al.

    Args:
      shaping: "taylor" (eq:gamma) or "exact" (phi inverted: asks for the most data possible).
      epsilon: eps, utility per sample, > 0: what every further sample earns a device at the least.
      money: "paper" pays r for every sample beyond m_i^o and asks that much less for accuracy, which
        leaves a profitable deviation open when the server's profit margin is below 1; "capped" pays with
        accuracy first and with money, up to r per sample, what is then still owed. Same equilibrium,
        no such deviation (docs/theory.md).
    """

    shaping: Shaping = static(default="taylor")
    epsilon: Any = EPSILON
    money: Money = static(default="capped")

    def __post_init__(self) -> None:
        check(self, "epsilon", "> 0", lambda x: x > 0)
        check_shaping(self.shaping, "RealFM.shaping")
        if self.money not in get_args(Money):
            allowed = ", ".join(get_args(Money))
            raise ValueError(f"RealFM.money must be one of {allowed}; got {self.money!r}")

    def offer(
        self, device: Devices, alone: LocalOptimum, contribution: Array, federation: Federation
    ) -> tuple[Array, Array]:
        """The three intervals of eq:mech; a device never has to use a model worse than its own."""
        extra = greater(contribution - alone.contribution, 0.0)
        rate = federation.reward_rate
        deducted = rate if self.money == "paper" else 0.0
        owed = greater(device.cost - deducted + self.epsilon, 0.0) * extra
        shaped = alone.error - gain(self.shaping, device.payoff, alone.payoff, owed)
        own = error_at(device.accuracy, contribution)
        # At the equilibrium "still shaped?" and "limited by r?" are ties. There a device holds the
        # federated model and r limits its money: it decides derivatives at p_m = 1, with all money 0.
        rounding = 64 * jnp.finfo(own.dtype).eps
        still_shaped = shaped > federation.error * (1 + rounding)
        error = lesser(jnp.where(still_shaped, shaped, federation.error), own)
        error = jnp.where(extra > 0, error, own)
        if self.money == "paper":
            return error, rate * extra
        unpaid = owed - worth(self.shaping, device.payoff, alone.payoff, error)
        by_rate = rate * extra <= unpaid + rounding * owed
        money = jnp.where(by_rate, rate * extra, greater(unpaid, 0.0))
        return error, jnp.where(still_shaped, 0.0, money)

    def full_reward_contribution(
        self, device: Devices, alone: LocalOptimum, federation: Federation
    ) -> Array:
        """m_i^* at given aggregates: where shaping reaches the federated accuracy (thm:acc-shaping)."""
        # A worse model than its own is worth nothing to a device, whatever Taylor's parabola says.
        error = lesser(federation.error, alone.error)
        value = worth(self.shaping, device.payoff, alone.payoff, error)
        rate = lesser(federation.reward_rate, device.cost)
        return alone.contribution + value / (device.cost - rate + self.epsilon)


@struct
class EqualShare(Mechanism):
    """Plain FedAvg: everybody gets the federated model, whatever it gave. The free-rider dilemma."""

    def offer(
        self, device: Devices, alone: LocalOptimum, contribution: Array, federation: Federation
    ) -> tuple[Array, Array]:
        """The federated model, or the device's own where that is better; no money."""
        del alone
        own = error_at(device.accuracy, contribution)
        return lesser(federation.error, own), jnp.zeros_like(own)


@struct
class LocalOnly(Mechanism):
    """No federation: everybody trains alone."""

    def offer(
        self, device: Devices, alone: LocalOptimum, contribution: Array, federation: Federation
    ) -> tuple[Array, Array]:
        """The device's own model; no money."""
        del alone, federation
        own = error_at(device.accuracy, contribution)
        return own, jnp.zeros_like(own)

    def server_error(self, federation: Federation, errors: Array) -> Array:
        """The mean over the local models, the paper's reading of a server without federation."""
        del federation
        return jnp.mean(errors)


@struct
class Rewards:
    """What a mechanism gives at given contributions.

    Attributes:
      error: 1 - a^r_i, [n], of the model that counts for each device.
      money: R_i, [n], utility.
      utility: u_i^r = phi_i(a^r_i) + R_i - c_i m_i, [n].
      server_error: 1 - a_C, [].
      server_utility: u_C = p_m phi_C(a_C), [].
      federation: total, error and reward rate of the federated model at these contributions.
    """

    error: Array
    money: Array
    utility: Array
    server_error: Array
    server_utility: Array
    federation: Federation

    @property
    def reward_rate(self) -> Array:
        """r(m), [], utility per sample."""
        return self.federation.reward_rate

    @property
    def accuracy(self) -> Array:
        """a^r_i, [n]."""
        return 1 - self.error

    @property
    def server_accuracy(self) -> Array:
        """a_C, []."""
        return 1 - self.server_error


def federate(server: Server, curve: Curve, total: Array, quality: Array) -> Federation:
    """The federated model and what is given away per sample (eq:server-acc, eq:server-reward).

    Args:
      server: the server.
      curve: its accuracy curve, whose a_opt is replaced by quality / total.
      total: S, the sum of all contributions, [].
      quality: the sum of contribution times a_opt, [].
    """
    safe = jnp.where(total > 0, total, 1.0)
    error = jnp.where(total > 0, error_at(server_curve(curve, quality / safe), safe), 1.0)
    return Federation(total, error, reward_rate(server, error, safe))


def reward_rate(server: Server, error: Array, total: Array) -> Array:
    """r = (1 - p_m) phi_C(a_C) / S (eq:server-reward), utility per sample."""
    return (1 - server.profit_margin) * value_at(server.payoff, error) / total


def server_utility(server: Server, error: Array) -> Array:
    """u_C = p_m phi_C(a_C) (eq:server-utility)."""
    return server.profit_margin * value_at(server.payoff, error)


def device_utility(device: Devices, contribution: Array, error: Array, money: Array) -> Array:
    """u_i^r = phi_i(a^r) + R - c_i m_i (eq:mech-utility, less the cost), one device."""
    return value_at(device.payoff, error) + money - device.cost * contribution


def rewards(game: Game, contribution: Numbers) -> Rewards:
    """What everybody gets when the devices contribute these amounts, at equilibrium or not (eq:mech).

    Args:
      game: the game.
      contribution: m_i, [n], samples, >= 0.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=[1e-4, 1e-4], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> given = rewards(rfm.Game(devices, rfm.Server(), rfm.EqualShare()), [100.0, 300.0])
    >>> [round(float(a), 3) for a in given.accuracy]
    [0.85, 0.85]
    """
    return rewards_at(game, local_optimum(game.devices), checked_contribution(game, contribution))


def checked_contribution(game: Game, contribution: Numbers) -> Array:
    """Contributions as a floating array [n], refused if of another shape, negative or not finite."""
    m = checked("contribution", contribution, ">= 0", lambda x: x >= 0)
    if m.shape != (len(game.devices),):
        raise ValueError(f"contribution must have shape [{len(game.devices)}]; got shape {m.shape}")
    return m


@jax.jit
def rewards_at(game: Game, alone: LocalOptimum, m: Array) -> Rewards:
    """`rewards` for contributions known to be valid and local optima known already."""
    federation = federate(game.server, game.server_accuracy_curve, add_up(m), game.devices.quality(m))

    def one(device: Devices, alone: LocalOptimum, m: Array) -> tuple[Array, Array, Array]:
        error, money = game.mechanism.offer(device, alone, m, federation)
        return error, money, device_utility(device, m, error, money)

    error, money, utility = game.devices.map(one, alone, m)
    server_error = game.mechanism.server_error(federation, error)
    gained = server_utility(game.server, server_error)
    return Rewards(error, money, utility, server_error, gained, federation)
