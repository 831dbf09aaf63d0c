"""Fit an accuracy curve to measured accuracies: step 1 of the paper's experimental process."""

import dataclasses
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from realfm_jax._struct import Numbers
from realfm_jax.accuracy import Curve, GeneralizationBound, InverseSqrt

_C = TypeVar("_C", bound=Curve)


@dataclasses.dataclass(frozen=True)
class Fit(Generic[_C]):
    """A fitted curve and how well the data determine it.

    Attributes:
      curve: the curve with fitted leaves.
      standard_error: the same tree, each leaf its standard error (inf where undetermined).
      residual: measured minus fitted accuracy, one per point.
      at_bound: names of leaves that ended on the border of their range: not to be trusted.
    """

    curve: _C
    standard_error: _C
    residual: np.ndarray
    at_bound: tuple[str, ...]


_RANGES = {"a_opt": (1e-9, 1 - 1e-9), "k": (1e-12, 1e12)}


def fit_accuracy(m: Numbers, accuracy: Numbers, curve: _C) -> Fit[_C]:
    """The leaves of `curve` (a_opt and k of the package's own) that best reproduce measured accuracies.

    Bounded least squares (SciPy's trust region, Jacobian by autodiff) in float64, started from a linear
    regression on 1/sqrt(m). For a curve of your own `curve` is the start and all its leaves are free.

    Args:
      m: numbers of training samples, [p], > 0, at least 3 and one more than the curve has leaves.
      accuracy: accuracies measured with them, [p], in [0, 1].
      curve: which family to fit.

    >>> truth = InverseSqrt(a_opt=0.9, k=0.25)
    >>> m = np.array([100.0, 400.0, 1600.0, 6400.0])
    >>> fitted = fit_accuracy(m, truth(m), InverseSqrt(a_opt=0.5, k=1.0)).curve
    >>> round(float(fitted.a_opt), 4), round(float(fitted.k), 4)
    (0.9, 0.25)
    """
    from scipy.optimize import least_squares

    x, y = _measurements(m, accuracy, max(3, len(jax.tree.leaves(curve)) + 1))
    paths, tree = jax.tree_util.tree_flatten_with_path(curve)
    names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in paths]
    known = isinstance(curve, GeneralizationBound | InverseSqrt)
    ranges = [_RANGES[name] if known else (-np.inf, np.inf) for name in names]
    start = _regression(x, y) if known else np.array([float(leaf) for _, leaf in paths])
    # k spans decades: fitted in its logarithm, so that a step means the same everywhere.
    logarithmic = np.array([known and name == "k" for name in names])

    def unpack(theta: Any) -> _C:
        return jax.tree.unflatten(tree, list(jnp.where(logarithmic, jnp.exp(theta), theta)))

    def predict(theta: Any) -> Any:
        fitted: Any = unpack(theta)
        if not known:
            return jax.vmap(fitted)(x)
        # Unclipped, so that there is a slope to follow; only a measured 0 may lie below 0.
        unclipped = fitted.a_opt - fitted.shortfall(x)
        return jnp.where(y == 0, jnp.maximum(unclipped, 0.0), unclipped)

    pack = np.where(logarithmic, np.log(np.where(logarithmic, start, 1.0)), start)
    low, high = (
        np.where(logarithmic, np.log(np.maximum(side, 1e-300)), side)
        for side in map(np.array, zip(*ranges, strict=True))
    )
    with jax.enable_x64(True):
        x = jnp.asarray(x)
        forward, jacobian = jax.jit(predict), jax.jit(jax.jacfwd(predict))
        found = least_squares(
            lambda theta: np.asarray(forward(jnp.asarray(theta))) - y,
            np.clip(pack, low, high),
            jac=lambda theta: np.asarray(jacobian(jnp.asarray(theta))),
            bounds=(low, high),
            x_scale="jac",
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
        )
        theta = np.where(logarithmic, np.exp(found.x), found.x)
        spread = _standard_error(found.jac, found.fun) * np.where(logarithmic, theta, 1.0)
    border = np.minimum(found.x - low, high - found.x) < 1e-6
    return Fit(
        curve=jax.tree.unflatten(tree, [float(v) for v in theta]),
        standard_error=jax.tree.unflatten(tree, [float(v) for v in spread]),
        residual=-found.fun,
        at_bound=tuple(name for name, hit in zip(names, border, strict=True) if hit),
    )


def _measurements(m: Numbers, accuracy: Numbers, least: int) -> tuple[Any, np.ndarray]:
    x, y = np.asarray(m, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"m and accuracy must be two lists of one length; got shapes {x.shape} and {y.shape}"
        )
    if np.unique(x).size < least:
        raise ValueError(f"fit_accuracy needs at least {least} different m; got {np.unique(x).size}")
    if not (np.isfinite(x) & (x > 0)).all():
        raise ValueError(f"m must be > 0; got {x[~(np.isfinite(x) & (x > 0))][0]!r}")
    if not ((y >= 0) & (y <= 1)).all():
        raise ValueError(f"accuracy must be in [0, 1]; got {y[~((y >= 0) & (y <= 1))][0]!r}")
    return x, y


def _regression(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(a_opt, k) of the simplified curve a = a_opt - 2 sqrt(k) / sqrt(m) by linear least squares."""
    slope, a_opt = np.polyfit(x**-0.5, y, 1)
    return np.array([np.clip(a_opt, 0.01, 0.99), max(-slope / 2, 1e-3) ** 2])


def _standard_error(jacobian: np.ndarray, residual: np.ndarray) -> np.ndarray:
    variance = residual @ residual / (residual.size - jacobian.shape[1])
    normal = jacobian.T @ jacobian
    if np.linalg.matrix_rank(normal) < len(normal):
        return np.full(len(normal), np.inf)
    return np.sqrt(variance * np.diag(np.linalg.inv(normal)))
