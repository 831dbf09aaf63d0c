"""The paper's figures, and ours, from recorded runs: `python -m realfm_jax.experiments.figures RUN ...`."""

import argparse
import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from realfm_jax.experiments.place import load_result
from realfm_jax.experiments.published import find
from realfm_jax.experiments.summary import distribution, drawn
from realfm_jax.formats import FOLDER
from realfm_jax.plots import experiments as plots
from realfm_jax.plots import paper as theory

DATASETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "digits": "digits"}
LABELS = {"iid": "IID", "D-0.6": "D-0.6", "D-0.3": "D-0.3"}
DRAWN = {"uniform": "uniform", "nonuniformC": "C varies", "nonuniformPC": "C, P vary"}
"""Rows, columns and groups of the paper's figures, in its order."""
QUANTITIES = {
    "server-utility": (
        "server_utility",
        ("server_utility", "server_utility_local"),
        "Server utility\n(own payoff)",
    ),
    "contribution": ("contribution", ("contribution", "samples_alone"), "Contribution\n(samples / device)"),
    "device-utility": (
        "utility",
        ("device_utility", "device_utility_local"),
        "Device utility\n(mean, own payoff)",
    ),
}
"""Its comparisons: field of an outcome, attributes of `Published` (together, alone), label."""
THREE = "RealFM", "Linear RealFM", "local"
FOUR = *THREE, "EqualShare if nobody rides free"
RECORDED = "experiments/*/result.json"
"""What it compares, and what we do; the runs that are drawn if none are given."""

_EPILOG = """\
examples:
  python -m realfm_jax.experiments.figures --out figures
  python -m realfm_jax.experiments.figures realfm-results/mnist-* --out figures --format pdf
  python -m realfm_jax.experiments.figures my-run/seed-0 my-run/seed-1 my-run/seed-2

figures (N: number of devices, one for each that there are runs of):
  cost-comparison, utility-comparison   the paper's theory, which needs no run
  server-utility-N, contribution-N, device-utility-N   mechanisms, each by its own payoff
  accuracy-N        test accuracy by epoch, alone and together
  exact-shaping     ours: what exact shaping asks for, beside RealFM
  free-riding       ours: what is given, by theory, if the model is shared freely
  common-payoff     ours: mechanisms by one and the same payoff
  headline          16 devices, IID, in one picture

Runs that differ only in their seed are averaged. Diamonds: the paper's own values. Linear RealFM comes from
runs with --payoff linear, all else from the others. Earlier figures of the same name are replaced.
"""


class Key(NamedTuple):
    """What tells the settings of the paper's experiments apart."""

    dataset: str
    devices: int
    distribution: str
    drawn: str
    payoff: str

    @property
    def place(self) -> tuple[str, str]:
        """Row and column of the paper's figures."""
        return DATASETS[self.dataset], LABELS.get(self.distribution, self.distribution)

    @property
    def order(self) -> tuple[Any, ...]:
        """To sort by, as the paper does; labels that it does not have come last."""
        at = [*LABELS, self.distribution].index(self.distribution)
        known = [*DATASETS].index(self.dataset), at, [*DRAWN].index(self.drawn)
        return -self.devices, *known, self.payoff == "linear"

    def words(self, *others: str) -> str:
        """A row of a figure."""
        varies = () if self.drawn == "uniform" else (DRAWN[self.drawn],)
        return ", ".join((f"{DATASETS[self.dataset]}, {self.devices} devices", *others, *varies))


class Run(NamedTuple):
    """A recorded run."""

    path: Path
    result: dict[str, Any]

    @property
    def curves(self) -> Path:
        """Beside its result."""
        return (self.path if self.path.is_dir() else self.path.parent) / "curves.csv"

    @property
    def key(self) -> Key:
        """Its setting."""
        what = self.result["experiment"]
        return Key(what["dataset"], what["devices"], distribution(what), drawn(what), what["payoff"])

    def mean(self, mechanism: str, field: str) -> float:
        """Of a mechanism's outcome, over the devices; not a number where the record has none."""
        return float(np.mean(np.asarray(self.result["mechanisms"][mechanism][field], float)))


Runs = Mapping[Key, list[Run]]
"""By setting, one for each seed."""
Bars = dict[str, plots.Bar]
"""By mechanism."""


def read(path: Path) -> Run:
    """A run by its directory or its result.json; ValueError: it is not a finished run."""
    try:
        run = Run(path, load_result(path))
        _ = run.key, run.result["provenance"]["config"]["seed"], run.result["theory"]["equal_share_total"]
        run.mean("RealFM exact", "common_utility")
        run.curves.stat()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a finished run: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a finished run: its result lacks {error}") from error
    return run


