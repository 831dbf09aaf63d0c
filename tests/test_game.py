"""What a person types in, and how games behave under JAX's transformations."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import realfm_jax as rfm

CURVE = rfm.GeneralizationBound(0.95, 10.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rfm.Devices([1e-4, -1.0], CURVE), "Devices.cost must be > 0; got -1.0 at index 1"),
        (lambda: rfm.Devices(0.0, CURVE), "Devices.cost must be > 0; got 0.0"),
        (lambda: rfm.Devices([1e-4, np.nan], CURVE), "Devices.cost must be > 0; got nan at index 1"),
        (lambda: rfm.Devices(jnp.array([np.inf]), CURVE), "Devices.cost must be > 0; got inf at index 0"),
        (lambda: rfm.Devices("cheap", CURVE), "Devices.cost must be > 0; got 'cheap'"),
        (lambda: rfm.Devices([], CURVE), "Devices.cost is empty; a game needs at least one device"),
        (lambda: rfm.Devices([[1e-4]], CURVE), "Devices.cost must have shape [] or [n]; got shape (1, 1)"),
        (
            lambda: rfm.Devices([1e-4] * 3, rfm.GeneralizationBound([0.9, 0.8], 1.0)),
            "Devices.cost has 3, Devices.accuracy.a_opt has 2",
        ),
        (lambda: rfm.Devices(1e-4, 0.9), "Devices.accuracy must be callable; got 0.9"),
        (lambda: rfm.GeneralizationBound(1.0, 1.0), "GeneralizationBound.a_opt must be in (0, 1); got 1.0"),
        (lambda: rfm.InverseSqrt(0.0, 1.0), "InverseSqrt.a_opt must be in (0, 1); got 0.0"),
        (lambda: rfm.InverseSqrt(0.9, -2), "InverseSqrt.k must be > 0; got -2.0"),
        (lambda: rfm.PowerPayoff(exponent=0.0), "PowerPayoff.exponent must be > 0; got 0.0"),
        (lambda: rfm.PowerPayoff(scale=-1.0), "PowerPayoff.scale must be > 0; got -1.0"),
        (lambda: rfm.LinearPayoff(0.0), "LinearPayoff.scale must be > 0; got 0.0"),
        (lambda: rfm.Server(profit_margin=1.5), "Server.profit_margin must be in [0, 1]; got 1.5"),
        (
            lambda: rfm.Server(profit_margin=[0.5, 0.5]),
            "Server.profit_margin must be one number; got shape (2,)",
        ),
        (lambda: rfm.RealFM(epsilon=0.0), "RealFM.epsilon must be > 0; got 0.0"),
        (lambda: rfm.RealFM("cubic"), "RealFM.shaping must be one of taylor, exact; got 'cubic'"),
        (lambda: rfm.RealFM(money="much"), "RealFM.money must be one of capped, paper; got 'much'"),
        (
            lambda: rfm.Game(rfm.Devices(1e-4, CURVE), rfm.Server(), "RealFM"),
            "Game.mechanism must be a Mechanism; got str",
        ),
        (
            lambda: rfm.Game(
                rfm.Devices(1e-4, rfm.GeneralizationBound(0.9, [1.0, 2.0])), rfm.Server(), rfm.RealFM()
            ),
            "devices.accuracy.k differs between devices, so the server's curve is open: give Server(",
        ),
        (lambda: rfm.rewards(game(2), [1.0]), "contribution must have shape [2]; got shape (1,)"),
        (lambda: rfm.rewards(game(2), [1.0, -1.0]), "contribution must be >= 0; got -1.0 at index 1"),
        (
            lambda: rfm.solve(game(2), method="magic"),
            "method must be one of auto, aggregate, best_response; got 'magic'",
        ),
        (
            lambda: rfm.solve(game(2, rfm.EqualShare()), method="aggregate"),
            "method 'aggregate' needs the mechanism RealFM; got EqualShare",
        ),
    ],
)
def test_mistakes_name_the_field_the_value_and_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def game(n: int, mechanism: rfm.Mechanism | None = None) -> rfm.Game:
    curve = rfm.GeneralizationBound(0.95, 10.0)
    devices = rfm.Devices(np.linspace(2e-4, 3e-4, n), curve, rfm.PowerPayoff(np.linspace(0.9, 1.1, n)))
    return rfm.Game(devices, rfm.Server(profit_margin=0.8), mechanism or rfm.RealFM())


def test_integers_and_lists_become_floating_arrays() -> None:
    devices = rfm.Devices(cost=[1, 2], accuracy=CURVE)
    assert jnp.issubdtype(devices.cost.dtype, jnp.floating)


def test_devices_of_unlike_complexity_play_with_a_server_curve_of_its_own() -> None:
    devices = rfm.Devices([1e-4, 2e-4], rfm.GeneralizationBound(0.95, [5.0, 20.0]))
    found = rfm.solve(rfm.Game(devices, rfm.Server(accuracy=CURVE), rfm.RealFM()))
    assert found.converged
    assert (np.asarray(found.contribution) > np.asarray(found.local.contribution)).all()


def leaves_close(a: Any, b: Any, rtol: float = 1e-9) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.allclose(x, y, rtol=rtol, atol=1e-12)


def numbers(found: rfm.Equilibrium) -> rfm.Equilibrium:
    """Without what may differ between two ways to the same answer."""
    return dataclasses.replace(found, steps=0, residual=0.0)


def test_jit_equals_eager_and_vmap_equals_a_loop() -> None:
    one = game(3)
    leaves_close(numbers(jax.jit(rfm.solve)(one)), numbers(rfm.solve(one)))
    margins = jnp.array([0.3, 0.6, 1.0])

    def with_margin(margin: jax.Array) -> rfm.Equilibrium:
        server = dataclasses.replace(one.server, profit_margin=margin)
        return rfm.solve(dataclasses.replace(one, server=server), method="aggregate")

    together = jax.vmap(with_margin)(margins)
    for i, margin in enumerate(margins):
        leaves_close(
            numbers(jax.tree.map(lambda leaf, i=i: leaf[i], together)), numbers(with_margin(margin))
        )


def test_permuting_devices_permutes_the_answer() -> None:
    one, order = game(3), np.array([2, 0, 1])
    shuffled = dataclasses.replace(
        one,
        devices=dataclasses.replace(
            one.devices,
            cost=one.devices.cost[order],
            payoff=rfm.PowerPayoff(one.devices.payoff.scale[order]),
        ),
    )
    straight, permuted = rfm.solve(one), rfm.solve(shuffled)
    assert np.asarray(permuted.contribution) == pytest.approx(
        np.asarray(straight.contribution)[order], rel=1e-12
    )
    assert np.asarray(permuted.utility) == pytest.approx(np.asarray(straight.utility)[order], rel=1e-12)


def test_one_trace_per_shape() -> None:
    traces = []

    @jax.jit
    def counted(g: rfm.Game) -> jax.Array:
        traces.append(None)
        return rfm.solve(g, method="aggregate").server_utility

    for seed in range(3):
        rng = np.random.default_rng(seed)
        devices = rfm.Devices(
            rng.uniform(1e-4, 2e-4, 3), rfm.GeneralizationBound(rng.uniform(0.8, 0.9), rng.uniform(1, 9))
        )
        counted(rfm.Game(devices, rfm.Server(profit_margin=rng.uniform()), rfm.RealFM(epsilon=1e-8)))
    assert len(traces) == 1


def test_gradient_of_a_whole_game_has_the_shape_of_the_game() -> None:
    slope = jax.grad(lambda g: rfm.solve(g, method="aggregate").server_utility)(game(3))
    assert slope.devices.cost.shape == (3,)
    assert slope.devices.accuracy.k.shape == ()
    assert (np.asarray(slope.devices.cost) < 0).all()


def test_float32_stays_float32_and_close_to_float64() -> None:
    wanted = rfm.solve(game(3))
    with jax.enable_x64(False):
        found = rfm.solve(game(3))
        assert {
            leaf.dtype for leaf in jax.tree.leaves(found) if jnp.issubdtype(leaf.dtype, jnp.floating)
        } == {jnp.dtype("float32")}
        assert found.converged
    assert np.asarray(found.contribution) == pytest.approx(np.asarray(wanted.contribution), rel=1e-3)
