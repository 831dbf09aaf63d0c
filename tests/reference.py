"""Brute-force float64 NumPy/SciPy reference for the RealFM game, independent of the package.

Everything is written with errors e = 1 - a, so nothing cancels when accuracies approach one.
Arrays broadcast: `i` indexes devices, `x` is the contribution of device i, and (S, E) are the
total data and the data-weighted mean of 1 - a_opt, x included.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import numpy as np

Array = np.ndarray
TINY = 1e-100


@dataclass(frozen=True, eq=False)
class Game:
    """All the numbers of one game; the first four fields broadcast to [n]."""

    cost: Array
    z: Array
    b: Array
    a_opt: Array
    k: float
    payoff: str = "power"  # or "linear"
    curve: str = "bound"  # or "inverse_sqrt"
    server_payoff: tuple[str, float, float] = ("power", 1.0, 2.0)  # kind, scale, exponent
    profit_margin: float = 1.0
    shaping: str = "taylor"  # or "exact"
    epsilon: float = 1e-9
    money: str = "capped"  # or "paper"
    mechanism: str = "realfm"  # or "equal_share", "local_only"

    def __post_init__(self) -> None:
        names = ("cost", "z", "b", "a_opt")
        values = [np.atleast_1d(np.asarray(getattr(self, name), float)) for name in names]
        for name, value in zip(names, np.broadcast_arrays(*values), strict=True):
            object.__setattr__(self, name, np.array(value))

    @cached_property
    def local(self) -> Array:
        """Cached local optimum m^o [n]."""
        return local_optimum(self)

    @cached_property
    def limit(self) -> Array:
        """Contributions [n] whose cost exceeds any possible payoff and money."""
        e = 1 - self.a_opt.max()
        money = (1 - self.profit_margin) * payoff(*self.server_payoff, e)[0]
        return 1.01 * (payoff(self.payoff, self.z, self.b, e)[0] + money) / self.cost


def payoff(kind: str, z, b, e):
    """phi, phi' and phi'' at accuracy 1 - e."""
    if kind == "linear":
        return z * (1 - e), z + 0 * e, 0 * e
    slope = z * b * e ** (-b - 1)
    return z * np.expm1(-b * np.log(e)), slope, slope * (b + 1) / e


def curve_error(game: Game, e_opt, m):
    """Error 1 - a(m) and the slope a'(m), which is 0 where a = 0."""
    if game.curve == "inverse_sqrt":
        m = np.maximum(m, TINY)
        gap, slope = 2 * np.sqrt(game.k / m), np.sqrt(game.k) / m**1.5
    else:  # below k/e the gap exceeds 1 anyway; above, it decreases
        m = np.maximum(m, game.k / np.e)
        q = np.sqrt(2 * game.k * (2 + np.log(m / game.k)))
        gap, slope = (q + 4) / np.sqrt(m), ((q + 4) / 2 - game.k / q) / m**1.5
    return np.minimum(e_opt + gap, 1.0), np.where(e_opt + gap < 1, slope, 0.0)


def accuracy(game: Game, i, m):
    """a_i(m) of device i alone."""
    return 1 - curve_error(game, 1 - game.a_opt[i], np.asarray(m, float))[0]


def server_accuracy(game: Game, S, A):
    """a_C at total data S and data-weighted mean optimum A."""
    return np.where(np.asarray(S) > 0, 1 - curve_error(game, 1 - np.asarray(A, float), S)[0], 0.0)


def bisect(up: Callable[[Array], Array], lo: Array, hi: Array, steps: int = 100):
    """Narrow [lo, hi] elementwise to where `up` turns from true (at lo) to false (at hi)."""
    for _ in range(steps):
        mid = (lo + hi) / 2
        yes = up(mid)
        lo, hi = np.where(yes, mid, lo), np.where(yes, hi, mid)
    return lo, hi


def local_optimum(game: Game) -> Array:
    """Global maximisers of phi_i(a_i(m)) - c_i m: dense log grid, then a root of the slope."""
    c, z, b, e_opt = (v[:, None] for v in (game.cost, game.z, game.b, 1 - game.a_opt))

    def utility(m):
        e, slope = curve_error(game, e_opt, m)
        value, value_slope, _ = payoff(game.payoff, z, b, e)
        return value - c * m, value_slope * slope - c

    top = np.log(game.limit[:, None])
    start = bisect(lambda t: curve_error(game, e_opt, np.exp(t))[0] >= 1, top - 100, top)[1]
    grid = np.exp(start + (top - start) * np.linspace(0, 1, 3000))
    best = np.clip(np.argmax(utility(grid)[0], axis=1)[:, None], 1, grid.shape[1] - 2)
    lo, hi = (np.take_along_axis(grid, best + step, 1) for step in (-1, 1))
    m = bisect(lambda m: utility(m)[1] > 0, lo, hi)[0]
    return np.where(utility(m)[0] > 0, m, 0)[:, 0]


