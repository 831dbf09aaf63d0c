"""The certificate: it passes what is an equilibrium and catches what is not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import of_package, random_game
from hypothesis import given, settings
from hypothesis import strategies as st

import realfm_jax as rfm
from realfm_jax._struct import struct
from realfm_jax.accuracy import error_at
from realfm_jax.shaping import gain

CIFAR = rfm.GeneralizationBound(0.95, 10.0)
MNIST = rfm.InverseSqrt(0.9975, 0.25)


@pytest.mark.parametrize("shaping", ["taylor", pytest.param("exact", marks=pytest.mark.slow)])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_regret_wherever_the_assumptions_hold(shaping: str, seed: int) -> None:
    """Equal a_opt, exponents up to 2, any costs, any profit margin: thm:main, with numbers."""
    b = np.random.default_rng(seed).uniform(1, 2, 5)
    game = of_package(random_game(seed, 5, shaping=shaping, b=b))
    found = rfm.solve(game)
    cert = rfm.certify(game, found, probes=0)
    assert cert.relative_regret <= 1e-8
    assert cert.is_rational
    assert cert.within_budget


@pytest.mark.parametrize(
    ("shaping", "factor"), [("taylor", 0.99), pytest.param("exact", 1.01, marks=pytest.mark.slow)]
)
def test_one_percent_off_is_caught(shaping: str, factor: float) -> None:
    game = rfm.Game(rfm.Devices(jnp.full(5, 2.5e-4), CIFAR), rfm.Server(), rfm.RealFM(shaping))
    found = rfm.solve(game)
    assert rfm.certify(game, found, probes=0).is_equilibrium
    off = rfm.outcome_at(game, found.contribution.at[2].multiply(factor))
    cert = rfm.certify(game, off, probes=0)
    assert not cert.is_equilibrium
    assert float(cert.regret[2]) > 100 * float(cert.tolerance)


def flattening(a: jax.Array) -> jax.Array:
    """Convex and increasing, but phi''' < 0: the paper's Taylor bound does not hold."""
    return a + a**2 / 2 - a**3 / 10


def test_a_payoff_with_negative_third_derivative_is_flagged_and_breaks_only_taylor() -> None:
    a = jnp.asarray(0.3)
    for shaping in ("taylor", "exact"):
        gamma = rfm.accuracy_gain(a, 10000.0, 1e-5, flattening, shaping=shaping)
        satisfied = flattening(a + gamma) - flattening(a) > 1e-5 * 10000.0
        assert satisfied == (shaping == "exact")  # eq:gamma-satisfy
    game = rfm.Game(rfm.Devices([1e-5, 2e-5], CIFAR, flattening), rfm.Server(), rfm.RealFM("taylor"))
    cert = rfm.certify(game, rfm.solve(game, method="aggregate"), probes=0)
    assert not np.asarray(cert.assumptions["third_derivative"]).any()
    assert "phi''' >= 0, which Taylor shaping needs: not for device(s) 0, 1" in str(cert)


def test_taylor_gives_a_prohibitively_expensive_device_a_free_ride_and_exact_does_not() -> None:
    """m^o = 0, a 94 % model for 1 to 90 samples: the finding of docs/theory.md."""
    for cost in (0.05, 0.5, 3.0):
        costs = jnp.full(16, 2.5e-4).at[3].set(cost)
        rides = {}
        for shaping in ("taylor", "exact"):
            game = rfm.Game(rfm.Devices(costs, CIFAR), rfm.Server(), rfm.RealFM(shaping))
            found = rfm.solve(game)
            assert found.local.contribution[3] == 0
            assert found.accuracy[3] > 0.92
            cert = rfm.certify(game, found, probes=0)
            assert cert.is_equilibrium
            rides[shaping] = float(cert.free_ride[3]), float(found.contribution[3])
        assert rides["taylor"][0] > 0.98
        assert 1 < rides["taylor"][1] < 95
        assert rides["exact"][0] < 1e-4
        assert rides["exact"][1] > 60 * rides["taylor"][1]


@struct
class RateCapped(rfm.RealFM):
    """Pay at rate min(r, c_i) and deduct it from what accuracy owes: a cap that is not enough."""

    def offer(self, device, alone, contribution, federation):
        extra = jnp.maximum(contribution - alone.contribution, 0.0)
        rate = jnp.minimum(federation.reward_rate, device.cost)
        owed = (device.cost - rate + self.epsilon) * extra
        shaped = alone.error - gain(self.shaping, device.payoff, alone.payoff, owed)
        own = error_at(device.accuracy, contribution)
        error = jnp.minimum(jnp.maximum(shaped, federation.error), own)
        return jnp.where(extra > 0, error, own), rate * extra


def mnist(n: int, margin: float, mechanism: rfm.RealFM) -> rfm.Game:
    return rfm.Game(rfm.Devices(jnp.full(n, 4e-5), MNIST), rfm.Server(profit_margin=margin), mechanism)


