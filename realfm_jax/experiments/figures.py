"""The paper's figures, and ours, from recorded runs: `python -m realfm_jax.experiments.figures RUN ...`."""

import argparse
import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from realfm_jax.experiments.place import load_result
from realfm_jax.experiments.published import find
from realfm_jax.experiments.summary import distribution, drawn
from realfm_jax.formats import FOLDER
from realfm_jax.plots import experiments as plots
from realfm_jax.plots import paper as theory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "digits": "digits"}
LABELS = {"iid": "IID", "D-0.6": "D-0.6", "D-0.3": "D-0.3"}
DRAWN = {"uniform": "uniform", "nonuniformC": "C varies", "nonuniformPC": "C, P vary"}
"""Rows, columns and groups of the paper's figures, in its order."""
QUANTITIES = {
    "server-utility": ("server_utility", ("server_utility", "server_utility_local"), "Server utility"),
    "contribution": ("contribution", ("contribution", "samples_alone"), "Contribution\n(samples / device)"),
    "device-utility": ("utility", ("device_utility", "device_utility_local"), "Device utility, mean"),
}
"""Its comparisons: field of an outcome, attributes of `Published` (together, alone), label."""
SOURCES = {
    "RealFM": ("power", "RealFM"),
    "Linear RealFM": ("linear", "RealFM"),
    "local": ("power", "Local"),
    "EqualShare": ("power", "EqualShare"),
    "RealFM exact": ("power", "RealFM exact"),
}
"""What is drawn: payoff of the runs it is from, and name there. With the power payoff for `local` too: devices
with the linear one use less data alone."""
THREE = ("RealFM", "Linear RealFM", "local")
"""What the paper compares."""
RECORDED = "experiments/*/result.json"
"""Runs that are drawn if none are given."""

_EPILOG = """\
examples:
  python -m realfm_jax.experiments.figures --out figures
  python -m realfm_jax.experiments.figures realfm-results/mnist-* --out figures --format pdf
  python -m realfm_jax.experiments.figures my-run/seed-0 my-run/seed-1 my-run/seed-2

figures (N: number of devices, one for each that there are runs of):
  cost-comparison, utility-comparison   the paper's theory, which needs no run
  server-utility-N, contribution-N, device-utility-N
                                        mechanisms beside one another, each by its own payoff
  accuracy-N                            test accuracy by epoch, alone and together
  exact-shaping                         ours: what exact shaping asks for, beside RealFM
  free-riding                           ours: what is given, by theory, if the model is shared freely
  common-payoff                         ours: by one and the same payoff; EqualShare if nobody rides free
  headline                              16 devices, IID, in one picture

Runs that differ in nothing but their seed are averaged, with marks from the least to the most. Diamonds are
the paper's own values. Linear RealFM comes from runs with --payoff linear, `local` from the others. Earlier
figures of the same name are replaced.
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
        """To sort by; other distributions than the paper's come last."""
        known = [list(order) for order in (DATASETS, LABELS, DRAWN)]
        at = known[1].index(self.distribution) if self.distribution in known[1] else len(known[1])
        return (
            -self.devices,
            known[0].index(self.dataset),
            at,
            self.distribution,
            known[2].index(self.drawn),
        )

    def words(self, *others: str) -> str:
        """A line of a figure."""
        varies = () if self.drawn == "uniform" else (DRAWN[self.drawn],)
        return ", ".join((f"{DATASETS[self.dataset]}, {self.devices} devices", *others, *varies))


class Run(NamedTuple):
    """A recorded run."""

    path: Path
    result: dict[str, Any]

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


def read(paths: Iterable[Path]) -> list[Run]:
    """Runs by their directories or their result.json; ValueError: a path is not a finished run."""
    runs = []
    for path in paths:
        try:
            run = Run(path, load_result(path))
            _ = (
                run.key,
                run.result["provenance"]["config"]["seed"],
                run.result["theory"]["equal_share_total"],
            )
            run.mean("RealFM exact", "common_utility")
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} is not a finished run: {error}") from error
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a finished run: its result has no {error}") from error
        runs.append(run)
    return runs


