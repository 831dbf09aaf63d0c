"""What mechanisms give, at any contributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from games import of_package, random_game
from hypothesis import given, settings
from hypothesis import strategies as st

import realfm_jax as rfm


@pytest.mark.parametrize("mechanism", ["realfm", "equal_share", "local_only"])
@pytest.mark.parametrize("money", ["capped", "paper"])
@pytest.mark.parametrize("shaping", ["taylor", "exact"])
@given(seed=st.integers(0, 2**32 - 1))
def test_rewards_against_the_reference(shaping: str, money: str, mechanism: str, seed: int) -> None:
    game = random_game(seed, 5, equal_a_opt=False, shaping=shaping, money=money, mechanism=mechanism)
    rng = np.random.default_rng(seed)
    m = (game.local + rng.choice([0.0, 1.0, 100.0])) * 10 ** rng.uniform(-1, 1.5, 5)
    wanted, given_ = reference.rewards(game, m), rfm.rewards(of_package(game), m)
    scale = np.abs(wanted.utility) + game.cost * m + 1e-12
    assert np.abs(given_.accuracy - wanted.accuracy).max() < 1e-9
    assert np.abs((np.asarray(given_.utility) - wanted.utility) / scale).max() < 1e-9
    assert np.abs((np.asarray(given_.money) - wanted.money) / scale).max() < 1e-9
    if mechanism != "local_only":  # there the server counts the mean local model
        assert float(given_.server_accuracy) == pytest.approx(wanted.a_C, abs=1e-12)
        assert float(given_.server_utility) == pytest.approx(wanted.server, rel=1e-9)
    assert float(given_.reward_rate) == pytest.approx(wanted.r, rel=1e-9)


def cifar(n: int = 4, margin: float = 1.0, **mechanism: object) -> rfm.Game:
    devices = rfm.Devices(jnp.full(n, 2.5e-4), rfm.GeneralizationBound(0.95, 10.0))
    return rfm.Game(devices, rfm.Server(profit_margin=margin), rfm.RealFM(**mechanism))


@pytest.mark.parametrize("shaping", ["taylor", "exact"])
def test_three_intervals_join_continuously_and_utility_rises_to_the_equilibrium(shaping: str) -> None:
    """eq:mech and eq:mech-utility, seen by device 0 while the others stay at equilibrium."""
    game = cifar(margin=0.6, shaping=shaping)
    found = rfm.solve(game)
    m_local, m_star = float(found.local.contribution[0]), float(found.contribution[0])
    grid = np.unique(np.concatenate([np.linspace(0, 2 * m_star, 400), [m_local, m_star]]))
    faced = jax.vmap(lambda m: rfm.rewards(game, found.contribution.at[0].set(m)))(jnp.asarray(grid))
    accuracy, money, utility = (np.asarray(x)[:, 0] for x in (faced.accuracy, faced.money, faced.utility))
    own = np.asarray(game.devices.accuracy(grid))
    below = grid <= m_local
    assert accuracy[below] == pytest.approx(own[below])
    assert (money[below] == 0).all()
    rises = (grid >= m_local) & (grid <= m_star)
    assert (np.diff(accuracy[rises]) >= 0).all()
    assert (np.diff(utility[rises]) > 0).all()
    beyond = grid >= m_star
    assert accuracy[beyond] == pytest.approx(np.asarray(faced.server_accuracy)[beyond])
    assert utility.argmax() == np.flatnonzero(grid == m_star)[0]
    near = grid > m_local / 2  # a(m) itself is steep at its root
    assert np.abs(np.diff(accuracy[near])).max() < 0.01


def test_equal_share_is_the_free_rider_dilemma() -> None:
    """Everybody together gives what one device would give alone, and most give nothing."""
    devices = rfm.Devices(np.geomspace(2e-4, 4e-4, 8), rfm.GeneralizationBound(0.95, 10.0))
    found = rfm.solve(rfm.Game(devices, rfm.Server(), rfm.EqualShare()))
    assert found.converged
    assert float(found.contribution[0]) == pytest.approx(float(found.local.contribution[0]), rel=1e-8)
    assert (np.asarray(found.contribution[1:]) == 0).all()
    assert np.ptp(found.accuracy) < 1e-12


def test_equal_devices_share_equally_under_equal_share() -> None:
    game = rfm.Game(cifar(16).devices, rfm.Server(), rfm.EqualShare())
    found = rfm.solve(game)
    assert found.converged
    assert found.contribution == pytest.approx(np.asarray(found.local.contribution) / 16, rel=1e-6)


def test_local_only_is_the_local_optimum() -> None:
    game = rfm.Game(cifar(4).devices, rfm.Server(), rfm.LocalOnly())
    found = rfm.solve(game)
    assert (np.asarray(found.contribution) == np.asarray(found.local.contribution)).all()
    assert float(found.server_accuracy) == pytest.approx(float(found.local.accuracy.mean()))


@settings(max_examples=20)
@given(margin=st.floats(0, 1), m=st.lists(st.floats(0, 1e7), min_size=4, max_size=4))
def test_never_pays_more_than_is_set_aside_and_never_takes(margin: float, m: list[float]) -> None:
    game = cifar(margin=margin)
    given_ = rfm.rewards(game, m)
    total = sum(m)
    assert (np.asarray(given_.money) >= 0).all()
    assert float(given_.money.sum()) <= float(given_.reward_rate) * total * (1 + 1e-12)
    assert (np.asarray(given_.accuracy) >= np.asarray(game.devices.accuracy(np.array(m))) - 1e-12).all()
