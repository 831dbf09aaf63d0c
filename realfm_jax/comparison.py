"""The same devices under every mechanism, and what each of them brings whom."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from realfm_jax.accuracy import GeneralizationBound, InverseSqrt
from realfm_jax.certificate import Certificate, certify
from realfm_jax.equilibrium import Equilibrium, solve
from realfm_jax.formats import text_table
from realfm_jax.game import Devices, Game, Server
from realfm_jax.mechanism import EqualShare, LocalOnly, RealFM, device_utility, server_utility
from realfm_jax.payoff import LinearPayoff, PowerPayoff

CURVES: dict[str, type[GeneralizationBound | InverseSqrt]] = {
    "bound": GeneralizationBound,
    "inverse-sqrt": InverseSqrt,
}
"""Accuracy curves by name."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A population of devices as the paper draws it (section "Experimental Setup").

    Attributes:
      curve: "bound" (eq:gen-bound) or "inverse-sqrt" (eq:acc2), with its `a_opt` and `k`.
      devices: n.
      cost: c_e, mean marginal cost; each device's is Normal(cost, cost_spread * cost).
      payoff_spread: payoff scales are uniform in 1 +- payoff_spread.
      exponent: of the power payoff.
      profit_margin: p_m.
      epsilon: eps of RealFM.
      seed: of the draws.
    """

    curve: str = "bound"
    a_opt: float = 0.95
    k: float = 10.0
    devices: int = 16
    cost: float = 2.5e-4
    cost_spread: float = 0.05
    payoff_spread: float = 0.1
    exponent: float = 2.0
    profit_margin: float = 1.0
    epsilon: float = 1e-9
    seed: int = 0

    def draw(self) -> Devices:
        """The devices, drawn."""
        if self.devices < 1:
            raise ValueError(f"devices must be at least 1; got {self.devices}")
        if not 0 <= self.payoff_spread < 1:
            raise ValueError(f"payoff_spread must be in [0, 1); got {self.payoff_spread}")
        if self.cost <= 0:
            raise ValueError(f"cost must be > 0; got {self.cost}")
        if self.cost_spread < 0:
            raise ValueError(f"cost_spread must be >= 0; got {self.cost_spread}")
        if self.curve not in CURVES:
            raise ValueError(f"curve must be one of {', '.join(CURVES)}; got {self.curve!r}")
        draw = np.random.default_rng(self.seed)
        cost = draw.normal(self.cost, self.cost_spread * self.cost, self.devices)
        scale = draw.uniform(1 - self.payoff_spread, 1 + self.payoff_spread, self.devices)
        return Devices(
            cost=cost,
            accuracy=CURVES[self.curve](a_opt=self.a_opt, k=self.k),
            payoff=PowerPayoff(scale=scale, exponent=self.exponent),
        )

    def server(self) -> Server:
        """The server."""
        return Server(payoff=PowerPayoff(exponent=self.exponent), profit_margin=self.profit_margin)


SETTINGS = {
    "cifar10": Setting(),
    "mnist": Setting(curve="inverse-sqrt", a_opt=0.9975, k=0.25, cost=4e-5),
}
"""The paper's two: hyper-parameter tables of its appendix."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One mechanism's equilibrium, with utilities under its own and under the common payoff.

    Attributes:
      equilibrium: as `solve` found it, under the payoff with which the devices decided.
      certificate: its check.
      common_utility: utility of each device if the power payoff measures everybody, [n].
      common_server_utility: of the server, likewise, [].
    """

    equilibrium: Equilibrium
    certificate: Certificate
    common_utility: Array
    common_server_utility: Array


def games(setting: Setting) -> dict[str, Game]:
    """The setting under each mechanism."""
    return rivals(setting.draw(), setting.server(), setting.epsilon)


def rivals(devices: Devices, server: Server, epsilon: float) -> dict[str, Game]:
    """The same devices under each mechanism. Linear RealFM decides with phi(a) = a, as in the paper."""
    linear = dataclasses.replace(devices, payoff=LinearPayoff())
    linear_server = dataclasses.replace(server, payoff=LinearPayoff())
    taylor = RealFM(shaping="taylor", epsilon=epsilon)
    return {
        "LocalOnly": Game(devices, server, LocalOnly()),
        "EqualShare": Game(devices, server, EqualShare()),
        "Linear RealFM": Game(linear, linear_server, taylor),
        "RealFM": Game(devices, server, taylor),
        "RealFM exact": Game(devices, server, RealFM(shaping="exact", epsilon=epsilon)),
    }


def play(game: Game, measured_by: Game) -> Outcome:
    """Solve and certify a game, and measure its outcome with the payoffs of another one."""
    found = solve(game)
    judge = measured_by.devices
    utility = judge.map(device_utility, found.contribution, found.error, found.money)
    gained = server_utility(measured_by.server, found.server_error)
    return Outcome(found, certify(game, found), utility, gained)


COLUMNS = (
    ("", "mechanism"),
    ("samples", "/ device"),
    ("server", "accuracy"),
    ("devices'", "accuracy"),
    ("server u", "own phi"),
    ("devices' u", "own phi"),
    ("server u", "same phi"),
    ("devices' u", "same phi"),
    ("free", "ride"),
    ("regret", ""),
)
"""Headings of the table; u: utility, mean over devices; see the command line's help for the two phi."""


def table(outcomes: dict[str, Outcome]) -> str:
    """Means over the devices, one line per mechanism, as text."""
    rows = []
    for name, outcome in outcomes.items():
        found = outcome.equilibrium
        numbers: list[tuple[Any, str]] = [
            (found.contribution.mean(), ",.0f"),
            (found.server_accuracy, ".4f"),
            (found.accuracy.mean(), ".4f"),
            (found.server_utility, ",.3f"),
            (found.utility.mean(), ",.3f"),
            (outcome.common_server_utility, ",.3f"),
            (outcome.common_utility.mean(), ",.3f"),
            (outcome.certificate.free_ride.mean(), ".3f"),
            (outcome.certificate.relative_regret, ".0e"),
        ]
        rows.append([name, *(format(float(jnp.asarray(value)), spec) for value, spec in numbers)])
    return text_table(list(zip(*COLUMNS, strict=True)), rows)
