"""The paper's own values, to stand beside ours: a few figures quoted from the authors' records.

Source: results recorded by the authors of RealFM with their published code, means over devices and three
runs. Quoted are the settings that we publish runs of, rounded.
"""

import csv
from pathlib import Path
from typing import NamedTuple

_QUOTED = """\
cifar10 16 iid   uniform      power  0.00025 1 3125 0.5206 0.7536 32363
cifar10 16 iid   uniform      linear 0.00025 1 517 0.2781 0.5629 1655.5
cifar10 16 D-0.6 uniform      power  0.00025 1 3125 0.4009 0.7876 31504
cifar10 16 D-0.6 uniform      linear 0.00025 1 517 0.2063 0.5079 1723
cifar10 16 D-0.3 uniform      power  0.00025 1 3125 0.3454 0.7758 27580
cifar10 16 D-0.3 uniform      linear 0.00025 1 517 0.1907 0.4226 1443.8
cifar10  8 iid   uniform      power  0.00025 1 6250 0.6324 0.7733 41939
cifar10  8 iid   uniform      linear 0.00025 1 1035 0.3891 0.5776 1788.6
cifar10  8 D-0.6 uniform      power  0.00025 1 6250 0.5060 0.8012 43567
cifar10  8 D-0.6 uniform      linear 0.00025 1 1035 0.3064 0.5478 1999.9
cifar10  8 D-0.3 uniform      power  0.00025 1 6250 0.4494 0.7944 38748
cifar10  8 D-0.3 uniform      linear 0.00025 1 1035 0.2759 0.4949 1910.7
mnist   16 iid   uniform      power  4e-05 1 3750 0.9851 0.9947 2.8833e8
mnist   16 iid   uniform      linear 4e-05 1 382 0.9574 0.9879 1143.7
mnist   16 iid   nonuniformPC power  3.9384e-05 0.99882 3750 0.9855 0.9945 2.9755e8
mnist   16 iid   nonuniformPC linear 3.9384e-05 0.99882 386.98 0.9425 0.9882 1553.4
mnist   16 D-0.6 uniform      power  4e-05 1 3750 0.9312 0.9955 6.0445e7
mnist   16 D-0.6 uniform      linear 4e-05 1 382 0.7784 0.9861 5573.4
mnist   16 D-0.3 uniform      power  4e-05 1 3750 0.8377 0.9954 1.4742e7
mnist   16 D-0.3 uniform      linear 4e-05 1 382 0.6366 0.9855 9104.1
mnist    8 iid   uniform      power  4e-05 1 7500 0.9892 0.9945 3.6570e8
mnist    8 iid   uniform      linear 4e-05 1 765 0.9686 0.9876 1238.7
mnist    8 D-0.6 uniform      power  4e-05 1 7500 0.9664 0.9949 1.4572e8
mnist    8 D-0.6 uniform      linear 4e-05 1 765 0.8158 0.9822 4923.9
mnist    8 D-0.3 uniform      power  4e-05 1 7500 0.9019 0.9944 5.0097e7
mnist    8 D-0.3 uniform      linear 4e-05 1 765 0.6747 0.9798 8391.2
"""
"""Data set, devices, labels, costs and payoffs, payoff; then cost, payoff scale, images used alone, local
and federated accuracy, contribution."""


class Published(NamedTuple):
    """One setting of the authors' experiments; numbers are means over devices and runs.

    Utilities are those of the means, which is not the mean of the utilities: phi is convex.

    Attributes:
      dataset: "cifar10" or "mnist".
      devices: n.
      distribution: "iid", "D-0.6" or "D-0.3".
      experiment: "uniform", "nonuniformC" (costs drawn) or "nonuniformPC" (payoff scales too).
      payoff: "power" (RealFM) or "linear" (Linear RealFM).
      cost: c, utility per sample.
      payoff_scale: z; the linear payoff ignores it.
      samples_alone: images that a device trains on.
      accuracy_local, accuracy_federated: at the end of training.
      contribution: m^*, what is asked for, samples.

    >>> row = Published("mnist", 2, "iid", "uniform", "power", 0.5, 2.0, 3, 0.5, 0.75, 10.0)
    >>> row.server_utility, row.server_utility_local, row.device_utility, row.device_utility_local
    (15.0, 3.0, 25.0, 4.5)
    """

    dataset: str
    devices: int
    distribution: str
    experiment: str
    payoff: str
    cost: float
    payoff_scale: float
    samples_alone: float
    accuracy_local: float
    accuracy_federated: float
    contribution: float

    def worth(self, accuracy: float) -> float:
        """phi of the setting's own payoff, scale 1: 1 / (1 - a)^2 - 1, or a."""
        return accuracy if self.payoff == "linear" else 1 / (1 - accuracy) ** 2 - 1

    @property
    def server_utility(self) -> float:
        """phi_C of the federated accuracy (p_m = 1)."""
        return self.worth(self.accuracy_federated)

    @property
    def server_utility_local(self) -> float:
        """phi_C of the mean local accuracy."""
        return self.worth(self.accuracy_local)

    @property
    def device_utility(self) -> float:
        """z phi(a_fed) - c m^*."""
        return self._scale * self.server_utility - self.cost * self.contribution

    @property
    def device_utility_local(self) -> float:
        """z phi(a_local) - c m, m the images used alone."""
        return self._scale * self.server_utility_local - self.cost * self.samples_alone

    @property
    def _scale(self) -> float:
        return 1.0 if self.payoff == "linear" else self.payoff_scale


def _setting(line: str) -> Published:
    dataset, devices, distribution, experiment, payoff, *numbers = line.split()
    return Published(dataset, int(devices), distribution, experiment, payoff, *map(float, numbers))


SETTINGS: tuple[Published, ...] = tuple(map(_setting, _QUOTED.splitlines()))
"""The settings quoted."""


def read_settings(path: Path) -> tuple[Published, ...]:
    """All settings of the authors' own settings.csv, for who has it."""
    with path.open(newline="") as file:
        return tuple(_recorded(row) for row in csv.DictReader(file))


def _recorded(row: dict[str, str]) -> Published:
    names = ("marginal_cost", "payoff_scale", "m_local_used", "acc_local", "acc_federated", "m_federated")
    return Published(
        row["dataset"],
        int(row["devices"]),
        row["distribution"],
        row["experiment"].removeprefix("linear-"),
        "linear" if row["experiment"].startswith("linear-") else "power",
        *(float(row[name]) for name in names),
    )


def find(dataset: str, devices: int, distribution: str, experiment: str, payoff: str) -> Published | None:
    """The authors' setting of that name; None if it is not quoted.

    >>> find("mnist", 16, "iid", "uniform", "power").accuracy_federated
    0.9947
    >>> find("digits", 8, "iid", "uniform", "power")
    """
    asked = (dataset, devices, distribution, experiment, payoff)
    return next((setting for setting in SETTINGS if setting[:5] == asked), None)