def payoff_lift(game: Game, i, ebar, e):
    """phi_i(1 - e) - phi_i(1 - ebar) without cancellation; 0 for e > ebar."""
    g, z, b = np.maximum(ebar - e, 0), game.z[i], game.b[i]
    return z * g if game.payoff == "linear" else z * ebar**-b * np.expm1(-b * np.log1p(-g / ebar))


def surplus(game: Game, i, ebar, gamma):
    """What gamma lifts phi by beyond its worth under the shaping rule, and the slope in gamma."""
    z, b = game.z[i], game.b[i]
    if game.payoff == "linear" or game.shaping == "exact":
        return 0 * gamma, 0 * gamma
    p1 = payoff(game.payoff, z, b, ebar)[1]
    t = np.minimum(gamma / ebar, 1 - 1e-12)
    beyond = z * ebar**-b * (np.expm1(-b * np.log1p(-t)) - b * t * (1 + (b + 1) * t / 2))
    slope = p1 * (np.expm1(-(b + 1) * np.log1p(-t)) - (b + 1) * t)
    return np.maximum(beyond, 0), np.maximum(slope, 0)


def shaped_gain_of(game: Game, i, ebar, y):
    """Gamma worth y by the shaping rule, and d gamma/dy."""
    z, b = game.z[i], game.b[i]
    if game.payoff == "linear":
        return y / z, 1 / z + 0 * y
    if game.shaping == "exact":  # d gamma/dy is not needed: nothing lies beyond y
        return -ebar * np.expm1(-np.log1p(y / z * ebar**b) / b), 0 * y
    _, p1, p2 = payoff(game.payoff, z, b, ebar)
    gamma = 2 * y / (p1 + np.sqrt(p1**2 + 2 * p2 * y))
    return gamma, 1 / (p1 + p2 * gamma)


def server_side(game: Game, i, S, E):
    """Server error, d a_C/dx_i, r and dr/dx_i at totals (S, E)."""
    S = np.maximum(S, TINY)
    ec, curve_slope = curve_error(game, E, S)
    ac_slope = np.where(ec < 1, curve_slope + (E - (1 - game.a_opt[i])) / S, 0.0)
    value, slope, _ = payoff(*game.server_payoff, ec)
    r = (1 - game.profit_margin) * value / S
    return ec, ac_slope, r, ((1 - game.profit_margin) * slope * ac_slope - r) / S


def outlook(game: Game, i, x, so, to) -> SimpleNamespace:
    """Device i contributing x against others of total so and e_opt-weighted total to.

    `gain` is utility beyond the local optimum's (beyond 0 in other mechanisms) for x >= m^o, and
    `slope` its derivative in x; both are free of cancellation where eps is all that is gained.
    """
    c, z, b, e_opt = game.cost[i], game.z[i], game.b[i], 1 - game.a_opt[i]
    own, own_slope = curve_error(game, e_opt, x)
    E = (to + x * e_opt) / np.maximum(so + x, TINY)
    ec, ac_slope, r, r_slope = server_side(game, i, so + x, E)
    if game.mechanism != "realfm":
        is_own = (own <= ec) | (game.mechanism == "local_only")
        e, a_slope = np.where(is_own, own, ec), np.where(is_own, own_slope, ac_slope)
        value, value_slope, _ = payoff(game.payoff, z, b, e)
        slope = value_slope * a_slope - c
        return SimpleNamespace(e=e, ec=ec, r=r, money=0 * e, gain=value - c * x, slope=slope, own=is_own)
    mo, eps = game.local[i], game.epsilon
    d, ebar = np.maximum(x - mo, 0), curve_error(game, e_opt, mo)[0]
    literal = game.money == "paper"
    s = np.maximum(c - literal * r + eps, 0)
    s_slope = np.where(s > 0, -literal * r_slope, 0)
    gamma, per_y = shaped_gain_of(game, i, ebar, s * d)
    # alone without money the shaped model never binds (it is tangent to the own one at m^o)
    is_shaped = (gamma <= ebar - ec) & (gamma >= ebar - own) & ((so > 0) | (r > 0))
    is_own = ~is_shaped & (own <= np.maximum(ebar - gamma, ec))
    e = np.where(x <= mo, own, np.minimum(np.maximum(ebar - gamma, ec), own))
    a_slope = np.where(is_own, own_slope, ac_slope)
    g = np.maximum(ebar - e, 0)
    beyond, beyond_slope = surplus(game, i, ebar, np.where(is_shaped, gamma, g))
    _, value_slope, _ = payoff(game.payoff, z, b, e)
    lift = payoff_lift(game, i, ebar, e)
    by_rate_gain, by_rate_slope = lift + (r - c) * d, value_slope * a_slope + r + r_slope * d - c
    if literal:
        slack = np.where(s > 0, eps, r - c)
        shaped_gain = beyond + slack * d
        shaped_slope = beyond_slope * per_y * (s + s_slope * d) + slack
        gain = np.where(is_shaped, shaped_gain, by_rate_gain)
        slope = np.where(is_shaped, shaped_slope, by_rate_slope)
        return SimpleNamespace(e=e, ec=ec, r=r, money=r * d, gain=gain, slope=slope, own=is_own)
    # Accuracy pays first; money pays what is then still owed, at most r per sample.
    owed = np.where(is_shaped, 0, np.maximum(s * d - (lift - beyond), 0))
    by_rate = ~is_shaped & (r * d < owed)
    is_over = ~is_shaped & (owed == 0)  # the model is worth more than what is owed
    gain = np.where(by_rate, by_rate_gain, np.where(is_over, lift - c * d, beyond + eps * d))
    settled_slope = beyond_slope * np.where(is_shaped, per_y * s, a_slope) + eps
    over_slope = value_slope * a_slope - c
    slope = np.where(by_rate, by_rate_slope, np.where(is_over, over_slope, settled_slope))
    money = np.minimum(r * d, owed)
    return SimpleNamespace(e=e, ec=ec, r=r, money=money, gain=gain, slope=slope, own=is_own)


