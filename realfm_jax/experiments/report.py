"""`realfm report`: a run as one HTML page that needs nothing beside it: no network, no script, no font."""

import argparse
import csv
import dataclasses
import html
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from realfm_jax.certificate import ASSUMPTIONS
from realfm_jax.experiments import report_page as part
from realfm_jax.experiments.command import PRESETS
from realfm_jax.experiments.experiment import Experiment
from realfm_jax.experiments.place import load_result
from realfm_jax.experiments.published import find
from realfm_jax.experiments.report_style import PAGE, STYLE
from realfm_jax.record import whole

ABOUT = "make one HTML page of a run, or of several"

EXAMPLES = """\
examples:
  realfm report my-run                            writes my-run/report.html
  realfm report my-run --force                    in place of the one that is there
  realfm report runs/* --out runs.html            several runs on one page, with an index

RUN_DIR is the directory of a finished run of `python -m realfm_jax.experiments.{digits,mnist,cifar}`. The
page holds its figures and asks the network for nothing: send it, or keep it with the results.
"""

OPTIONS = ("devices", "distribution", "costs", "payoffs", "payoff", "shaping", "profit_margin", "epochs")
"""Fields of an experiment that its command line can set, beside seed."""


class Run(NamedTuple):
    """What a directory holds: its name, result.json and the rows of curves.csv."""

    name: str
    result: dict[str, Any]
    curves: Sequence[part.Row]


def add(parser: argparse.ArgumentParser) -> None:
    """Give `realfm report` its options."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="directory of a finished run")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help="the page (default: RUN_DIR/report.html)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing page")


def run(options: argparse.Namespace) -> None:
    """Do what `add` understood; a mistake or a wrong file is a ValueError or OSError."""
    if options.out is None and len(options.runs) > 1:
        raise ValueError(f"{len(options.runs)} runs go on one page; give --out FILE.html")
    out = options.out or options.runs[0] / "report.html"
    found = [read(path) for path in options.runs]
    if out.is_dir():
        raise FileExistsError(f"{out} is a directory; give another --out")
    if out.exists() and not options.force:
        raise FileExistsError(f"{out} exists; give --force to overwrite it, or another --out")
    sections = [_section(path, found[i], i) for i, path in enumerate(options.runs)]
    with whole(out) as unfinished:
        unfinished.write_text(_bound(found, sections), encoding="utf-8")
    print(f"saved {out}", flush=True)


def read(path: Path) -> Run:
    """The run in a directory; an error says which file is not there or not right."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a directory; give that of a run")
    if not (path / "result.json").exists():
        begun = (path / "config.toml").exists()
        why = f"not finished; give its command --out {path} --resume" if begun else "not a run"
        raise FileNotFoundError(f"{path} holds no result.json: {why}")
    try:
        result = load_result(path)
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError) as error:
        raise ValueError(f"{path / 'result.json'} is not the JSON of a run: {error}") from error
    file = path / "curves.csv"
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist; give the run's command --out {path} --resume")
    with file.open(newline="", encoding="utf-8") as opened:
        return Run(path.resolve().name, result, list(csv.DictReader(opened)))


def page(result: dict[str, Any], curves: Sequence[part.Row], name: str = "run") -> str:
    """The HTML page of one run.

    Args:
      result: the content of its result.json.
      curves: the rows of its curves.csv, by the names of its columns.
      name: of the run.
    """
    one = Run(name, result, curves)
    return _bound([one], [section(one, 0)])


def _section(path: Path, one: Run, place: int) -> str:
    """`section`, with the directory named if a file in it is not right."""
    try:
        return section(one, place)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: not a result that this version can read: {what}") from error


def _bound(runs: Sequence[Run], sections: Sequence[str]) -> str:
    """Sections as one page, behind an index if there are several."""
    if len(runs) == 1:
        title, index = f"RealFM: {runs[0].name}", ""
    else:
        title = f"RealFM: {len(runs)} runs"
        lines = [
            f'<li><a href="#run-{i}">{html.escape(one.name)}</a>: {html.escape(_short(one.result))}</li>'
            for i, one in enumerate(runs)
        ]
        index = f"<nav><ul>{''.join(lines)}</ul></nav>"
    return PAGE.format(title=html.escape(title), style=STYLE, content=index + "".join(sections))


