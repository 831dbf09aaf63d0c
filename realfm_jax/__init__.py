"""RealFM on JAX: incentives for federated learning that can be solved, certified and differentiated."""

from realfm_jax.accuracy import GeneralizationBound, InverseSqrt, largest_root
from realfm_jax.certificate import Certificate, certify
from realfm_jax.equilibrium import Equilibrium, outcome_at, solve
from realfm_jax.fit import Fit, fit_accuracy
from realfm_jax.game import Devices, Federation, Game, Mechanism, Server
from realfm_jax.local import LocalOptimum, local_optimum, local_utility
from realfm_jax.mechanism import EqualShare, LocalOnly, RealFM, Rewards, rewards
from realfm_jax.payoff import LinearPayoff, PowerPayoff
from realfm_jax.shaping import Shaping, accuracy_gain, required_contribution
