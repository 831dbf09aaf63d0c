"""One experiment from beginning to end: devices decide, train alone and together, and get what they earned.

The three phases of the paper's mechanism diagram, which hold the eight steps of its experimental process:
(A) decide: curve, costs and payoffs, local optima (1 to 4); (B) train, from one initial model (5 to 7);
(C) reward: what shaping asks for, models handed out, money (8).
"""

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from realfm_jax.certificate import Certificate, certify
from realfm_jax.comparison import CURVES
from realfm_jax.equilibrium import Equilibrium, solve
from realfm_jax.experiments.experiment import Experiment, images_used
from realfm_jax.experiments.outcome import Measured, Outcome, outcomes
from realfm_jax.experiments.place import Place
from realfm_jax.experiments.reward import Reward, reward
from realfm_jax.fit import fit_accuracy
from realfm_jax.game import Game
from realfm_jax.mechanism import RealFM

if TYPE_CHECKING:
    from realfm_jax.federated import Dataset, Partition, Run

FIT_SIZES = (16, 32, 64, 128, 256, 512)
"""Shards whose accuracies a curve is fitted to, if a_opt and k are not given."""


class Decision(NamedTuple):
    """Phase A: what devices do by theory, and the data they are given to train on."""

    game: Game
    equilibrium: Equilibrium
    certificate: Certificate
    alone: np.ndarray
    """Images that each device uses alone, [n]."""
    together: np.ndarray
    """Images that each device brings to the federation, [n]."""
    fitted: dict[str, Any] | None
    """Sizes and accuracies that the curve was fitted to, and how well; None if the curve was given."""


class Trained(NamedTuple):
    """Phase B: the models."""

    shards: "Partition"
    local: "Run"
    federated: "Run"


class Finished(NamedTuple):
    """All of a run."""

    experiment: Experiment
    data: "Dataset"
    decision: Decision
    trained: Trained
    measured: Measured
    outcomes: dict[str, Outcome]
    rate: float
    """r(m) with everybody at m_i^*."""
    rewards: dict[str, Reward]
    timings: dict[str, float]


def run(
    experiment: Experiment,
    data: "Dataset",
    place: Place,
    progress: bool | None = None,
    say: Callable[[str], None] = print,
) -> Finished:
    """Run an experiment; whatever of it `place` already holds is taken from there."""
    timings: dict[str, float] = {}

    def timed(name: str, phase: Callable[..., Any], *args: Any) -> Any:
        begun = time.perf_counter()
        found = phase(*args)
        timings[name] = time.perf_counter() - begun
        return found

    say("(A) Devices decide")
    experiment, decision = timed("decide", decide, experiment, data, place, progress)
    say(_decided(decision))
    say("(B) Training, alone and together")
    trained = timed("train", train, experiment, data, decision, place, progress)
    measured = measure(experiment, data, decision, trained)
    say(_trained(measured))
    say("(C) Rewards")
    found = outcomes(measured, experiment.judges())
    rate, rewards = timed(
        "reward", reward, experiment, data, trained.federated, measured, decision.together, progress
    )
    return Finished(experiment, data, decision, trained, measured, found, rate, rewards, timings)


def decide(
    experiment: Experiment, data: "Dataset", place: Place, progress: bool | None
) -> tuple[Experiment, Decision]:
    """Steps 1 to 4, and the equilibrium; returns the experiment with the curve that was fitted."""
    fitted = None
    if experiment.a_opt is None:
        fitted = _fit(experiment, data, place, progress)
        experiment = dataclasses.replace(experiment, a_opt=fitted["a_opt"], k=fitted["k"])
    devices, server = experiment.population()
    game = Game(devices, server, RealFM(shaping=experiment.shaping, epsilon=experiment.epsilon))
    equilibrium = solve(game)
    alone, asked = (np.asarray(m) for m in (equilibrium.local.contribution, equilibrium.contribution))
    if experiment.data == "squeezed":
        alone = together = images_used(alone, len(data.train))
    else:
        share = len(data.train) // experiment.devices
        alone = np.clip(alone.astype(int), 1, share)
        together = np.clip(asked.astype(int), alone, share)
    return experiment, Decision(
        game, equilibrium, certify(game, equilibrium, probes=0), alone, together, fitted
    )


