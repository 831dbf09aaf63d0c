"""The Jacobian of the equilibrium: against finite differences, and what a unit of measure dictates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import realfm_jax as rfm
from realfm_jax.parameters import UNITS, numbers
from realfm_jax.sensitivity import OUTPUTS, SUMMARY, _jacobian, sensitivity


def market(**changed: object) -> rfm.Game:
    """Four unlike devices, and a server whose payoff makes it worth its while to pay money."""
    devices = rfm.Devices(
        cost=jnp.array([2.5e-4, 2.2e-4, 2.8e-4, 3.1e-4]),
        accuracy=rfm.GeneralizationBound(0.95, 10.0),
        payoff=rfm.PowerPayoff(jnp.array([1.0, 1.1, 0.9, 1.05])),
    )
    game = rfm.Game(devices, rfm.Server(rfm.PowerPayoff(100.0)), rfm.RealFM(epsilon=1e-6))
    game = rfm.replace(game, **({"profit_margin": 0.9} | changed))
    # Python's numbers and arrays are types of their own to a compiler: one program for all of these games.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), game)


@pytest.fixture(scope="module")
def together() -> xr.Dataset:
    return sensitivity(market())


def by_differences(game: rfm.Game, name: str, along: np.ndarray) -> np.ndarray:
    """Change of every summary output per step p -> p + along, central, step 1e-5."""
    at = np.asarray(numbers(game)[name])

    def outputs(step: float) -> np.ndarray:
        found = rfm.solve(rfm.replace(game, **{name: at + step * along}), method="aggregate")
        return np.array([float(OUTPUTS[output].of(found)) for output in SUMMARY])

    if name == "profit_margin" and at == 1:  # the end of its range: look back only
        return (3 * outputs(0) - 4 * outputs(-1e-5) + outputs(-2e-5)) / 2e-5
    return (outputs(1e-5) - outputs(-1e-5)) / 2e-5


@pytest.mark.parametrize("profit_margin", [0.9, 1.0])
def test_derivatives_and_elasticities_are_finite_differences(profit_margin: float) -> None:
    game = market(profit_margin=profit_margin)
    found = sensitivity(game)
    assert list(found.parameter.values) == list(numbers(game))
    for name, leaf in numbers(game).items():
        at, column = np.asarray(leaf), found.sel(parameter=name)
        size = at.mean()  # so that a step is a relative one
        shifted = by_differences(game, name, np.full_like(at, size)) / found.value
        stretched = by_differences(game, name, at) / found.value
        np.testing.assert_allclose(column.derivative * size / found.value, shifted, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(column.elasticity, stretched, rtol=1e-5, atol=1e-7)
        assert float(column.parameter_value) == pytest.approx(size)


def test_the_currency_does_not_matter(together: xr.Dataset) -> None:
    """+1 % on all that is measured in utility is +1 % on every utility, and nothing to the data."""
    measured = ["utility" in UNITS.get(str(name), "1") for name in together.parameter.values]
    assert sum(measured) == 4
    wanted = [OUTPUTS[name].units == "utility" for name in SUMMARY]
    np.testing.assert_allclose(together.elasticity.values[:, measured].sum(axis=1), wanted, atol=1e-8)


def test_one_by_one_adds_up_to_together(together: xr.Dataset) -> None:
    found = sensitivity(market(), each=True)
    labels = [str(label) for label in found.parameter.values]
    assert labels[:4] == ["cost[0]", "cost[1]", "cost[2]", "cost[3]"]
    assert "profit_margin" in labels
    groups = found.assign_coords(parameter=[label.partition("[")[0] for label in labels])
    for name in ("derivative", "elasticity"):
        added = groups[name].groupby("parameter").sum().sel(parameter=together.parameter)
        np.testing.assert_allclose(added, together[name], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.parameter_value[:4], market().devices.cost)
    assert found.parameter_units.sel(parameter="cost[2]") == "utility / sample"


def test_per_device_outputs_average_to_the_mean_and_zero_has_no_elasticity() -> None:
    game = market(profit_margin=1.0)
    found = sensitivity(game, ("utility", "money", "contribution", "accuracy", "mean_utility", "total"))
    devices = found.derivative.sel(output=[f"utility[{i}]" for i in range(4)])
    np.testing.assert_allclose(
        devices.mean("output"), found.derivative.sel(output="mean_utility"), rtol=1e-9
    )
    money = found.sel(output=[f"money[{i}]" for i in range(4)])
    assert not money.value.any()
    assert np.isnan(money.elasticity).all()
    assert np.isfinite(found.derivative).all()
    assert money.output_units.values.tolist() == ["utility"] * 4


def test_the_answer_says_when_it_is_none(together: xr.Dataset) -> None:
    assert bool(together.converged)
    before = _jacobian._cache_size()
    with pytest.warns(UserWarning, match="not an equilibrium .* try 'best_response'"):
        found = sensitivity(market(profit_margin=0.3, epsilon=1e-4))
    assert not bool(found.converged)
    assert _jacobian._cache_size() == before, "other numbers must not compile anew"


def test_labels_and_units_are_complete(together: xr.Dataset) -> None:
    assert dict(together.sizes) == {"output": 5, "parameter": 9}
    for variable in together.data_vars.values():
        assert variable.attrs["long_name"]
        assert variable.attrs["units"]
    assert together.output_units.sel(output="total") == "samples"


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown output 'server_utilty'; did you mean server_utility"):
        sensitivity(market(), ["server_utilty"])
    with pytest.raises(ValueError, match="outputs must name at least one of"):
        sensitivity(market(), [])


@pytest.mark.slow
def test_any_mechanism_by_best_responses() -> None:
    """Under EqualShare the device with the lowest cost gives all: only its cost matters."""
    devices = rfm.Devices(cost=[2e-4, 3e-4], accuracy=rfm.GeneralizationBound(0.95, 10.0))
    found = sensitivity(rfm.Game(devices, rfm.Server(), rfm.EqualShare()), ["total"], each=True)
    elasticity = found.elasticity.sel(output="total")
    assert float(elasticity.sel(parameter="cost[1]")) == pytest.approx(0, abs=1e-9)
    assert float(elasticity.sel(parameter="cost[0]")) < -0.5
