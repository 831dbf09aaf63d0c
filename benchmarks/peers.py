"""The same equilibria without this package: SciPy's general tools, and bisection in NumPy.

CIFAR-10 setting, power payoff with exponent 2, Taylor shaping, p_m = 1; written from the paper.
"""

import numpy as np
from scipy.optimize import minimize_scalar, root

A_OPT, K, EPSILON = 0.95, 10.0, 1e-9


def error(m: np.ndarray) -> np.ndarray:
    """1 - a(m) (eq:gen-bound)."""
    m = np.maximum(m, K / np.e)
    return np.minimum(1 - A_OPT + (np.sqrt(2 * K * (2 + np.log(m / K))) + 4) / np.sqrt(m), 1.0)


def marginal(m: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """d/dm of scale (1/e(m)^2 - 1)."""
    q = np.sqrt(2 * K * (2 + np.log(m / K)))
    return 2 * scale * error(m) ** -3 * ((q + 4) / 2 - K / q) / m**1.5


def replies(local: np.ndarray, e: np.ndarray, cost: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """m_i^* at federated error e (thm:acc-shaping)."""
    at = error(local)
    gained = np.maximum(at - e, 0)
    value = 2 * scale * at**-3 * gained + 3 * scale * at**-4 * gained**2
    return local + value / (cost + EPSILON)


def with_scipy(cost: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """One game: a scalar minimisation per device, then hybrid Powell on the n-dimensional system."""
    local = np.array(
        [
            np.exp(
                minimize_scalar(
                    lambda x, c=c, z=z: c * np.exp(x) - z * (error(np.exp(x)) ** -2 - 1),
                    bounds=(np.log(1e3), np.log(1e8)),
                    method="bounded",
                    options={"xatol": 1e-12},
                ).x
            )
            for c, z in zip(cost, scale, strict=True)
        ]
    )
    found = root(
        lambda x: np.log(replies(local, error(np.exp(x).sum()), cost, scale)) - x,
        np.log(2 * local),
        tol=1e-12,
    )
    return np.exp(found.x)


def with_numpy(cost: np.ndarray, scale: np.ndarray, steps: int = 60) -> np.ndarray:
    """Many games [g, n] at once: bisection for every m_i^o, then for every total."""
    low, high = np.full(cost.shape, np.log(1e3)), np.full(cost.shape, np.log(1e8))
    for _ in range(steps):
        middle = (low + high) / 2
        rising = marginal(np.exp(middle), scale) > cost
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    local = np.exp(low)
    low, high = np.log(local.sum(1, keepdims=True)), np.full((len(cost), 1), np.log(1e12))
    for _ in range(steps):
        middle = (low + high) / 2
        more = replies(local, error(np.exp(middle)), cost, scale).sum(1, keepdims=True) > np.exp(middle)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return replies(local, error(np.exp(low)), cost, scale)
