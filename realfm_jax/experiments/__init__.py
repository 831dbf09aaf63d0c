"""The paper's experiments, end to end: `python -m realfm_jax.experiments.{digits,mnist,cifar,figures}`.

One runner for three data sets: devices decide, train alone and together, and are handed what they earned.
`Experiment` says what to run, `run` runs it into a directory, `figures` draws what directories hold.
"""
