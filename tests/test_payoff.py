"""Payoffs: inverses, derivatives, and payoffs of one's own."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

import realfm_jax as rfm
from realfm_jax.payoff import error_for, expand, value_at


def cubic(a: jax.Array) -> jax.Array:
    """A payoff without a known inverse."""
    return a + 2 * a**3


@given(z=st.floats(0.1, 10), b=st.floats(0.3, 5), a=st.floats(0, 0.999))
def test_inverse_of_the_power_payoff(z: float, b: float, a: float) -> None:
    phi = rfm.PowerPayoff(z, b)
    assert 1 - float(error_for(phi, phi(a))) == pytest.approx(a, abs=1e-12)
    assert float(phi(a)) == pytest.approx(z * ((1 - a) ** -b - 1), rel=1e-9, abs=1e-12)


@given(a=st.floats(0, 0.99))
def test_inverse_by_root_finding(a: float) -> None:
    assert 1 - float(error_for(cubic, cubic(a))) == pytest.approx(a, abs=1e-11)
    # As good as the closed form, hidden behind a plain function.
    phi = rfm.PowerPayoff(1.5, 2.0)
    assert float(error_for(lambda a: phi(a), phi(a))) == pytest.approx(1 - a, rel=1e-9)


def test_derivative_of_an_inverse_found_by_root_finding() -> None:
    slope = jax.grad(lambda v: error_for(cubic, v))(cubic(0.5))
    assert float(slope) == pytest.approx(-1 / (1 + 6 * 0.25), rel=1e-10)


@pytest.mark.parametrize("phi", [rfm.PowerPayoff(2.0, 3.0), rfm.LinearPayoff(2.0), cubic])
def test_slope_and_curvature_against_finite_differences(phi: rfm.payoff.Payoff) -> None:
    seen = expand(phi, 0.4)
    first = approx_fprime([0.6], lambda a: float(value_at(phi, 1 - a[0])), 1e-6)[0]
    second = (value_at(phi, 0.399) - 2 * value_at(phi, 0.4) + value_at(phi, 0.401)) / 1e-6
    assert seen.slope == pytest.approx(first, rel=1e-4)
    assert seen.curvature == pytest.approx(float(second), rel=1e-3, abs=1e-6)


def test_no_cancellation_close_to_perfect_in_float32() -> None:
    with jax.enable_x64(False):
        value = rfm.PowerPayoff().at_error(np.float32(1e-5))
    assert float(value) == pytest.approx(1e10, rel=1e-5)
