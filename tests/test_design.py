"""Design by gradient: against grid search, finite differences and floors; a path that only rises."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import realfm_jax as rfm
from realfm_jax.climb import Box, Search
from realfm_jax.comparison import SETTINGS, games
from realfm_jax.design import Design, design

BOUNDS = {"epsilon": (1e-9, 1e-4)}


def market(seed: int = 0, scale: float = 100.0, mechanism: str = "RealFM") -> rfm.Game:
    """The paper's CIFAR-10 setting with 4 devices, and a server to which accuracy is worth 100 times more.

    Then money pays: the best profit margin is below 1.
    """
    setting = dataclasses.replace(SETTINGS["cifar10"], devices=4, seed=seed)
    game = rfm.replace(games(setting)[mechanism], server_payoff_scale=scale)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), game)


def found(objective: Any = "server_utility", **options: Any) -> Design:
    return design(market(), objective, method="aggregate", **({"bounds": BOUNDS} | options))


@pytest.fixture(scope="module")
def grid() -> xr.Dataset:
    """50 x 50 games, those without an equilibrium left out."""
    solved = rfm.sweep(
        market(),
        profit_margin=np.linspace(0, 1, 50),
        epsilon=np.geomspace(*BOUNDS["epsilon"], 50),
        method="aggregate",
    )
    return solved.where(solved.converged)


@pytest.fixture(scope="module")
def best() -> Design:
    return found()


def test_beats_a_grid_search_with_a_fraction_of_its_solves(grid: xr.Dataset, best: Design) -> None:
    assert best.value >= float(grid.server_utility.max())
    assert best.solves <= 2500 / 20
    assert 0.9 < best.parameters["profit_margin"] < 0.95
    assert best.value > 1.1 * float(grid.server_utility.sel(profit_margin=1).max())
    again = rfm.solve(best.game, method="aggregate")
    assert float(again.server_utility) == pytest.approx(best.value, rel=1e-12)
    assert float(best.equilibrium.server_utility) == best.value
    assert best.converged
    assert best.certificate.is_equilibrium


def test_the_path_only_rises_and_ends_at_the_answer(best: Design) -> None:
    climbed = best.path["objective"]
    assert len(climbed) > 3
    assert (np.diff(climbed) >= 0).all()
    assert climbed[-1] == best.value
    assert {name: best.path[name][-1] for name in best.parameters} == best.parameters
    assert all(path.shape == climbed.shape for path in best.path.values())


@pytest.mark.parametrize("objective", ["welfare", "total_contribution"])
def test_other_objectives_beat_the_grid_too(grid: xr.Dataset, objective: str) -> None:
    on_grid = grid.server_utility + grid.utility.sum("device", skipna=False)
    wanted = {"welfare": on_grid, "total_contribution": grid.total}[objective]
    answer = found(objective)
    assert answer.value >= float(wanted.max()) * (1 - 1e-12)
    assert (np.diff(answer.path["objective"]) >= 0).all()


def test_any_function_of_the_equilibrium_can_be_the_objective() -> None:
    def log_utilities(eq: rfm.Equilibrium) -> jax.Array:
        return jnp.log(eq.server_utility) + jnp.log(eq.utility).sum()

    bounds = {"profit_margin": (0.9, 1.0), "epsilon": (1e-9, 1e-6)}
    answer = found(log_utilities, bounds=bounds)
    assert answer.objective == "log_utilities"
    assert str(answer).startswith("log_utilities ")
    assert answer.value == pytest.approx(float(log_utilities(answer.equilibrium)), rel=1e-12)
    server = found("server_utility", bounds=bounds)
    assert answer.value > float(log_utilities(server.equilibrium))
    assert answer.parameters["epsilon"] == 1e-6
    with pytest.raises(ValueError, match=r"objective must give one number; got shape \(4,\)"):
        found(lambda eq: eq.utility)


@pytest.mark.parametrize("least", [140.0, 155.0])
def test_a_floor_on_device_utility_binds(grid: xr.Dataset, best: Design, least: float) -> None:
    answer = found(floor={"min_utility": least})
    poorest = float(answer.equilibrium.utility.min())
    assert poorest >= least
    assert poorest == pytest.approx(least, rel=1e-7)
    assert answer.value < best.value
    allowed = grid.server_utility.where(grid.utility.min("device", skipna=False) >= least)
    assert answer.value >= float(allowed.max())
    assert f"floor {least:g}" in str(answer)


def test_a_floor_that_costs_nothing_changes_nothing(best: Design) -> None:
    answer = found(floor={"min_utility": 100.0, "mean_utility": 100.0})
    assert answer.value == pytest.approx(best.value, rel=1e-9)
    assert answer.parameters == pytest.approx(best.parameters, rel=1e-4)


def test_floors_that_no_start_keeps_are_reached_first() -> None:
    """Only a corner of the box is generous enough."""
    bounds = {"profit_margin": (0.95, 1.0), "epsilon": (1e-9, 1e-4)}
    top = found("min_utility", bounds=bounds).value
    floor = {"min_utility": 0.999 * top, "total": 5e6}
    answer = found(bounds=bounds, floor=floor)
    assert answer.equilibrium.utility.min() >= floor["min_utility"]
    assert answer.equilibrium.contribution.sum() >= floor["total"]
    with pytest.raises(ValueError, match=r"floor\['min_utility'\] must be at most [0-9.]+, .* got 500"):
        found(bounds=bounds, floor={"min_utility": 500.0})
    message = refusal(bounds=bounds, floor={"min_utility": 1.01 * top})
    most = re.search(r"at most ([0-9.]+)", message)
    assert most
    assert float(most[1]) == pytest.approx(top, rel=1e-4)


def refusal(**options: Any) -> str:
    with pytest.raises(ValueError, match="must be") as error:
        found(**options)
    return str(error.value)


def test_slopes_of_objective_and_floors_are_finite_differences() -> None:
    box = Box(("profit_margin", "epsilon"), np.array([0.0, 1e-9]), np.array([1.0, 1e-4]))
    floor = {"min_utility": 1.0, "mean_utility": 2.0}
    search = Search(market(), box, lambda eq: eq.server_utility, floor, ("aggregate",))
    x = np.array([0.93, 0.7])
    point = search.at(x)
    assert point.settled
    assert point.slopes.shape == (1 + 4 + 1, 2)

    def outputs(x: np.ndarray) -> np.ndarray:
        near = search.at(x)
        return np.array([near.value, *near.slack])

    steps = 1e-5 * np.eye(2)
    differences = np.stack([(outputs(x + h) - outputs(x - h)) / 2e-5 for h in steps], axis=1)
    np.testing.assert_allclose(point.slopes, differences, rtol=1e-6, atol=1e-6 * abs(differences).max())
    assert search.solves == 5, "value and gradient count once, and nothing is solved twice"


def test_coordinates_of_the_box_meet_its_bounds_exactly() -> None:
    box = Box(("profit_margin", "epsilon"), np.array([0.1, 1e-9]), np.array([0.9, 1e-4]))
    assert (box.values(np.zeros(2)) == box.low).all()
    assert (box.values(np.ones(2)) == box.high).all()
    inside = box.spread(100)
    assert ((inside > 0) & (inside < 1)).all()
    np.testing.assert_allclose(box.place(box.values(inside[3])), inside[3], rtol=1e-12)
    assert (box.place(np.array([5.0, 0.0])) == [1, 0]).all()
    # Evenly spread: every quarter of the square holds a quarter of the points, give or take.
    quarters = np.unique((inside > 0.5) @ [1, 2], return_counts=True)[1]
    assert (abs(quarters - 25) <= 3).all()


def test_a_start_of_yours_is_where_the_path_begins() -> None:
    answer = found(start={"profit_margin": 0.95, "epsilon": 1e-7})
    assert answer.path["profit_margin"][0] == pytest.approx(0.95)
    assert answer.path["epsilon"][0] == pytest.approx(1e-7)
    assert answer.solves < 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "server_utilty"}, "unknown objective 'server_utilty'; did you mean server_utility"),
        ({"over": ["profit_margn"]}, "unknown parameter 'profit_margn'; did you mean profit_margin"),
        ({"over": ["cost"]}, r"one number \(a_opt, .*got 'cost', of shape \(4,\)"),
        ({"over": []}, "over must name at least one parameter"),
        ({"over": ["k"], "bounds": {}}, r"bounds\['k'\] must be two numbers \(low, high\); got None"),
        ({"over": ["profit_margin"]}, r"bounds must be of parameters in over \(profit_margin\); got 'eps"),
        ({"bounds": {"epsilon": (1e-4, 1e-9)}}, r"bounds\['epsilon'\] .* low < high; got \(0.0001, 1e-09"),
        ({"bounds": {"epsilon": (0.0, 1e-9)}}, r"bounds\['epsilon'\] .*RealFM.epsilon must be > 0; got 0"),
        ({"bounds": {"profit_margin": (0.5, 1.5)}}, r"Server.profit_margin must be in \[0, 1\]; got 1.5"),
        ({"floor": {"min_utlity": 1.0}}, "unknown floor 'min_utlity'; did you mean min_utility"),
        ({"floor": {"min_utility": np.nan}}, r"floor\['min_utility'\] must be finite; got nan"),
        ({"start": {"epsilon": 1.0}}, r"start\['epsilon'\] must be within its bounds \[1e-09, 0.0001\]"),
        ({"starts": 0}, "starts must be at least 1; got 0"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found(**options)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["RealFM", "RealFM exact"])
@pytest.mark.parametrize("seed", range(4))
def test_beats_the_grid_whatever_the_game(seed: int, mechanism: str) -> None:
    """Where money attracts more data than RealFM rewards in full, too: best responses take over there."""
    game = market(seed, 10.0 ** np.random.default_rng(seed).uniform(0, 2.5), mechanism)
    solved = rfm.sweep(game, profit_margin=np.linspace(0, 1, 15), epsilon=np.geomspace(1e-9, 1e-4, 15))
    solved = solved.where(solved.converged)
    for objective, on_grid in (
        ("server_utility", solved.server_utility),
        ("mean_utility", solved.utility.mean("device", skipna=False)),
        ("min_utility", solved.utility.min("device", skipna=False)),
    ):
        answer = design(game, objective, bounds=BOUNDS)
        assert answer.value >= float(on_grid.max()) * (1 - 1e-9)
        assert (np.diff(answer.path["objective"]) >= 0).all()
        assert answer.certificate.is_equilibrium
