"""What measured accuracies are worth: contributions, rewards and utilities under each mechanism.

Step 8 of the paper's process, for accuracies from anywhere: our own training, or the authors' records.
"""

import dataclasses
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from realfm_jax.game import Devices, Server
from realfm_jax.shaping import Shaping, accuracy_gain, required_contribution


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """A population whose models have been trained.

    Attributes:
      devices, server: with the payoffs by which they decide; the devices' accuracy curve plays no part.
      samples: what each device uses alone, m_i^o, [n]; shaping counts from there.
      accuracy_local: of each device's own model, [n].
      accuracy_federated: of the federated model, [].
      epsilon: eps of RealFM.
    """

    devices: Devices
    server: Server
    samples: np.ndarray
    accuracy_local: np.ndarray
    accuracy_federated: float
    epsilon: float = 1e-9

    @property
    def cost(self) -> np.ndarray:
        """c_i, [n]."""
        return np.broadcast_to(np.asarray(self.devices.cost, float), len(self.samples))

    @property
    def accuracy_best(self) -> np.ndarray:
        """What a device has after giving all that is asked, [n]: its own model may be the better one."""
        return np.maximum(self.accuracy_federated, self.accuracy_local)

    def asked(self, shaping: Shaping, rate: float = 0.0) -> np.ndarray:
        """m_i^*: where shaping has lifted each device to the federated accuracy, [n]; never below m_i^o."""
        found = required_contribution(
            self.accuracy_local,
            self.accuracy_best,
            self.samples,
            self.cost,
            self.devices.payoff,
            shaping=shaping,
            reward_rate=rate,
            epsilon=self.epsilon,
        )
        return np.asarray(found)

    def reward_rate(self, shaping: Shaping) -> float:
        """r(m) at m = m^*, which r raises in turn: the root of r S(r) = (1 - p_m) phi_C(a_fed)."""
        from scipy.optimize import brentq

        purse = (1 - float(self.server.profit_margin)) * float(self.server.payoff(self.accuracy_federated))
        highest = float(self.cost.min())
        if purse <= 0:
            return 0.0
        if not (self.accuracy_federated > self.accuracy_local).any():
            return min(purse / float(self.samples.sum()), highest)

        def missing(rate: float) -> float:
            return rate * float(self.asked(shaping, rate).sum()) - purse

        return (
            highest
            if missing(highest) < 0
            else float(brentq(missing, 0.0, highest, xtol=1e-18, rtol=1e-12))
        )

    def earned(self, contribution: ArrayLike, shaping: Shaping, rate: float = 0.0) -> np.ndarray:
        """a^r_i of devices that give so much, [n]: own accuracy and gamma, at most the federated one."""
        extra = np.maximum(np.asarray(contribution, float) - self.samples, 0.0)
        gained = accuracy_gain(
            self.accuracy_local,
            extra,
            self.cost,
            self.devices.payoff,
            shaping=shaping,
            reward_rate=rate,
            epsilon=self.epsilon,
        )
        return np.minimum(self.accuracy_local + np.asarray(gained), self.accuracy_best)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What one mechanism comes to, devices' fields [n]; `common_*`: by the power payoff for everybody."""

    contribution: np.ndarray
    accuracy: np.ndarray
    money: np.ndarray
    utility: np.ndarray
    common_utility: np.ndarray
    server_accuracy: float
    server_utility: float
    common_server_utility: float


def outcomes(measured: Measured, judges: tuple[Devices, Server]) -> dict[str, Outcome]:
    """The same devices and models under four mechanisms.

    Local: nobody federates; the server is worth what the mean local model is (the paper's reading).
    EqualShare: everybody gets the federated model for what it uses alone anyway. RealFM, Taylor and exact:
    everybody gives m_i^* and gets the federated model. `judges` have the common payoff.
    """
    fed, alone = measured.accuracy_federated, measured.accuracy_local
    nothing = np.zeros(len(measured.samples))
    found = {
        "Local": _outcome(measured, judges, measured.samples, alone, nothing, float(alone.mean())),
        "EqualShare": _outcome(measured, judges, measured.samples, measured.accuracy_best, nothing, fed),
    }
    shapings: dict[str, Shaping] = {"RealFM": "taylor", "RealFM exact": "exact"}
    for name, shaping in shapings.items():
        rate = measured.reward_rate(shaping)
        asked = measured.asked(shaping, rate)
        money = rate * (asked - measured.samples)
        found[name] = _outcome(measured, judges, asked, measured.accuracy_best, money, fed)
    return found


def _outcome(
    measured: Measured,
    judges: tuple[Devices, Server],
    contribution: np.ndarray,
    accuracy: np.ndarray,
    money: np.ndarray,
    server_accuracy: float,
) -> Outcome:
    def utility(payoff: Any) -> np.ndarray:
        return np.asarray(payoff(accuracy)) + money - measured.cost * contribution

    def server_utility(server: Server) -> float:
        return float(server.profit_margin * server.payoff(server_accuracy))

    return Outcome(
        contribution=contribution,
        accuracy=accuracy,
        money=money,
        utility=utility(measured.devices.payoff),
        common_utility=utility(judges[0].payoff),
        server_accuracy=server_accuracy,
        server_utility=server_utility(measured.server),
        common_server_utility=server_utility(judges[1]),
    )
