"""TOML files are what the Python API is, and mistakes in them are named."""

from pathlib import Path

import jax
import numpy as np
import pytest
from files import EXPERIMENTS, OPTIONS, SWEEP, drawn, write

import realfm_jax as rfm
from realfm_jax.cli import main
from realfm_jax.comparison import SETTINGS, Setting, games
from realfm_jax.config import read
from realfm_jax.design import NAMES
from realfm_jax.plan import make_plan


def same(one: rfm.Game, other: rfm.Game) -> bool:
    leaves, tree = jax.tree.flatten(one)
    others, other_tree = jax.tree.flatten(other)
    return tree == other_tree and all(map(np.array_equal, leaves, others))


def game_of(text: str, tmp_path: Path) -> rfm.Game:
    return read(Path(write(tmp_path / "game.toml", text))).game()


def test_a_file_is_the_game_of_the_python_api(tmp_path: Path) -> None:
    assert same(game_of("", tmp_path), games(SETTINGS["cifar10"])["RealFM"])
    text = '[game]\nsetting = "mnist"\ndevices = 3\nprofit_margin = 0.5\nshaping = "exact"\nepsilon = 1e-6'
    drawn = Setting(curve="inverse-sqrt", a_opt=0.9975, k=0.25, cost=4e-5, devices=3).draw()
    server = rfm.Server(rfm.PowerPayoff(), profit_margin=0.5)
    assert same(game_of(text, tmp_path), rfm.Game(drawn, server, rfm.RealFM("exact", 1e-6)))
    text = '[game]\ncost = [1e-4, 2e-4]\na_opt = [0.9, 0.8]\nk = 5\npayoff = "linear"'
    text += '\nmechanism = "EqualShare"'
    curve, linear = rfm.GeneralizationBound([0.9, 0.8], 5.0), rfm.LinearPayoff()
    devices = rfm.Devices([1e-4, 2e-4], curve, linear)
    assert same(game_of(text, tmp_path), rfm.Game(devices, rfm.Server(linear), rfm.EqualShare()))


def test_values_to_sweep(tmp_path: Path) -> None:
    file = Path(write(tmp_path / "sweep.toml", SWEEP))
    call = read(file).sweep()
    assert same(call.game, drawn())
    np.testing.assert_array_equal(call.parameters["k"], np.geomspace(1, 100, 4))
    assert call.parameters["profit_margin"] == [1.0, 0.9]
    assert call.options == OPTIONS
    changes = [
        ("sweep.k.count", "2"),
        ("sweep.mechanism", '["EqualShare", "RealFM"]'),
        ("sweep.devices", "{from = 1, to = 3, count = 9}"),
        ("sweep.mean_cost", "[1e-4, 1e-3]"),
    ]
    call = read(file, changes).sweep()
    assert call.parameters["k"].tolist() == [1.0, 100.0]
    assert list(map(repr, call.parameters["mechanism"])) == [repr(rfm.EqualShare()), repr(rfm.RealFM())]
    assert call.parameters["devices"] == [1, 2, 3]
    for row, cost in zip(call.parameters["cost"], (1e-4, 1e-3), strict=True):
        np.testing.assert_allclose(row, Setting(cost=cost, devices=3, seed=5).draw().cost, rtol=1e-14)
    assert call.coordinates["mean_cost"][:1] == ("cost_row",)


@pytest.mark.parametrize(
    ("text", "command", "message"),
    [
        (
            "[game]\nprofit_margn = 1",
            "solve",
            "unknown key 'profit_margn' of [game]; did you mean profit_m",
        ),
        ("[swep]\nk = [1]", "sweep", "unknown table 'swep'; did you mean sweep?"),
        ("devices = 3", "sweep", "the key devices belongs into [game] or [sweep]"),
        ("[sweep]\nfloor = 'x'", "sweep", "unknown key 'floor' of [sweep]; it belongs into [design]"),
        ("[sweep]\nk = {form = 1}", "sweep", "'form' of [sweep.k]; did you mean from?"),
        ("[sweep]\nk = {from = 1}", "sweep", "sweep.k also needs to and count"),
        ("[sweep]\nk = {from = 0, to = 1, count = 2, scale = 'log'}", "sweep", "> 0 if scale is log"),
        ("[sweep]\nk = 3", "sweep", "sweep.k must be a list of numbers, or a range"),
        ("[sweep]\nk = [true]", "sweep", "sweep.k must be a list of numbers, or a range"),
        ("[sweep]\nk = [-1.0]", "sweep", "[sweep]: GeneralizationBound.k must be > 0; got -1.0"),
        ("[sweep]\ncost = [1.0]\nmean_cost = [1.0]", "sweep", "cost and mean_cost are the same"),
        ("[sweep]\ndevices = [2.5]", "sweep", "devices must be whole numbers of at least 1; got [2.5]"),
        ("", "sweep", "nothing to sweep; give values for any of cost"),
        ("[game", "solve", "is not a TOML file"),
        (
            "[game]\ncost = [1.0, 2.0]\ndevices = 3",
            "solve",
            "cost must have shape [] or [3]; got shape (2,)",
        ),
        (
            "[game]\nmechanism = 'EqualShare'\nmoney = 'paper'",
            "solve",
            "money has a meaning with mechanism =",
        ),
        ("[design]\nobjective = 'welfar'", "design", "unknown objective 'welfar'; did you mean welfare?"),
        ("[design]\nbounds = {epsilon = [1, 2, 3]}", "design", "must be a table of name = [low, high]"),
        (
            "",
            "solve --set game.devices=many",
            "game.devices must be a whole number of at least 1; got 'many'",
        ),
        ("", "solve --set devices=3", "write game.devices or sweep.devices"),
        (SWEEP, "sweep --set sweep.shaping.count=3", "sweep.shaping is ['taylor'], no table"),
        ("", "plot --kind pareto --device 1", "device plays no part in a plot of kind pareto"),
        ("", "plot --kind heatmp", "plot.kind must be one of lines, heatmap"),
        (None, "solve --profit-margin 2", "Server.profit_margin must be in [0, 1]; got 2.0"),
        (None, "solve --devices 0", "game.devices must be a whole number of at least 1; got 0"),
        (None, "solve --cost -1", "cost must be > 0; got -1.0"),
        (None, "solve --curve straight", "curve must be one of bound, inverse-sqrt; got 'straight'"),
    ],
)
def test_mistakes_are_named(
    text: str | None,
    command: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = [] if text is None else [write(tmp_path / "file.toml", text)]
    name, *options = command.split()
    assert main([name, *file, *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert ("command line" if options else file[0]) in printed.err
    assert [path.name for path in tmp_path.iterdir()] == (["file.toml"] if file else [])


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_examples_are_valid(file: Path) -> None:
    config = read(file)
    assert len(config.game().devices) == config.setting.devices
    if call := config.table("sweep") and config.sweep():
        assert make_plan(call.game, call.parameters, False, "auto", False, None).games > 1
    assert config.design().get("objective", "welfare") in NAMES