@pytest.mark.parametrize("n", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_money_as_printed_leaves_a_deviation_open_and_ours_closes_it(n: int) -> None:
    """docs/theory.md: same equilibrium; regret of the literal rule, of a cap on the rate, and of ours."""
    regrets: dict[str, list[float]] = {"paper": [], "rate": [], "capped": []}
    for margin in (0.0, 0.25, 0.5):
        found = rfm.solve(mnist(n, margin, rfm.RealFM()))
        literal = rfm.solve(mnist(n, margin, rfm.RealFM(money="paper")), method="aggregate")
        assert np.asarray(literal.contribution) == pytest.approx(np.asarray(found.contribution), rel=1e-12)
        for name, mechanism in (
            ("paper", rfm.RealFM(money="paper")),
            ("rate", RateCapped()),
            ("capped", rfm.RealFM()),
        ):
            game = mnist(n, margin, mechanism)
            outcome = rfm.outcome_at(game, found.contribution)
            assert np.asarray(outcome.utility) == pytest.approx(np.asarray(found.utility), rel=1e-12)
            regrets[name].append(rfm.certify(game, outcome, probes=0).relative_regret)
    assert min(regrets["paper"]) > 0.003
    assert max(regrets["paper"]) > (0.03 if n == 2 else 0.01)
    assert max(regrets["rate"]) > 1e-4
    assert max(regrets["capped"]) <= 1e-8


def test_assumption_three_names_the_devices_better_off_alone() -> None:
    devices = rfm.Devices([1e-6, 1e-5, 1e-5, 1e-5], rfm.GeneralizationBound([0.97, 0.5, 0.5, 0.5], 1.0))
    game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    found = rfm.solve(game)
    assert found.converged
    assert list(np.asarray(found.better_alone)) == [True, False, False, False]
    assert float(found.contribution[0]) == pytest.approx(float(found.local.contribution[0]), rel=1e-8)
    assert float(found.utility[0]) == pytest.approx(float(found.local.utility[0]), rel=1e-12)
    cert = rfm.certify(game, found, probes=0)
    assert list(np.asarray(cert.assumptions["federation"])) == [False, True, True, True]
    assert "not for device(s) 0" in str(cert)


def test_exponent_four_is_flagged_as_not_concave_and_is_an_equilibrium_all_the_same() -> None:
    devices = rfm.Devices([1e-3, 2e-3], CIFAR, rfm.PowerPayoff(exponent=4.0))
    game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    cert = rfm.certify(game, rfm.solve(game), probes=0)
    assert not np.asarray(cert.assumptions["payoff"]).any()
    assert np.asarray(cert.assumptions["accuracy"]).all()
    assert cert.is_equilibrium


def test_several_equilibria_are_found_out() -> None:
    """All costs prohibitive: nobody gives anything, or everybody does. `solve` takes the larger."""
    game = rfm.Game(rfm.Devices(jnp.full(16, 1.2e-2), CIFAR), rfm.Server(), rfm.RealFM("exact"))
    found = rfm.solve(game)
    assert (np.asarray(found.local.contribution) == 0).all()
    assert found.contribution[0] > 1000
    cert = rfm.certify(game, found)
    assert cert.is_equilibrium
    assert not cert.unique
    assert rfm.certify(game, rfm.outcome_at(game, np.zeros(16)), probes=0).is_equilibrium


def test_exact_shaping_is_contribution_maximising() -> None:
    """The inequality of docs/theory.md: nobody can be asked for more than exact shaping asks."""
    rng = np.random.default_rng(0)
    a_local, gained = rng.uniform(0, 0.95, 1000), rng.uniform(0, 1, 1000)
    a_fed, cost = a_local + gained * (0.99 - a_local), 10 ** rng.uniform(-6, -2, 1000)
    phi = rfm.PowerPayoff(rng.uniform(0.5, 2, 1000), rng.uniform(1, 4, 1000))
    exact = np.asarray(rfm.required_contribution(a_local, a_fed, 0.0, cost, phi, shaping="exact"))
    taylor = np.asarray(rfm.required_contribution(a_local, a_fed, 0.0, cost, phi))
    value = np.asarray(phi(a_fed) - phi(a_local))
    assert (exact >= taylor * (1 - 1e-12)).all()
    # Individually rational and feasible means cost * extra <= value of what was gained: exact exhausts it.
    assert np.allclose((cost + 1e-9) * exact, value, rtol=1e-9)


def test_report_reads_like_a_report() -> None:
    game = dataclasses.replace(mnist(2, 0.5, rfm.RealFM()))
    report = str(rfm.certify(game, rfm.solve(game), probes=0))
    for word in ("equilibrium", "participation", "budget", "uniqueness", "assumption", "free riding"):
        assert word in report
    assert "FAIL" not in report


def test_of_many_devices_a_sample_is_searched_and_said_so() -> None:
    devices = rfm.Devices(np.geomspace(1e-4, 1e-3, 40), rfm.InverseSqrt(a_opt=0.9, k=0.25))
    game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    found = rfm.solve(game)
    cert = rfm.certify(game, found, sample=8)
    assert cert.regret.shape == cert.searched.shape == (8,)
    assert {0, 39} <= {int(i) for i in cert.searched}, "from the least contribution to the largest"
    assert cert.ir_slack.shape == (40,)
    assert "of which 8 sampled by contribution were searched" in str(cert)
    assert "not looked into" in str(cert)
    assert cert.is_equilibrium
    deviating = found.contribution.at[int(cert.searched[3])].mul(0.9)
    caught = rfm.certify(game, rfm.outcome_at(game, deviating), sample=8)
    assert not caught.is_equilibrium
