"""Learning curves and deliveries: what is drawn is what was measured."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from drawn import curve, legend_texts
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from realfm_jax.plots import _style as style
from realfm_jax.plots.training import delivery, learning

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def curves(**values: Any) -> xarray.Dataset:
    """As `train_federated` and `train_local` give them."""
    named = {
        name: (("epoch", "device")[: np.ndim(value)], np.asarray(value)) for name, value in values.items()
    }
    return xarray.Dataset(named, {"epoch": [1, 2, 3]})


FEDERATED = curves(global_accuracy=[0.7, 0.8, 0.9], accuracy=[[0.1, 0.2]] * 3)
ALONE = curves(accuracy=[[0.4, 0.6], [0.5, 0.8], [0.6, 0.8]])


def delivered(**values: Any) -> Any:
    promised, achieved = np.array([0.2, 0.5, 0.9]), np.array([0.19, 0.5, 0.89])
    interval = np.stack([achieved - 0.05, achieved + 0.04], 1)
    empty = {"fresh": None, "fresh_interval": None, "regained": None}
    known = {"promised": promised, "achieved": achieved, "interval": interval, "accuracy": 0.95}
    return SimpleNamespace(**(known | empty | values))


def spokes(ax: Any, color: str) -> list[tuple[float, float, float]]:
    """x, low and high of the vertical lines of a colour."""
    drawn: list[Any] = [lines for lines in ax.collections if isinstance(lines, LineCollection)]
    ours = [lines for lines in drawn if tuple(lines.get_color()[0][:3]) == to_rgb(color)]
    return [(line[0, 0], line[0, 1], line[1, 1]) for lines in ours for line in lines.get_segments()]


def test_learning_shows_the_federated_model_against_the_mean_device() -> None:
    ax = learning({"federated": SimpleNamespace(curves=FEDERATED), "alone": ALONE})  # type: ignore[dict-item]
    np.testing.assert_array_equal(curve(ax, "federated"), ([1, 2, 3], [0.7, 0.8, 0.9]))
    np.testing.assert_allclose(curve(ax, "alone"), ([1, 2, 3], [0.5, 0.65, 0.7]))
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    assert {(x, y) for x, y in np.asarray(corners).tolist()} >= {(1, 0.4), (1, 0.6), (2, 0.8), (3, 0.6)}
    assert legend_texts(ax) == ["federated", "alone", "least to most device"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Epoch", "Test accuracy")


def test_learning_of_one_run_names_what_it_is() -> None:
    assert legend_texts(learning(FEDERATED)) == ["federated model"]
    assert legend_texts(learning(ALONE)) == ["devices alone, mean", "least to most device"]


def test_delivery_beside_the_promise_with_its_interval() -> None:
    ax = delivery(delivered())
    np.testing.assert_array_equal(curve(ax, "delivered"), ([0.2, 0.5, 0.9], [0.19, 0.5, 0.89]))
    diagonal = curve(ax, "as promised")
    np.testing.assert_array_equal(*diagonal)
    assert diagonal[0].max() == 0.95
    assert (curve(ax, "the federated model")[1] == 0.95).all()
    bars = spokes(ax, style.COLORS[0])
    assert bars == [pytest.approx(bar) for bar in ((0.2, 0.14, 0.23), (0.5, 0.45, 0.54), (0.9, 0.84, 0.93))]


def test_delivery_shows_fresh_images_and_the_best_that_fine_tuning_wins() -> None:
    fresh = np.array([0.21, 0.48, 0.9])
    interval = np.stack([fresh - 0.01, fresh + 0.01], 1)
    regained = np.array([[0.6, 0.7, 0.9], [0.7, 0.65, 0.94]])
    one = delivered(fresh=fresh, fresh_interval=interval, regained=regained)
    ax = delivery({"noise": one, "skew": delivered()})
    x, y = curve(ax, "noise")
    np.testing.assert_array_equal(y, fresh)
    np.testing.assert_array_equal(curve(ax, "_noise, fine-tuned"), (x, [0.7, 0.7, 0.94]))
    assert spokes(ax, style.COLORS[0])[3:] == [
        pytest.approx(bar) for bar in zip(x, fresh, [0.7, 0.7, 0.94], strict=True)
    ]
    other = curve(ax, "skew")[0]
    assert ((other - x) > 0).all(), "side by side"
    assert np.abs((other + x) / 2 - one.promised).max() < 1e-12
    assert np.abs(other - x).max() < 0.03
    names = ["as promised", "the federated model", "noise", "skew", "after fine-tuning"]
    assert legend_texts(ax) == names


def test_both_can_be_read_and_go_where_they_are_told() -> None:
    before = dict(matplotlib.rcParams)
    regained = np.array([[0.6, 0.7, 0.9]])
    both = {"noise": delivered(regained=regained), "skew": delivered(regained=regained)}
    for ax in (learning({"federated": FEDERATED, "alone": ALONE}), delivery(both)):
        figure: Any = ax.figure
        assert figure.get_figwidth() == style.COLUMN
        figure.canvas.draw()
        box = ax.get_legend().get_window_extent()  # type: ignore[union-attr]
        assert box.x0 >= figure.bbox.x0 - 1
        assert max(box.x1 - figure.bbox.x1, box.y1 - figure.bbox.y1) <= 1
        assert box.y0 >= ax.get_window_extent().y1 - 1, "clear of the axes"
    assert dict(matplotlib.rcParams) == before
    mine = Figure(layout="constrained").subplots()
    assert learning(ALONE, ax=mine) is delivery(delivered(), ax=mine) is mine


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="runs must name at least one run"):
        learning({})
    with pytest.raises(ValueError, match="deliveries must name at least one delivery"):
        delivery({})
    with pytest.raises(ValueError, match="needs global_accuracy or accuracy of run 'mine'; it has loss"):
        learning({"mine": curves(loss=[1.0, 0.5, 0.2])})
