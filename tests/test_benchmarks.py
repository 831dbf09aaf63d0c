"""The benchmark runs, its peers are right, and it refuses to time wrong answers."""

import doctest
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
peers: Any = importlib.import_module("benchmarks.peers")
command: Any = importlib.import_module("benchmarks.__main__")

SETTING = [198478.08, 782164.12, 1 - 0.943806, 1 - 0.943806, 120.142, 315.683]
"""16 equal devices of the CIFAR-10 setting, from an independent reference: the fields of `Answers`."""


PEERS = ["with_numpy", "with_each_device", "with_nelder_mead", "with_tuned_nelder_mead", "with_root"]


@pytest.mark.parametrize("peer", PEERS)
def test_peers_find_the_known_equilibrium(peer: str) -> None:
    cost, scale = np.full(16, 2.5e-4), np.ones(16)
    if peer == "with_numpy":
        found = [x[0] for x in peers.with_numpy(cost[None], scale[None])]
    else:
        found = getattr(peers, peer)(cost, scale)
    for value, wanted in zip(found, SETTING, strict=True):
        # The reference is quoted to six digits.
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_blocks_of_games_do_not_change_the_answers() -> None:
    cost, scale = peers.draw(5, 3)
    whole, parts = peers.with_numpy(cost, scale), peers.with_numpy(cost, scale, block=2)
    assert peers.agreed("blocks", parts, whole, 0.0) == 0.0


def test_wrong_answers_are_not_timed() -> None:
    assert doctest.testmod(peers).failed == 0
    with pytest.raises(RuntimeError, match=r"Tool: answers differ by 1\.0e-03, more than 1e-09"):
        peers.agreed("Tool", [np.ones(2), 1.001], [np.ones(2), 1.0], 1e-9)
    with pytest.raises(RuntimeError, match="Tool: answers differ by nan"):
        peers.agreed("Tool", [np.nan], [1.0], 1e-9)


def test_one_command_measures_prints_and_records(tmp_path: Path) -> None:
    out = tmp_path / "benchmarks.json"
    arguments = ["--quick", "--games", "6", "--devices", "16", "--out", str(out)]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for title in ("A. 6 games of 16 devices", "B. One game of 16 devices", "C. One game, many devices"):
        assert f"| {title}" in run.stdout
    record = json.loads(out.read_text())
    hardware = record["provenance"]["hardware"]
    assert hardware["cpu"]
    assert hardware["cores"] >= 1
    assert hardware["scipy"]
    many = {row["name"].split(":")[0]: row for row in record["many_games"]}
    assert set(many) == {"realfm_jax", "NumPy", "SciPy", "limit"}
    assert many["SciPy"]["count"] == 2
    assert record["many_games"][0]["compile_seconds"] > 0
    assert many["limit"]["more"]["curves_per_solve"] == pytest.approx(1 / many["limit"]["ratio"])
    assert len(record["one_game"]) == 3
    (alone,) = record["many_devices"]
    assert set(alone["more"]) >= {"temporary_bytes_per_device", "gradient_over_value"}
    for row in (row for name in ("many_games", "one_game", "many_devices") for row in record[name]):
        assert row["seconds"] is None or row["seconds"] > 0
        assert row["name"] in run.stdout


def test_the_readme_quotes_the_recorded_tables() -> None:
    record = json.loads((ROOT / "experiments" / "benchmarks.json").read_text())
    measured = {
        name: [command.Row(**{k: np.nan if v is None else v for k, v in row.items()}) for row in rows]
        for name, rows in record.items()
        if name != "provenance"
    }
    asked = record["provenance"]["config"]
    for line in command.tables(asked["games"], asked["devices"], measured).splitlines():
        assert line in (ROOT / "README.md").read_text()


def test_the_tour_quotes_the_recorded_training() -> None:
    record = json.loads((ROOT / "experiments" / "training.json").read_text())
    text = (ROOT / "docs" / "federation.md").read_text()
    for row in record["MNIST CNN"] + record["ResNet-8"]:
        assert f"| {row['name']} | {1e3 * row['seconds'] / row['count']:.2f} | {row['ratio']:.3g} |" in text
    for row in record["scale"]:
        clients = row["name"].removeprefix("realfm_jax: ")
        assert f"| {clients} | {1e3 * row['seconds'] / row['count']:.3f} | {row['ratio']:.3g} |" in text


def test_the_tour_quotes_the_recorded_layers_and_curves() -> None:
    layers: Any = importlib.import_module("benchmarks.layers")
    text = (ROOT / "docs" / "federation.md").read_text()
    record = json.loads((ROOT / "experiments" / "layers.json").read_text())
    for network, found in layers.NETWORKS.items():
        each = [(layer.times, record[network][str(layer)]) for layer in found]
        sums = [[sum(n * t[who][i] for n, t in each) for i in (0, 1)] for who in ("ours", "XLA", "PyTorch")]
        assert f"| {network} | {' | '.join(f'{x:.2f} + {y:.2f}' for x, y in sums)} |" in text
    slow, fast = (
        json.loads((ROOT / "experiments" / f"mnist-cnn-adam-{rate}.json").read_text())
        for rate in ("0.001", "0.003")
    )
    for i in range(3):
        ours, torch, *others = (run[who][i] for run in (slow, fast) for who in ("realfm_jax", "PyTorch"))
        assert f"| {i + 1} | {ours:.4f} | {torch:.4f} |" in text
        assert f"| {others[0]:.4f} | {others[1]:.4f} |\n" in text


def test_what_does_not_apply_stays_empty() -> None:
    rows = [command.Row("ours", 1, 2e-6, 1.0, more={"x": 3.0}), command.Row("missing", 1)]
    lines = command.table("T", rows, "game", "us", {"x": "extra"}).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == ["ours", "1", "2.00", "1", "", "", "3"]
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == ["missing", "1", "", "", "", "", ""]
    assert len({len(line) for line in lines}) == 1


def test_a_benchmark_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--games", "0"])
    assert "--games must be at least 1 and --devices at least 2; got 0 and 16" in capsys.readouterr().err


@pytest.mark.slow
def test_training_is_compared_before_it_is_timed(tmp_path: Path) -> None:
    out = tmp_path / "training.json"
    free = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "benchmarks.training", "--quick", "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, env=free, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    record = json.loads(out.read_text())
    for name in ("MNIST CNN", "ResNet-8"):
        ours, *others = record[name]
        assert ours["seconds"] > 0
        assert any(row["name"].startswith("PyTorch") for row in others)
        assert all(row["name"] in run.stdout for row in record[name])
    (fewest,) = record["scale"]
    assert 1e8 < fewest["more"]["peak_megabytes"] * 1e6 < 1e10


@pytest.mark.slow
def test_a_killed_sweep_is_resumed_to_the_same_bits_and_a_large_game_certified(tmp_path: Path) -> None:
    out = tmp_path / "million.json"
    command = [sys.executable, "-m", "benchmarks.million", "--rows", "300", "--devices", "5000"]
    run = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    record = json.loads(out.read_text())
    assert record["sweep"]["games"] == 90_000
    assert record["sweep"]["identical_chunks"] == record["sweep"]["chunks"]
    assert "4,096" in record["large_game"]["report"] or "4096" in record["large_game"]["report"]
