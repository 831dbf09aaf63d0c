"""Print the tables of docs/differences.md: `python docs/differences.py [DIRECTORY]`.

From a clone alone: of the settings that realfm_jax.experiments.published quotes. With the directory of the
authors' record (settings.csv, devices_8.csv): of all settings, those of 8 devices device by device.
"""

import csv
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import realfm_jax as rfm
from realfm_jax.experiments.published import SETTINGS

RIGHT = {"cifar10": rfm.GeneralizationBound(0.95, 10.0), "mnist": rfm.InverseSqrt(0.9975, 0.25)}
WRONG = {"mnist": rfm.GeneralizationBound(0.9975, 0.25)}
POWER, LINEAR = rfm.PowerPayoff(), rfm.LinearPayoff()
COLUMNS = ("marginal_cost", "payoff_scale", "m_local_used", "acc_local", "acc_federated", "m_federated")
"""Of both files of the record: the fields of `Run`."""


class Run(NamedTuple):
    """Devices of one run, or one device that stands for the mean of all; arrays [devices]."""

    cost: np.ndarray
    scale: np.ndarray
    used: np.ndarray
    local: np.ndarray
    fed: np.ndarray
    asked: np.ndarray


class Case(NamedTuple):
    """One setting and what is known of it; `by_device`: runs of real devices, not one mean device."""

    dataset: str
    devices: int
    words: str
    linear: bool
    by_device: bool
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        """The setting's name, without its payoff."""
        return f"{self.dataset}, {self.devices} devices, {self.words}"

    @property
    def kind(self) -> str:
        """Its payoff, in a word."""
        return "linear" if self.linear else "power"

    @property
    def server(self) -> rfm.payoff.Payoff:
        """phi_C."""
        return LINEAR if self.linear else POWER

    def own(self, run: Run) -> rfm.payoff.Payoff:
        """phi_i by which its devices decide."""
        return LINEAR if self.linear else rfm.PowerPayoff(scale=run.scale)

    def common(self, run: Run) -> rfm.payoff.Payoff:
        """The power payoff, whatever its devices decide by."""
        return rfm.PowerPayoff(scale=run.scale)

    def mean(self, value: Callable[[Run], Any]) -> float:
        """Mean over devices and runs."""
        return float(np.mean([np.mean(value(run)) for run in self.runs]))

    def predicted(self, curve: rfm.accuracy.Curve) -> float:
        """phi_C(a_C(sum of contributions)), mean over runs."""
        return self.mean(lambda run: self.server(curve(self.devices * run.asked.mean())))

    def measured(self, payoff: rfm.payoff.Payoff) -> float:
        """The server's payoff of the federated model."""
        return self.mean(lambda run: payoff(run.fed))

    def together(self, payoff: Callable[[Run], rfm.payoff.Payoff]) -> float:
        """phi(a_fed) - c m^*."""
        return self.mean(lambda run: payoff(run)(run.fed) - run.cost * run.asked)

    def alone(self, payoff: Callable[[Run], rfm.payoff.Payoff]) -> float:
        """phi(a_local) - c m, m the images used alone."""
        return self.mean(lambda run: payoff(run)(run.local) - run.cost * run.used)


def quoted() -> list[Case]:
    """The settings that the package quotes: means."""
    return [
        Case(
            row.dataset,
            row.devices,
            f"{row.distribution}, {row.experiment}",
            row.payoff == "linear",
            False,
            (Run(*(np.array([value]) for value in row[5:])),),
        )
        for row in SETTINGS
    ]


def recorded(directory: Path) -> list[Case]:
    """All settings of the authors' record: of 8 devices device by device, of 16 their means."""
    rows = _rows(directory / "devices_8.csv")
    rows += [row | {"run": "mean"} for row in _rows(directory / "settings.csv") if row["devices"] != "8"]

    def setting(row: dict[str, str]) -> tuple[str, ...]:
        return tuple(row[name] for name in ("dataset", "devices", "distribution", "experiment"))

    cases = []
    for name, group in itertools.groupby(sorted(rows, key=lambda row: (setting(row), row["run"])), setting):
        runs = [_run(list(devices)) for _, devices in itertools.groupby(group, lambda row: row["run"])]
        words = f"{name[2]}, {name[3].removeprefix('linear-')}"
        linear = name[3].startswith("linear-")
        cases.append(Case(name[0], int(name[1]), words, linear, name[1] == "8", tuple(runs)))
    return cases


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _run(rows: list[dict[str, str]]) -> Run:
    return Run(*(np.array([float(row[name]) for row in rows]) for name in COLUMNS))


