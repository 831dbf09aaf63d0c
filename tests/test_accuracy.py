"""Accuracy curves: no NaN anywhere, the right root, monotone and concave; fitting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, curve_fit

import realfm_jax as rfm

FAMILIES = {"bound": rfm.GeneralizationBound, "inverse_sqrt": rfm.InverseSqrt}
A_OPT, K = st.floats(0.05, 0.999), st.floats(-2, 4).map(lambda x: 10**x)


@pytest.mark.parametrize("family", FAMILIES)
@given(a_opt=A_OPT, k=K, m=st.floats(0, 1e12))
def test_value_and_gradient_are_finite_and_right_everywhere(
    family: str, a_opt: float, k: float, m: float
) -> None:
    curve = FAMILIES[family](a_opt, k)
    value, slope = jax.value_and_grad(curve)(m)
    assert np.isfinite([value, slope]).all()
    assert 0 <= value < a_opt
    assert slope >= 0
    game = reference.Game(1.0, 1.0, 2.0, a_opt, k, curve=family)
    assert value == pytest.approx(float(reference.accuracy(game, 0, m)), rel=1e-12, abs=1e-14)
    by_parameters = jax.grad(lambda c: c(m))(curve)
    assert np.isfinite([by_parameters.a_opt, by_parameters.k]).all()


@pytest.mark.parametrize("family", FAMILIES)
@given(a_opt=A_OPT, k=K)
def test_largest_root(family: str, a_opt: float, k: float) -> None:
    curve = FAMILIES[family](a_opt, k)
    m_0 = float(rfm.largest_root(curve))
    assert float(curve(m_0 * (1 - 1e-9))) == 0
    assert float(curve(m_0 * (1 + 1e-6))) > 0
    if family == "inverse_sqrt":
        assert m_0 == pytest.approx(4 * k / a_opt**2, rel=1e-12)
    else:

        def hat(m: float) -> float:
            return a_opt - (np.sqrt(2 * k * (2 + np.log(m / k))) + 4) / np.sqrt(m)

        assert m_0 == pytest.approx(
            brentq(hat, k / np.e, 1e12 * (k + 1), xtol=1e-300, rtol=1e-14), rel=1e-9
        )


def test_no_spurious_accuracy_left_of_the_largest_root() -> None:
    """For k = 1000 the formula is positive again near k/e^2, where there is no data to speak of."""
    k, m = 1000.0, 1000.0 / np.e**2 * 1.001
    formula = 0.95 - (np.sqrt(2 * k * (2 + np.log(m / k))) + 4) / np.sqrt(m)
    assert formula > 0.3
    assert rfm.GeneralizationBound(0.95, k)(m) == 0


def test_server_curve_weighs_a_opt_by_contribution() -> None:
    devices = rfm.Devices(cost=1e-4, accuracy=rfm.InverseSqrt(a_opt=[0.9, 0.6], k=0.25))
    given_ = rfm.rewards(rfm.Game(devices, rfm.Server(), rfm.EqualShare()), [300.0, 100.0])
    assert given_.server_accuracy == pytest.approx((0.9 * 3 + 0.6) / 4 - 2 * np.sqrt(0.25 / 400))


@pytest.mark.parametrize("family", FAMILIES)
def test_fit_recovers_a_noisy_curve_within_its_standard_errors(family: str) -> None:
    rng, truth, m = np.random.default_rng(0), FAMILIES[family](0.93, 3.0), np.geomspace(300, 3e5, 9)
    errors = []
    for _ in range(40):
        y = np.asarray(truth(m)) + rng.normal(0, 0.004, m.size)
        fit = rfm.fit_accuracy(m, y, FAMILIES[family](0.5, 1.0))
        errors.append(
            [
                (fit.curve.a_opt - 0.93) / fit.standard_error.a_opt,
                (fit.curve.k - 3.0) / fit.standard_error.k,
            ]
        )
    assert 0.7 < np.sqrt(np.mean(np.square(errors))) < 1.6


def test_fit_agrees_with_scipy_curve_fit() -> None:
    m = np.array([200.0, 1000.0, 5000.0, 30000.0])
    y = np.array([0.70, 0.82, 0.876, 0.889])
    (a_opt, k), covariance = curve_fit(lambda m, a, k: a - 2 * np.sqrt(k / m), m, y, p0=[0.9, 1.0])
    fit = rfm.fit_accuracy(m, y, rfm.InverseSqrt(0.5, 1.0))
    assert fit.curve.a_opt == pytest.approx(a_opt, rel=1e-6)
    assert fit.curve.k == pytest.approx(k, rel=1e-5)
    assert fit.standard_error.a_opt == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-4)
    assert fit.standard_error.k == pytest.approx(np.sqrt(covariance[1, 1]), rel=1e-4)
    assert fit.at_bound == ()


def test_fit_of_a_curve_of_ones_own() -> None:
    @jax.tree_util.register_dataclass
    @__import__("dataclasses").dataclass
    class Logistic:
        top: float
        rate: float

        def __call__(self, m: jax.Array) -> jax.Array:
            return self.top * m / (m + self.rate)

    m = np.array([10.0, 50.0, 200.0, 1000.0])
    fit = rfm.fit_accuracy(m, 0.8 * m / (m + 40), Logistic(0.5, 10.0))
    assert fit.curve.top == pytest.approx(0.8)
    assert fit.curve.rate == pytest.approx(40)


@pytest.mark.parametrize(
    ("m", "accuracy", "message"),
    [
        ([1.0, 2.0], [0.1, 0.2], "at least 3 different m; got 2"),
        ([1.0, 1.0, 2.0], [0.1, 0.1, 0.2], "at least 3 different m; got 2"),
        ([1.0, 2.0, -3.0], [0.1, 0.2, 0.3], "m must be > 0; got np.float64\\(-3.0\\)"),
        ([1.0, 2.0, 3.0], [0.1, 0.2, 1.3], "accuracy must be in"),
        ([1.0, 2.0, 3.0], [0.1, 0.2], "shapes \\(3,\\) and \\(2,\\)"),
    ],
)
def test_fit_refuses_what_cannot_be_fitted(m: list, accuracy: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rfm.fit_accuracy(m, accuracy, rfm.InverseSqrt(0.5, 1.0))


def test_fit_says_when_a_parameter_ends_on_its_border() -> None:
    m = np.geomspace(10, 1000, 5)
    fit = rfm.fit_accuracy(m, np.clip(1.2 - 3 / np.sqrt(m), 0, 1), rfm.InverseSqrt(0.5, 1.0))
    assert "a_opt" in fit.at_bound
    assert jnp.isfinite(fit.curve.k)