def settings(runs: Iterable[Run]) -> tuple[dict[Key, list[Run]], list[str]]:
    """Runs by setting, in the paper's order, and words about those that have no place in its figures."""
    found: dict[Key, list[Run]] = {}
    left_out = []
    for run in runs:
        margin, shaping = (run.result["experiment"][name] for name in ("profit_margin", "shaping"))
        if margin != 1 or shaping != "taylor" or run.key.drawn not in DRAWN:
            why = f"profit margin {margin:g}, {shaping} shaping, {run.key.drawn}"
            left_out.append(f"left out, not a setting of the paper's: {run.path} ({why})")
            continue
        for other in found.setdefault(run.key, []):
            ours, theirs = (one.result["provenance"]["config"] for one in (run, other))
            differ = [name for name in ours if ours[name] != theirs.get(name)]
            if differ != ["seed"]:
                but = f"{', '.join(differ) or 'nothing'}, and only runs of different seeds are averaged"
                raise ValueError(f"{other.path} and {run.path} differ in {but}; leave one of them out")
        found[run.key].append(run)
    return {key: found[key] for key in sorted(found, key=lambda key: key.order)}, left_out


def bars(runs: Runs, key: Key, field: str, names: Sequence[str] = THREE, paper: Sequence[str] = ()) -> Bars:
    """Of one setting, whichever payoff `key` has; what there is no run for is left out."""
    found = {}
    for name in names:
        # `local` with the power payoff too: devices with the linear one use less data alone.
        source = key._replace(payoff="linear" if name == "Linear RealFM" else "power")
        mechanism = {"Linear RealFM": "RealFM", "local": "Local", FOUR[3]: "EqualShare"}.get(name, name)
        theirs = find(*source) if paper else None
        if source in runs:
            value = getattr(theirs, paper[name == "local"]) if theirs else None
            found[name] = plots.Bar(tuple(run.mean(mechanism, field) for run in runs[source]), value)
    return found


def panels(runs: Runs, devices: int, quantity: str) -> dict[tuple[str, str], dict[str, Bars]]:
    """Of one of the paper's comparisons: by place in the figure, then by costs and payoffs."""
    field, paper, _ = QUANTITIES[quantity]
    found: dict[tuple[str, str], dict[str, Bars]] = {}
    for key in runs:
        if key.devices == devices:
            found.setdefault(key.place, {})[DRAWN[key.drawn]] = bars(runs, key, field, paper=paper)
    return found


def learnt(run: Run) -> dict[str, dict[int, list[float]]]:
    """Accuracies after each epoch that was scored: of the federated model, and of each device alone."""
    found: dict[str, dict[int, list[float]]] = {"federated": {}, "local": {}}
    for row in csv.DictReader(run.curves.read_text().splitlines()):
        kind, local = row["kind"], row["kind"] == "local"
        value = float(row["accuracy" if local else "global_accuracy"] or "nan")
        # The federated model is one for all; its accuracy is written beside each device.
        if np.isfinite(value) and (local or row["device"] == "0"):
            found[kind].setdefault(int(row["epoch"]), []).append(value)
    return found


def curves(key: Key, runs: Sequence[Run]) -> dict[str, plots.Curve]:
    """Of one setting: means over devices and seeds, in bands over seeds or, of one seed, over devices."""
    each, theirs = [learnt(run) for run in runs], find(*key)
    found = {}
    for kind in ("federated", "local"):
        epochs = sorted(set.intersection(*(set(one[kind]) for one in each)))
        means = np.array([[np.mean(one[kind][epoch]) for epoch in epochs] for one in each])
        spread = means if len(each) > 1 else np.array([each[0][kind][epoch] for epoch in epochs]).T
        paper = getattr(theirs, f"accuracy_{kind}") if theirs else None
        found[kind] = plots.Curve(np.array(epochs), means.mean(0), spread.min(0), spread.max(0), paper)
    return found


def accuracy(runs: Runs, devices: int) -> Any:
    """Accuracy by epoch of runs with the power payoff, with costs and payoffs as uniform as there are."""
    chosen: dict[tuple[str, str], Key] = {}
    for key in runs:
        if key.devices == devices and key.payoff == "power":
            chosen.setdefault(key.place, key)
    many = {len(runs[key]) > 1 for key in chosen.values()}
    band = "seeds (of one: devices)" if len(many) > 1 else "seeds" if True in many else "devices"
    found = {place: curves(key, runs[key]) for place, key in chosen.items()}
    return plots.accuracies(found, f"least to most of {band}") if found else None


