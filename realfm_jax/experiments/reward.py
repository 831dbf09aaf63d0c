"""Phase C: each device gets a model of the accuracy that it earned."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from realfm_jax.experiments.experiment import Experiment
from realfm_jax.experiments.outcome import Measured

if TYPE_CHECKING:
    from realfm_jax.federated import Dataset, Delivery, Run


class Reward(NamedTuple):
    """One case for all devices: so much was given, such models were promised, such were delivered."""

    contribution: np.ndarray
    promised: np.ndarray
    achieved: np.ndarray
    interval: np.ndarray
    own: np.ndarray
    """Devices that keep their own model, because the federated one cannot be made into what they earned."""
    delivery: "Delivery | None"


def reward(
    experiment: Experiment,
    data: "Dataset",
    federated: "Run",
    measured: Measured,
    gave: np.ndarray,
    progress: bool | None,
) -> tuple[float, dict[str, Reward]]:
    """Step 8: models for what devices gave, and for half of what shaping asks of them beyond m_i^o.

    Who gives all that is asked gets the federated model itself, which needs no making.
    """
    shaping = experiment.shaping
    rate = measured.reward_rate(shaping)
    half = (measured.samples + measured.asked(shaping, rate)) / 2
    # Where shards are squeezed nobody goes home with these models; one way for all saves most of the work.
    ways = "own" if experiment.data == "decided" else "shared"
    found = {}
    for case, contribution in {"gave": gave.astype(float), "half": half}.items():
        promised = measured.earned(contribution, shaping, rate)
        found[case] = _deliver(
            experiment.seed, data, federated, measured, contribution, promised, ways, progress
        )
    return rate, found


def _deliver(
    seed: int,
    data: "Dataset",
    federated: "Run",
    measured: Measured,
    contribution: np.ndarray,
    promised: np.ndarray,
    ways: Any,
    progress: bool | None,
) -> Reward:
    """A model for each promise, measured on the test images, as the accuracies it was computed from."""
    from realfm_jax.federated.delivery import deliver, wilson

    own = (promised > measured.accuracy_federated) | (promised < 1 / len(data.classes))
    total = len(data.test)
    achieved = measured.accuracy_local.copy()
    delivery = None
    if not own.all():
        delivery = deliver(
            federated.module,
            federated.model,
            promised[~own],
            data,
            key=seed,
            ways=ways,
            progress=progress,
        )
        achieved[~own] = delivery.achieved
    interval = wilson(np.round(achieved * total), total)
    return Reward(contribution, promised, achieved, interval, own, delivery)