def section(one: Run, place: int) -> str:
    """All about one run, the place-th of its page."""
    # JSON has no infinity: null is what is not finite. Means and figures want it as a number.
    result = one.result | {"mechanisms": _numbers(one.result["mechanisms"])}
    content = [
        part.heading(f"{one.name}: {_short(result)}", 2),
        f'<p class="lead">{html.escape(headline(result))}</p>',
        part.decisions(result),
        part.training(result, one.curves),
        part.rewards(result),
        part.mechanisms(result),
        certificate(result),
        beside_paper(result),
        origin(result),
    ]
    return f'<section id="run-{place}">{"".join(content)}</section>'


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float("nan") if value is None else value


def _short(result: dict[str, Any]) -> str:
    alone, fed = part.mean(result["devices"]["accuracy_local"]), result["accuracy_federated"]
    asked = result["experiment"]
    labels = "IID" if asked["distribution"] == "iid" else f"Dirichlet({asked['distribution']})"
    who = f"{asked['devices']} devices, {asked['dataset']}, {labels}, {part.title('RealFM', result)}"
    return f"{who}: {alone:.1%} alone, {fed:.1%} together"


def headline(result: dict[str, Any]) -> str:
    """The run in words, by its own numbers."""
    asked, devices, found = result["experiment"], result["devices"], result["mechanisms"]
    name = "RealFM exact" if asked["shaping"] == "exact" else "RealFM"
    iid = asked["distribution"] == "iid"
    labels = "IID labels" if iid else f"labels by Dirichlet({asked['distribution']})"
    theory = [part.mean(devices[key]) for key in ("equilibrium", "local_optimum")]
    after, before = (part.mean(found[which]["contribution"]) for which in (name, "Local"))
    rich, poor = (found[which]["server_utility"] for which in (name, "Local"))
    better = sum(devices["better_alone"])
    except_for = f" {better} of the devices' own models are better than it." if better else ""
    alone, fed = part.span(devices["accuracy_local"], ".1%"), f"{result['accuracy_federated']:.1%}"
    return (
        f"{asked['devices']} devices hold images of {asked['dataset']}, {labels}. Trained alone, a model "
        f"gets {alone} of the test images right; trained together, it gets {fed}.{except_for} By theory "
        f"{part.title(name, result)} asks a device for {_instead(*theory)} samples; by the accuracies "
        f"measured, and counted from the images used alone, for {_instead(after, before)}. To the server "
        f"the model is worth {_instead(rich, poor)}, the worth of the mean local model."
    )


def _instead(after: float, before: float) -> str:
    form = ",.0f" if max(after, before) >= 1e3 else ",.3g"
    times = part.number(after / before if before else None, ",.0f" if after >= 1e3 * before else ",.3g")
    return f"{part.number(after, form)} instead of {part.number(before, form)} ({times} times)"


def certificate(result: dict[str, Any]) -> str:
    """What was checked, each line ok or FAIL."""
    check = result["certificate"]
    gained = f"the best deviation gains {check['relative_regret']:.1e} of the largest utility"
    lines = [
        (result["theory"]["converged"], "the equilibrium's equations are solved"),
        (check["equilibrium"], f"nobody gains by deviating ({gained})"),
        (check["participation"], "by theory nobody is worse off than alone"),
        (check["budget"], "the server pays no more than it set aside"),
        *((held, f"assumption {ASSUMPTIONS.get(key, key)}") for key, held in check["assumptions"].items()),
        (check["measured_participation"], "with the accuracies measured nobody is worse off than alone"),
    ]
    items = []
    for held, words in lines:
        mark = '<b class="ok">ok</b>' if held else '<b class="fail">FAIL</b> This does not hold:'
        items.append(f"<li>{mark} {html.escape(words)}</li>")
    return part.heading("Certificate") + f'<ul class="checks">{"".join(items)}</ul>'