def rows(runs: Runs, field: str, *names: str) -> dict[str, Bars]:
    """Bars of every setting that has a run with the power payoff."""
    power = [key for key in runs if key.payoff == "power"]
    return {key.words(key.place[1]): bars(runs, key, field, names) for key in power}


def given(runs: Runs) -> dict[str, Bars]:
    """What all devices give together, by theory, in which the distribution of labels plays no part."""
    found: dict[str, Bars] = {}
    for key, seeds in runs.items():
        power, devices = key.payoff == "power", [run.result["devices"] for run in seeds]
        row = {"EqualShare": plots.Bar(tuple(run.result["theory"]["equal_share_total"] for run in seeds))}
        for name, of in {"local": "local_optimum", THREE[not power]: "equilibrium"}.items():
            row[name] = plots.Bar(tuple(float(np.sum(one[of])) for one in devices))
        found.setdefault(key.words(*(() if power else ("linear",))), row)
    return found


def headline(runs: Runs) -> Any:
    """The paper's data sets, 16 devices, IID, uniform."""
    wanted = [key for key in runs if key[1:4] == (16, "iid", "uniform") and key.dataset != "digits"]
    contribution, server = (
        {key.place[0]: bars(runs, key, field, paper=paper) for key in wanted}
        for field, paper, _ in (QUANTITIES["contribution"], QUANTITIES["server-utility"])
    )
    return plots.headline(contribution, server) if wanted else None


def figures(runs: Runs) -> Iterator[tuple[str, Any]]:
    """All figures by name; None: there is no run for it."""
    yield "cost-comparison", theory.cost_comparison().figure
    yield "utility-comparison", theory.utility_comparison()
    for devices in sorted({key.devices for key in runs}, reverse=True):
        for quantity, (_, _, label) in QUANTITIES.items():
            yield f"{quantity}-{devices}", plots.comparison(panels(runs, devices, quantity), label)
        yield f"accuracy-{devices}", accuracy(runs, devices)
    asked, total = rows(runs, "contribution", "RealFM", "RealFM exact"), given(runs)
    label = "Contribution (samples / device)"
    yield "exact-shaping", plots.settings({label: asked}, "exact / RealFM") if asked else None
    label = "Data of all devices, by theory (samples)"
    yield "free-riding", plots.settings({label: total}, "RealFM / EqualShare") if total else None
    fields = {"Server utility": "common_server_utility", "Device utility, mean": "common_utility"}
    common = {f"{who}, power payoff": rows(runs, of, *FOUR) for who, of in fields.items()}
    yield "common-payoff", plots.settings(common) if asked else None
    yield "headline", headline(runs)


def missing(runs: Runs) -> Iterator[str]:
    """Panels of the paper's figures that there is no run for, in words."""
    for devices, payoff in itertools.product((16, 8), ("power", "linear")):
        have = {key.place for key in runs if key.devices == devices and key.payoff == payoff}
        asked = itertools.product(("CIFAR-10", "MNIST"), LABELS.values())
        if lacks := [" ".join(place) for place in asked if place not in have]:
            yield f"no run of {devices} devices, {payoff} payoff: {', '.join(lacks)}"


def start(options: argparse.Namespace) -> None:
    """Draw and save all figures, saying which, and what they lack."""
    import matplotlib

    from realfm_jax.drawing import save

    matplotlib.use("Agg")  # files only: works without a display
    runs, left_out = settings(map(read, options.runs or sorted(Path().glob(RECORDED))))
    about = {"runs": ["-".join(map(str, key)) + f" ({len(seeds)} seeds)" for key, seeds in runs.items()]}
    for name, figure in figures(runs):
        path = options.out / f"{name}.{options.format}"
        done = figure and save(figure, path, options.format, None, about)
        print(f"{name}: {done or 'not drawn, no run for it'}", flush=True)
    print("\n".join([*missing(runs), *left_out]))


def main(argv: Sequence[str] | None = None) -> int:
    """Draw from the command line; returns the exit code as `realfm` does."""
    from realfm_jax.cli import guarded

    name, layout = "python -m realfm_jax.experiments.figures", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(name, description=__doc__, epilog=_EPILOG, formatter_class=layout)
    words = f"directory or result.json of a finished run (default: {RECORDED}, if there are any)"
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help=words)
    words = f"where figures go ({FOLDER / 'figures'})"
    parser.add_argument("--out", type=Path, default=FOLDER / "figures", metavar="DIR", help=words)
    parser.add_argument("--format", choices=("png", "pdf", "svg"), default="png", help="of figures (png)")
    options = parser.parse_args(argv)
    return guarded(lambda: start(options), own_process=argv is None)


if __name__ == "__main__":
    raise SystemExit(main())
