"""RealFM on JAX: incentives for federated learning that can be solved, certified and differentiated."""

from realfm_jax._version import __version__
from realfm_jax.accuracy import GeneralizationBound, InverseSqrt, largest_root
from realfm_jax.certificate import Certificate, certify
from realfm_jax.equilibrium import Equilibrium, outcome_at, solve
from realfm_jax.fit import Fit, fit_accuracy
from realfm_jax.game import Devices, Federation, Game, Mechanism, Server
from realfm_jax.local import LocalOptimum, local_optimum, local_utility
from realfm_jax.mechanism import EqualShare, LocalOnly, RealFM, Rewards, rewards
from realfm_jax.parameters import parameters, replace
from realfm_jax.payoff import LinearPayoff, PowerPayoff
from realfm_jax.shaping import Shaping, accuracy_gain, required_contribution
from realfm_jax.sweep import sweep

__all__ = [
    "Certificate",
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
    "fit_accuracy",
    "largest_root",
    "local_optimum",
    "local_utility",
    "outcome_at",
    "parameters",
    "replace",
    "required_contribution",
    "rewards",
    "solve",
    "sweep",
]
