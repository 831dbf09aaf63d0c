"""`python -m realfm_jax.experiments.mnist`: the paper's MNIST experiments."""

import dataclasses

from realfm_jax.experiments.experiment import Experiment

_PAPER = Experiment(
    dataset="mnist",
    preset="paper",
    devices=16,
    curve="inverse-sqrt",
    a_opt=0.9975,
    k=0.25,
    cost=4e-5,
    data="squeezed",
    model="mnist-cnn",
    optimizer="adam",
    learning_rate=1e-3,
    epochs=100,
    batch=128,
    local_steps=6,
)
PRESETS: dict[str, Experiment] = {
    "paper": _PAPER,
    # A laptop's minutes: a network of a sixth of the work, and batches of a quarter, hence four times the
    # steps in an epoch: a few epochs of 128 would be too few steps to converge.
    "small": dataclasses.replace(
        _PAPER, preset="small", model="compact-cnn", epochs=8, batch=32, learning_rate=3e-3, score_every=2
    ),
}
"""`paper` is its table of hyper-parameters to the letter; the game is the same in both."""

if __name__ == "__main__":
    from realfm_jax.experiments.command import main

    raise SystemExit(main("mnist"))
