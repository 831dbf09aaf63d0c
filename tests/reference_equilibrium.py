"""The reference's Nash equilibrium: scan all totals from the top, verify by global best responses."""

import numpy as np
from reference import (
    TINY,
    Array,
    Game,
    best_answers,
    bisect,
    curve_error,
    outlook,
    payoff,
    payoff_lift,
    server_side,
    surplus,
    totals_of_others,
)
from scipy.optimize import brentq, root


def _answers(game: Game, S: Array, E: Array, alone: Array) -> Array:
    """[n, K]: contributions that are locally optimal where the totals are (S, E) [K].

    The kink where shaped and server accuracy meet, or the stationary point beyond it; for devices
    marked `alone`, or whose own model beats the server's, the stationary point on the own curve.
    """
    i, more = np.arange(game.cost.size)[:, None], 4 * S  # "more than that" is any number above S
    c, z, b, e_opt, mo = game.cost[i], game.z[i], game.b[i], 1 - game.a_opt[i], game.local[i]
    ec, ac_slope, r, r_slope = server_side(game, i, S, E)
    rho = np.minimum(r, c) if game.money == "capped" else r
    ebar = curve_error(game, e_opt, mo)[0]
    beyond = payoff(game.payoff, z, b, ec)[1] * ac_slope
    if game.mechanism == "equal_share":
        return np.where(ebar <= ec, mo, np.where(beyond > c, more, 0))
    g, (_, p1, p2) = np.maximum(ebar - ec, 0), payoff(game.payoff, z, b, ebar)
    demand = payoff_lift(game, i, ebar, ec) if game.shaping == "exact" else p1 * g + p2 * g**2 / 2
    s, fall = np.maximum(c - rho + game.epsilon, 0), np.maximum(-r_slope, 1e-300)
    with np.errstate(all="ignore"):
        kink = np.where(s > 0, demand / s, (g > 0) * (rho - c) / fall)
        d = np.maximum(kink, (g > 0) * np.maximum(beyond + r - c, 0) / fall)
        x = np.fmin(mo + d, more)
    own = ((curve_error(game, e_opt, x)[0] < ec) | alone[:, None]) & (r > 0) & (mo > 0)
    if own.any():
        j, top, pay, fall = (np.broadcast_to(v, x.shape)[own] for v in (i, more, r, -r_slope))

        def up(m):
            e, slope = curve_error(game, 1 - game.a_opt[j], m)
            slope = payoff(game.payoff, game.z[j], game.b[j], e)[1] * slope
            d, local = m - game.local[j], curve_error(game, 1 - game.a_opt[j], game.local[j])[0]
            bought = payoff_lift(game, j, local, e) - surplus(game, j, local, local - e)[0]
            by_rate = slope + pay - fall * d > game.cost[j]
            owed = (game.cost[j] + game.epsilon) * d - bought
            return by_rate | ((game.money == "capped") & (owed < pay * d))

        x[own] = bisect(up, game.local[j], np.maximum(top, game.local[j]), 55)[0]
    return x


def _scan(game: Game, alone: Array) -> list[Array]:
    """Contribution vectors consistent with `_answers`, the largest total first."""
    least, most = game.local.sum() * (game.mechanism == "realfm"), (game.local + game.limit).sum()
    S = np.geomspace(2 * most, max(least * (1 - 1e-9), 1e-16 * most), 800)
    e_opt = 1 - game.a_opt
    low, high = e_opt.min(), e_opt.max()

    def excess(S, E):  # of total data, of mean e_opt, and the answers themselves
        x = _answers(game, S, E, alone)
        return x.sum(0) / S - 1, (e_opt @ x) / np.maximum(x.sum(0), TINY) - E, x

    def unpacked(v):
        return excess(np.exp(np.clip(v[:1], -200, 200)), np.clip(v[1:], low, high))

    if low == high:
        f = excess(S, low)[0] > 0
        j = np.nonzero(f[1:] != f[:-1])[0]
        lo, hi = bisect(lambda S: (excess(S, low)[0] > 0) == f[j], S[j], S[j + 1])
        x0, x1 = excess(lo, low)[2], excess(hi, low)[2]
        span = x1.sum(0) - x0.sum(0)  # large where the answers jump: share what is missing
        share = (lo - x0.sum(0)) / np.where(span == 0, np.inf, span)
        return list((x0 + np.clip(share, 0, 1) * (x1 - x0)).T)
    S, E = S[::4], np.linspace(low, high, 25)
    h = np.stack([excess(S, e)[1] > 0 for e in E])
    q, j = np.nonzero(h[1:] != h[:-1])
    E = bisect(lambda e: (excess(S[j], e)[1] > 0) == h[q, j], E[q], E[q + 1], 40)[0]
    f, found = excess(S[j], E)[0], []
    for now in range(j.size):  # pair every branch with the nearest one at the next smaller S
        later = np.nonzero(j == j[now] + 1)[0]
        then = later[np.argsort(np.abs(E[later] - E[now]))[:1]]
        if then.size and (f[now] > 0) != (f[then[0]] > 0):
            t = f[now] / (f[now] - f[then[0]])
            v = (1 - t) * np.array([np.log(S[j[now]]), E[now]])
            v = v + t * np.array([np.log(S[j[then[0]]]), E[then[0]]])
            sol = root(lambda v: np.concatenate(unpacked(v)[:2]), v, tol=1e-14)
            found.append(unpacked(sol.x)[2][:, 0])
    return sorted(found, key=lambda x: -x.sum())


