"""The command line: results in every format, whole and never overwritten, resumed after an interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr
from files import EXPERIMENTS, OPTIONS, SWEEP, drawn, write
from matplotlib.figure import Figure

import realfm_jax as rfm
from realfm_jax import commands, drawing, plots
from realfm_jax.cli import _interrupt_again as interrupt_again
from realfm_jax.cli import main
from realfm_jax.comparison import Outcome
from realfm_jax.formats import load_dataset
from realfm_jax.schema import KINDS, TABLES


@pytest.fixture
def heeding() -> Iterator[None]:
    """Heed Ctrl-C: tests started in the background ignore it, and what they start inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def swept(ks: int) -> xr.Dataset:
    """The sweep of the file, with so many values of k, by the Python API."""
    rows = np.outer([2e-4], np.asarray(drawn().devices.cost) / 2.5e-4)
    varied: Any = {"shaping": ["taylor"], "cost": rows, "k": np.geomspace(1, 100, ks)}
    found = rfm.sweep(drawn(), **varied, profit_margin=[1.0, 0.9], **OPTIONS)
    return found.assign_coords(mean_cost=("cost_row", [2e-4]))


def test_a_sweep_is_the_same_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "sweep.toml", SWEEP)
    want = swept(4)
    for suffix in ("zarr", "nc", "json", "csv"):
        out = tmp_path / f"result.{suffix}"
        assert main(["sweep", file, "--out", str(out)]) == 0
        printed = capsys.readouterr().out
        assert "8 equilibria: shaping 1 x cost_row 1 x k 4 x profit_margin 2; 3 devices\n" in printed
        assert "converged          100 %\n" in printed
        assert f"saved {out}" in printed
        if suffix != "csv":
            found = load_dataset(out)
            xr.testing.assert_equal(found, want)
            config, made = (json.loads(found.attrs[name]) for name in ("config", "provenance"))
            assert found.contribution.attrs == want.contribution.attrs
            assert found.converged.dtype == bool
        else:
            content = json.loads((tmp_path / "result.csv.json").read_text())
            config, made = content["config"], content["provenance"]
            table = want.to_dataframe().reset_index()
            rows = np.genfromtxt(out, delimiter=",", names=True, dtype=None, encoding=None)
            assert list(rows.dtype.names) == list(table.columns)
            for name in ("k", "contribution", "server_utility", "converged"):
                np.testing.assert_array_equal(rows[name], table[name])
        assert (config["seed"], config["tables"]["sweep"]["chunk"]) == (5, 2)
        assert made["realfm_jax"] == rfm.__version__

    kept = (tmp_path / "result.nc").read_bytes()
    assert main(["sweep", file, "--out", str(tmp_path / "result.nc")]) == 2
    assert "result.nc exists; give --force" in capsys.readouterr().err
    assert (tmp_path / "result.nc").read_bytes() == kept
    store, other = str(tmp_path / "result.zarr"), ["--set", "sweep.k.count=2"]
    assert main(["sweep", file, "--out", store]) == 0
    assert "is complete: nothing is left to solve" in capsys.readouterr().out
    assert main(["sweep", file, *other, "--out", store]) == 2
    assert "holds another sweep" in capsys.readouterr().err
    assert main(["sweep", file, *other, "--out", store, "--force"]) == 0
    assert load_dataset(Path(store)).sizes["k"] == 2
    (tmp_path / "mine").mkdir()
    assert main(["sweep", file, "--format", "zarr", "--out", str(tmp_path / "mine"), "--force"]) == 2
    assert "is not a sweep" in capsys.readouterr().err
    assert main(["sweep", file, "--out", str(tmp_path / "result.xls")]) == 2
    assert "--out must end in one of .zarr, .nc, .csv, .json" in capsys.readouterr().err
    left = {"mine", "sweep.toml", *(f"result.{end}" for end in ("zarr", "nc", "json", "csv", "csv.json"))}
    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.usefixtures("heeding")
def test_an_interrupted_sweep_goes_on_to_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, store = write(tmp_path / "sweep.toml", SWEEP), tmp_path / "run.zarr"
    arguments = ["sweep", file, "--set", "sweep.k.count=60", "--out", str(store)]
    command = [sys.executable, "-m", "realfm_jax", *arguments]

    def interrupt(running: subprocess.Popen[str]) -> None:
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
        assert running.returncode == 130, said
        assert f"of the games are kept in {store}; the same command goes on from there" in said
        assert "Traceback" not in said

    # First while XLA compiles, which JAX tells: Python taken down in good order then crashes in JAX.
    told = os.environ | {"JAX_LOG_COMPILES": "1", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    compiling = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=told)
    assert compiling.stderr is not None
    for line in compiling.stderr:
        if "MLIR module conversion jit(_kernel)" in line:
            break
    time.sleep(0.2)
    interrupt(compiling)
    working = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while working.poll() is None and not list(store.glob("converged/[0-9]*")):
        time.sleep(0.01)
    interrupt(working)
    begun = load_dataset(store)
    assert begun.total.shape == (1, 1, 60, 2)
    done = begun.converged.values
    assert 0 < done.sum() < done.size
    assert main(arguments) == 0
    assert f"resuming {store}: " in capsys.readouterr().out
    want = swept(60)
    xr.testing.assert_equal(load_dataset(store), want)
    for name in want:
        np.testing.assert_array_equal(begun[name].values[done], want[name].values[done])


