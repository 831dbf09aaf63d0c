"""The page of a run: it says what the files say, asks nobody for anything, and is never half there."""

import argparse
import base64
import copy
import dataclasses
import json
import re
import shlex
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from realfm_jax.experiments import cifar, digits, mnist, report, report_page
from realfm_jax.experiments import command as experiment
from realfm_jax.experiments.published import Published

HOSTILE = "<script>alert('x')</script><img src=\"http://there\"> & {braces}"
VOID = {"meta", "img", "br"}
PRESETS = [e for module in (digits, mnist, cifar) for e in module.PRESETS.values()]


class Reader(HTMLParser):
    """Collects tags and text, and insists that tags are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(page)
        assert self.open == []
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.pieces.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def realfm_report(*arguments: str | Path) -> None:
    parser = argparse.ArgumentParser()
    report.add(parser)
    report.run(parser.parse_args([str(argument) for argument in arguments]))


def asks_nobody(page: str) -> bool:
    """No tag that loads or runs anything; every address is inside the page."""
    reader = Reader(page)
    forbidden = {"script", "link", "iframe", "object", "embed", "base", "form", "svg", "audio", "video"}
    if forbidden & {tag for tag, _ in reader.tags} or "@import" in page or "url(" in page:
        return False
    allowed = {"src": "data:image/svg+xml;base64,", "href": "#"}
    addresses = ("src", "href", "srcset", "action", "background", "poster", "data", "style")
    return all(
        name in allowed and (value or "").startswith(allowed[name])
        for _, attributes in reader.tags
        for name, value in attributes.items()
        if name in addresses or name.startswith("on")
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny-run"
    assert experiment.main("digits", ["--devices", "3", "--epochs", "3", "--out", str(out)]) == 0
    return out


@pytest.fixture(name="run")
def changeable(finished: Path) -> report.Run:
    return copy.deepcopy(report.read(finished))


def test_the_page_says_what_the_files_say(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    realfm_report(finished, "--out", out)
    page = out.read_text()
    assert asks_nobody(page)
    reader = Reader(page)
    result = json.loads((finished / "result.json").read_text())
    devices, found = result["devices"], result["mechanisms"]
    assert "3 devices hold images of digits, IID labels" in reader.text
    assert f"{np.mean(devices['accuracy_local']):.1%}" in reader.text
    assert f"it gets {result['accuracy_federated']:.1%}." in reader.text
    theory = np.mean(devices["equilibrium"]) / np.mean(devices["local_optimum"])
    assert f"({theory:,.3g} times) samples" in reader.text
    gained = found["RealFM"]["server_utility"] / found["Local"]["server_utility"]
    assert f"({gained:,.3g} times), the worth of the mean local model" in reader.text
    given = result["rewards"]["gave"]
    for i in range(3):
        low, high = given["interval"][i]
        cells = [f"{devices['samples_alone'][i]}", f"{devices['accuracy_local'][i]:.4f}"]
        cells += [f"{given['contribution'][i]:.0f}", f"{given['promised'][i]:.4f}"]
        cells += [f"{given['achieved'][i]:.4f}", f"{low:.4f} to {high:.4f}", "0"]
        assert " ".join(cells) in reader.text
    for words in (
        "Local",
        "EqualShare",
        "RealFM exact",
        "Dirichlet",
        result["provenance"]["data"]["train"],
    ):
        assert (words in reader.text) == (words != "Dirichlet")
    assert "viewport" in {meta.get("name") for meta in reader.all("meta")}


def test_figures_are_whole_and_have_words(run: report.Run) -> None:
    reader = Reader(report.page(run.result, run.curves))
    images = reader.all("img")
    assert len(images) == 5  # curve, learning, labels, promises, utilities
    for image in images:
        drawn = base64.b64decode((image["src"] or "").partition(",")[2]).decode()
        assert drawn.rstrip().endswith("</svg>")
        assert len(image["alt"] or "") > 20
    assert f"{run.result['accuracy_federated']:.4f} together" in (images[1]["alt"] or "")
    assert report.page(run.result, run.curves) == report.page(run.result, run.curves)


def test_nothing_global_is_left_behind(run: report.Run) -> None:
    before = dict(matplotlib.rcParams)
    report.page(run.result, run.curves)
    assert plt.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_text_from_the_files_is_escaped(run: report.Run) -> None:
    result: Any = run.result
    clean = [tag for tag, _ in Reader(report.page(result, run.curves, "run")).tags]
    result["experiment"] |= {"dataset": HOSTILE, "model": HOSTILE, "optimizer": HOSTILE}
    result["provenance"]["config"]["dataset"] = result["provenance"]["config"]["preset"] = HOSTILE
    result["provenance"]["data"] = {HOSTILE: HOSTILE}
    result["provenance"][HOSTILE] = HOSTILE
    result["timings"][HOSTILE] = 1.0
    result["certificate"]["assumptions"][HOSTILE] = False
    result["mechanisms"][HOSTILE] = result["mechanisms"]["Local"]
    page = report.page(result, run.curves, HOSTILE)
    assert asks_nobody(page)
    reader = Reader(page)
    assert HOSTILE in reader.text
    assert {tag for tag, _ in reader.tags} == set(clean)


def test_linear_runs_are_called_so_and_measured_twice(run: report.Run) -> None:
    run.result["experiment"]["payoff"] = "linear"
    reader = Reader(report.page(run.result, run.curves))
    assert "Linear RealFM exact" in reader.text
    assert "By theory Linear RealFM asks" in reader.text
    assert "server u, phi(a) = a devices' u, phi(a) = a server u, power phi" in reader.text
    assert len(reader.all("img")) == 6


def test_a_failed_check_and_an_own_model_are_said(run: report.Run) -> None:
    whole = Reader(report.page(run.result, run.curves)).text
    assert not {"FAIL", "kept"} & set(whole.split())
    run.result["certificate"]["budget"] = False
    run.result["certificate"]["assumptions"]["payoff"] = False
    run.result["rewards"]["gave"]["keeps_own_model"][1] = True
    run.result["devices"]["better_alone"][1] = True
    text = Reader(report.page(run.result, run.curves)).text
    assert text.count("FAIL") == 2
    assert "FAIL This does not hold: the server pays no more than it set aside" in text
    assert "FAIL This does not hold: assumption 2: payoff increasing" in text
    assert "Own model kept by device 1: " in text
    assert "1 of the devices' own models are better than it." in text


def test_what_is_not_finite_is_said(run: report.Run) -> None:
    run.result["mechanisms"]["RealFM exact"]["contribution"][0] = None
    for found in run.result["mechanisms"].values():
        found["server_utility"] = found["utility"][0] = None  # a perfect model's payoff, in JSON
    text = Reader(report.page(run.result, run.curves)).text
    assert "worth not finite instead of not finite" in text
    assert re.search(r"\bnan\b", text) is None


def test_the_authors_values_stand_beside_ours(run: report.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, str, str, str]] = []

    def found(dataset: str, devices: int, labels: str, drawn: str, payoff: str) -> Published:
        asked.append((dataset, devices, labels, drawn, payoff))
        return Published(*asked[-1], 0.1, 1.0, 3125.0, 0.4321, 0.8765, 987654.0)

    assert "authors" not in Reader(report.page(run.result, run.curves)).pieces
    monkeypatch.setattr(report, "find", found)
    run.result["experiment"] |= {"distribution": 0.3, "payoffs": "random"}
    text = Reader(report.page(run.result, run.curves)).text
    assert asked == [("digits", 3, "D-0.3", "nonuniformPC", "power")]
    ours = f"{np.mean(run.result['devices']['accuracy_local']):.4f}"
    assert f"accuracy alone 0.4321 {ours}" in text
    assert "samples asked for 987,654" in text


def test_epochs_that_were_not_scored_are_left_out() -> None:
    rows = [
        {"kind": "local", "epoch": str(e), "device": str(d), "accuracy": a, "global_accuracy": ""}
        for e, accuracies in ((1, ("nan", "nan")), (2, ("0.5", "0.75")))
        for d, a in enumerate(accuracies)
    ]
    assert np.isnan(report_page.series(rows, "local")["accuracy"].values[0]).all()
    assert report_page.series(rows, "local")["accuracy"].values[1].tolist() == [0.5, 0.75]
    with pytest.raises(ValueError, match=r"curves.csv has no rows of kind federated"):
        report_page.series(rows, "federated")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda e: f"{e.dataset}-{e.preset}")
def test_the_command_runs_the_same_again(preset: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    usual = dataclasses.replace(preset, distribution=0.3, costs="normal", profit_margin=0.125, seed=7)
    unusual = dataclasses.replace(usual, exponent=1.5)  # no option says that
    for asked in (preset, usual, unusual):
        config = dataclasses.asdict(asked)
        given = {key: value for key, value in config.items() if value is not None}
        assert tomllib.loads(report.toml(config)) == {"experiment": given}
        (tmp_path / "config.toml").write_text(report.toml(config))
        words = shlex.split(report.reproduce(config))
        name = words[2].rpartition(".")[2]
        assert experiment.experiments(name, experiment.parser(name).parse_args(words[3:])) == [asked]
        assert ("--config" in words) == (asked is unusual)


def test_several_runs_share_a_page(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 runs go on one page; give --out"):
        realfm_report(finished, finished)
    out = tmp_path / "both.html"
    realfm_report(finished, finished, "--out", out)
    reader = Reader(out.read_text())
    targets = [a["href"] for a in reader.all("a")]
    assert targets == [f"#{s['id']}" for s in reader.all("section")] == ["#run-0", "#run-1"]


def test_a_page_is_replaced_only_if_told(finished: Path, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    realfm_report(run)
    assert capsys.readouterr().out == f"saved {run / 'report.html'}\n"
    (run / "report.html").write_text("mine")
    with pytest.raises(FileExistsError, match=r"report.html exists; give --force"):
        realfm_report(run)
    assert (run / "report.html").read_text() == "mine"
    realfm_report(run, "--force")
    assert "3 devices" in (run / "report.html").read_text()
    with pytest.raises(FileExistsError, match="is a directory; give another --out"):
        realfm_report(run, "--out", tmp_path)


def test_mistakes_name_the_path(finished: Path, tmp_path: Path) -> None:
    def fails(kind: type[Exception], words: str) -> None:
        with pytest.raises(kind) as raised:
            realfm_report(run)
        assert words.format(run=run) in str(raised.value)
        assert not (run / "report.html").exists()

    run = tmp_path / "run"
    fails(FileNotFoundError, "{run} is not a directory")
    run.mkdir()
    fails(FileNotFoundError, "{run} holds no result.json: not a run")
    (run / "config.toml").write_text("")
    fails(
        FileNotFoundError, "{run} holds no result.json: not finished; give its command --out {run} --resume"
    )
    for broken in ('{"devices": ', "5"):
        (run / "result.json").write_text(broken)
        fails(ValueError, "{run}/result.json is not the JSON of a run")
    (run / "result.json").write_text("{}")
    fails(ValueError, "{run}/result.json is not the result of an experiment")
    result = json.loads((finished / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result))
    fails(FileNotFoundError, "{run}/curves.csv does not exist")
    (run / "curves.csv").write_text("kind,epoch\n")
    fails(ValueError, "{run}: not a result that this version can read: curves.csv has no rows")
    (run / "curves.csv").write_bytes((finished / "curves.csv").read_bytes())
    del result["rewards"]
    (run / "result.json").write_text(json.dumps(result))
    fails(ValueError, "{run}: not a result that this version can read: lacks 'rewards'")


def test_curves_end_at_the_accuracies_of_the_result(run: report.Run) -> None:
    alone = report_page.series(run.curves, "local")["accuracy"].values
    fed = report_page.series(run.curves, "federated")["global_accuracy"].values
    assert alone.shape == (3, 3)
    assert alone[-1] == pytest.approx(run.result["devices"]["accuracy_local"], abs=1e-6)
    assert fed[-1] == pytest.approx(run.result["accuracy_federated"], abs=1e-6)
