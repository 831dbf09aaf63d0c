"""`python -m realfm_jax.experiments.cifar`: the paper's CIFAR-10 experiments."""

import dataclasses

from realfm_jax.experiments.experiment import Experiment

_PAPER = Experiment(
    dataset="cifar10",
    preset="paper",
    devices=16,
    curve="bound",
    a_opt=0.95,
    k=10.0,
    cost=2.5e-4,
    data="squeezed",
    model="resnet18",
    optimizer="sgd",
    learning_rate=0.05,
    epochs=100,
    batch=128,
    local_steps=6,
)
PRESETS: dict[str, Experiment] = {
    "paper": _PAPER,
    # ResNet-8 takes a sixteenth of ResNet-18's time for a step on a CPU, and is still a residual network
    # with batch normalisation; batches of 32 give four times the steps in an epoch.
    "small": dataclasses.replace(
        _PAPER, preset="small", model="resnet8", epochs=10, batch=32, score_every=5
    ),
}
"""`paper` is its table of hyper-parameters to the letter; the game is the same in both."""

if __name__ == "__main__":
    from realfm_jax.experiments.command import main

    raise SystemExit(main("cifar"))