@pytest.mark.usefixtures("heeding")
def test_an_interruption_that_python_ignores_is_repeated() -> None:
    interrupt_again(SimpleNamespace(exc_type=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)


def test_pictures_of_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axes = {"shaping": ["taylor", "exact"], "cost": [0.1, 0.2], "k": [1.0, 10.0, 20.0]}
    values = np.arange(12.0).reshape(2, 2, 3)
    data = xr.Dataset({"total": (tuple(axes), values, {"units": "samples"})}, axes)
    data.to_netcdf(tmp_path / "run.nc", engine="scipy")
    run, picture = str(tmp_path / "run.nc"), tmp_path / "a.png"
    arguments = ["plot", run, "--variable", "total", "--out"]
    assert main([*arguments, str(picture), "--select", "shaping=exact"]) == 0
    assert capsys.readouterr().out == f"saved {picture} (heatmap)\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, str(picture), "--select", "shaping=exact"]) == 2
    assert main([*arguments, str(tmp_path / "b.pdf"), "--select", "cost=0.14", "--kind", "lines"]) == 0
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")
    capsys.readouterr()
    for wrong, message in (
        ([], "total also varies along cost"),
        (["--select", "shapin=exact"], "unknown dimension in select 'shapin'; did you mean shaping?"),
        (["--select", "shaping=exat"], "unknown value of shaping 'exat'; did you mean exact?"),
        (["--select", "cost=cheap"], "select.cost must be like"),
        (["--kind", "pareto"], "a plot of kind pareto starts from a TOML file"),
    ):
        assert main([*arguments, str(tmp_path / "c.png"), *wrong]) == 2
        assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"run.nc", "a.png", "b.pdf"}


def test_every_kind_of_plot_is_drawn_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def stub(name: str, result: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return result

        return called

    monkeypatch.setattr(drawing, "solve", stub("solve", None))
    monkeypatch.setattr(drawing, "sweep", stub("sweep", xr.Dataset({"total": ("k", [1.0])}, {"k": [1.0]})))
    for name in ("design", "pareto", "sensitivity"):
        monkeypatch.setattr(drawing, name, stub(f"made {name}", None))
    for name in plots.__all__:
        monkeypatch.setattr(plots, name, stub(name, Figure()))
    file = write(tmp_path / "file.toml", "[game]\ndevices = 3\n[sweep]\nepsilon = [1e-9, 1e-8]")
    for kind in KINDS:
        out = tmp_path / f"{kind}.svg"
        assert main(["plot", file, "--kind", kind, "--out", str(out)]) == 0
        assert seen[-1] == kind.replace("-", "_")
        assert "<svg" in out.read_text()
    assert {"solve", "sweep", "made design", "made pareto", "made sensitivity"} <= set(seen)


def test_design_prints_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "[game]\ndevices = 3\n[design]\nover = ['epsilon']\nstarts = 1\nmethod = 'aggregate'"
    file, out = write(tmp_path / "design.toml", text), tmp_path / "best.json"
    assert main(["design", file, "--set", "design.bounds.epsilon=[1e-8, 1e-4]", "--out", str(out)]) == 0
    assert "epsilon              1e-08 (lower bound)" in capsys.readouterr().out
    content = json.loads(out.read_text())
    assert content["design"]["parameters"] == {"epsilon": 1e-8}
    assert content["provenance"]["config"]["tables"]["design"]["bounds"] == {"epsilon": [1e-8, 1e-4]}


def test_solve_one_mechanism_to_csv_without_overwriting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    each = np.array([1.0, 2.0, 3.0])
    alone = SimpleNamespace(contribution=each, utility=each)
    found: Any = SimpleNamespace(contribution=each, accuracy=each, money=each, utility=each, local=alone)
    found.server_accuracy = found.server_utility = each[0]
    check: Any = SimpleNamespace(
        searched=np.arange(3), regret=each, free_ride=each, relative_regret=each[0]
    )
    monkeypatch.setattr(commands, "play", lambda game, measured_by: Outcome(found, check, each, each[0]))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["solve", "--devices", "3", "--set", "game.shaping=exact", "--format", "csv"]) == 0
    assert "RealFM exact" in capsys.readouterr().out
    name = "cifar10-shaping-exact-devices-3-seed-0"
    results = [f"{name}{end}" for end in (".csv", ".csv.json", "-2.csv", "-2.csv.json")]
    assert sorted(path.name for path in Path("realfm-results").iterdir()) == sorted(results)
    rows = Path("realfm-results", f"{name}.csv").read_text().splitlines()
    assert rows[0].startswith("mechanism,device,contribution,accuracy,money,utility")
    assert rows[2].startswith("RealFM exact,1,2.0,2.0")
    assert len(rows) == 4


def test_help_teaches_and_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("solve", "sweep", "design", "plot"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert text.count(f"  realfm {command} ") >= 4
        for file in ("sweep-cost-margin", "sweep-mechanisms", "design-server", "game"):
            assert f"experiments/{file}.toml" not in text or file in [path.stem for path in EXPERIMENTS]
        for key in TABLES[{"solve": "game"}.get(command, command)]:
            assert f"  {key} " in text or f"--{key} " in text
    script = (
        "import sys, time, realfm_jax.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: heavy = {'xarray', 'matplotlib', 'zarr', 'pandas', 'tqdm'} & set(sys.modules)\n"
        "print(time.process_time(), *heavy)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    seconds, *heavy = run.stdout.splitlines()[-1].split()
    assert heavy == []
    assert float(seconds) < 2
