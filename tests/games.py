"""Random games, each for the package and for the reference."""

import numpy as np
import reference

import realfm_jax as rfm


def of_package(game: reference.Game) -> rfm.Game:
    """The same game, for the package."""
    curve = {"bound": rfm.GeneralizationBound, "inverse_sqrt": rfm.InverseSqrt}[game.curve]
    a_opt = game.a_opt[0] if np.ptp(game.a_opt) == 0 else game.a_opt
    kind, scale, exponent = game.server_payoff
    paid = rfm.PowerPayoff(scale, exponent) if kind == "power" else rfm.LinearPayoff(scale)
    power, linear = rfm.PowerPayoff(game.z, game.b), rfm.LinearPayoff(game.z)
    mechanisms = {
        "realfm": rfm.RealFM(game.shaping, game.epsilon, game.money),
        "equal_share": rfm.EqualShare(),
        "local_only": rfm.LocalOnly(),
    }
    return rfm.Game(
        rfm.Devices(
            cost=game.cost,
            accuracy=curve(a_opt=a_opt, k=game.k),
            payoff=power if game.payoff == "power" else linear,
        ),
        rfm.Server(payoff=paid, profit_margin=game.profit_margin),
        mechanisms[game.mechanism],
    )


def random_game(seed: int, n: int, equal_a_opt: bool = True, **fixed: object) -> reference.Game:
    """Costs over 6 decades, k 0.01-1000, exponents 1-4, any profit margin; `fixed` overrides."""
    rng = np.random.default_rng(seed)
    center, spread = rng.uniform(-6, -2), rng.choice([0.0, 0.1, 1.0, 3.0])
    a_opt = np.full(n, rng.uniform(0.3, 0.999))
    if not equal_a_opt:
        width = rng.choice([0.01, 0.1, 0.5])
        a_opt = np.clip(a_opt + width * rng.uniform(-1, 1, n), 0.3, 0.999)
    drawn = {
        "cost": 10 ** np.clip(center + spread * rng.uniform(-1, 1, n), -7, -1),
        "z": rng.uniform(0.5, 2.0, n),
        "b": rng.uniform(1, 4, n) if rng.random() < 0.5 else np.full(n, rng.choice([1.0, 2.0, 4.0])),
        "a_opt": a_opt,
        "k": 10 ** rng.uniform(-2, 3),
        "server_payoff": ("power", float(rng.uniform(0.5, 2)), float(rng.choice([1.0, 2.0, 3.0]))),
        "profit_margin": float(rng.choice([0.0, 0.2, 0.5, 0.9, 1.0])),
        "epsilon": 10 ** float(rng.uniform(-10, -7)),
    }
    return reference.Game(**(drawn | fixed))


def distance(found: object, wanted: np.ndarray) -> float:
    """Largest relative difference of contributions; below a billionth of the total they are zero."""
    m = np.asarray(found, float)
    return float(np.max(np.abs(m - wanted) / np.maximum(wanted, 1e-9 * wanted.sum() + 1e-300)))
