"""Figures of recorded runs: the data drawn are those recorded, the paper's values stand beside them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realfm_jax.experiments import figures
from realfm_jax.experiments.published import find
from realfm_jax.plots import experiments as plots

ROOT = Path(__file__).parents[1]


def outcome(base: float, devices: int) -> dict[str, Any]:
    return {
        "contribution": [base * (i + 1) for i in range(devices)],
        "utility": [base + i for i in range(devices)],
        "common_utility": [2 * base] * devices,
        "server_utility": 3 * base,
        "common_server_utility": 4 * base,
    }


def recorded(place: Path, seed: int = 0, **changes: Any) -> Path:
    """A run of 16 devices with numbers that say what they are."""
    what: dict[str, Any] = {"dataset": "mnist", "devices": 16, "distribution": "iid", "costs": "uniform"}
    what |= {"payoffs": "uniform", "payoff": "power", "shaping": "taylor", "profit_margin": 1.0} | changes
    names = ("Local", "EqualShare", "RealFM", "RealFM exact")
    result = {
        "experiment": what | {"seed": seed},
        "provenance": {"config": what | {"seed": seed}},
        "devices": {"local_optimum": [5.0] * 16, "equilibrium": [20.0] * 16},
        "theory": {"equal_share_total": 5.0},
        "mechanisms": {name: outcome(10.0 ** (i + 1) + seed, 16) for i, name in enumerate(names)},
    }
    place.mkdir()
    (place / "result.json").write_text(json.dumps(result))
    rows = ["kind,epoch,device,accuracy,global_accuracy"]
    rows += [
        f"local,{e},{d},{0.5 + 0.01 * d + 0.1 * e if e != 2 else 'nan'}," for e in (1, 2, 3) for d in (0, 1)
    ]
    rows += [f"federated,{e},{d},,{0.6 + 0.1 * e}" for e in (1, 2, 3) for d in (0, 1)]
    (place / "curves.csv").write_text("\n".join(rows))
    return place


def by_setting(*places: Path) -> Any:
    return figures.settings(map(figures.read, places))[0]


def test_bars_are_the_recorded_means_beside_the_papers_values(tmp_path: Path) -> None:
    runs = by_setting(recorded(tmp_path / "a"), recorded(tmp_path / "b", payoff="linear"))
    panels = figures.panels(runs, 16, "server-utility")
    assert list(panels) == [("MNIST", "IID")]
    found = panels["MNIST", "IID"]["uniform"]
    assert {name: bar.mean for name, bar in found.items()} == {
        "RealFM": 3000.0,
        "Linear RealFM": 3000.0,
        "local": 30.0,
    }
    paper = find("mnist", 16, "iid", "uniform", "power")
    assert found["RealFM"].paper == paper.server_utility
    assert found["local"].paper == paper.server_utility_local
    drawn = plots.comparison(panels, "Server utility")
    heights = sorted(bar.get_height() for bar in drawn.axes[0].patches)
    assert heights[-1] == pytest.approx(3000.0)
    assert drawn.axes[0].get_yscale() in ("log", "symlog")
    diamonds = [line for line in drawn.axes[0].lines if line.get_marker() == "D"]
    assert any(np.isclose(line.get_ydata(), paper.server_utility).any() for line in diamonds)


def test_seeds_are_averaged_and_other_differences_refused(tmp_path: Path) -> None:
    runs = by_setting(recorded(tmp_path / "a"), recorded(tmp_path / "b", seed=2))
    (key,) = runs
    assert figures.bars(runs, key, "server_utility")["local"].seeds == (30.0, 36.0)
    with pytest.raises(ValueError, match="differ in nothing"):
        by_setting(tmp_path / "a", tmp_path / "a")
    other, notes = figures.settings([figures.read(recorded(tmp_path / "c", profit_margin=0.5))])
    assert other == {}
    assert "profit margin 0.5" in notes[0]


def test_curves_leave_out_epochs_that_were_not_scored(tmp_path: Path) -> None:
    runs = by_setting(recorded(tmp_path / "a"))
    ((key, seeds),) = runs.items()
    found = figures.curves(key, seeds)
    assert found["local"].epochs.tolist() == [1, 3]
    assert found["local"].mean == pytest.approx([0.605, 0.805])
    assert found["local"].low == pytest.approx([0.6, 0.8])
    assert found["federated"].mean == pytest.approx([0.7, 0.8, 0.9])
    assert found["federated"].paper == 0.9947


def test_the_command_saves_every_figure_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = recorded(tmp_path / "a"), tmp_path / "figures"
    assert figures.main([str(run), "--out", str(out), "--format", "svg"]) == 0
    names = {path.stem for path in out.iterdir()}
    assert {"cost-comparison", "server-utility-16", "contribution-16", "device-utility-16"} <= names
    assert {"accuracy-16", "exact-shaping", "free-riding", "common-payoff", "headline"} <= names
    assert "no run of 16 devices, linear payoff" in capsys.readouterr().out


def test_what_is_no_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert figures.main([str(tmp_path / "empty"), "--out", str(tmp_path / "out")]) == 2
    assert f"{tmp_path / 'empty'} is not a finished run" in capsys.readouterr().err
    broken = recorded(tmp_path / "broken")
    content = json.loads((broken / "result.json").read_text())
    del content["theory"]
    (broken / "result.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="lacks 'theory'"):
        figures.read(broken)


def test_all_recorded_runs_can_be_drawn() -> None:
    runs = by_setting(*sorted((ROOT / "experiments").glob("*/result.json")))
    assert len(runs) >= 5
    for name, figure in figures.figures(runs):
        assert figure is not None, name