def _sweep(game: Game, m: Array) -> Array:
    """One Gauss-Seidel sweep of best responses; equal devices move to their common fixed point."""
    m, e_opt = m.copy(), 1 - game.a_opt
    keys = np.stack([game.cost, game.z, game.b, game.a_opt], axis=1)
    groups = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
    for group in range(groups.max() + 1):
        rest, member = groups != group, np.nonzero(groups == group)[0]
        i, so, to = member[:1], m[rest].sum(), (m * e_opt)[rest].sum()

        def move(x, i=i, so=so, to=to, size=member.size - 1):
            x = np.atleast_1d(x)
            at = i.repeat(x.size)
            return best_answers(game, at, so + size * x, to + size * x * e_opt[i], 400)[0] - x

        if member.size == 1:
            m[member] = move(0.0)
            continue
        grid = np.append(game.limit[i] * np.logspace(0, -16, 65), 0) + game.local[i]
        j = int(np.argmax(move(grid) >= 0))  # the largest crossing
        m[member] = brentq(lambda x: move(x)[0], grid[j], grid[j - 1], rtol=1e-14) if j else grid[0]
    return m


def _settle(game: Game, m: Array, sweeps: int = 30) -> Array:
    """Sweeps until nothing moves or they cycle; Anderson acceleration once changes are small."""
    after, change = [], []
    for _ in range(sweeps):
        new = _sweep(game, m)
        scale = np.maximum(new, 1e-9 * new.sum() + TINY)
        after, change = [*after[-9:], new], [*change[-9:], (new - m) / scale]
        size = np.abs(change[-1]).max()
        if size < 1e-13 or any(np.allclose(new, old, 1e-9, 0) for old in after[:-1] if size > 1e-6):
            break
        m = new
        if size < 1e-2 and len(after) > 2:
            steps = [(after[-t] - after[-t - 1], change[-t] - change[-t - 1]) for t in (1, 2)]
            weight = np.linalg.lstsq(np.stack([c for _, c in steps], 1), change[-1])[0]
            m = np.maximum(new - sum(w * a for w, (a, _) in zip(weight, steps, strict=True)), 0)
    return new


def _check(game: Game, m: Array, tol: float = 1e-12) -> tuple[bool, Array]:
    """Whether no device gains more than tol of its payoff, and who would live on its own model."""
    i = np.arange(m.size)
    so, to = totals_of_others(game, i, m)
    x, best = best_answers(game, i, so, to)
    state = outlook(game, i, m, so, to)
    scale = payoff(game.payoff, game.z, game.b, state.e)[0] + state.money + game.cost * m
    return bool(np.all(best - state.gain <= tol * scale + TINY)), outlook(game, i, x, so, to).own


def equilibrium(game: Game) -> Array | None:
    """Pure Nash equilibrium with the largest total data, or None if none is found."""
    if game.mechanism == "local_only":
        return game.local
    alone, starts = np.zeros(game.cost.size, bool), []
    for _ in range(6 if game.cost.size > 1 else 0):
        candidates = _scan(game, alone)
        checks = [_check(game, m) for m in candidates]
        for m, (fine, _) in zip(candidates, checks, strict=True):
            if fine:
                return m
        starts += candidates[:1]
        if not checks or np.all(checks[0][1] <= alone):
            break
        alone = alone | checks[0][1]
    for start in [*starts[-1:], game.local + game.limit]:
        m = _settle(game, start)
        if _check(game, m)[0]:
            return m
    lonely = np.diag(game.local)[np.argsort(-game.local)[:8]]  # one contributor, or nobody
    return next((m for m in [*lonely, 0 * game.local] if _check(game, m)[0]), None)
