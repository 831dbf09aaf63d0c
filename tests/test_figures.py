"""Figures of recorded runs: what is drawn is what the runs recorded, beside what the paper has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawn import curve, legend_texts
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from realfm_jax.experiments import figures
from realfm_jax.experiments.published import find
from realfm_jax.plots import _style as style
from realfm_jax.plots import experiments as plots

PAPERS: dict[str, Any] = {
    **{"dataset": "mnist", "devices": 16, "distribution": "iid", "preset": "small", "seed": 0},
    **{
        "costs": "uniform",
        "payoffs": "uniform",
        "payoff": "power",
        "shaping": "taylor",
        "profit_margin": 1.0,
    },
}
SCALES = {"Local": 1.0, "EqualShare": 2.0, "RealFM": 3.0, "RealFM exact": 5.0}
"""What tells mechanisms apart in the records below."""


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def outcome(size: float) -> dict[str, Any]:
    """Means: contribution 1000, utility 10, by the common payoff 20; each `size` times."""
    devices = {"contribution": [800.0, 1200.0], "utility": [5.0, 15.0], "common_utility": [30.0, 10.0]}
    server = {"server_utility": 100.0 * size, "common_server_utility": 70.0 * size}
    return {name: [size * value for value in values] for name, values in devices.items()} | server


def record(path: Path, size: float = 1.0, **what: Any) -> Path:
    """A run of two devices, as `place` writes it; all outcomes are `size` times the usual ones."""
    config = PAPERS | what
    result = {
        "provenance": {"config": config},
        "experiment": config | {"a_opt": 0.9 + 0.01 * config["seed"]},
        "devices": {"local_optimum": [10.0 * size, 20.0 * size], "equilibrium": [50.0 * size, 70.0 * size]},
        "theory": {"equal_share_total": 20.0 * size},
        "mechanisms": {name: outcome(size * scale) for name, scale in SCALES.items()},
    }
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps(result))
    learning(path / "curves.csv", 0.1 * size)
    return path


def learning(path: Path, start: float) -> None:
    """Two devices, together scored after epochs 1 and 2, alone after 2 only."""
    rows: list[Any] = [("kind", "epoch", "device", "accuracy", "global_accuracy")]
    for device in (0, 1):
        rows += [("local", 1, device, "nan", ""), ("local", 2, device, start + 0.2 * device, "")]
        rows += [("federated", epoch, device, "", start + 0.1 * epoch) for epoch in (1, 2)]
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


def read(*paths: Path) -> figures.Runs:
    return figures.settings(map(figures.read, paths))[0]


def bars(ax: Any) -> list[tuple[str, float]]:
    """Mechanism and height, from left to right."""
    found = [(bar.get_x(), group.get_label(), bar.get_height()) for group in ax.containers for bar in group]
    return [(name, height) for _, name, height in sorted(found)]


def points(ax: Any, label: str = "paper") -> list[tuple[float, float]]:
    return [(*line.get_xdata(), *line.get_ydata()) for line in ax.lines if line.get_label() == label]


def across(ax: Any, label: str) -> list[float]:
    return [x for x, _ in points(ax, label)]


def titled(figure: Any, title: str) -> Any:
    (ax,) = [ax for ax in figure.axes if ax.get_title() == title]
    return ax


def ticks(axis: Any) -> list[str]:
    return [tick.get_text() for tick in axis.get_ticklabels()]


@pytest.mark.parametrize(
    ("quantity", "heights", "together", "alone"),
    [
        ("server-utility", (300.0, 6.0, 100.0), "server_utility", "server_utility_local"),
        ("contribution", (3000.0, 60.0, 1000.0), "contribution", "samples_alone"),
        ("device-utility", (30.0, 0.6, 10.0), "device_utility", "device_utility_local"),
    ],
)
def test_comparison_has_our_bars_and_the_papers_values_beside_them(
    tmp_path: Path, quantity: str, heights: tuple[float, ...], together: str, alone: str
) -> None:
    runs = read(record(tmp_path / "a"), record(tmp_path / "b", 0.02, payoff="linear"))
    figure = dict(figures.figures(runs))[f"{quantity}-16"]
    ax = titled(figure, "MNIST, IID")
    names = ["RealFM", "Linear RealFM", "local"]
    assert bars(ax) == [(name, pytest.approx(height)) for name, height in zip(names, heights, strict=True)]
    power, linear = (find("mnist", 16, "iid", "uniform", payoff) for payoff in ("power", "linear"))
    expected = [getattr(power, together), getattr(linear, together), getattr(power, alone)]
    assert [y for _, y in points(ax)] == expected
    ends = [patch.get_x() + patch.get_width() for patch in ax.patches]
    starts = [*(patch.get_x() for patch in ax.patches[1:]), np.inf]
    for (x, _), end, start in zip(points(ax), ends, starts, strict=True):
        assert end < x < start, "each beside its own bar"
    assert ax.get_yscale() == "log"
    assert legend_texts(figure) == [*names, "paper"]


def test_groups_rows_and_columns_are_in_the_papers_order_and_gaps_are_said(tmp_path: Path) -> None:
    runs = read(
        record(tmp_path / "1", distribution=0.6),
        record(tmp_path / "2", 2.0, costs="normal", payoffs="random"),
        record(tmp_path / "3"),
        record(tmp_path / "4", dataset="cifar10", distribution=0.3),
        record(tmp_path / "5", 7.0, dataset="digits", devices=8, costs="normal"),
    )
    figure = plots.comparison(figures.panels(runs, 16, "contribution"), "Samples")
    titles = [f"{row}, {column}" for row in ("CIFAR-10", "MNIST") for column in ("IID", "D-0.6", "D-0.3")]
    assert [ax.get_title() for ax in figure.axes] == titles
    ax = titled(figure, "MNIST, IID")
    assert ticks(ax.xaxis) == ["uniform", "C, P vary"]
    assert bars(ax) == [("RealFM", 3000), ("local", 1000), ("RealFM", 6000), ("local", 2000)]
    empty = [title for title in titles if titled(figure, title).texts]
    assert empty == ["CIFAR-10, IID", "CIFAR-10, D-0.6", "MNIST, D-0.3"]
    digits = plots.comparison(figures.panels(runs, 8, "contribution"), "Samples")
    assert bars(titled(digits, "digits, IID")) == [("RealFM", 21000), ("local", 7000)]
    assert "paper" not in legend_texts(digits)
    said = list(figures.missing(runs))
    assert said[0] == "no run of 16 devices, power payoff: CIFAR-10 IID, CIFAR-10 D-0.6, MNIST D-0.3"
    assert len(said) == 4


def test_seeds_are_averaged_with_their_least_and_most(tmp_path: Path) -> None:
    runs = read(*(record(tmp_path / str(seed), 1.0 + seed, seed=seed) for seed in (0, 1, 3)))
    figure = plots.comparison(figures.panels(runs, 16, "contribution"), "Samples")
    ax = titled(figure, "MNIST, IID")
    assert bars(ax) == [("RealFM", pytest.approx(7000)), ("local", pytest.approx(7000 / 3))]
    whiskers = [line.get_segments()[0][:, 1].tolist() for line in ax.collections]
    assert whiskers == [[3000, 12000], [1000, 4000]]
    assert "least to most seed" in legend_texts(figure)


def test_negative_utility_is_drawn_below_zero_and_the_axis_says_how() -> None:
    panel = {"MNIST": {"RealFM": plots.Bar((200.0,)), "local": plots.Bar((-0.5,), -4.0)}}
    (ax,) = plots.comparison({("MNIST", "IID"): panel}, "Utility").axes
    assert bars(ax) == [("RealFM", 200), ("local", -0.5)]
    assert (ax.get_yscale(), ax.get_ylabel()) == ("symlog", "Utility\n(linear within ±0.1)")
    assert ax.get_ylim()[0] < -4


def test_accuracy_of_one_seed_is_in_a_band_over_devices(tmp_path: Path) -> None:
    runs = read(record(tmp_path / "a"), record(tmp_path / "b", 2.0, payoff="linear"))
    figure = figures.accuracy(runs, 16)
    ax = titled(figure, "MNIST, IID")
    np.testing.assert_allclose(curve(ax, "federated"), ([1, 2], [0.2, 0.3]))
    np.testing.assert_allclose(curve(ax, "local"), ([2], [0.2]))
    local = figures.curves(*next(iter(runs.items())))["local"]
    np.testing.assert_allclose((local.low, local.high), ([0.1], [0.3]))
    paper = find("mnist", 16, "iid", "uniform", "power")
    assert paper is not None
    assert [y for _, y in points(ax)] == [paper.accuracy_federated, paper.accuracy_local]
    assert "least to most of devices" in legend_texts(figure)
    assert figures.accuracy(read(tmp_path / "b"), 16) is None


def test_accuracy_of_several_seeds_is_in_a_band_over_them(tmp_path: Path) -> None:
    runs = read(record(tmp_path / "a"), record(tmp_path / "b", 3.0, seed=1))
    figure = figures.accuracy(runs, 16)
    ax = titled(figure, "MNIST, IID")
    np.testing.assert_allclose(curve(ax, "federated"), ([1, 2], [0.3, 0.4]))
    np.testing.assert_allclose(curve(ax, "local"), ([2], [0.3]))
    corners = np.concatenate([band.get_paths()[0].vertices for band in ax.collections]).round(6)
    assert {(1.0, 0.2), (1.0, 0.4), (2.0, 0.3), (2.0, 0.5), (2.0, 0.2)} <= set(map(tuple, corners))
    assert "least to most of seeds" in legend_texts(figure)


def test_our_own_figures_draw_what_runs_recorded(tmp_path: Path) -> None:
    linear = record(tmp_path / "b", 0.1, payoff="linear")
    found = dict(
        figures.figures(read(record(tmp_path / "a"), linear, record(tmp_path / "c", distribution=0.3)))
    )
    (exact,) = found["exact-shaping"].axes
    assert ticks(exact.yaxis) == ["MNIST, 16 devices, IID", "MNIST, 16 devices, D-0.3"]
    assert across(exact, "RealFM") == [3000, 3000]
    assert across(exact, "RealFM exact") == [5000, 5000]
    assert [text.get_text() for text in exact.texts] == ["x 1.67", "x 1.67"]
    (free,) = found["free-riding"].axes
    assert ticks(free.yaxis) == ["MNIST, 16 devices", "MNIST, 16 devices, linear"], (
        "by theory, labels or no"
    )
    expected = {"EqualShare": [20, 2], "local": [30, 3], "RealFM": [120], "Linear RealFM": [12]}
    assert {name: across(free, name) for name in expected} == {
        n: pytest.approx(v) for n, v in expected.items()
    }
    server, devices = found["common-payoff"].axes
    for name, scale in {"RealFM": 3.0, "local": 1.0, "EqualShare if nobody rides free": 2.0}.items():
        assert across(server, name) == [70 * scale] * 2
        assert across(devices, name) == [20 * scale] * 2
    assert across(server, "Linear RealFM") == [pytest.approx(21)]


def test_headline_is_the_papers_first_setting_in_two_panels(tmp_path: Path) -> None:
    others: Any = {"c": {"distribution": 0.3}, "d": {"dataset": "digits"}, "e": {"costs": "normal"}}
    not_drawn = [record(tmp_path / name, 4.0, **what) for name, what in others.items()]
    both = record(tmp_path / "a"), record(tmp_path / "b", 2.0, dataset="cifar10")
    contribution, server = figures.headline(read(*both, *not_drawn)).axes
    assert server.get_ylabel() == "Server utility (own payoff)"  # bars of different payoffs side by side
    assert ticks(contribution.xaxis) == ["CIFAR-10", "MNIST"]
    assert [height for _, height in bars(contribution)] == [6000, 2000, 3000, 1000]
    assert [height for _, height in bars(server)] == [600, 200, 300, 100]
    assert [text.get_text() for text in contribution.texts] == ["6k", "2k", "3k", "1k"]
    papers = [find(name, 16, "iid", "uniform", "power") for name in ("cifar10", "mnist")]
    expected = [value for one in papers if one for value in (one.contribution, one.samples_alone)]
    assert [y for _, y in points(contribution)] == expected
    assert figures.headline(read(*not_drawn)) is None


def test_nothing_sticks_out_and_nothing_global_changes(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    small = record(tmp_path / "a", 1e-3, payoff="linear")
    runs = read(small, record(tmp_path / "b"), record(tmp_path / "c", 1e4, distribution=0.3))
    for name, figure in figures.figures(runs):
        assert figure.get_figwidth() in (style.COLUMN, style.PAGE), name
        FigureCanvasAgg(figure).draw()
        drawn = [each.get_tightbbox() for each in (*figure.axes, *figure.legends)]
        assert min(min(box.x0, box.y0) for box in drawn) >= -1, name
        assert max(box.x1 for box in drawn) <= figure.bbox.x1 + 1, name
        assert max(box.y1 for box in drawn) <= figure.bbox.y1 + 1, name
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"profit_margin": 0.5}, "profit margin 0.5"),
        ({"shaping": "exact"}, "exact shaping"),
        ({"payoffs": "random"}, "nonuniformP)"),
    ],
)
def test_what_is_not_the_papers_is_left_out_aloud(tmp_path: Path, what: dict[str, Any], why: str) -> None:
    found, (said,) = figures.settings([figures.read(record(tmp_path / "a", **what))])
    assert not found
    assert f"{tmp_path / 'a'} (" in said
    assert why in said


def test_only_seeds_are_averaged(tmp_path: Path) -> None:
    first = record(tmp_path / "a")
    with pytest.raises(ValueError, match=r"a and .*b differ in nothing"):
        read(first, record(tmp_path / "b"))
    with pytest.raises(ValueError, match=r"a and .*c differ in preset, seed, and only"):
        read(first, record(tmp_path / "c", seed=1, preset="paper"))


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    result = record(tmp_path / "partial") / "result.json"
    result.write_text(result.read_text().replace("RealFM exact", "another"))
    (record(tmp_path / "uncurved") / "curves.csv").unlink()
    for name in ("", "nowhere", "broken.json", "other.json", "partial", "uncurved"):
        with pytest.raises(ValueError, match=f"{tmp_path / name} is not a finished run: .+"):
            figures.read(tmp_path / name)


def test_command_draws_what_is_recorded_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert figures.main(["--out", "theory"]) == 0
    theory = {"cost-comparison", "utility-comparison"}
    assert {path.name for path in Path("theory").iterdir()} == {f"{name}.png" for name in theory}
    assert "headline: not drawn, no run for it" in capsys.readouterr().out
    record(tmp_path / "experiments" / "one")
    assert figures.main(["--out", "here", "--format", "svg"]) == 0
    names = theory | {f"{name}-16" for name in (*figures.QUANTITIES, "accuracy")}
    names |= {"exact-shaping", "free-riding", "common-payoff", "headline"}
    assert {path.name for path in Path("here").iterdir()} == {f"{name}.svg" for name in names}
    assert "<svg" in Path("here/headline.svg").read_text()
    said = capsys.readouterr().out
    assert "headline: here/headline.svg" in said
    assert "no run of 8 devices, linear payoff: CIFAR-10 IID" in said


def test_command_names_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main([str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    assert f"{tmp_path / 'nowhere'} is not a finished run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_interrupted_writing_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Figure, path: Path, **_: Any) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Figure, "savefig", half)
    Path("cost-comparison.png").write_text("before")
    assert figures.main(["--out", str(tmp_path)]) == 130
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"cost-comparison.png": "before"}
