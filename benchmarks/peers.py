"""The same equilibria without this package: general tools of SciPy and optimistix, bisection in NumPy.

CIFAR-10 setting, power payoff with exponent 2, Taylor shaping, p_m = 1; written from the paper, which does
not name its numerical tools. Every peer gives the same `Answers`. What can be had cheaply is given to them:
unknowns are logarithms, starts are near, tolerances no tighter than the comparison needs.
"""

import importlib
import math
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, root

A_OPT, K, EPSILON = 0.95, 10.0, 1e-9
START = math.log(2e5)
"""log m near which a device of this setting trains alone."""
ROUND = 1e5
"""Samples: a person's guess of the same."""
Drawn = tuple[np.ndarray, np.ndarray]
"""Costs and payoff scales, [..., n] each."""


class Answers(NamedTuple):
    """What is compared: of one game, or of many along a leading axis.

    Attributes:
      local: m_i^o, [..., n], samples.
      contribution: m_i^*, [..., n], samples.
      server_error: 1 - a_C, [...].
      error: 1 - a^r_i, [..., n], of the rewarded models.
      utility: u_i^r, [..., n].
      server_utility: u_C, [...].
    """

    local: Any
    contribution: Any
    server_error: Any
    error: Any
    utility: Any
    server_utility: Any


def draw(*shape: int) -> Drawn:
    """Costs and payoff scales of the setting, drawn as in the paper, seed 0."""
    rng = np.random.default_rng(0)
    return rng.normal(2.5e-4, 0.05 * 2.5e-4, shape), rng.uniform(0.9, 1.1, shape)


def agreed(name: str, found: Iterable[Any], wanted: Iterable[Any], tolerance: float) -> float:
    """The largest relative difference of answers; an error if it is more than the tolerance.

    >>> agreed("halves", [0.5, 3.0], [0.5, 2.0], 0.5)
    0.5
    """
    off = [np.abs(np.asarray(x) / np.asarray(y) - 1).max() for x, y in zip(found, wanted, strict=True)]
    largest = float(np.max(off))
    if not largest <= tolerance:
        raise RuntimeError(f"{name}: answers differ by {largest:.1e}, more than {tolerance:.0e}")
    return largest


def error(m: Any, xp: ModuleType = np) -> Any:
    """1 - a(m) (eq:gen-bound), for more samples than the curve's root, with the arrays of `xp`.

    >>> round(float(error(198478.0)), 4)
    0.0936
    """
    return 1 - A_OPT + (xp.sqrt(2 * K * (2 + xp.log(m / K))) + 4) / xp.sqrt(m)


def marginal(m: Any, scale: Any, xp: ModuleType = np) -> Any:
    """d/dm of scale (1/e(m)^2 - 1), the value of one more sample to a device alone."""
    q = xp.sqrt(2 * K * (2 + xp.log(m / K)))
    root_m = xp.sqrt(m)
    e = 1 - A_OPT + (q + 4) / root_m
    return 2 * scale * ((q + 4) / 2 - K / q) / (e * e * e * m * root_m)


def replies(local: Any, at: Any, e: Any, cost: Any, scale: Any, xp: ModuleType = np) -> Any:
    """m_i^* at federated error e, of devices whose own is `at` (thm:acc-shaping)."""
    gained = xp.maximum(at - e, 0)
    return local + scale * gained * (2 * at + 3 * gained) / (at**4 * (cost + EPSILON))


def shaped(local: Any, at: Any, m: Any, cost: Any, scale: Any, xp: ModuleType = np) -> Any:
    """1 - (a-bar_i + gamma_i(m)), the error offered for m samples (eq:gamma)."""
    slope, curvature = 2 * scale / at**3, 6 * scale / at**4
    owed = (cost + EPSILON) * (m - local)
    return at - (xp.sqrt(slope**2 + 2 * curvature * owed) - slope) / curvature


