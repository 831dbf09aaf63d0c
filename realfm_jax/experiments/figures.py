"""The paper's figures, and ours, from recorded runs: `python -m realfm_jax.experiments.figures RUN ...`."""

import argparse
import csv
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
  common-payoff                         ours: mechanisms by one and the same payoff
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


def bars(runs: Runs, key: Key, field: str, paper: tuple[str, str] | None = None) -> dict[str, plots.Bar]:
    """RealFM, Linear RealFM and local in one setting, whichever payoff `key` has; `paper` as in QUANTITIES.

    Local is what devices with the power payoff have alone: with the linear one they use less data.
    """
    power, linear = key._replace(payoff="power"), key._replace(payoff="linear")
    sources = {
        "RealFM": (power, "RealFM", 0),
        "Linear RealFM": (linear, "RealFM", 0),
        "local": (power, "Local", 1),
    }
    found = {}
    for name, (where, mechanism, which) in sources.items():
        theirs = find(*where) if paper else None
        if where in runs:
            ours = tuple(run.mean(mechanism, field) for run in runs[where])
            found[name] = plots.Bar(ours, getattr(theirs, paper[which]) if paper and theirs else None)
    return found


def panels(
    runs: Runs, devices: int, quantity: str
) -> dict[tuple[str, str], dict[str, dict[str, plots.Bar]]]:
    """Bars of one of the paper's comparisons: by place in the figure, by costs and payoffs, by mechanism."""
    field, paper, _ = QUANTITIES[quantity]
    found: dict[tuple[str, str], dict[str, dict[str, plots.Bar]]] = {}
    for key in runs:
        if key.devices == devices:
            found.setdefault(key.place, {})[DRAWN[key.drawn]] = bars(runs, key, field, paper)
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
    drawn_ = {place: curves(key, runs[key]) for place, key in chosen.items()}
    return plots.accuracies(drawn_, f"least to most of {band}") if chosen else None


def exact_shaping(runs: Runs) -> "Figure | None":
    """What Taylor and exact shaping ask for, in the mean over devices, where the payoff is not linear."""
    rows = {
        key.words(key.place[1]): {
            name: plots.Bar(tuple(run.mean(name, "contribution") for run in seeds))
            for name in ("RealFM", "RealFM exact")
        }
        for key, seeds in runs.items()
        if key.payoff == "power"
    }
    return plots.settings(rows, "Contribution (samples / device)", ratio=True).figure if rows else None


def free_riding(runs: Runs) -> "Figure | None":
    """What all devices give in equilibrium, by theory, in which the distribution of labels plays no part."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for key, seeds in runs.items():
        row = found.setdefault(key.words(*(["linear"] if key.payoff == "linear" else [])), {})
        for run in seeds:
            seed, devices = run.result["provenance"]["config"]["seed"], run.result["devices"]
            row.setdefault("EqualShare", {})[seed] = run.result["theory"]["equal_share_total"]
            row.setdefault("local", {})[seed] = float(np.sum(devices["local_optimum"]))
            row.setdefault("RealFM", {})[seed] = float(np.sum(devices["equilibrium"]))
    rows = {
        row: {name: plots.Bar(tuple(v.values())) for name, v in values.items()}
        for row, values in found.items()
    }
    return (
        plots.settings(rows, "Data of all devices, by theory (samples)", ratio=True).figure
        if rows
        else None
    )


def common_payoff(runs: Runs) -> "Figure | None":
    """Utilities of the server and, in the mean, of the devices, everybody's by the power payoff."""
    both: list[dict[str, dict[str, plots.Bar]]] = []
    for field in ("common_server_utility", "common_utility"):
        both.append({})
        for key, seeds in runs.items():
            if key.payoff == "power":
                equal = plots.Bar(tuple(run.mean("EqualShare", field) for run in seeds))
                both[-1][key.words(key.place[1])] = bars(runs, key, field) | {"EqualShare": equal}
    labels = "Server utility, power payoff", "Device utility, mean, power payoff"
    return plots.two_settings(*both, labels) if both[0] else None


def headline(runs: Runs) -> "Figure | None":
    """Contribution and server utility of the paper's data sets, 16 devices, IID, uniform."""
    both: list[dict[str, dict[str, plots.Bar]]] = []
    for quantity in ("contribution", "server-utility"):
        found = panels(runs, 16, quantity)
        places = [
            place
            for place in found
            if place[1] == "IID" and place[0] != "digits" and "uniform" in found[place]
        ]
        both.append({place[0]: found[place]["uniform"] for place in places})
    return plots.headline(*both) if both[0] else None


def figures(runs: Runs) -> "Iterator[tuple[str, Figure | None, str]]":
    """Name, figure (None: there is no run for it) and what it lacks, one after the other."""
    yield "cost-comparison", theory.cost_comparison().figure, ""  # type: ignore[misc]
    yield "utility-comparison", theory.utility_comparison(), ""  # type: ignore[misc]
    for devices in sorted({key.devices for key in runs}, reverse=True):
        for quantity, (_, _, label) in QUANTITIES.items():
            lacks = missing(runs, devices, "power", "linear")
            yield f"{quantity}-{devices}", plots.comparison(panels(runs, devices, quantity), label), lacks
        yield f"accuracy-{devices}", accuracy(runs, devices), missing(runs, devices, "power")
    for name, draw in {
        "exact-shaping": exact_shaping,
        "free-riding": free_riding,
        "common-payoff": common_payoff,
        "headline": headline,
    }.items():
        yield name, draw(runs), ""


def missing(runs: Runs, devices: int, *payoffs: str) -> str:
    """Panels of the paper's figure that there is no run for, by payoff; empty if there is one for each."""
    words = []
    for payoff in payoffs:
        have = {key.place for key in runs if key.devices == devices and key.payoff == payoff}
        asked = [(DATASETS[name], label) for name in ("cifar10", "mnist") for label in LABELS.values()]
        lacks = [" ".join(place) for place in asked if place not in have]
        words += [f"no run with {payoff} payoff: {', '.join(lacks)}"] if lacks else []
    return "; ".join(words)


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
    for name, figure, lacks in figures(runs):
        words = [f"  {lacks}"] if lacks else []
        if figure is None:
            print("\n".join([f"{name}: not drawn, there is no run for it"]), flush=True)
        else:
            path = save(figure, options.out / f"{name}.{options.format}", options.format, None, about)
            print("\n".join([str(path), *words]), flush=True)
    for words in left_out:
        print(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw from the command line; returns the exit code as `realfm` does."""
    from realfm_jax.cli import guarded

    options = parser().parse_args(argv)
    return guarded(lambda: start(options), own_process=argv is None)


if __name__ == "__main__":
    raise SystemExit(main())
