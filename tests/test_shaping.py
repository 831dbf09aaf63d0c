"""Accuracy shaping and its inverse."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import realfm_jax as rfm

ACCURACY, EXTRA, COST = st.floats(0, 0.99), st.floats(0, 1e5), st.floats(-6, -2).map(lambda x: 10**x)


@pytest.mark.parametrize("shaping", ["taylor", "exact"])
@pytest.mark.parametrize("phi", [rfm.PowerPayoff(1.3, 2.0), rfm.PowerPayoff(1.0, 4.0)])
@given(a=ACCURACY, extra=EXTRA, cost=COST)
def test_required_contribution_inverts_gamma(
    phi: rfm.PowerPayoff, shaping: rfm.Shaping, a: float, extra: float, cost: float
) -> None:
    gamma = float(rfm.accuracy_gain(a, extra, cost, phi, shaping=shaping))
    assert gamma >= 0
    if a + gamma < 0.999:
        back = rfm.required_contribution(a, a + gamma, 10.0, cost, phi, shaping=shaping)
        # Rounding of the accuracies themselves is worth this many samples.
        rounding = 1e-15 * jax.grad(phi)(a + gamma) / cost
        assert float(back) == pytest.approx(10 + extra, rel=1e-6, abs=10 * float(rounding))


@pytest.mark.parametrize("shaping", ["taylor", "exact"])
@given(a=ACCURACY, extra=st.floats(1, 1e5), cost=COST, b=st.floats(1, 4))
def test_the_gain_pays_for_the_cost(
    shaping: rfm.Shaping, a: float, extra: float, cost: float, b: float
) -> None:
    """eq:gamma-satisfy; with equality up to eps for exact shaping."""
    phi = rfm.PowerPayoff(1.0, b)
    gamma = rfm.accuracy_gain(a, extra, cost, phi, shaping=shaping)
    if a + gamma < 1:
        paid = float(phi(a + gamma) - phi(a))
        assert paid >= cost * extra * (1 - 1e-9) - 1e-9 * float(phi(a + gamma))
        if shaping == "exact":
            assert paid == pytest.approx((cost + 1e-9) * extra, rel=1e-6, abs=1e-9 * float(phi(a + gamma)))


def test_taylor_is_smooth_through_a_vanishing_second_derivative() -> None:
    """a + t a^2 at t = 0 is the linear payoff: value and derivative in t exist."""

    def gamma(t: float) -> jax.Array:
        return rfm.accuracy_gain(0.3, 100.0, 1e-3, lambda a: a + t * a**2)

    assert float(gamma(0.0)) == pytest.approx(0.1, rel=1e-5)
    slope = (gamma(1e-5) - gamma(-1e-5)) / 2e-5
    assert np.isfinite(float(slope))
    assert float(slope) == pytest.approx(-(0.1 * 2 * 0.3 + 0.1**2), rel=1e-4)


def test_linear_payoff_gives_the_formula_of_karimireddy_et_al() -> None:
    assert float(
        rfm.accuracy_gain(0.5, 200.0, 1e-3, rfm.LinearPayoff(2.0), epsilon=1e-12)
    ) == pytest.approx(0.1)


def test_money_is_deducted() -> None:
    free = rfm.required_contribution(0.9, 0.93, 0.0, 1e-3, rfm.PowerPayoff())
    paid = rfm.required_contribution(0.9, 0.93, 0.0, 1e-3, rfm.PowerPayoff(), reward_rate=5e-4)
    assert float(paid / free) == pytest.approx(2, rel=1e-5)


def test_arguments_broadcast() -> None:
    found = rfm.required_contribution(
        [0.5, 0.6], [[0.7], [0.8], [0.9]], 10.0, 1e-3, rfm.PowerPayoff(scale=[1.0, 2.0])
    )
    assert found.shape == (3, 2)
    one = rfm.required_contribution(0.6, 0.9, 10.0, 1e-3, rfm.PowerPayoff(scale=2.0))
    assert float(found[2, 1]) == float(one)


def test_unknown_shaping() -> None:
    with pytest.raises(ValueError, match="shaping must be one of taylor, exact; got 'cubic'"):
        rfm.required_contribution(0.5, 0.6, 1.0, 1.0, rfm.PowerPayoff(), shaping="cubic")
