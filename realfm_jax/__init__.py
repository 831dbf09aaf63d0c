"""RealFM on JAX: incentives for federated learning that can be solved, certified and differentiated."""

import importlib
from typing import Any

from realfm_jax._version import __version__
from realfm_jax.accuracy import GeneralizationBound, InverseSqrt, largest_root
from realfm_jax.certificate import Certificate, certify
from realfm_jax.design import Design, design
from realfm_jax.equilibrium import Equilibrium, outcome_at, solve
from realfm_jax.fit import Fit, fit_accuracy
from realfm_jax.game import Devices, Federation, Game, Mechanism, Server
from realfm_jax.local import LocalOptimum, local_optimum, local_utility
from realfm_jax.mechanism import EqualShare, LocalOnly, RealFM, Rewards, rewards
from realfm_jax.parameters import parameters, replace
from realfm_jax.pareto import pareto
from realfm_jax.payoff import LinearPayoff, PowerPayoff
from realfm_jax.sensitivity import sensitivity
from realfm_jax.shaping import Shaping, accuracy_gain, required_contribution
from realfm_jax.sweep import sweep

__all__ = [
    "Certificate",
    "Design",
    "Devices",
    "EqualShare",
    "Equilibrium",
    "Federation",
    "Fit",
    "Game",
    "GeneralizationBound",
    "InverseSqrt",
    "LinearPayoff",
    "LocalOnly",
    "LocalOptimum",
    "Mechanism",
    "PowerPayoff",
    "RealFM",
    "Rewards",
    "Server",
    "Shaping",
    "__version__",
    "accuracy_gain",
    "certify",
    "design",
    "federated",
    "fit_accuracy",
    "largest_root",
    "local_optimum",
    "local_utility",
    "outcome_at",
    "parameters",
    "pareto",
    "plots",
    "replace",
    "required_contribution",
    "rewards",
    "sensitivity",
    "solve",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """`realfm_jax.plots` and `realfm_jax.federated` on first use: they are slow to import."""
    if name in ("federated", "plots"):
        return importlib.import_module(f"realfm_jax.{name}")
    raise AttributeError(f"module 'realfm_jax' has no attribute {name!r}")