def _fit(experiment: Experiment, data: "Dataset", place: Place, progress: bool | None) -> dict[str, Any]:
    """Step 1: train alone on shards of several sizes, and fit the curve to what they reach."""
    from realfm_jax import federated

    sizes = [size for size in FIT_SIZES if size * 2 <= len(data.train)]
    shards = federated.partition(data.train.labels, sizes, key=experiment.seed)
    trained = federated.train_local(
        experiment.module(),
        data,
        shards,
        experiment.recipe(max(sizes)),
        key=experiment.seed,
        checkpoint=place.checkpoint("fit"),
        progress=progress,
    )
    accuracy = trained.curves["accuracy"].values[-1].astype(float)
    curve = _fitted(sizes, accuracy, CURVES[experiment.curve], 1 - 1 / len(data.test))
    return {
        "a_opt": float(curve.a_opt),
        "k": float(curve.k),
        "samples": sizes,
        "accuracy": accuracy,
        "residual": accuracy - np.asarray(curve(np.asarray(sizes, float))),
    }


def _fitted(sizes: list[int], accuracy: np.ndarray, family: Any, most: float) -> Any:
    """The curve of a family nearest to the accuracies, a_opt at most `most`: what one test image can tell.

    Small networks on easy images learn faster than 1 / sqrt(m); the best a_opt is then 1, and the payoff of
    a perfect model is infinite.
    """
    found = fit_accuracy(sizes, accuracy, family(a_opt=0.5, k=1.0)).curve
    if float(found.a_opt) <= most:
        return found
    from scipy.optimize import minimize_scalar

    def misfit(log_k: float) -> float:
        return float(
            np.sum((accuracy - np.asarray(family(most, np.exp(log_k))(np.asarray(sizes, float)))) ** 2)
        )

    return family(most, float(np.exp(minimize_scalar(misfit, bounds=(-20.0, 20.0)).x)))


def train(
    experiment: Experiment, data: "Dataset", decision: Decision, place: Place, progress: bool | None
) -> Trained:
    """Steps 5 to 7: from the same initial model, each device alone, and all together."""
    from realfm_jax import federated

    shards = federated.partition(
        data.train.labels, decision.together, key=experiment.seed, alpha=experiment.alpha
    )
    own = _first(shards, decision.alone, data)
    common: dict[str, Any] = {"key": experiment.seed, "progress": progress}
    module = experiment.module()
    local = federated.train_local(
        module,
        data,
        own,
        experiment.recipe(int(own.sizes.max())),
        checkpoint=place.checkpoint("local"),
        score_every=experiment.score_every,
        **common,
    )
    together = federated.train_federated(
        module,
        data,
        shards,
        experiment.recipe(int(shards.sizes.max())),
        checkpoint=place.checkpoint("federated"),
        score="global",
        **common,
    )
    return Trained(shards, local, together)


def _first(shards: "Partition", sizes: np.ndarray, data: "Dataset") -> "Partition":
    """The first so many images of each shard, which are in random order."""
    indices = tuple(shard[:size] for shard, size in zip(shards.indices, sizes, strict=True))
    classes = shards.counts.shape[1]
    counts = np.stack([np.bincount(data.train.labels[shard], minlength=classes) for shard in indices])
    return dataclasses.replace(shards, indices=indices, counts=counts)


def measure(experiment: Experiment, data: "Dataset", decision: Decision, trained: Trained) -> Measured:
    """What training came to, in the terms of the mechanism.

    A model without a fault on N images is not known to be perfect, and the power payoff of a perfect one is
    infinite: it counts as one that fails on half an image.
    """
    most = 1 - 1 / (2 * len(data.test))
    return Measured(
        decision.game.devices,
        decision.game.server,
        decision.alone.astype(float),
        np.minimum(trained.local.curves["accuracy"].values[-1].astype(float), most),
        min(float(trained.federated.curves["global_accuracy"].values[-1]), most),
        experiment.epsilon,
    )


def _decided(decision: Decision) -> str:
    found = decision.equilibrium
    optimum, asked = np.asarray(found.local.contribution), np.asarray(found.contribution)
    lines = []
    if decision.fitted:
        fit = decision.fitted
        points = ", ".join(f"{m}: {a:.3f}" for m, a in zip(fit["samples"], fit["accuracy"], strict=True))
        lines.append(f"    accuracy by number of images, alone: {points}")
        lines.append(f"    fitted curve: a_opt {fit['a_opt']:.4f}, k {fit['k']:.4g}")
    lines.append(
        f"    alone a device would use {_span(optimum)} samples, with RealFM {_span(asked)}, by theory"
    )
    lines.append(
        f"    images trained on: alone {_span(decision.alone)}, together {_span(decision.together)}"
    )
    return "\n".join(lines)


def _trained(measured: Measured) -> str:
    alone, fed = measured.accuracy_local, measured.accuracy_federated
    span = f"{alone.mean():.4f} (mean; {alone.min():.4f} to {alone.max():.4f})"
    return f"    test accuracy: alone {span}, together {fed:.4f}"


def _span(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
