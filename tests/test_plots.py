"""What is drawn is what was computed; and it can be read."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from drawn import curve, front, game, legend_texts, spans, sweep
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import realfm_jax as rfm
from realfm_jax import comparison, plots
from realfm_jax.plots import _style as style

matplotlib.use("Agg")
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def solved() -> tuple[rfm.Game, rfm.Equilibrium]:
    return game(), rfm.solve(game(), method="aggregate")


def test_utility_is_that_of_the_rewards_and_peaks_at_the_equilibrium(
    solved: tuple[rfm.Game, rfm.Equilibrium],
) -> None:
    played, eq = solved
    ax = plots.utility(played, eq, device=1)
    m, u = curve(ax, "utility")
    for i in (5, 300, 500, -1):  # one in each interval, and the last
        alone = rfm.rewards(played, eq.contribution.at[1].set(m[i]))
        assert u[i] == pytest.approx(float(alone.utility[1]), rel=1e-12)
    local, here = float(eq.local.contribution[1]), float(eq.contribution[1])
    assert curve(ax, "equilibrium")[0].item() == here
    assert curve(ax, "equilibrium")[1].item() == pytest.approx(float(eq.utility[1]), rel=1e-9)
    assert curve(ax, "local optimum")[0].item() == local
    assert curve(ax, "local optimum")[1].item() == pytest.approx(float(eq.local.utility[1]), rel=1e-9)
    assert u.max() == pytest.approx(float(eq.utility[1]), rel=1e-9)
    assert spans(ax) == [pytest.approx(span) for span in ((0, local), (local, here), (here, 1.3 * here))]
    np.testing.assert_allclose(
        curve(ax, "alone")[1], rfm.local_utility(rfm.Devices(2e-3, played.devices.accuracy), jnp.asarray(m))
    )
    assert ax.get_xlabel() == "Contribution of device 1 (samples)"
    assert set(plots.devices.REGIONS) < set(legend_texts(ax))


def test_utility_with_money_holds_the_federated_model_before_the_equilibrium() -> None:
    played = game(profit_margin=0.5)
    eq = rfm.solve(played, method="aggregate")
    ax = plots.utility(played, eq, device=2)
    (_, local), (_, reached), _ = spans(ax)
    here = float(eq.contribution[2])
    assert local == pytest.approx(float(eq.local.contribution[2]))
    assert local < reached < here
    step = 1.3 * here / (plots.devices.POINTS - 1)
    for m, held in ((reached, True), (reached - 2 * step, False)):
        given = rfm.rewards(played, eq.contribution.at[2].set(m))
        assert bool(jnp.isclose(given.error[2], given.federation.error, rtol=1e-9)) == held


@pytest.mark.parametrize(("mechanism", "region"), [("EqualShare", "0.84"), ("LocalOnly", "1.0")])
def test_utility_under_mechanisms_that_shape_nothing(mechanism: str, region: str) -> None:
    played = game(mechanism=getattr(rfm, mechanism)())
    eq = rfm.outcome_at(played, [100.0, 0.0, 200.0])
    (patch,) = plots.utility(played, eq, device=1).patches
    assert patch.get_facecolor()[:3] == to_rgb(region)


def test_utility_of_a_device_that_nothing_attracts() -> None:
    played = game(mechanism=rfm.LocalOnly(), cost=10.0)
    ax = plots.utility(played, rfm.outcome_at(played, [0.0, 0.0, 0.0]))
    assert curve(ax, "utility")[0].max() > 0
    assert curve(ax, "equilibrium")[0].item() == 0


def test_mechanisms_shows_every_device_under_each(solved: tuple[rfm.Game, rfm.Equilibrium]) -> None:
    _, eq = solved
    free = rfm.outcome_at(game(mechanism=rfm.EqualShare()), [0.0, 0.0, 3.0])
    outcome = comparison.Outcome(eq, None, eq.utility, eq.server_utility)  # type: ignore[arg-type]
    figure = plots.mechanisms({"RealFM": outcome, "EqualShare": free})  # type: ignore[dict-item]
    contribution, accuracy, money = figure.axes
    for ax, quantity in ((contribution, "contribution"), (accuracy, "accuracy"), (money, "money")):
        for name, found in (("RealFM", eq), ("EqualShare", free)):
            x, y = curve(ax, name)
            np.testing.assert_array_equal(y, getattr(found, quantity))
            assert (np.round(x) == [0, 1, 2]).all()
    assert contribution.get_yscale() == "symlog"
    assert contribution.get_ylim()[0] < 0, "a device that gives nothing is on the axis"
    assert contribution.get_ylabel() == "Contribution\n(samples)"
    assert legend_texts(figure) == ["RealFM", "EqualShare"]


def test_cost_comparison_draws_local_optima_as_the_paper_does() -> None:
    ax = plots.cost_comparison()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_ylabel() == "Local optimum $m_i^o$ (samples)"
    assert legend_texts(ax) == [f"{name}, k = {k}" for name in ("power", "linear") for k in (1, 10, 100)]
    cost, m = curve(ax, "power, k = 10")
    assert (cost.min(), cost.max()) == pytest.approx((1e-5, 1e-1))
    assert np.interp(2.5e-4, cost, m) == pytest.approx(198478, rel=1e-3)
    linear = curve(ax, "linear, k = 10")[1]
    assert np.isfinite(m).sum() > np.isfinite(linear).sum() > 0, "a linear payoff gives up first"
    both = np.isfinite(linear)
    assert (m[both] > linear[both]).all()


def test_utility_comparison_marks_the_optimum_or_says_that_there_is_none() -> None:
    figure = plots.utility_comparison()
    assert len(figure.axes) == 3
    for ax, cost in zip(figure.axes, (1e-4, 1e-3, 1e-2), strict=True):
        assert ax.get_title() == f"c = {cost:g} utility / sample"
        assert ax.get_yscale() == "symlog"
        m, u = curve(ax, "power payoff")
        assert (m.min(), m.max()) == (1.0, 1e7)
        error = np.minimum(0.05 + (np.sqrt(2 * (2 + np.log(m))) + 4) / np.sqrt(m), 1)
        np.testing.assert_allclose(u, 1 / error**2 - 1 - cost * m, rtol=1e-9, atol=1e-9)
        marks = [line for line in ax.lines if len(np.atleast_1d(line.get_xdata())) == 1]
        (text,) = ax.texts
        if cost < 1e-2:
            assert np.asarray(marks[0].get_ydata()).item() == pytest.approx(u.max(), rel=1e-3)
            assert len(marks) == 2
        else:
            assert u.max() <= 0
            assert marks == []
            assert text.get_text() == "power: stays out\nlinear: stays out"
    assert "505,246" in figure.axes[0].texts[0].get_text()


def test_mistakes_in_results_are_named(solved: tuple[rfm.Game, rfm.Equilibrium]) -> None:
    played, eq = solved
    with pytest.raises(ValueError, match="device must be in 0 to 2; got 3"):
        plots.utility(played, eq, device=3)
    with pytest.raises(ValueError, match=r"this game's 2 device\(s\); got shape \(3,\)"):
        plots.utility(rfm.replace(played, devices=2), eq)
    with pytest.raises(ValueError, match="a heat map needs two dimensions: use lines"):
        plots.heatmap(sweep().sel(shaping="exact", cost=0.1), "total")
    with pytest.raises(ValueError, match="pareto needs a Dataset with mean_utility, efficient"):
        plots.pareto(sweep().rename(total="server_utility"))
    with pytest.raises(ValueError, match="at least one mechanism"):
        plots.mechanisms({})


def test_pareto_joins_each_front_and_rings_what_is_efficient_overall() -> None:
    ax = plots.pareto(front())
    np.testing.assert_array_equal(curve(ax, "taylor front"), ([1.0, 2.0], [4.0, 3.0]))
    np.testing.assert_array_equal(curve(ax, "exact front"), ([0.5, 1.0, 1.5], [5.0, 2.0, 1.0]))
    np.testing.assert_array_equal(curve(ax, "efficient overall"), ([1.0, 2.0, 0.5], [4.0, 3.0, 5.0]))
    assert sum(len(np.atleast_1d(line.get_xdata())) for line in ax.lines) == 8 + 3
    assert "better" in ax.get_xlabel()
    assert "server" in ax.get_ylabel()


def test_sensitivity_sorts_by_size_and_keeps_the_sign() -> None:
    table = np.array([[0.5, -3.0, 0.001], [-0.2, -1.0, 4.0]])
    data = xarray.Dataset(
        {"elasticity": (("output", "parameter"), table)},
        {"output": ["total", "server_utility"], "parameter": ["k", "cost", "a_opt"]},
    )
    ax = plots.sensitivity(data)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a_opt", "cost", "k"]
    assert [bar.get_width() for bar in ax.patches] == [0.001, -3.0, 0.5, 4.0, -1.0, -0.2]
    assert [text.get_text() for text in ax.texts] == ["≈ 0", "-3", "+0.50", "+4", "-1", "-0.20"]
    assert ax.get_ylim() == (2.5, -0.5), "the largest on top"
    assert legend_texts(ax) == ["Total", "Server utility"]


def test_sensitivity_shows_small_beside_large_and_leaves_out_what_is_not_a_number() -> None:
    data = xarray.Dataset(
        {"elasticity": (("output", "parameter"), [[0.2, 38.0, np.nan]])},
        {"output": ["total"], "parameter": ["k", "a_opt", "epsilon"]},
    )
    ax = plots.sensitivity(data)
    assert ax.get_xscale() == "symlog"
    assert [text.get_text() for text in ax.texts] == ["+38", "+0.20", ""]


def test_design_path_ends_at_what_was_found() -> None:
    climb: Any = SimpleNamespace(
        path={"objective": np.array([1.0, 2.5, 3.0])}, value=3.0, objective="server_utility"
    )
    ax = plots.design_path(climb)
    np.testing.assert_array_equal(curve(ax, "accepted iterates"), ([0, 1, 2], [1.0, 2.5, 3.0]))
    assert (curve(ax, "found")[0].item(), curve(ax, "found")[1].item()) == (2, 3.0)
    assert ax.get_ylabel() == "Server utility"
    climb.objective = "my own"
    assert plots.design_path(climb).get_ylabel() == "My own"


def every_plot(solved: tuple[rfm.Game, rfm.Equilibrium]) -> dict[str, Any]:
    data = sweep().sel(profit_margin=0.75)
    table = xarray.Dataset(
        {"elasticity": (("output", "parameter"), [[38.0, -0.02, -1.2]])},
        {"output": ["total"], "parameter": ["a_opt", "payoff_exponent", "cost"]},
    )
    return {
        "utility": plots.utility(*solved),
        "mechanisms": plots.mechanisms({"RealFM": solved[1], "RealFM exact": solved[1]}),
        "cost_comparison": plots.cost_comparison(),
        "utility_comparison": plots.utility_comparison(),
        "lines": plots.lines(data, "contribution"),
        "heatmap": plots.heatmap(data, "contribution"),
        "pareto": plots.pareto(front()),
        "sensitivity": plots.sensitivity(table),
    }


def test_every_plot_can_be_read(solved: tuple[rfm.Game, rfm.Equilibrium]) -> None:
    """Text of 8 pt, inside the figure; legends clear of the axes; no tick label on another."""
    before = dict(matplotlib.rcParams)
    drawn = every_plot(solved)
    assert dict(matplotlib.rcParams) == before, "nothing global is changed"
    for name, plot in drawn.items():
        figure: Figure = plot if isinstance(plot, Figure) else plot.figure
        assert figure.get_figwidth() in (style.COLUMN, style.PAGE), name
        figure.canvas.draw()
        whole = figure.bbox
        for legend in [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]:
            box = legend.get_window_extent()
            assert box.x0 >= whole.x0 - 1, name
            assert max(box.x1 - whole.x1, box.y1 - whole.y1) <= 1, name
            assert not any(box.y0 < ax.get_window_extent().y1 - 1 for ax in figure.axes), name
        for ax in figure.axes:
            for axis in (ax.xaxis, ax.yaxis):
                texts = [text for text in axis.get_ticklabels() if text.get_visible() and text.get_text()]
                assert {text.get_fontsize() for text in texts} <= {style.SIZE}, name
                low, high = sorted(axis.get_view_interval())
                shown = [text for text in texts if low <= text.get_position()[axis is ax.yaxis] <= high]
                boxes = [text.get_window_extent() for text in shown]
                assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes)), name
                assert axis.label.get_fontsize() == style.SIZE


def test_a_plot_goes_where_it_is_told() -> None:
    ax = Figure(layout="constrained").subplots()
    assert plots.pareto(front(), ax=ax) is ax
    figure = Figure(layout="constrained")
    assert plots.utility_comparison(costs=[1e-3, 1e-2], figure=figure) is figure
    assert plt.get_fignums() == []


def test_first_colours_differ_in_grey_and_all_looks_differ() -> None:
    def lightness(color: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
        y = float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
        return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y

    grey = sorted(map(lightness, style.COLORS[:4]))
    assert min(np.diff(grey)) >= 10
    for looks in (style.COLORS, style.LINES, style.MARKERS):
        assert len(set(looks)) == len(looks) == 7


def test_the_gallery_has_every_plot() -> None:
    source = "".join((ROOT / "docs" / name).read_text() for name in ("gallery.py", "federation.py"))
    for name in plots.__all__:
        assert f"plots.{name}(" in source, name


def test_importing_opens_nothing() -> None:
    code = "import realfm_jax.plots, sys; print('matplotlib.pyplot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