def beside_paper(result: dict[str, Any]) -> str:
    """The authors' values of the setting beside ours; nothing if they are not at hand."""
    asked, devices = result["experiment"], result["devices"]
    drawn = ("P" if asked["payoffs"] == "random" else "") + ("C" if asked["costs"] == "normal" else "")
    labels = "iid" if asked["distribution"] == "iid" else f"D-{float(asked['distribution']):g}"
    experiment = f"nonuniform{drawn}" if drawn else "uniform"
    paper = find(asked["dataset"], asked["devices"], labels, experiment, asked["payoff"])
    if paper is None:
        return ""
    given = part.mean(result["mechanisms"]["RealFM"]["contribution"])
    rows = [
        ("accuracy alone", f"{paper.accuracy_local:.4f}", f"{part.mean(devices['accuracy_local']):.4f}"),
        ("accuracy together", f"{paper.accuracy_federated:.4f}", f"{result['accuracy_federated']:.4f}"),
        ("images used alone", f"{paper.samples_alone:,.0f}", f"{part.mean(devices['samples_alone']):,.0f}"),
        ("samples asked for", f"{paper.contribution:,.0f}", part.number(given, ",.0f")),
        ("cost of a sample", f"{paper.cost:.4g}", f"{part.mean(devices['cost']):.4g}"),
    ]
    ours = f"{asked['model']}, {asked['epochs']} epochs"
    words = f"Theirs are means over devices and three runs; ours over the devices of this run ({ours})."
    shown = part.table("Means over the devices", ("", "authors", "this run"), rows)
    return part.heading("Beside the authors' results") + part.paragraph(words) + shown


def origin(result: dict[str, Any]) -> str:
    """How to get the run again, what it was made with, and how long it took."""
    about = dict(result["provenance"])
    config = about.pop("config")
    data = {f"data, {key}": value for key, value in about.pop("data", {}).items()}
    rows = [(key, str(value)) for key, value in (about | data).items()]
    seconds = [(name, f"{value:,.1f} s") for name, value in result["timings"].items()]
    return "".join(
        [
            part.heading("This run again"),
            part.preformatted(reproduce(config)),
            part.folded("Configuration (config.toml)", part.preformatted(toml(config))),
            part.folded("Provenance", part.table("Versions, machine and data", (), rows)),
            part.folded("Timings", part.table("Wall-clock time", (), seconds)),
        ]
    )


def toml(config: dict[str, Any]) -> str:
    """A configuration as the file that `--config` reads."""
    lines = (f"{key} = {json.dumps(value)}" for key, value in config.items() if value is not None)
    return "\n".join(["[experiment]", *lines])


def reproduce(config: dict[str, Any]) -> str:
    """The command that runs a configuration, by options where there are options for all that is unusual.

    >>> from realfm_jax.experiments.mnist import PRESETS
    >>> reproduce(dataclasses.asdict(dataclasses.replace(PRESETS["small"], devices=8, seed=3)))
    'python -m realfm_jax.experiments.mnist --preset small --devices 8 --seeds 3 --out again'
    """
    name = "cifar" if config["dataset"] == "cifar10" else config["dataset"]
    command = ["python", "-m", f"realfm_jax.experiments.{name}"]
    try:
        asked, preset = Experiment(**config), PRESETS[name][config["preset"]]
        if dataclasses.replace(preset, **{f: getattr(asked, f) for f in (*OPTIONS, "seed")}) != asked:
            raise ValueError("something that no option sets")
    except (KeyError, TypeError, ValueError):
        return shlex.join([*command, "--config", "config.toml", "--out", "again"])
    flags = ["--preset", asked.preset]
    for field in OPTIONS:
        if getattr(asked, field) != getattr(preset, field):
            flags += [f"--{field.replace('_', '-')}", str(getattr(asked, field))]
    flags += ["--seeds", str(asked.seed)]
    return shlex.join([*command, *flags, "--out", "again"])
