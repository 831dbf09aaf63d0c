"""Experiments from end to end on digits: the same twice, resumed after a kill, models worth the promise."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import serialization
from tiny import bare_machine  # noqa: F401 (the fixture `places`)

from realfm_jax import federated
from realfm_jax.experiments import cifar, digits, mnist
from realfm_jax.experiments.command import main
from realfm_jax.experiments.estimate import estimate
from realfm_jax.experiments.experiment import Experiment, changed, images_used, read
from realfm_jax.experiments.place import Place, load_result
from realfm_jax.experiments.result import UNSTABLE
from realfm_jax.federated import clients as many
from realfm_jax.federated.models import init

PRESETS = [e for module in (digits, mnist, cifar) for e in module.PRESETS.values()]
FEW = ["--devices", "3", "--epochs", "4"]


def stable(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in UNSTABLE}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main("digits", [*FEW, "--out", str(out)]) == 0
    return out


def test_the_paper_presets_are_its_tables() -> None:
    table = ("model", "batch", "learning_rate", "cost", "a_opt", "k", "epochs", "local_steps", "optimizer")
    ours = {e.dataset: tuple(getattr(e, name) for name in table) for e in PRESETS if e.preset == "paper"}
    assert ours == {
        "cifar10": ("resnet18", 128, 0.05, 2.5e-4, 0.95, 10.0, 100, 6, "sgd"),
        "mnist": ("mnist-cnn", 128, 1e-3, 4e-5, 0.9975, 0.25, 100, 6, "adam"),
    }


@pytest.mark.parametrize("preset", PRESETS, ids=lambda e: f"{e.dataset}-{e.preset}")
def test_a_configuration_survives_its_file(preset: Experiment, tmp_path: Path) -> None:
    presets = {"small": PRESETS[0], "paper": PRESETS[1]} | {preset.preset: preset}
    asked = changed(preset, distribution=0.3, costs="normal", seed=7, profit_margin=0.5)
    (tmp_path / "config.toml").write_text(asked.toml())
    assert read(tmp_path / "config.toml", presets) == asked
    assert asked.module() == changed(asked).module()


def test_the_learning_rate_falls_at_half_and_at_three_quarters() -> None:
    steps = 100 * 4 * 6  # of 100 epochs: 24.4 steps each are 4 rounds of 6
    rates = [cifar_rate(step) for step in (0, steps // 2 - 1, steps // 2 + 1, 3 * steps // 4 + 1)]
    assert rates == pytest.approx([0.05, 0.05, 0.005, 0.0005])


def cifar_rate(step: int) -> float:
    """The rate at a step, seen from outside: what one unit of gradient, with no momentum yet, moves."""
    optimizer = cifar.PRESETS["paper"].recipe(3125).optimizer
    params = {"w": np.zeros(1, np.float32)}
    state = optimizer.init(params)
    decay, (trace, count) = state
    state = (decay, (trace, count._replace(count=np.int32(step))))
    update, _ = optimizer.update({"w": np.ones(1, np.float32)}, state, params)
    return -float(update["w"][0])


def test_images_used_are_those_of_the_authors() -> None:
    # (m^o, images, devices, used) of the authors' records.
    for optimum, images, devices, used in (
        (198478.0, 50_000, 16, 3125),
        (906.0, 50_000, 16, 517),
        (829.0, 50_000, 8, 954),
        (538.0, 60_000, 16, 382),
        (1.276e8, 60_000, 8, 7500),
    ):
        assert images_used(np.full(devices, optimum), images).tolist() == [used] * devices


def test_the_record_holds_what_was_asked_for(finished: Path) -> None:
    result = load_result(finished)
    assert {"config.toml", "result.json", "curves.csv", "page.png", "models"} == {
        path.name for path in finished.iterdir()
    }
    assert result["provenance"]["data"]["train"] == federated.load("digits").provenance["train"]
    assert {"jax", "numpy", "python", "revision", "config"} <= set(result["provenance"])
    devices = result["devices"]
    assert {len(devices[name]) for name in devices} == {3}
    assert np.all(np.asarray(devices["samples_together"]) >= devices["samples_alone"])
    assert result["certificate"]["equilibrium"] is True
    assert list(result["mechanisms"]) == ["Local", "EqualShare", "RealFM", "RealFM exact"]
    rows = (finished / "curves.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 4 * 3  # a header; two trainings, four epochs, three devices


def test_handed_out_models_are_worth_what_was_promised(finished: Path) -> None:
    result, data, module = load_result(finished), federated.load("digits"), digits.PRESETS["small"].module()
    gave = result["rewards"]["gave"]
    places = many.layout(1)
    blocks = many.blocks(data.test.images, data.test.labels, places)
    task = many.Task(module, optax.identity(), data.mean, data.std)
    for device in range(3):
        template = init(module, jax.random.key(0), (8, 8, 1))
        stored = (finished / "models" / f"device-{device:02d}.msgpack").read_bytes()
        model = serialization.from_bytes(template, stored)
        right = many.score_one(model, *blocks, task=task, places=places, classes=10)
        accuracy = int(right.sum()) / len(data.test)
        assert accuracy == pytest.approx(gave["achieved"][device], abs=1e-9)
        assert gave["promised"][device] - 0.02 <= accuracy <= gave["promised"][device] + 1e-9
        low, high = gave["interval"][device]
        assert low <= accuracy <= high


def test_who_gave_no_more_than_alone_gets_no_better_model(tmp_path: Path) -> None:
    config = dataclasses.replace(
        digits.PRESETS["small"], devices=3, epochs=4, data="squeezed", a_opt=0.99, k=0.7
    )
    (tmp_path / "config.toml").write_text(config.toml())
    assert main("digits", ["--config", str(tmp_path / "config.toml"), "--out", str(tmp_path / "run")]) == 0
    result = load_result(tmp_path / "run")
    gave = result["rewards"]["gave"]
    assert gave["contribution"] == result["devices"]["samples_alone"]
    assert np.all(np.asarray(gave["achieved"]) <= np.asarray(result["devices"]["accuracy_local"]) + 1e-9)
    assert gave["money"] == [0.0] * 3


def test_the_same_again_is_the_same_and_nothing_is_overwritten(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--config", str(finished / "config.toml"), "--out"]
    assert main("digits", [*again, str(tmp_path / "again")]) == 0
    assert stable(load_result(tmp_path / "again")) == stable(load_result(finished))
    capsys.readouterr()
    assert main("digits", [*again, str(tmp_path / "again")]) == 2
    assert "holds a finished run; give --resume" in capsys.readouterr().err
    assert main("digits", [*FEW, "--seeds", "3", "--out", str(tmp_path / "again"), "--resume"]) == 2
    assert "holds another experiment" in capsys.readouterr().err
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("x")
    assert main("digits", [*FEW, "--out", str(tmp_path / "else"), "--resume"]) == 2
    assert "holds no experiment" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_and_resumed_to_the_same_numbers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "realfm_jax.experiments.digits", *FEW, "--out"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [*command, str(tmp_path / "killed")], env=environment, stdout=subprocess.DEVNULL
    )
    trained = tmp_path / "killed" / "checkpoints" / "local"
    while process.poll() is None and not list(trained.glob("seal-*.json")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "result.json").exists()
    subprocess.run([*command, str(tmp_path / "killed"), "--resume"], env=environment, check=True)
    subprocess.run([*command, str(tmp_path / "whole")], env=environment, check=True)
    assert stable(load_result(tmp_path / "killed")) == stable(load_result(tmp_path / "whole"))
    assert not (tmp_path / "killed" / "checkpoints").exists()


def test_a_full_disk_loses_no_finished_result(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (finished / "result.json").read_bytes()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space left"):
        Place(finished).save_result({"x": 1})
    assert (finished / "result.json").read_bytes() == before
    assert not list(finished.glob(".result*"))


def test_no_data_is_an_error_soon_that_says_what_to_do(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    assert main("mnist", ["--out", str(places / "run")]) == 2
    assert time.monotonic() - begun < 15
    message = capsys.readouterr().err
    assert "mnist" in message
    assert "realfm data fetch" in message or "data_dir" in message
    assert not (places / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--distribution", "-1"], 'distribution must be "iid" or a number > 0'),
        (["--distribution", "non-iid"], 'distribution must be "iid" or a number > 0'),
        (["--devices", "0"], "devices must be a whole number of at least 1; got 0"),
        (["--profit-margin", "1.5"], "profit_margin must be in (0, 1]; got 1.5"),
        (["--config", "nowhere.toml"], "nowhere.toml does not exist"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("digits", [*arguments, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_typo_in_a_file_names_the_nearest_key(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[experiment]\npreset = "small"\nepoch = 3\n')
    with pytest.raises(ValueError, match=r"a\.toml: unknown key 'epoch'; did you mean epochs"):
        read(tmp_path / "a.toml", digits.PRESETS)


def test_an_estimate_is_measured_where_it_matters() -> None:
    data = federated.load("digits")
    long = dataclasses.replace(digits.PRESETS["small"], epochs=1000, a_opt=0.99, k=0.7, data="squeezed")
    found = estimate(long, data)
    assert found.step is not None
    assert found.total > 40
    assert str(estimate(digits.PRESETS["small"], data)) == "one to two minutes"
