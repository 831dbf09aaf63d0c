"""Payoffs: what an accuracy is worth to its owner (assumption 2).

A payoff is any increasing callable pytree a -> phi(a) with phi(0) = 0. One that knows better than
phi(1 - e) how to evaluate itself at an error e = 1 - a offers `at_error(e)`, and one that knows its inverse
`error_for(value)`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from realfm_jax._struct import check, floating, struct
from realfm_jax.scalar import derivative, greater, lesser, log, root

Payoff = Callable[[Any], Any]
"""Any callable pytree a -> phi(a), increasing, phi(0) = 0."""


@struct
class PowerPayoff:
    """phi(a) = scale (1 / (1 - a)^exponent - 1): each point of accuracy is worth more than the last.

    Args:
      scale: z, utility, > 0.
      exponent: b, > 0; the paper uses 2. Above 2, phi(a(m)) is no longer concave in m.

    >>> float(PowerPayoff(scale=2.0, exponent=2.0)(0.5))
    6.0
    """

    scale: Any = 1.0
    exponent: Any = 2.0

    def __post_init__(self) -> None:
        check(self, "scale", "> 0", lambda x: x > 0)
        check(self, "exponent", "> 0", lambda x: x > 0)

    def __call__(self, accuracy: ArrayLike) -> Array:
        """phi(a), utility; a in [0, 1)."""
        return self.at_error(1 - jnp.asarray(accuracy))

    def at_error(self, error: ArrayLike) -> Array:
        """phi(1 - e), e in (0, 1]."""
        return self.scale * jnp.expm1(-self.exponent * log(error))

    @property
    def first_slope(self) -> Array:
        """phi'(0)."""
        return self.scale * self.exponent

    def log_steepening(self, error: ArrayLike) -> Array:
        """log(phi'(1 - e) / phi'(0))."""
        return -(self.exponent + 1) * log(error)

    def error_for(self, value: ArrayLike) -> Array:
        """The e with phi(1 - e) = value, value >= 0."""
        return jnp.exp(-jnp.log1p(value / self.scale) / self.exponent)


@struct
class LinearPayoff:
    """phi(a) = scale a: every point of accuracy is worth the same (Karimireddy et al.).

    Args:
      scale: w, utility, > 0.

    >>> float(LinearPayoff(scale=2.0)(0.5))
    1.0
    """

    scale: Any = 1.0

    def __post_init__(self) -> None:
        check(self, "scale", "> 0", lambda x: x > 0)

    def __call__(self, accuracy: ArrayLike) -> Array:
        """phi(a), utility."""
        return self.scale * accuracy

    def at_error(self, error: ArrayLike) -> Array:
        """phi(1 - e)."""
        return self.scale * (1 - error)

    @property
    def first_slope(self) -> Array:
        """phi'(0)."""
        return self.scale

    def log_steepening(self, error: ArrayLike) -> Array:
        """log(phi'(1 - e) / phi'(0)) = 0."""
        return jnp.zeros_like(error)

    def error_for(self, value: ArrayLike) -> Array:
        """The e with phi(1 - e) = value; negative beyond the value of a perfect model."""
        return 1 - value / self.scale


def value_at(payoff: Payoff, error: ArrayLike) -> Array:
    """phi(1 - e) of any payoff, without cancellation where the payoff offers `at_error`."""
    if hasattr(payoff, "at_error"):
        return payoff.at_error(error)
    return jnp.asarray(payoff(1 - error))


def error_for(payoff: Payoff, value: ArrayLike) -> Array:
    """The error e with phi(1 - e) = value: in closed form where the payoff knows it, else by root-finding.

    A value that not even e = 1e-12 (float32: 1e-6) is worth gives that e.

    >>> round(float(error_for(lambda a: a + a**3, 0.625)), 6)
    0.5
    """
    if hasattr(payoff, "error_for"):
        return payoff.error_for(value)
    value = floating(value)
    tiny = 1e-12 if jnp.finfo(value.dtype).bits == 64 else 1e-6
    # Searched in x = -log e, so that payoffs with a pole at a = 1 stay tame; no value is below phi(0).
    wanted = lesser(greater(value, value_at(payoff, 1.0)), value_at(payoff, tiny))

    def missing(x: Array) -> Array:
        return wanted - value_at(payoff, jnp.exp(-x))

    return jnp.exp(-root(missing, jnp.zeros_like(value), jnp.full_like(value, -jnp.log(tiny)))[0])


@struct
class Expansion:
    """A payoff seen from one accuracy: all that Taylor shaping knows of it.

    Attributes:
      error: e = 1 - a, where the payoff is expanded.
      slope: phi'(a).
      curvature: phi''(a).
    """

    error: Array
    slope: Array
    curvature: Array


def expand(payoff: Payoff, error: ArrayLike) -> Expansion:
    """phi' and phi'' with respect to the accuracy, at error e, one device, by automatic differentiation."""
    e = floating(error)
    by_error = derivative(lambda e: value_at(payoff, e))
    return Expansion(e, -by_error(e), derivative(by_error)(e))
