"""One-dimensional tools: the logarithm, sums, roots that plain steps miss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import realfm_jax as rfm
from realfm_jax.scalar import add_up, derivative, log, root


def test_logarithm_is_right_to_the_last_digits_everywhere() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 20_000)), 1 + rng.uniform(-0.5, 0.5, 20_000)])
    found, wanted = np.asarray(jax.jit(log)(x)), np.log(x)
    assert np.max(np.abs(found - wanted) / np.spacing(np.maximum(np.abs(wanted), 1.0))) <= 2
    # Near 1, where a logarithm is small, relative to itself.
    near = 1 + np.geomspace(1e-15, 0.2, 1000)
    np.testing.assert_allclose(log(near), np.log(near), rtol=6e-16)


def test_logarithm_at_its_edges_is_numpys() -> None:
    edges = np.array(
        [0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 1.0, np.finfo(float).max, np.finfo(float).tiny]
    )
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(log(edges), np.log(edges), rtol=1e-15)
    x = jnp.asarray(0.37)
    assert float(jax.grad(log)(x)) == pytest.approx(1 / 0.37)
    assert float(jax.grad(jax.grad(log))(x)) == pytest.approx(-1 / 0.37**2)
    assert log(jnp.float32(2.0)).dtype == jnp.float32


def test_adding_up_is_a_sum_also_of_float32() -> None:
    x = jnp.asarray(np.random.default_rng(0).uniform(size=1000), jnp.float32)
    assert float(add_up(x)) == pytest.approx(float(np.asarray(x, float).sum()), rel=1e-6)
    np.testing.assert_array_equal(jax.grad(add_up)(x), np.ones(1000))


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda x: jnp.sin(x) - 0.5 * x, 1.895494267033981),  # not concave
        (lambda x: 1e-3 - jnp.where(x > 2.0, (x - 2.0) ** 3, 0.0), 2.1),  # a triple root nearby
        (lambda x: (x - 1.0) * (4.0 - x), 4.0),  # two roots: the right one
        (lambda x: jnp.where(x < 3.0, 1.0, -1.0), 3.0),  # no slope at all: bisection
    ],
)
def test_roots_that_plain_steps_may_miss(f: object, wanted: float) -> None:
    x, steps = root(f, 0.0, 9.5)
    assert float(x) == pytest.approx(wanted, rel=1e-12)
    together, _ = jax.vmap(lambda high: root(f, 0.0, high))(jnp.array([6.0, 9.5]))
    np.testing.assert_allclose(together, wanted, rtol=1e-12)
    assert int(steps) >= 3


@pytest.mark.parametrize("payoff", [rfm.PowerPayoff(1.3, 2.7), rfm.LinearPayoff(0.7)])
def test_first_slope_and_steepening_make_up_the_derivative(payoff: rfm.PowerPayoff) -> None:
    for error in (0.03, 0.4, 1.0):
        slope = -derivative(payoff.at_error)(error)
        assert float(jnp.log(payoff.first_slope) + payoff.log_steepening(error)) == pytest.approx(
            float(jnp.log(slope)), abs=1e-14
        )


@pytest.mark.parametrize("curve", [rfm.GeneralizationBound(0.9, 200.0), rfm.InverseSqrt(0.9, 3.0)])
def test_both_ways_into_a_curve_agree(curve: rfm.GeneralizationBound) -> None:
    for m in np.geomspace(1e-3, 1e12, 40):
        assert float(curve.shortfall_at_log(np.log(m))) == pytest.approx(
            float(curve.shortfall(m)), rel=1e-13
        )


def test_a_root_in_float32_leaves_no_trace() -> None:
    """a_opt so near 1 that 1 - a_opt has few digits in float32: the first steps end far from the root."""
    costs = np.geomspace(1e-9, 1e-3, 200)
    for a_opt in (0.9975, 0.999, 0.99999, 0.9999999):
        devices = rfm.Devices(cost=costs, accuracy=rfm.GeneralizationBound(a_opt, 0.3))
        m = rfm.local_optimum(devices).contribution
        slope = jax.vmap(derivative(lambda m, d: rfm.local_utility(d, m)))(
            m, jax.vmap(lambda c: rfm.Devices(c, devices.accuracy))(jnp.asarray(costs))
        )
        # du/dm = phi' a' - c is 0 to the digits that a sum of numbers of size c has.
        inside = np.asarray(m) > 0
        assert inside.sum() > 50
        assert np.abs(slope / costs)[inside].max() < 1e-9, a_opt