def rewarded(local: Any, m: Any, cost: Any, scale: Any, xp: ModuleType = np) -> Answers:
    """What the mechanism gives at contributions m (eq:mech, eq:mech-utility, eq:server-utility)."""
    federated = error(m.sum(-1), xp)
    offered = xp.maximum(shaped(local, error(local, xp), m, cost, scale, xp), federated[..., None])
    utility = scale * (offered**-2 - 1) - cost * m
    return Answers(local, m, federated, offered, utility, federated**-2 - 1)


def with_numpy(cost: np.ndarray, scale: np.ndarray, steps: int = 53, block: int = 1024) -> Answers:
    """Many games [g, n] at once: bisection to the last bit for every m_i^o, then for every total.

    In blocks of games whose arrays stay in the processor's cache.
    """
    blocks = [slice(i, i + block) for i in range(0, len(cost), block)]
    found = [_bisected(cost[games], scale[games], steps) for games in blocks]
    return Answers(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _bisected(cost: np.ndarray, scale: np.ndarray, steps: int) -> Answers:
    most = np.log(
        scale * ((1 - A_OPT) ** -2 - 1) / cost
    )  # beyond, data costs more than perfection is worth
    local = np.exp(_bisect(lambda x: marginal(np.exp(x), scale) > cost, np.log(1e3), most, steps))
    at = error(local)

    def more(x: np.ndarray) -> np.ndarray:
        total = np.exp(x)
        return replies(local, at, error(total), cost, scale).sum(1, keepdims=True) > total

    least = local.sum(1, keepdims=True)
    most = replies(local, at, 1 - A_OPT, cost, scale).sum(1, keepdims=True)
    total = np.exp(_bisect(more, np.log(least), np.log(most), steps))
    return rewarded(local, replies(local, at, error(total), cost, scale), cost, scale)


def _bisect(positive: Callable[[Any], Any], low: Any, high: Any, steps: int) -> Any:
    """Where `positive` turns false, elementwise."""
    x, width = (low + high) / 2, (high - low) / 4
    for _ in range(steps):
        x = x + np.where(positive(x), width, -width)
        width = width / 2
    return x


def with_each_device(cost: np.ndarray, scale: np.ndarray) -> Answers:
    """One game [n], device by device, as the paper's equations read: Nelder-Mead for m_i^o, in samples,
    from a round guess, as SciPy comes; then one device after the other gives what lifts its shaped accuracy
    to a_C, by hybrid Powell, until nobody moves.

    Answers are good to about 1e-7: near its maximum a utility does not show more of where it is.
    """

    def most_alone(c: float, z: float) -> float:
        return minimize(lambda m: c * m[0] - z * (error(m[0]) ** -2 - 1), [ROUND], method="Nelder-Mead").x[
            0
        ]

    def reply(i: int, others: float, start: float) -> float:
        def missing(m: np.ndarray) -> np.ndarray:
            return shaped(local[i], at[i], m, cost[i], scale[i]) / error(others + m) - 1

        return _hybrid(missing, np.array([start]), 1e-10)[0]

    local = np.array([most_alone(c, z) for c, z in zip(cost, scale, strict=True)])
    at, m, before = error(local), 4 * local, np.zeros_like(local)
    while np.abs(m - before).max() > 1e-8 * m.max():
        before = m.copy()
        for i in range(len(m)):
            m[i] = reply(i, m.sum() - m[i], m[i])
    return rewarded(local, m, cost, scale)


def with_nelder_mead(cost: np.ndarray, scale: np.ndarray) -> Answers:
    """The same with some thought: along log m from nearby, and one root for all devices together.

    Nelder-Mead for each m_i^o, then hybrid Powell where all shaped accuracies reach a_C.
    """

    def most_alone(c: float, z: float) -> float:
        def loss(x: np.ndarray) -> float:
            m = np.exp(x[0])
            return c * m - z * (error(m) ** -2 - 1)

        options = {"xatol": 1e-7, "fatol": 1e-11}
        return minimize(loss, [START], method="Nelder-Mead", options=options).x[0]

    return _reached(np.exp([most_alone(c, z) for c, z in zip(cost, scale, strict=True)]), cost, scale)


def with_tuned_nelder_mead(cost: np.ndarray, scale: np.ndarray) -> Answers:
    """The same, made as fast as one can: Python's numbers, small simplices, each start where one ended."""
    x, found = START, []
    for c, z in zip(cost.tolist(), scale.tolist(), strict=True):
        x = _most_alone(c, z, x)
        found.append(x)
    return _reached(np.exp(found), cost, scale)


def _reached(local: np.ndarray, cost: np.ndarray, scale: np.ndarray) -> Answers:
    """The equilibrium from the local optima: where shaped and federated accuracy meet, [n]."""
    at = error(local)

    def missing(x: np.ndarray) -> np.ndarray:
        m = np.exp(x)
        return shaped(local, at, m, cost, scale) / error(m.sum()) - 1

    m = np.exp(_hybrid(missing, np.log(4 * local), 1e-10))
    return rewarded(local, m, cost, scale)


def _most_alone(cost: float, scale: float, start: float) -> float:
    """log m_i^o: the maximiser of eq:utility, one device."""

    def loss(x: np.ndarray) -> float:
        # Python's own numbers: on scalars several times as fast as NumPy's.
        m = math.exp(x[0])
        e = 1 - A_OPT + (math.sqrt(2 * K * (2 + math.log(m / K))) + 4) / math.sqrt(m)
        return cost * m - scale * (1 / (e * e) - 1)

    near = {"initial_simplex": [[start], [start + 0.05]], "xatol": 1e-7, "fatol": 1e-11}
    return float(minimize(loss, [start], method="Nelder-Mead", options=near).x[0])


def with_root(cost: np.ndarray, scale: np.ndarray) -> Answers:
    """One game [n]: hybrid Powell on n stationarity conditions, then on the n-dimensional equilibrium."""
    start = np.full_like(cost, START)
    local = np.exp(_hybrid(lambda x: np.log(marginal(np.exp(x), scale) / cost), start, 1e-12))
    at = error(local)

    def unbalanced(x: np.ndarray) -> np.ndarray:
        return np.log(replies(local, at, error(np.exp(x).sum()), cost, scale)) - x

    m = np.exp(_hybrid(unbalanced, np.log(4 * local), 1e-12))
    return rewarded(local, m, cost, scale)


def _hybrid(f: Callable[[np.ndarray], np.ndarray], start: np.ndarray, tolerance: float) -> np.ndarray:
    found = root(f, start, method="hybr", tol=tolerance)
    # Powell's method reports "no progress" when it is at the last digits already.
    if not found.success and np.abs(found.fun).max() > 1e-10:
        raise RuntimeError(f"SciPy's hybrid root did not converge: {found.message}")
    return found.x


def optimistix_solver() -> Callable[[Any, Any], Answers] | None:
    """optimistix on one game [n], to be jitted: a Newton root per device, then one in n dimensions.

    `None` where optimistix is not installed: it comes with the extra "bench".
    """
    try:
        optx: Any = importlib.import_module("optimistix")
    except ImportError:
        return None
    import jax
    import jax.numpy as jnp

    newton = optx.Newton(rtol=1e-10, atol=1e-10)

    def zero(f: Callable[[Any, Any], Any], start: Any, args: Any = None) -> Any:
        return optx.root_find(f, newton, start, args, throw=False).value

    def stationary(x: Any, device: Any) -> Any:
        c, z = device
        return jnp.log(marginal(jnp.exp(x), z, jnp) / c)

    def one(cost: Any, scale: Any) -> Answers:
        local = jnp.exp(jax.vmap(lambda c, z: zero(stationary, jnp.asarray(START), (c, z)))(cost, scale))
        at = error(local, jnp)

        def unbalanced(x: Any, _: Any) -> Any:
            total = jnp.exp(x).sum()
            return jnp.log(replies(local, at, error(total, jnp), cost, scale, jnp)) - x

        m = jnp.exp(zero(unbalanced, jnp.log(4 * local)))
        return rewarded(local, m, cost, scale, jnp)

    return one