def settings(runs: Iterable[Run]) -> tuple[dict[Key, list[Run]], list[str]]:
    """Runs by setting, in the paper's order, and words about those that have no place in its figures.

    Raises:
      ValueError: two runs of a setting differ in more than their seed, or not even in that.
    """
    found: dict[Key, list[Run]] = {}
    left_out = []
    for run in runs:
        what = run.result["experiment"]
        reasons = {
            f"profit margin {what['profit_margin']:g}": what["profit_margin"] != 1,
            "exact shaping (the results of Taylor shaping have its outcome too)": what["shaping"]
            != "taylor",
            "payoffs vary, but not costs": run.key.drawn not in DRAWN,
        }
        why = [reason for reason, holds in reasons.items() if holds]
        if why:
            left_out.append(f"left out, not of the paper's settings: {run.path}, {', '.join(why)}")
            continue
        others = found.setdefault(run.key, [])
        for other in others:
            _check_average(run, other)
        others.append(run)
    return {key: found[key] for key in sorted(found, key=lambda key: key.order)}, left_out


def _check_average(one: Run, other: Run) -> None:
    ours, theirs = (run.result["provenance"]["config"] for run in (one, other))
    both = f"{other.path} and {one.path}"
    if different := [name for name in ours if name != "seed" and ours[name] != theirs.get(name)]:
        raise ValueError(f"{both} cannot be averaged: they differ in {', '.join(different)}")
    if ours["seed"] == theirs["seed"]:
        raise ValueError(f"{both} are the same setting with the same seed; give one of them")


def bars(runs: Runs, key: Key, field: str, names: Sequence[str] = THREE, paper: Sequence[str] = ()) -> Bars:
    """Of one setting, whichever payoff `key` has; what there is no run for is left out."""
    found = {}
    for name in names:
        payoff, mechanism = SOURCES[name]
        source = key._replace(payoff=payoff)
        theirs = find(*source) if paper else None
        if source in runs:
            value = getattr(theirs, paper[mechanism == "Local"]) if theirs else None
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
    folder = run.path if run.path.is_dir() else run.path.parent
    found: dict[str, dict[int, list[float]]] = {"federated": {}, "local": {}}
    columns = {"federated": "global_accuracy", "local": "accuracy"}
    with open(folder / "curves.csv", newline="") as file:
        for row in csv.DictReader(file):
            value = float(row[columns[row["kind"]]] or "nan")
            # The federated model is one for all; its accuracy is written beside each device.
            if np.isfinite(value) and (row["kind"] == "local" or int(row["device"]) == 0):
                found[row["kind"]].setdefault(int(row["epoch"]), []).append(value)
    return found


def curves(key: Key, runs: Sequence[Run]) -> dict[str, plots.Curve]:
    """Of one setting: means over devices and seeds, in bands over seeds or, if there is one, over devices."""
    each, theirs = [learnt(run) for run in runs], find(*key)
    found = {}
    for kind in ("federated", "local"):
        epochs = sorted(set.intersection(*(set(one[kind]) for one in each)))
        means = np.array([[np.mean(one[kind][epoch]) for epoch in epochs] for one in each])
        spread = means if len(each) > 1 else np.array([each[0][kind][epoch] for epoch in epochs]).T
        paper = getattr(theirs, f"accuracy_{kind}") if theirs else None
        found[kind] = plots.Curve(np.array(epochs), means.mean(0), spread.min(0), spread.max(0), paper)
    return found


def accuracy(runs: Runs, devices: int) -> "Figure | None":
    """Accuracy by epoch of runs with the power payoff, with costs and payoffs as uniform as there are."""
    chosen: dict[tuple[str, str], Key] = {}
    for key in runs:
        if key.devices == devices and key.payoff == "power":
            chosen.setdefault(key.place, key)
    many = {len(runs[key]) > 1 for key in chosen.values()}
    band = "seeds, or devices of one" if len(many) > 1 else "seeds" if True in many else "devices"
    found = {place: curves(key, runs[key]) for place, key in chosen.items()}
    return plots.accuracies(found, f"least to most of {band}") if found else None


def rows(runs: Runs, field: str, *names: str) -> dict[str, Bars]:
    """Bars of every setting that has a run with the power payoff."""
    power = [key for key in runs if key.payoff == "power"]
    return {key.words(key.place[1]): bars(runs, key, field, names) for key in power}


