"""`python -m realfm_jax.experiments.digits`: the whole story on the digits that come with the package.

The paper has no such experiment: payoff and cost are ours, chosen so that devices want to give tens of
images and not millions. (With the paper's exponent of 2 and a curve that ends near 1, phi(a(m)) is all but
linear in m: a device then wants either nothing or far more than there is.) So the data that devices decide
to give are the data that they train on.
"""

from realfm_jax.experiments.experiment import Experiment

PRESETS: dict[str, Experiment] = {
    "small": Experiment(
        dataset="digits",
        preset="small",
        devices=8,
        curve="inverse-sqrt",
        cost=0.05,
        costs="normal",
        cost_spread=0.2,
        exponent=1.0,
        data="decided",
        model="digits-cnn",
        optimizer="adam",
        learning_rate=3e-3,
        epochs=30,
        batch=32,
        local_steps=2,
    )
}

if __name__ == "__main__":
    from realfm_jax.experiments.command import main

    raise SystemExit(main("digits"))
