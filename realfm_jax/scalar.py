"""One-dimensional problems, written once: a root, and a global maximum that may sit in a kink.

Both are solved inside a bracket without derivatives of the solver, and differentiated by the implicit
function theorem, forward and reverse, to any order.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

MAX_STEPS = 80
"""Of the safeguarded Newton iteration: enough for pure bisection down to float64 precision."""
PLAIN_STEPS = 4
"""Of Halley's method without safeguards, tried first: a fixed number is faster than a loop that looks."""
GRID = 384
"""Points of the coarse global search."""
SPAN = 46.0
"""Width of that search in log m: twenty decades below the largest contribution that can pay."""


def value_and_derivative(f: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """(f, df/dx) of a scalar function f(x, *args), in forward mode: a fraction of `grad`'s compile time.

    >>> tuple(map(float, value_and_derivative(lambda x, y: x**2 * y)(3.0, 2.0)))
    (18.0, 12.0)
    """

    def both(x: ArrayLike, *args: Any) -> tuple[Any, Any]:
        x = jnp.asarray(x)
        return jax.jvp(lambda x: f(x, *args), (x,), (jnp.ones_like(x),))

    return both


def derivative(f: Callable[..., Array]) -> Callable[..., Array]:
    """df/dx alone; see `value_and_derivative`."""
    both = value_and_derivative(f)
    return lambda x, *args: both(x, *args)[1]


def lesser(x: ArrayLike, y: ArrayLike) -> Array:
    """min(x, y), safe to differentiate where x and y are nearly equal, as they are at every equilibrium.

    `jnp.minimum` finds the active argument by comparing both with the result; a compiler that rounds a
    recomputed argument differently makes neither match, and the derivative silently vanishes.
    """
    return jnp.where(jnp.less(x, y), x, y)


def greater(x: ArrayLike, y: ArrayLike) -> Array:
    """max(x, y), safe to differentiate: see `lesser`."""
    return jnp.where(jnp.greater(x, y), x, y)


def log(x: ArrayLike) -> Array:
    """Natural logarithm, in float64 on a CPU at a third of the cost of `jnp.log`.

    XLA calls a scalar library function for each element there; these few operations it vectorises. Right to
    2 units of the last digit; subnormal numbers count as zero.

    >>> float(log(1.0)), float(log(0.0))
    (0.0, -inf)
    """
    x = jnp.asarray(x)
    if x.dtype != jnp.float64:
        return jnp.log(x)
    return _log64(x)


@jax.custom_jvp
def _log64(x: Array) -> Array:
    return lax.platform_dependent(x, cpu=_log_by_polynomial, default=jnp.log)


@_log64.defjvp
def _log64_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _log64(primals[0]), tangents[0] / primals[0]


def rough_log(x: ArrayLike) -> Array:
    """An upper bound of log(x), 0.01 above it or less, at a fraction of its cost; at most log(1e38)."""
    x = jnp.asarray(x)
    return jnp.log(jnp.minimum(x, 1e38).astype(jnp.float32)).astype(x.dtype) + 0.005


_ARTANH = (
    *(0.666666666666667, 0.39999999999899505, 0.28571428625975487, 0.2222221113479508),
    *(0.18182889125261723, 0.15331721600556042, 0.14616449685043406),
)
"""(2 artanh(s) - 2 s) / s^3 as a polynomial in s^2, interpolated at Chebyshev's nodes for |s| < 0.172."""


def _log_by_polynomial(x: Array) -> Array:
    """log(2^p t) = p log 2 + 2 artanh((t - 1) / (t + 1)), t in [sqrt(1/2), sqrt(2))."""
    one, least = (int(np.float64(y).view(np.int64)) for y in (1.0, np.sqrt(0.5)))
    bits = lax.bitcast_convert_type(x, jnp.int64) + (one - least)
    power = ((bits >> 52) - 1023).astype(x.dtype)
    t = lax.bitcast_convert_type((bits & ((1 << 52) - 1)) + least, x.dtype)
    s = (t - 1) * (1 / (t + 1))  # not one quotient, which XLA would write to memory
    z, (a, b, c, d, e, f, g) = s * s, _ARTANH
    # In pairs, so that multiplications need not wait for each other.
    polynomial = (a + b * z) + (c + d * z) * z**2 + ((e + f * z) + g * z**2) * (z**2) ** 2
    value = power * np.log(2.0) + (2 * s + s * z * polynomial)
    value = jnp.where(x < jnp.inf, value, x)
    return jnp.where(x >= jnp.finfo(x.dtype).tiny, value, jnp.where(x >= 0, -jnp.inf, jnp.nan))


class _Bracket(NamedTuple):
    x: Array
    low: Array
    high: Array
    unfinished: Array
    steps: Array


def root(
    f: Callable[..., Array],
    low: ArrayLike,
    high: ArrayLike,
    args: tuple[Any, ...] = (),
    plain_steps: int = PLAIN_STEPS,
) -> tuple[Array, Array]:
    """Where f(x, *args) crosses zero from above, seen from the right; returns (x, steps taken).

    A few plain steps of Halley's method from `high` nearly always get there; all but the last take `args`
    in float32, which is less work and does not show: the last step triples the digits. Where they do
    not get there, Newton's method goes on inside a shrinking bracket, from where they led or, if that is
    left of a maximum of f, from `high`; a step that leaves the bracket becomes a bisection. If f < 0
    throughout, x ends near `low`. Needs f(high) <= 0. Differentiable in `args` and whatever f closes over.

    >>> x, _ = root(lambda x, y: y - x**2, 0.0, 10.0, (2.0,))
    >>> round(float(x), 5)
    1.41421
    """
    low, high = jnp.broadcast_arrays(*map(jnp.asarray, (low, high)))
    dtype = jnp.result_type(low, high)
    low, high = low.astype(dtype), high.astype(dtype)
    # Newton's error after a step is about the square of the step (Halley's: the cube): one of this size is
    # the last.
    eps = float(jnp.finfo(dtype).eps)
    tolerance, halley_tolerance = eps**0.5, eps**0.3

    def solve(f_of: Callable[[Array], Array], start: Array) -> tuple[Array, Array]:
        def safe_step(state: _Bracket) -> _Bracket:
            value, slope = value_and_derivative(f_of)(state.x)
            low = jnp.where(value > 0, state.x, state.low)
            high = jnp.where(value > 0, state.high, state.x)
            newton = state.x - value / jnp.where(slope == 0, 1, slope)
            # A compiler may compute f twice, and round a value near 0 up here and down there: then the step
            # ends a hair outside.
            hair = 16 * eps * jnp.maximum(jnp.abs(state.x), 1)
            inside = (newton >= low - hair) & (newton <= high + hair) & (slope < 0)
            newton = lesser(greater(newton, low), high)
            x = jnp.where(value == 0, state.x, jnp.where(inside, newton, (low + high) / 2))
            # A bisection's step says nothing of what is left but that it is no larger.
            moved = jnp.abs(x - state.x) * jnp.where(inside, 1, tolerance / (4 * eps))
            steps = state.steps + 1
            unfinished = (moved > tolerance * jnp.maximum(jnp.abs(x), 1)) & (steps < MAX_STEPS)
            return _Bracket(x, low, high, unfinished, steps)

        def finish(x: Array, unfinished: Array) -> tuple[Array, Array]:
            first = _Bracket(x, low, high, unfinished, jnp.full_like(x, plain_steps))
            last = lax.while_loop(lambda state: state.unfinished, safe_step, first)
            return last.x, last.steps

        if not plain_steps:
            return finish(start, jnp.full_like(start, True, bool))
        before = _plain_steps(f, low, high, args, plain_steps - 1)
        by = _halley(f_of, before)
        # Right of its last maximum f leads to the right-most root, so that is as good a start as any.
        x = jnp.where(jnp.isnan(by), start, lesser(greater(before - by, low), high))
        return finish(x, ~(jnp.abs(by) <= halley_tolerance))

    def tangent_solve(g: Callable[[Array], Array], y: Array) -> Array:
        slope = g(jnp.ones_like(y))
        return y / jnp.where(slope == 0, 1, slope)

    # Steps are counted in floating point: custom_root cannot differentiate past an integer.
    x, steps = lax.custom_root(lambda x: f(x, *args), high, solve, tangent_solve, has_aux=True)
    return x, lax.stop_gradient(steps).astype(int)


def _plain_steps(f: Callable[..., Array], low: Array, high: Array, args: Any, steps: int) -> Array:
    """Halley's method from `high`, in float32."""

    def rough(leaf: Any) -> Array:
        array = jnp.asarray(leaf)
        return array.astype(jnp.float32) if jnp.issubdtype(array.dtype, jnp.floating) else array

    least, most, given = jax.tree.map(rough, (low, high, args))

    x = most
    for _ in range(steps):  # not a loop of XLA's: it would write every step to memory
        x = lesser(greater(x - _halley(lambda x: f(x, *given), x), least), most)
        x = x.astype(most.dtype)  # f may close over float64
    return x.astype(high.dtype)


def _halley(f: Callable[[Array], Array], x: Array) -> Array:
    """Halley's step from x towards a root of f, to be subtracted; not-a-number where f rises."""
    (value, slope), (_, bend) = value_and_derivative(value_and_derivative(f))(x)
    # The division comes last: a compiler keeps its result, and computes what leads there only once.
    return jnp.where(slope < 0, 2 * value * slope, jnp.nan) / (2 * slope**2 - value * bend)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def argmax(u: Callable[[Array, Any], Array], args: Any, upper: Array) -> Array:
    """The global maximiser of u(m, args) over 0 <= m <= upper; 0 where nothing beats m = 0.

    A logarithmic grid finds the best neighbourhood, bisection on the sign of du/dm the maximum in it, to
    the last bits, be it smooth or a kink. u must not close over traced values: they belong into `args`.

    >>> u = lambda m, cost: jnp.sqrt(m) - cost * m
    >>> round(float(argmax(u, jnp.asarray(0.05), jnp.asarray(1e4))), 2)
    100.0
    """
    top = jnp.log(upper)
    grid = top + jnp.linspace(-SPAN, 0.0, GRID, dtype=top.dtype)
    best = jnp.argmax(jax.vmap(lambda x: u(jnp.exp(x), args))(grid))
    low, high = grid[jnp.maximum(best - 1, 0)], grid[jnp.minimum(best + 1, GRID - 1)]

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        rising = derivative(u)(jnp.exp(middle), args) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    bits = jnp.finfo(top.dtype).nmant + 2
    low, high = lax.fori_loop(0, bits, halve, (low, high))
    m = jnp.exp((low + high) / 2)
    return jnp.where(u(m, args) > u(jnp.zeros_like(m), args), m, 0.0)


@argmax.defjvp
def _argmax_jvp(
    u: Callable[..., Array], primals: tuple[Any, Array], tangents: tuple[Any, Array]
) -> tuple[Array, Array]:
    """Implicit derivative: of du/dm = 0 at a smooth maximum, of left branch = right branch at a kink."""
    args, upper = primals
    m = argmax(u, args, upper)
    here = jnp.where(m > 0, m, 1.0)
    # Both sides are looked at this close by: far enough from rounding, and the error of the derivative.
    nudge = jnp.finfo(here.dtype).eps ** 0.6

    # A smooth maximum's jump in slope shrinks with the width it is measured over, a kink's does not.
    offsets = nudge * jnp.array([-1.0, 1.0, -0.125, 0.125], here.dtype)
    slopes = jax.vmap(lambda offset: derivative(u)(here * (1 + offset), args))(offsets)
    jump, narrow_jump = slopes[0] - slopes[1], slopes[2] - slopes[3]
    kink = narrow_jump > 0.5 * jump

    def branches(args: Any) -> Array:
        left, right = jax.vmap(lambda offset: u(here * (1 + offset), args))(offsets[:2])
        return left - right

    kink_speed = jax.jvp(branches, (args,), (tangents[0],))[1]
    smooth_speed = jax.jvp(lambda args: derivative(u)(here, args), (args,), (tangents[0],))[1]
    curvature = derivative(derivative(u))(here, args)
    speed = jnp.where(kink, kink_speed, smooth_speed)
    stiffness = jnp.where(kink, jump, curvature)
    speed = -speed / jnp.where(stiffness == 0, 1, stiffness)
    return m, jnp.where(m > 0, speed, 0.0)
