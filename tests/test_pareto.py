"""The front between server and devices: marked as brute force marks it, on equilibria only."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import realfm_jax as rfm
from realfm_jax.pareto import pareto, undominated

COORDINATES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, np.nan]) | st.floats(-5, 5)


def by_brute_force(points: np.ndarray) -> np.ndarray:
    """Every point against every other."""
    no_worse = (points[:, None] >= points).all(axis=2)
    better = (points[:, None] > points).any(axis=2)
    return ~(no_worse & better).any(axis=0) & np.isfinite(points).all(axis=1)


@given(st.lists(st.tuples(COORDINATES, COORDINATES), max_size=30))
def test_undominated_points_are_those_of_brute_force(pairs: list[tuple[float, float]]) -> None:
    points = np.array(pairs, float).reshape(-1, 2)
    np.testing.assert_array_equal(undominated(*points.T), by_brute_force(points))


def test_a_million_points_take_no_time() -> None:
    angle = np.random.default_rng(0).uniform(0, np.pi / 2, 10**6)
    assert undominated(np.cos(angle), np.sin(angle)).sum() > 9e5


def test_front_of_both_shapings() -> None:
    devices = rfm.Devices([2.5e-4, 2.2e-4, 2.8e-4], rfm.GeneralizationBound(0.95, 10.0))
    game = rfm.Game(devices, rfm.Server(rfm.PowerPayoff(100.0)), rfm.RealFM())
    front = pareto(
        game,
        profit_margin=np.linspace(0.5, 1, 11),
        epsilon=np.geomspace(1e-9, 1e-4, 6),
        method="aggregate",
    )
    assert front.server_utility.dims == ("shaping", "epsilon", "profit_margin")
    assert set(front) == {"server_utility", "mean_utility", "converged", "efficient", "efficient_overall"}
    assert front.mean_utility.attrs["units"] == "utility"
    assert 0 < int(front.converged.sum()) < front.converged.size
    assert not front.efficient.where(~front.converged, False).any()
    assert not (front.efficient_overall & ~front.efficient).any()
    for shaping in ("taylor", "exact"):
        one = front.sel(shaping=shaping).where(front.converged.sel(shaping=shaping))
        points = np.stack([one.server_utility.values.ravel(), one.mean_utility.values.ravel()], axis=1)
        marked = front.efficient.sel(shaping=shaping).values.ravel()
        np.testing.assert_array_equal(marked, by_brute_force(points))
        best = one.server_utility.argmax(...)
        assert bool(front.efficient.sel(shaping=shaping).isel(best))
    with pytest.raises(ValueError, match="the mechanism RealFM; got EqualShare"):
        pareto(rfm.replace(game, mechanism=rfm.EqualShare()))