def given(runs: Runs) -> dict[str, Bars]:
    """What all devices give together, by theory, in which the distribution of labels plays no part."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for key, seeds in runs.items():
        linear = key.payoff == "linear"
        row = found.setdefault(key.words(*(["linear"] if linear else [])), {})
        for run in seeds:
            seed, devices = run.result["experiment"]["seed"], run.result["devices"]
            row.setdefault("EqualShare", {})[seed] = run.result["theory"]["equal_share_total"]
            row.setdefault("local", {})[seed] = float(np.sum(devices["local_optimum"]))
            row.setdefault("Linear RealFM" if linear else "RealFM", {})[seed] = float(
                np.sum(devices["equilibrium"])
            )
    return {
        words: {name: plots.Bar(tuple(v.values())) for name, v in row.items()}
        for words, row in found.items()
    }


def ours(runs: Runs) -> "Iterator[tuple[str, Figure | None]]":
    """Figures that the paper does not have; None: there is no run for it."""
    asked = {"Contribution (samples / device)": rows(runs, "contribution", "RealFM", "RealFM exact")}
    yield "exact-shaping", plots.settings(asked, "exact / RealFM") if all(asked.values()) else None
    total = {"Data of all devices, by theory (samples)": given(runs)}
    yield "free-riding", plots.settings(total, "RealFM / EqualShare") if all(total.values()) else None
    common = {
        "Server utility, power payoff": rows(runs, "common_server_utility", *THREE, "EqualShare"),
        "Device utility, mean, power payoff": rows(runs, "common_utility", *THREE, "EqualShare"),
    }
    yield "common-payoff", plots.settings(common) if all(common.values()) else None
    contribution, server = (
        {
            place[0]: panel["uniform"]
            for place, panel in panels(runs, 16, quantity).items()
            if "uniform" in panel and place[1] == "IID"
        }
        for quantity in ("contribution", "server-utility")
    )
    yield "headline", plots.headline(contribution, server) if contribution else None


def figures(runs: Runs) -> "Iterator[tuple[str, Figure | None]]":
    """All figures by name; None: there is no run for it."""
    yield "cost-comparison", theory.cost_comparison().figure
    yield "utility-comparison", theory.utility_comparison()
    for devices in sorted({key.devices for key in runs}, reverse=True):
        for quantity, (_, _, label) in QUANTITIES.items():
            yield f"{quantity}-{devices}", plots.comparison(panels(runs, devices, quantity), label)
        yield f"accuracy-{devices}", accuracy(runs, devices)
    yield from ours(runs)


def missing(runs: Runs) -> list[str]:
    """Panels of the paper's figures that there is no run for, in words."""
    words = []
    for devices, payoff in itertools.product((16, 8), ("power", "linear")):
        have = {key.place for key in runs if key.devices == devices and key.payoff == payoff}
        asked = itertools.product(("CIFAR-10", "MNIST"), LABELS.values())
        lacks = [" ".join(place) for place in asked if place not in have]
        words += [f"no run: {devices} devices, {payoff} payoff: {', '.join(lacks)}"] if lacks else []
    return words


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    found = argparse.ArgumentParser(
        prog="python -m realfm_jax.experiments.figures",
        description="The paper's experiment figures, and ours, from recorded runs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = f"directory or result.json of a finished run (default: {RECORDED}, if there are any)"
    found.add_argument("runs", nargs="*", type=Path, metavar="RUN", help=words)
    out = FOLDER / "figures"
    found.add_argument("--out", type=Path, default=out, metavar="DIR", help=f"where the figures go ({out})")
    found.add_argument(
        "--format", choices=("png", "pdf", "svg"), default="png", help="of the figures (png)"
    )
    return found


def start(options: argparse.Namespace) -> None:
    """Draw and save all figures, saying which, and what they lack."""
    import matplotlib

    from realfm_jax.drawing import save

    matplotlib.use("Agg")  # files only: works without a display
    runs, left_out = settings(read(options.runs or sorted(Path().glob(RECORDED))))
    about = {"runs": ["-".join(map(str, key)) + f" ({len(seeds)} seeds)" for key, seeds in runs.items()]}
    for name, figure in figures(runs):
        if figure is None:
            print(f"not drawn, no run for it: {name}", flush=True)
        else:
            path = options.out / f"{name}.{options.format}"
            print(save(figure, path, options.format, None, about), flush=True)
    print("\n".join(missing(runs) + left_out))


def main(argv: Sequence[str] | None = None) -> int:
    """Draw from the command line; returns the exit code as `realfm` does."""
    from realfm_jax.cli import guarded

    options = parser().parse_args(argv)
    return guarded(lambda: start(options), own_process=argv is None)


if __name__ == "__main__":
    raise SystemExit(main())
