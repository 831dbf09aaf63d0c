"""The equilibrium: quoted values, two methods, an independent reference, symmetry, tracing."""

import jax.numpy as jnp
import numpy as np
import pytest
import reference
from games import distance, of_package, random_game
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_equilibrium import equilibrium

import realfm_jax as rfm

SEEDS = st.integers(0, 2**32 - 1)


def equal_devices(curve: rfm.accuracy.Curve, cost: float, n: int = 16, **mechanism: object) -> rfm.Game:
    devices = rfm.Devices(cost=jnp.full(n, cost), accuracy=curve, payoff=rfm.PowerPayoff())
    return rfm.Game(devices, rfm.Server(), rfm.RealFM(**mechanism))


CIFAR = (rfm.GeneralizationBound(0.95, 10.0), 2.5e-4)
MNIST = (rfm.InverseSqrt(0.9975, 0.25), 4e-5)


def test_equilibria_quoted_in_the_design() -> None:
    cifar = rfm.solve(equal_devices(*CIFAR))
    assert cifar.local.contribution[0] == pytest.approx(198478.08, rel=1e-7)
    assert cifar.contribution[0] == pytest.approx(782164.12, rel=1e-8)
    assert cifar.server_accuracy == pytest.approx(0.943806, abs=5e-7)
    assert cifar.server_utility == pytest.approx(315.683, abs=5e-4)
    assert cifar.utility[0] == pytest.approx(120.142, abs=5e-4)
    assert cifar.local.utility[0] == pytest.approx(63.5212, abs=5e-5)
    mnist = rfm.solve(equal_devices(*MNIST))
    assert mnist.local.contribution[0] == pytest.approx(127601218, rel=1e-8)
    assert mnist.contribution[0] == pytest.approx(353946949, rel=1e-8)
    assert mnist.server_utility == pytest.approx(158311.56, abs=5e-3)
    exact = rfm.solve(equal_devices(*CIFAR, shaping="exact"))
    assert exact.contribution[0] == pytest.approx(1045341, rel=1e-6)


def check_against_reference(game: reference.Game) -> None:
    """Both methods agree with each other to 1e-8 and with the brute force to 1e-7."""
    wanted = equilibrium(game)
    package = of_package(game)
    followed = rfm.solve(package, method="best_response")
    solved = rfm.solve(package)
    if wanted is None:
        # With unequal a_opt best responses may jump, and there may be none; one claimed must be one.
        assert np.ptp(game.a_opt) > 0
        for claimed in (followed, solved):
            if claimed.converged:
                found = np.asarray(claimed.contribution)
                scale = np.abs(reference.rewards(game, found).utility).max()
                assert reference.regret(game, found).max() <= 1e-8 * scale
        return
    assert followed.converged
    assert solved.converged
    # m_i^* = m_i^o + D_i / (c_i - r + eps) is only as sharp as c_i - r: beyond 0.99 c_i digits are lost.
    paid = float(solved.reward_rate)
    blur = max(1.0, 1e-2 * float(np.max(game.cost / np.maximum(game.cost - paid, game.epsilon))))
    blur = 1.0 if paid == 0 else min(blur, 1e4)
    if 0 < paid < 1e-6 * game.cost.min():  # money that moves an own optimum by about its rounding
        blur = max(blur, 10.0)
    for claimed in (followed, solved):
        found = np.asarray(claimed.contribution)
        scale = np.abs(reference.rewards(game, found).utility).max()
        # Where utilities are as flat as that, nobody can tell the difference.
        flat = reference.regret(game, found).max() <= 1e-12 * scale
        assert distance(found, wanted) < (1e-6 if flat else 1e-7) * blur
        assert flat or distance(found, np.asarray(followed.contribution)) < 1e-8 * blur


def test_a_device_whose_data_are_poor_is_not_held_at_the_root() -> None:
    """With money its best answer lies below m_i^*, which the slope beyond does not show."""
    game = random_game(10249, 5, False, curve="bound", shaping="taylor")
    assert game.profit_margin == 0.5

    def share(found: rfm.Equilibrium) -> float:
        m = np.asarray(found.contribution)
        return float(reference.regret(game, m).max() / np.abs(reference.rewards(game, m).utility).max())

    root, solved = (rfm.solve(of_package(game), method=method) for method in ("aggregate", "auto"))
    assert share(root) > 1e-4
    assert not root.converged
    assert solved.converged
    assert share(solved) < 1e-10


def test_rounding_does_not_hide_whom_money_still_moves() -> None:
    """A device better off alone stays at m_i^o up to rounding, and would sell more data than that."""
    devices = rfm.Devices(
        cost=[1.41e-5, 1.23e-4],
        accuracy=rfm.GeneralizationBound(a_opt=[0.794, 0.673], k=10.0),
        payoff=rfm.PowerPayoff(scale=[0.614, 3.38]),
    )
    game = rfm.Game(devices, rfm.Server(profit_margin=0.3), rfm.RealFM(shaping="exact"))
    root = rfm.solve(game, method="aggregate")
    assert root.better_alone[0]
    assert root.reward_rate > 0.8 * game.devices.cost[0]  # for data that it has anyway
    assert rfm.certify(game, root, probes=0).relative_regret > 1e-5
    assert not root.converged


SIZES = ((1, True), (2, False), (5, False), (16, True))
ALL = [(*size, c, s) for size in SIZES for c in ("bound", "inverse_sqrt") for s in ("taylor", "exact")]


@settings(max_examples=10)
@given(seed=SEEDS)
def test_random_games(seed: int) -> None:
    check_against_reference(random_game(seed, 5, False, curve="inverse_sqrt", shaping="exact"))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "equal", "curve", "shaping"), ALL)
@settings(max_examples=60)
@given(seed=SEEDS)
def test_more_random_games(n: int, equal: bool, curve: str, shaping: str, seed: int) -> None:
    check_against_reference(random_game(seed, n, equal, curve=curve, shaping=shaping))


@pytest.mark.slow
@pytest.mark.parametrize("equal", [True, False])
@settings(max_examples=12)
@given(seed=SEEDS)
def test_random_games_with_linear_payoffs(equal: bool, seed: int) -> None:
    check_against_reference(random_game(seed, 5, equal, payoff="linear"))


@settings(max_examples=5)
@given(seed=SEEDS)
def test_random_games_of_many(seed: int) -> None:
    check_against_reference(random_game(seed, 64))


def test_several_starts_lead_to_the_same_place() -> None:
    game = equal_devices(*CIFAR, n=5)
    wanted = np.asarray(rfm.solve(game).contribution)
    for factor in (0.1, 1.0, 30.0):
        found = rfm.solve(game, method="best_response", start=wanted * factor)
        assert found.converged
        assert distance(found.contribution, wanted) < 1e-8


@settings(max_examples=30)
@given(seed=SEEDS)
def test_exact_shaping_collects_the_most(seed: int) -> None:
    """docs/theory.md, section 2: at most the equilibrium under exact shaping, whatever the mechanism."""
    totals = {}
    for shaping in ("taylor", "exact"):
        drawn = random_game(seed, 5, shaping=shaping, payoff="power", profit_margin=1.0)
        totals[shaping] = float(rfm.solve(of_package(drawn), method="aggregate").contribution.sum())
    assert totals["exact"] >= totals["taylor"] * (1 - 1e-9)
