"""What a device does alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import distance, of_package, random_game
from hypothesis import given
from hypothesis import strategies as st

import realfm_jax as rfm

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("payoff", ["power", "linear"])
@pytest.mark.parametrize("curve", ["bound", "inverse_sqrt"])
@given(seed=SEEDS)
def test_global_maximiser_against_the_reference(curve: str, payoff: str, seed: int) -> None:
    game = random_game(seed, 16, equal_a_opt=False, curve=curve, payoff=payoff)
    assert distance(rfm.local_optimum(of_package(game).devices).contribution, game.local) < 1e-9


@given(cost=st.floats(-6, -4).map(lambda x: 10**x), a_opt=st.floats(0.9, 0.999))
def test_closed_form_of_the_mnist_setting(cost: float, a_opt: float) -> None:
    k = 0.25
    closed = ((2 * np.sqrt(k) / cost) ** (1 / 3) - 2 * np.sqrt(k)) ** 2 / (1 - a_opt) ** 2
    found = rfm.local_optimum(rfm.Devices(cost, rfm.InverseSqrt(a_opt, k))).contribution[0]
    assert float(found) == pytest.approx(closed, rel=1e-9)


@dataclasses.dataclass
class Disguised:
    """The package's curve as somebody else's: only callable, so that it is searched on the grid."""

    inside: rfm.GeneralizationBound

    def __call__(self, m: jax.Array) -> jax.Array:
        return self.inside(m)


jax.tree_util.register_dataclass(Disguised, ["inside"], [])


@given(seed=SEEDS)
def test_any_curve_and_payoff_agree_with_the_closed_family(seed: int) -> None:
    devices = of_package(random_game(seed, 16, equal_a_opt=False)).devices
    disguised = dataclasses.replace(devices, accuracy=Disguised(devices.accuracy))
    known, found = rfm.local_optimum(devices), rfm.local_optimum(disguised)
    assert distance(found.contribution, np.asarray(known.contribution)) < 1e-7


def test_two_stationary_points_and_the_right_one() -> None:
    """Exponent 4 is convex up to m ~ 4.7e4 and then concave: u' has two roots."""
    device = rfm.Devices(0.05, rfm.GeneralizationBound(0.95, 10.0), rfm.PowerPayoff(1.0, 4.0))
    slope = jax.vmap(jax.grad(lambda m: rfm.local_utility(device, m).sum()))
    grid = jnp.geomspace(1e3, 1e7, 4000)
    rising = np.asarray(slope(grid)) > 0
    assert (rising[1:] != rising[:-1]).sum() == 2
    best = float(rfm.local_optimum(device).contribution[0])
    utility = np.asarray(rfm.local_utility(device, grid))
    assert best == pytest.approx(float(grid[utility.argmax()]), rel=5e-3)
    assert float(rfm.local_utility(device, best)) >= utility.max()


def test_prohibitive_cost_means_no_data() -> None:
    alone = rfm.local_optimum(rfm.Devices([0.05, 3.0], rfm.GeneralizationBound(0.95, 10.0)))
    assert (np.asarray(alone.contribution) == 0).all()
    assert (np.asarray(alone.utility) == 0).all()
    assert (np.asarray(alone.accuracy) == 0).all()


def test_cheaper_devices_collect_more_and_are_better_off() -> None:
    """Corollary 1."""
    alone = rfm.local_optimum(
        rfm.Devices(np.geomspace(1e-7, 1e-1, 200), rfm.GeneralizationBound(0.95, 10.0))
    )
    assert (np.diff(alone.contribution) <= 0).all()
    assert (np.diff(alone.utility) <= 0).all()
    assert alone.contribution[0] > 1e6
    assert alone.contribution[-1] == 0