def totals_of_others(game: Game, i: Array, m: Array) -> tuple[Array, Array]:
    """Totals of everybody but i [K], summed without subtraction."""
    keep = np.arange(m.size) != i[:, None]
    return (keep * m).sum(1), (keep * (m * (1 - game.a_opt))).sum(1)


def rewards(game: Game, m: Array) -> SimpleNamespace:
    """Device accuracy, money, utility [n]; server accuracy a_C, reward rate r, server utility."""
    m, i = np.asarray(m, float), np.arange(game.cost.size)
    state = outlook(game, i, m, *totals_of_others(game, i, m))
    utility = payoff(game.payoff, game.z, game.b, state.e)[0] + state.money - game.cost * m
    given = {"accuracy": 1 - state.e, "money": state.money, "utility": utility}
    server = game.profit_margin * payoff(*game.server_payoff, state.ec[0])[0]
    return SimpleNamespace(**given, a_C=1 - state.ec[0], r=state.r[0], server=server)


def utility_of_deviation(game: Game, i: int, values: Array, m: Array) -> Array:
    """u_i when device i alone changes its contribution to each of `values`."""
    x, one = np.asarray(values, float), np.array([i])
    state = outlook(game, i, x, *totals_of_others(game, one, np.asarray(m, float)))
    return payoff(game.payoff, game.z[i], game.b[i], state.e)[0] + state.money - game.cost[i] * x


def best_answers(game: Game, i: Array, so: Array, to: Array, points: int = 1200) -> tuple[Array, Array]:
    """Global best responses of devices i [K] to totals (so, to) [K] of the others; their gains."""
    i, so, to = i[:, None], so[:, None], to[:, None]
    base = game.local[i] if game.mechanism == "realfm" else 0 * so  # nothing below m^o is better
    d = game.limit[i] * np.append(0, np.logspace(-20, 0, points))
    state = outlook(game, i, base + d, so, to)
    up = state.slope >= 0
    up[:, 0], up[:, -1] = True, False
    score = np.maximum(state.gain[:, 1:], state.gain[:, :-1])
    score = np.where(up[:, :-1] & ~up[:, 1:], score, -np.inf)  # cells that hold a local maximum
    cell = np.argsort(-score, axis=1, kind="stable")[:, :4]
    lo, hi = (np.take_along_axis(d, cell + step, 1) for step in (0, 1))
    for _ in range(14):  # 17-section on the sign of the slope: smooth maxima and kinks alike
        d = lo[..., None] + (hi - lo)[..., None] * np.linspace(0, 1, 18)
        d[..., -1] = hi
        up = outlook(game, i, base + d.reshape(i.size, -1), so, to).slope.reshape(d.shape) >= 0
        up[..., 0], up[..., -1] = True, False
        turn = np.argmin(up, axis=-1)[..., None]
        lo, hi = (np.take_along_axis(d, turn - step, -1)[..., 0] for step in (1, 0))
    x = base + np.append(lo, 0 * so, axis=1)
    gain = outlook(game, i, x, so, to).gain
    pick = np.argmax(gain, axis=1)[:, None]
    return np.take_along_axis(x, pick, 1)[:, 0], np.take_along_axis(gain, pick, 1)[:, 0]


def best_response(game: Game, i: int, m: Array) -> float:
    """Global argmax over m_i >= 0 of device i's utility, the others' contributions given."""
    one = np.array([i])
    return float(best_answers(game, one, *totals_of_others(game, one, np.asarray(m, float)))[0][0])


def regret(game: Game, m: Array) -> Array:
    """Per device: what its best deviation gains over m_i."""
    m, i = np.asarray(m, float), np.arange(game.cost.size)
    x, _ = best_answers(game, i, *totals_of_others(game, i, m))
    best = np.array([utility_of_deviation(game, j, x[j], m)[0] for j in i])
    return np.maximum(best - rewards(game, m).utility, 0)
