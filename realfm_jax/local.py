"""What a device does alone: its utility and the amount of data that maximises it."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from realfm_jax._struct import struct
from realfm_jax.accuracy import PLENTY, GeneralizationBound, InverseSqrt, error_at
from realfm_jax.game import Devices
from realfm_jax.payoff import Expansion, LinearPayoff, PowerPayoff, expand, value_at
from realfm_jax.scalar import argmax, greater, lesser, log, root, rough_log, value_and_derivative


@struct
class LocalOptimum:
    """What each device reaches on its own (thm:local-optimal).

    Attributes:
      contribution: m_i^o, [n], samples; 0 where no amount of data pays.
      utility: u_i(m_i^o), [n], >= 0.
      payoff: phi_i seen from the local accuracy, [n] each.
    """

    contribution: Array
    utility: Array
    payoff: Expansion

    @property
    def error(self) -> Array:
        """1 - a_i(m_i^o), [n]."""
        return self.payoff.error

    @property
    def accuracy(self) -> Array:
        """a_i(m_i^o), the paper's a-bar_i, [n]."""
        return 1 - self.error


def local_utility(devices: Devices, contribution: ArrayLike) -> Array:
    """u_i(m) = phi_i(a_i(m)) - c_i m, utility of training alone on m samples (eq:utility), [n].

    >>> from realfm_jax import InverseSqrt, LinearPayoff
    >>> device = Devices(cost=1e-3, accuracy=InverseSqrt(a_opt=0.9, k=0.25), payoff=LinearPayoff())
    >>> round(float(local_utility(device, 100.0)), 4)
    0.7
    """
    value = value_at(devices.payoff, error_at(devices.accuracy, contribution))
    return value - devices.cost * contribution


@jax.jit
def local_optimum(devices: Devices) -> LocalOptimum:
    """The amount of data that maximises each device's local utility (thm:local-optimal), [n].

    The global maximiser: the right-most m with phi'(a) a'(m) = c, and 0 if the utility there is not
    positive. Curves and payoffs other than the package's are searched on a grid first.

    >>> from realfm_jax import GeneralizationBound
    >>> alone = local_optimum(Devices(cost=2.5e-4, accuracy=GeneralizationBound(a_opt=0.95, k=10.0)))
    >>> round(float(alone.contribution[0]), -2)
    198500.0
    """
    known = isinstance(devices.accuracy, GeneralizationBound | InverseSqrt) and isinstance(
        devices.payoff, PowerPayoff | LinearPayoff
    )

    def one(device: Devices) -> LocalOptimum:
        m, error = (_last_stationary_point if known else _best_found)(device)
        utility = value_at(device.payoff, error) - device.cost * m
        there = LocalOptimum(m, utility, expand(device.payoff, error))
        zero = jnp.zeros_like(m)
        nowhere = LocalOptimum(zero, zero, expand(device.payoff, error_at(device.accuracy, zero)))
        return jax.tree.map(lambda x, y: jnp.where(utility > 0, x, y), there, nowhere)

    return devices.map(one)


def _last_stationary_point(device: Devices) -> tuple[Array, Array]:
    """(m, 1 - a(m)) at the right-most root of log(phi'(a) a'(m)) - log c in log m, one device."""

    def excess(x: Array, device: Any, log_price: Array) -> Array:
        curve = device.accuracy
        # Not clipped at accuracy 0: there the logarithm of a zero slope would be -inf.
        shortfall, falling = value_and_derivative(curve.shortfall_at_log)(x)
        steepening = device.payoff.log_steepening(1 - curve.a_opt + shortfall)
        return steepening + log(-falling) - log_price - x

    curve: Any = device.accuracy
    payoff: Any = device.payoff
    low = log(curve.useless)
    high = rough_log(value_at(payoff, 1 - curve.a_opt) / device.cost)
    # Logarithms are most of the work: this one is taken once.
    given = device, log(device.cost * (1 / payoff.first_slope))
    x, _ = root(excess, low, greater(low, high), given)
    return jnp.exp(x), lesser(1 - curve.a_opt + curve.shortfall_at_log(x), 1.0)


def _best_found(device: Devices) -> tuple[Array, Array]:
    """(m, 1 - a(m)) at the global maximum for any curve and payoff, one device."""
    most = value_at(device.payoff, error_at(device.accuracy, PLENTY)) / device.cost
    m = argmax(lambda m, d: local_utility(d, m), device, most)
    return m, error_at(device.accuracy, m)
