"""Derivatives of everything in the equilibrium: forward = reverse = finite differences; never NaN."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import realfm_jax as rfm

Parameters = dict[str, Any]


def parameters(**changed: Any) -> Parameters:
    """The CIFAR-10 setting with four unlike devices; in logarithms, so that a step is a relative one."""
    values = {
        "cost": [2.5e-4, 2.2e-4, 2.8e-4, 3.1e-4],
        "scale": [1.0, 1.1, 0.9, 1.05],
        "a_opt": [0.95, 0.95, 0.95, 0.95],
        "k": 10.0,
        "margin": 0.7,
        "epsilon": 1e-6,
    } | changed
    return {name: jnp.log(jnp.asarray(value)) for name, value in values.items()}


SITUATIONS = {
    "plain": parameters(margin=1.0),
    "money": parameters(),
    "unequal a_opt": parameters(a_opt=[0.95, 0.94, 0.955, 0.945]),
    "one stays at m^o = 0": parameters(cost=[2.5e-4, 2.2e-4, 3.0, 3.1e-4]),
    "better alone": parameters(a_opt=[0.97, 0.7, 0.7, 0.7], cost=[1e-5, 1e-4, 1e-4, 1e-4], margin=1.0),
    "k = 1000": parameters(k=1000.0),
}


@functools.partial(jax.jit, static_argnames=("shaping", "method"))
def outputs(theta: Parameters, shaping: rfm.Shaping, method: Any) -> jax.Array:
    """Contributions, utilities and accuracies of devices and server, and r."""
    v = {name: jnp.exp(value) for name, value in theta.items()}
    game = rfm.Game(
        rfm.Devices(v["cost"], rfm.GeneralizationBound(v["a_opt"], v["k"]), rfm.PowerPayoff(v["scale"])),
        rfm.Server(profit_margin=v["margin"]),
        rfm.RealFM(shaping, v["epsilon"]),
    )
    found = rfm.solve(game, method=method)
    every = [found.contribution, found.utility, found.accuracy, found.local.contribution]
    single = [found.server_utility, found.server_accuracy, found.reward_rate]
    return jnp.concatenate([*every, jnp.stack(single)])


@functools.cache
def jacobians(shaping: rfm.Shaping, method: str) -> tuple[Any, Any]:
    f = functools.partial(outputs, shaping=shaping, method=method)
    return jax.jit(jax.jacfwd(f)), jax.jit(jax.jacrev(f))


def finite_differences(theta: Parameters, shaping: rfm.Shaping, method: str) -> np.ndarray:
    flat, unravel = ravel_pytree(theta)
    margin = np.asarray(
        ravel_pytree({name: jnp.full_like(v, name == "margin") for name, v in theta.items()})[0]
    )
    columns = []
    for step in np.eye(flat.size) * 1e-5:

        def at(steps: int, step: np.ndarray = step) -> np.ndarray:
            return np.asarray(outputs(unravel(flat + steps * step), shaping, method))

        if step @ margin and theta["margin"] == 0:  # p_m = 1 is the end of its range: look back only
            columns.append((3 * at(0) - 4 * at(-1) + at(-2)) / 2e-5)
        else:
            columns.append((at(1) - at(-1)) / 2e-5)
    return np.stack(columns, axis=1)


def sizes(values: np.ndarray) -> np.ndarray:
    """What differences are measured against: for utilities the largest (one may be as small as 1e-4)."""
    size = np.maximum(np.abs(values), 1e-6)
    size[4:8] = size[4:8].max()
    return size


def flatten(jacobian: Parameters) -> np.ndarray:
    rows = len(jacobian["k"])
    return np.concatenate(
        [np.asarray(jacobian[name]).reshape(rows, -1) for name in sorted(jacobian)], axis=1
    )


def ways(shaping: str, method: str, situation: str, *marks: pytest.MarkDecorator) -> object:
    """One combination, all of its situations on one worker, which compiles once."""
    group = pytest.mark.xdist_group(f"{shaping} {method}")
    return pytest.param(shaping, method, situation, marks=[group, *marks])


@pytest.mark.parametrize(
    ("shaping", "method", "situation"),
    [
        ways("taylor", "aggregate", "plain"),
        ways("exact", "aggregate", "unequal a_opt", pytest.mark.slow),
        ways("taylor", "best_response", "plain", pytest.mark.slow),
        ways("taylor", "aggregate", "unequal a_opt", pytest.mark.slow),
        ways("exact", "aggregate", "plain", pytest.mark.slow),
        ways("taylor", "best_response", "unequal a_opt", pytest.mark.slow),
        ways("exact", "best_response", "plain", pytest.mark.slow),
        ways("exact", "best_response", "unequal a_opt", pytest.mark.slow),
    ],
)
def test_forward_reverse_and_finite_differences_agree(
    shaping: rfm.Shaping, method: str, situation: str
) -> None:
    theta = SITUATIONS[situation]
    size = sizes(np.asarray(outputs(theta, shaping, method)))[:, None]
    forward, reverse = (flatten(jacobian(theta)) / size for jacobian in jacobians(shaping, method))
    assert np.isfinite(forward).all()
    assert np.isfinite(reverse).all()
    by_differences = finite_differences(theta, shaping, method) / size
    if situation == "better alone" or (situation, method) == ("plain", "best_response"):
        # p_m = 1 is a kink here: below it device 0 begins to sell data to a federation it does not need,
        # and the kink of a best response splits into two, of which the black box sees one.
        three = (forward, reverse, by_differences)
        forward, reverse, by_differences = (np.delete(x, -5, axis=1) for x in three)
    scale = max(1, np.abs(forward).max())
    assert np.abs(forward - reverse).max() <= 1e-8 * scale
    assert np.abs(forward - by_differences).max() <= 1e-5 * scale


def test_under_jit_vmap_grad_nothing_is_nan_where_edges_meet() -> None:
    """m^o = 0, phi'' = 0 (linear), r >= c at low totals (p_m = 0), k = 1000, all in one batch."""

    def total(cost: jax.Array, margin: jax.Array, k: jax.Array, linear: bool) -> jax.Array:
        payoff = rfm.LinearPayoff() if linear else rfm.PowerPayoff()
        devices = rfm.Devices(jnp.stack([cost, 2 * cost]), rfm.GeneralizationBound(0.95, k), payoff)
        game = rfm.Game(devices, rfm.Server(profit_margin=margin), rfm.RealFM())
        found = rfm.solve(game, method="aggregate")
        return found.contribution.sum() + found.utility.sum() + found.server_utility

    cost, margin, k = (
        x.ravel()
        for x in jnp.meshgrid(
            jnp.geomspace(1e-7, 10.0, 9), jnp.array([0.0, 0.5, 1.0]), jnp.array([0.01, 10.0, 1000.0])
        )
    )
    for linear in (False, True):
        gradient = jax.jit(jax.vmap(jax.grad(functools.partial(total, linear=linear), argnums=(0, 1, 2))))
        for slope in gradient(cost, margin, k):
            assert np.isfinite(np.asarray(slope)).all()


def test_second_derivatives_are_right_too() -> None:
    def utility(log_cost: jax.Array) -> jax.Array:
        devices = rfm.Devices(
            jnp.exp(log_cost) * jnp.array([1.0, 1.2]), rfm.GeneralizationBound(0.95, 10.0)
        )
        return rfm.solve(rfm.Game(devices, rfm.Server(), rfm.RealFM()), method="aggregate").server_utility

    x = jnp.log(jnp.asarray(2.5e-4))
    slope = jax.jit(jax.grad(utility))
    second = float(jax.jit(jax.grad(jax.grad(utility)))(x))
    assert second == pytest.approx(float(slope(x + 1e-4) - slope(x - 1e-4)) / 2e-4, rel=1e-5)
