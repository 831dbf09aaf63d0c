"""Accuracy-data curves: what accuracy m samples buy (assumption 1).

A curve is any callable pytree, m -> a(m). The two of the paper are here. Inside the package accuracies
travel as errors e = 1 - a, because payoffs explode as a -> 1 and 1 - a cancels: a curve may offer
`error(m)`; for one that does not, 1 - a(m) is used.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from realfm_jax._struct import check, struct, with_field
from realfm_jax.scalar import greater, lesser, log, root

Curve = Callable[[Any], Any]
"""Any callable pytree m -> a(m): non-negative, non-decreasing, below 1."""

PLENTY = 1e30
"""More samples than any device has: where a curve is as good as at its limit (finite in float32)."""


class _Shortfall:
    """A curve a_opt - shortfall(m), clipped at 0, of which children know the shortfall."""

    a_opt: Any
    k: Any

    def __post_init__(self) -> None:
        check(self, "a_opt", "in (0, 1)", lambda x: (x > 0) & (x < 1))
        check(self, "k", "> 0", lambda x: x > 0)

    def shortfall(self, m: ArrayLike) -> Array:
        """a_opt - a^(m), before clipping."""
        raise NotImplementedError

    def shortfall_at_log(self, log_m: ArrayLike) -> Array:
        """The same for m = exp(log_m): Newton's method walks along log m, and logarithms are dear."""
        raise NotImplementedError

    def error(self, m: ArrayLike) -> Array:
        """1 - a(m): 1 for every m up to the largest root m_0."""
        return lesser(1 - self.a_opt + self.shortfall(m), 1.0)

    def __call__(self, m: ArrayLike) -> Array:
        """a(m), in [0, a_opt)."""
        return 1 - self.error(m)


@struct
class GeneralizationBound(_Shortfall):
    """a(m) = a_opt - (sqrt(2k(2 + log(m/k))) + 4) / sqrt(m), the paper's curve (eq:gen-bound).

    Args:
      a_opt: best attainable accuracy, in (0, 1).
      k: complexity of the hypothesis class, > 0.

    >>> curve = GeneralizationBound(a_opt=0.95, k=10.0)
    >>> round(float(curve(198478.0)), 4), float(curve(0.0))
    (0.9064, 0.0)
    """

    a_opt: Any
    k: Any

    def shortfall(self, m: ArrayLike) -> Array:
        """a_opt - a^(m), before clipping. Below m = k/e, where it exceeds 2, it is held constant.

        From there on it only falls, so the largest root m_0 lies to the right; to the left the formula
        first rises again (a spurious second root for k > 131) and then is undefined (m < k/e^2).
        """
        m = greater(m, self.k / jnp.e)
        return self._formula(log(m) - log(self.k), jnp.sqrt(1 / m))

    def shortfall_at_log(self, log_m: ArrayLike) -> Array:
        """The same for m = exp(log_m)."""
        log_k = log(self.k)
        log_m = greater(log_m, log_k - 1)
        return self._formula(log_m - log_k, jnp.exp(-log_m / 2))

    def _formula(self, log_ratio: Array, inverse_root: Array) -> Array:
        return (jnp.sqrt(2 * self.k * (2 + log_ratio)) + 4) * inverse_root

    @property
    def useless(self) -> Array:
        """So few samples that a(m) is 0 whatever a_opt, yet with a slope: a lower end for searches."""
        return 1.1 * self.k / jnp.e


@struct
class InverseSqrt(_Shortfall):
    """a(m) = a_opt - 2 sqrt(k/m), the paper's simplified curve, used for MNIST (eq:acc2).

    Args:
      a_opt: best attainable accuracy, in (0, 1).
      k: complexity of the hypothesis class, > 0.

    >>> curve = InverseSqrt(a_opt=0.9, k=0.25)
    >>> round(float(curve(100.0)), 4), float(curve(0.0))
    (0.8, 0.0)
    """

    a_opt: Any
    k: Any

    def shortfall(self, m: ArrayLike) -> Array:
        """a_opt - a^(m), before clipping; held at 2 below m = k."""
        return 2 * jnp.sqrt(self.k / greater(m, self.k))

    def shortfall_at_log(self, log_m: ArrayLike) -> Array:
        """The same for m = exp(log_m)."""
        return 2 * jnp.exp((log(self.k) - greater(log_m, log(self.k))) / 2)

    @property
    def useless(self) -> Array:
        """So few samples that a(m) is 0 whatever a_opt, yet with a slope: a lower end for searches."""
        return 2 * self.k


def error_at(curve: Curve, m: ArrayLike) -> Array:
    """1 - a(m) of any curve, without cancellation where the curve offers `error`."""
    if hasattr(curve, "error"):
        return curve.error(m)
    return 1 - jnp.asarray(curve(m))


@jax.jit
def largest_root(curve: GeneralizationBound | InverseSqrt) -> Array:
    """m_0, the largest m at which a^(m) = 0: a(m) is 0 up to here and rises from here on.

    >>> round(float(largest_root(InverseSqrt(a_opt=0.5, k=1.0))), 3)
    16.0
    """

    def below(x: Array) -> Array:
        return log(curve.shortfall_at_log(x)) - log(curve.a_opt)

    low = jnp.log(curve.useless)
    # For t = m/k >= 1 the shortfall, (sqrt(2 log t + 4) + 4/sqrt(k)) / sqrt(t), is below
    # (10 + 4/sqrt(k)) / t^(1/4).
    far = jnp.log(curve.k) + 4 * jnp.log((10 + 4 / jnp.sqrt(curve.k)) / curve.a_opt)
    return jnp.exp(root(below, low, greater(far, low))[0])


def server_curve(curve: Curve, a_opt: ArrayLike) -> Curve:
    """The server's curve (eq:server-acc): the devices', with the contribution-weighted mean a_opt.

    A curve without an `a_opt` is common to everybody and serves as it is.
    """
    if hasattr(curve, "a_opt"):
        return with_field(curve, "a_opt", a_opt)
    return curve
