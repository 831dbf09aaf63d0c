"""One-dimensional tools: the logarithm, sums, roots that plain steps miss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import realfm_jax as rfm
from realfm_jax.scalar import derivative, log, root, rough_log


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


def test_the_rough_logarithm_is_a_close_upper_bound() -> None:
    x = np.geomspace(1e-37, 1e38, 10_000)
    above = np.asarray(rough_log(x)) - np.log(x)
    assert above.min() > 0
    assert above.max() < 0.01
    assert float(rough_log(1e300)) == pytest.approx(np.log(1e38), abs=0.01)


def test_a_root_leaves_integers_among_its_arguments_alone() -> None:
    def f(x: jax.Array, table: jax.Array, which: jax.Array) -> jax.Array:
        return table[which] - x**2

    x, _ = root(f, 0.0, 10.0, (jnp.array([2.0, 9.0]), jnp.array(1)))
    assert float(x) == pytest.approx(3.0, rel=1e-15)


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


@pytest.mark.parametrize("a_opt", [0.9975, 0.999, 0.99999, 0.9999999])
def test_first_steps_in_float32_leave_no_trace(a_opt: float) -> None:
    """Where 1 - a_opt has few digits in float32, they end far from the root."""
    costs = jnp.geomspace(1e-9, 1e-3, 200)
    curve = rfm.GeneralizationBound(a_opt, 0.3)
    m = rfm.local_optimum(rfm.Devices(costs, curve)).contribution

    def utility(m: jax.Array, cost: jax.Array) -> jax.Array:
        return rfm.local_utility(rfm.Devices(cost, curve), m)

    slope = jax.vmap(derivative(utility))(m, costs)
    assert (m > 0).sum() > 50
    assert float(jnp.abs(slope / costs)[m > 0].max()) < 1e-9
