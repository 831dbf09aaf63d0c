"""How long a run will take here, from a few real steps, before anybody waits for it."""

import dataclasses
import time
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from realfm_jax.experiments.experiment import Experiment, images_used
from realfm_jax.local import local_optimum

if TYPE_CHECKING:
    from realfm_jax.federated import Dataset

FEW = 200_000
"""Images, epoch by epoch, up to which training takes less time than finding out how much."""
FIXED = 40.0
"""Seconds for compiling, the equilibrium and its certificate."""
MODELS = 120
"""About so many models are measured to deliver those promised to 16 devices."""


class Estimate(NamedTuple):
    """Seconds that a run takes, and milliseconds of one step of one client (None: not measured)."""

    total: float
    step: float | None

    def __str__(self) -> str:
        if self.step is None:
            return "one to two minutes"
        return f"about {duration(self.total)} here ({self.step:.0f} ms per client-step, measured)"


def estimate(experiment: Experiment, data: "Dataset") -> Estimate:
    """Train a client on each JAX device for a few steps, and multiply."""
    if len(data.train) * experiment.epochs <= FEW:
        return Estimate(90.0, None)
    step = _step(experiment, data)
    largest = int(
        images_used(local_optimum(experiment.population()[0]).contribution, len(data.train)).max()
    )
    recipe = experiment.recipe(largest)
    steps = experiment.devices * experiment.epochs * recipe.local_steps * recipe.rounds_per_epoch(largest)
    # To score an image is a third of the work of training on it: forward, but not back.
    models = experiment.devices * experiment.epochs // experiment.score_every + experiment.epochs + MODELS
    scored = models * len(data.test)
    return Estimate(FIXED + step * (2 * steps + scored / (3 * experiment.batch)), 1e3 * step)


def _step(experiment: Experiment, data: "Dataset", rounds: int = 4) -> float:
    """Seconds of one step of one client, while all JAX devices are at work."""
    from realfm_jax import federated
    from realfm_jax.federated import Split

    clients = jax.device_count()
    few = dataclasses.replace(data, test=Split(data.test.images[:clients], data.test.labels[:clients]))
    shards = federated.partition(data.train.labels, [experiment.batch] * clients, key=0)
    recipe = dataclasses.replace(experiment.recipe(experiment.batch), local_steps=2)

    def seconds(epochs: int) -> float:  # of one round each
        begun = time.perf_counter()
        what = dataclasses.replace(recipe, epochs=epochs)
        federated.train_local(experiment.module(), few, shards, what, key=0, progress=False)
        return time.perf_counter() - begun

    seconds(1)  # compiles
    once = seconds(1)
    return max(seconds(1 + rounds) - once, 1e-6) / (rounds * clients * recipe.local_steps)


def duration(seconds: float) -> str:
    """In the unit that fits.

    >>> duration(40.0), duration(400.0), duration(40000.0), duration(4e6)
    ('40 seconds', '7 minutes', '11 hours', '47 days')
    """
    for size, unit, most in ((1, "seconds", 90), (60, "minutes", 90), (3600, "hours", 48)):
        if seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{np.ceil(seconds / 86400):.0f} days"
