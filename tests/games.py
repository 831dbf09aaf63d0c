"""Random games, each for the package and for the reference, and how to draw them."""

import numpy as np
import reference
from hypothesis import strategies as st

import realfm_jax as rfm

SIZES = (1, 2, 5, 16, 64)
"""Numbers of devices: few, because every one of them is compiled anew."""


def of_package(game: reference.Game) -> rfm.Game:
    """The same game, for the package."""
    curve = {"bound": rfm.GeneralizationBound, "inverse_sqrt": rfm.InverseSqrt}[game.curve]
    common = np.ptp(game.a_opt) == 0
    payoff = (
        rfm.PowerPayoff(scale=game.z, exponent=game.b)
        if game.payoff == "power"
        else rfm.LinearPayoff(scale=game.z)
    )
    kind, scale, exponent = game.server_payoff
    paid = rfm.PowerPayoff(scale, exponent) if kind == "power" else rfm.LinearPayoff(scale)
    mechanisms = {
        "realfm": lambda: rfm.RealFM(game.shaping, game.epsilon, game.money),
        "equal_share": rfm.EqualShare,
        "local_only": rfm.LocalOnly,
    }
    return rfm.Game(
        rfm.Devices(
            cost=game.cost,
            accuracy=curve(a_opt=game.a_opt[0] if common else game.a_opt, k=game.k),
            payoff=payoff,
        ),
        rfm.Server(payoff=paid, profit_margin=game.profit_margin),
        mechanisms[game.mechanism](),
    )


@st.composite
def games(draw: st.DrawFn, *, sizes: tuple[int, ...] = SIZES, equal_a_opt: bool | None = None) -> reference.Game:
    """A game: costs over 6 decades, k 0.01-1000, exponents 1-4, any profit margin, either shaping.

    Numbers come from a seeded generator, so that a failing seed is the whole example.
    """
    n = draw(st.sampled_from(sizes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    equal = draw(st.booleans()) if equal_a_opt is None else equal_a_opt
    payoff = draw(st.sampled_from(["power", "power", "linear"]))
    center, spread = rng.uniform(-6, -2), rng.choice([0.0, 0.1, 1.0, 3.0])
    cost = 10 ** np.clip(center + spread * rng.uniform(-1, 1, n), -7, -1)
    a_opt = np.full(n, rng.uniform(0.3, 0.999)) if equal else rng.uniform(0.3, 0.999, n)
    if not equal and rng.random() < 0.5:
        a_opt = np.clip(a_opt[0] + rng.uniform(-0.02, 0.02, n), 0.3, 0.999)
    return reference.Game(
        cost=cost,
        z=rng.uniform(0.5, 2.0, n),
        b=rng.uniform(1, 4, n) if rng.random() < 0.5 else np.full(n, rng.choice([1.0, 2.0, 3.0, 4.0])),
        a_opt=a_opt,
        k=10 ** rng.uniform(-2, 3),
        payoff=payoff,
        curve=draw(st.sampled_from(["bound", "inverse_sqrt"])),
        server_payoff=("power", float(rng.uniform(0.5, 2)), float(rng.choice([1.0, 2.0, 3.0]))),
        profit_margin=float(rng.choice([0.0, 0.2, 0.5, 0.9, 1.0])),
        shaping=draw(st.sampled_from(["taylor", "exact"])),
        epsilon=10 ** float(rng.uniform(-10, -7)),
    )