def show(title: str, heads: tuple[str, ...], rows: Sequence[tuple[Case, tuple[str, ...]]]) -> None:
    """One table, in Markdown. Means of 8 devices are left out: they read as those of 16."""
    print(f"\n{title}\n")
    lines = [(case.label, *cells) for case, cells in rows if case.by_device or case.devices != 8]
    for line in (("setting", *heads), ("---", *("---:" for _ in heads)), *lines):
        print(f"| {' | '.join(line)} |")


def span(values: Iterable[float]) -> str:
    """Smallest and largest, in words."""
    values = list(values)
    return f"{min(values):.3g} to {max(values):.3g}"


def of(cases: list[Case], dataset: str, linear: bool) -> list[Case]:
    """The cases of one data set and payoff."""
    return [case for case in cases if case.dataset == dataset and case.linear == linear]


def contributions(cases: list[Case]) -> None:
    """(1) m^* as recorded, and by `required_contribution` from the recorded accuracies."""
    exact, means = [], []
    for case in cases:
        for run in case.runs:
            found = rfm.required_contribution(run.local, run.fed, run.used, run.cost, case.own(run))
            exact += list(np.abs(found - run.asked)) if case.by_device else []
            means += [] if case.by_device else [float(found[0] / run.asked[0])]
    if exact:
        print(f"\n- {len(exact)} devices, one by one: largest difference {max(exact):.4f} samples.")
    print(f"- From means ({len(means)} settings): our contribution / the recorded mean {span(means)}.")


def server_utilities(cases: list[Case]) -> None:
    """(2) u_C by the right curve, by the wrong one, and by the accuracy that was measured."""
    heads = ("payoff", "right curve", "wrong curve", "measured accuracy")
    rows = []
    for case in cases:
        wrong = f"{case.predicted(WRONG[case.dataset]):,.4g}" if case.dataset in WRONG else "-"
        right, measured = case.predicted(RIGHT[case.dataset]), case.measured(case.server)
        rows.append((case, (case.kind, f"{right:,.4g}", wrong, f"{measured:,.4g}")))
    show("Server utility", heads, rows)
    print()
    for linear in (False, True):
        mnist = of(cases, "mnist", linear)
        ratios = [case.predicted(WRONG["mnist"]) / case.predicted(RIGHT["mnist"]) for case in mnist]
        print(f"- mnist, {mnist[0].kind} payoff: wrong curve / right curve {span(ratios)}.")
    for dataset, linear in itertools.product(RIGHT, (False, True)):
        chosen = of(cases, dataset, linear)
        ratios = [case.predicted(RIGHT[dataset]) / case.measured(case.server) for case in chosen]
        print(f"- {dataset}, {chosen[0].kind} payoff: right curve / measured accuracy {span(ratios)}.")


def local_utilities(cases: list[Case]) -> None:
    """(3) What a device has alone: only its cost, and in full."""
    rows = []
    for case in cases:
        cost = case.mean(lambda run: -run.cost * run.used)
        rows.append((case, (case.kind, f"{cost:.4g}", f"{case.alone(case.own):,.4g}")))
    show("A device alone", ("payoff", "only the cost, -c m", "phi(a_local) - c m"), rows)


def common_payoff(cases: list[Case]) -> None:
    """(4) Linear RealFM by its own payoff and by the power payoff, beside RealFM."""
    rivals = {case.label: case for case in cases if not case.linear}
    rows, servers, devices = [], [], []
    for case in (case for case in cases if case.linear):
        rival = rivals[case.label]
        own = case.measured(LINEAR), case.together(case.own)
        power = case.measured(POWER), case.together(case.common), rival.alone(rival.own)
        realfm = rival.measured(POWER), rival.together(rival.own)
        rows.append((case, tuple(f"{x:,.4g}" for x in (*own, *power, *realfm))))
        servers.append(realfm[0] / power[0])
        devices.append(power[1] > power[2])
    heads = ("server, own", "device, own", "server, power", "device, power", "alone, power")
    show("Linear RealFM", (*heads, "RealFM: server", "RealFM: device"), rows)
    print(f"\n- Power payoff, server: RealFM / Linear RealFM {span(servers)}.")
    count = f"{sum(devices)} of {len(devices)} settings"
    print(f"- Power payoff, mean device: Linear RealFM above alone in {count}.")


def main(arguments: list[str]) -> None:
    """Print all."""
    if arguments:
        cases = recorded(Path(arguments[0]))
        print(f"From the authors' record: {len(cases)} settings, those of 8 devices device by device.")
    else:
        cases = quoted()
        print(f"From a clone alone: the means of {len(cases)} settings that the package quotes.")
    for part in (contributions, server_utilities, local_utilities, common_payoff):
        part(cases)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:])
