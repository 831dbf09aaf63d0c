"""Lines and heat maps hold the values of the sweep."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from drawn import curve, legend_texts, sweep
from matplotlib.colors import LogNorm

from realfm_jax import plots

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def test_lines_average_over_devices_in_a_band() -> None:
    data = sweep().sel(profit_margin=0.75)
    ax = plots.lines(data, "contribution")
    for name in ("taylor", "exact"):
        x, y = curve(ax, name)
        np.testing.assert_array_equal(x, data.cost)
        np.testing.assert_allclose(y, data.contribution.sel(shaping=name).mean("device"))
    low, high = (f(data.contribution.values[1]) for f in (np.min, np.max))
    band = np.asarray(ax.collections[1].get_paths()[0].vertices)
    assert (band[:, 1].min(), band[:, 1].max()) == (low, high)
    assert ax.get_xscale() == "log"
    assert ax.get_yscale() == "linear"
    assert ax.get_xlabel() == "Marginal cost (utility / sample)"
    assert ax.get_ylabel() == "Contribution,\nmean over devices (samples)"
    assert legend_texts(ax) == ["taylor", "exact", "least to most"]
    assert ax.yaxis.get_major_formatter()(20000.0) == "20k"


def test_lines_of_one_dimension_of_devices_and_of_flags() -> None:
    data = sweep().sel(profit_margin=1.0, shaping="exact")
    ax = plots.lines(data, "total")
    assert len(ax.lines) == 1
    assert ax.get_legend() is None
    assert ax.get_ylabel() == "Total contribution (samples)"
    ax = plots.lines(data, "contribution", x="device", hue="cost")
    np.testing.assert_array_equal(curve(ax, "0.001")[1], data.contribution.sel(cost=1e-3))
    flags = data.assign(converged=data.total > 16e3)
    np.testing.assert_array_equal(plots.lines(flags, "converged").lines[0].get_ydata(), [0, 1, 1, 1])


def test_what_did_not_converge_is_not_drawn() -> None:
    data = sweep().sel(profit_margin=1.0)
    data = data.assign(converged=data.total != 15e3)
    y = np.asarray(curve(plots.lines(data, "contribution"), "exact")[1])
    assert np.isnan(y).tolist() == [True, False, False, False]
    assert np.isfinite(np.asarray(plots.lines(data, "residual").lines[1].get_ydata(), float)).all()
    (mesh,) = plots.heatmap(data, "total").collections
    np.testing.assert_array_equal(np.ma.getmaskarray(mesh.get_array()), ~data.converged)


def test_lines_of_a_matched_sweep_are_split_by_hue_and_sorted() -> None:
    data = xarray.Dataset(
        {"total": ("game", [1.0, 2.0, 3.0, 4.0])},
        {
            "cost": ("game", [2.0, 1.0, 1.5, 3.0]),
            "shaping": ("game", ["exact", "exact", "taylor", "taylor"]),
        },
    )
    ax = plots.lines(data, "total", x="cost", hue="shaping")
    np.testing.assert_array_equal(curve(ax, "exact"), ([1.0, 2.0], [2.0, 1.0]))
    np.testing.assert_array_equal(curve(ax, "taylor"), ([1.5, 3.0], [3.0, 4.0]))


def test_many_lines_all_differ() -> None:
    data = xarray.Dataset(
        {"total": (("k", "cost"), np.ones((10, 20)))}, {"k": np.arange(10), "cost": np.arange(20)}
    )
    drawn = plots.lines(data, "total").lines
    assert len({line.get_color() for line in drawn}) == 10


def test_heat_map_holds_the_values_in_cells_around_the_coordinates() -> None:
    data = sweep()
    ax = plots.heatmap(data.sel(shaping="taylor"), "contribution", x="cost", y="profit_margin")
    (mesh,) = ax.collections
    wanted = data.contribution.sel(shaping="taylor").mean("device").transpose("profit_margin", "cost")
    np.testing.assert_allclose(np.asarray(mesh.get_array()), wanted)
    corners = mesh.get_coordinates()  # type: ignore[attr-defined]
    np.testing.assert_allclose(corners[0, :, 0], np.sqrt(10) * np.array([1e-5, 1e-4, 1e-3, 1e-2, 1e-1]))
    np.testing.assert_allclose(corners[:, 0, 1], [0.375, 0.625, 0.875, 1.125])
    assert ax.get_xscale() == "log"
    assert ax.get_ylabel() == "Profit margin"
    assert ax.figure.axes[1].get_ylabel() == "Contribution,\nmean over devices (samples)"


def test_heat_map_of_names_devices_and_decades() -> None:
    data = sweep().sel(profit_margin=1.0)
    ax = plots.heatmap(data, "total")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["taylor", "exact"]
    ax = plots.heatmap(data.sel(shaping="exact"), "contribution")
    assert ax.get_ylabel() == "Device"
    np.testing.assert_allclose(
        np.asarray(ax.collections[0].get_array()), data.contribution.sel(shaping="exact").T
    )
    shuffled = data.assign(total=10 ** (data.total / 1e3)).isel(cost=[2, 0, 3, 1])
    ax = plots.heatmap(shuffled, "total")
    assert isinstance(ax.collections[0].norm, LogNorm)
    np.testing.assert_allclose(
        np.asarray(ax.collections[0].get_array()),
        shuffled.total.sortby("cost").transpose("shaping", "cost"),
    )


@pytest.mark.parametrize(
    ("plot", "arguments", "message"),
    [
        (plots.lines, ("contributions",), "unknown variable 'contributions'; did you mean contribution"),
        (plots.lines, ("total", "costs"), "unknown dimension of total 'costs'; did you mean cost"),
        (
            plots.lines,
            ("total",),
            r"total also varies along profit_margin; .* dataset.sel\(profit_margin=0.5\)",
        ),
        (
            plots.lines,
            ("total", "shaping"),
            "x must be a dimension of numbers; got 'shaping': give hue='shaping'",
        ),
        (plots.heatmap, ("total", "cost", "shaping"), "total also varies along profit_margin"),
        (plots.heatmap, ("total", "cost", "cost"), "two dimensions; got 'cost' and 'cost'"),
    ],
)
def test_mistakes_in_sweeps_are_named(plot: Any, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot(sweep(), *arguments)
    assert plt.get_fignums() == [], "nothing is opened for a mistake"
