"""Many devices at once: any number of them gives what one after the other does, in value and gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import realfm_jax as rfm
from realfm_jax.each import FEW, LANES, add_up, map_each, sum_each

SIZES = [1, 2, LANES, LANES + 1, FEW, FEW + 1, FEW + 2, 2 * FEW - 1, 2 * FEW]


def rows_of(size: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(size)
    return {"x": jnp.asarray(rng.uniform(1, 2, size)), "y": jnp.asarray(rng.uniform(size=(size, 3)))}


def one(row: dict[str, jax.Array]) -> jax.Array:
    return jnp.log(row["x"]) * row["y"].sum()


@pytest.mark.parametrize("size", SIZES)
def test_any_number_of_rows_is_mapped_and_summed(size: int) -> None:
    rows = rows_of(size)
    each = np.log(np.asarray(rows["x"])) * np.asarray(rows["y"]).sum(axis=1)
    found = jax.jit(lambda rows: map_each(lambda row: (one(row), row["y"]), size, rows))(rows)
    np.testing.assert_allclose(found[0], each, rtol=1e-14)
    np.testing.assert_array_equal(found[1], rows["y"])
    assert float(sum_each(one, size, rows)) == pytest.approx(each.sum(), rel=1e-13)
    slope = jax.grad(lambda rows: sum_each(one, size, rows))(rows)
    np.testing.assert_allclose(slope["x"], np.asarray(rows["y"]).sum(axis=1) / rows["x"], rtol=1e-13)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adding_up_is_a_sum(size: int, dtype: type) -> None:
    x = np.random.default_rng(0).uniform(size=size).astype(dtype)
    assert float(add_up(jnp.asarray(x))) == pytest.approx(float(x.astype(float).sum()), rel=1e-6)
    np.testing.assert_array_equal(jax.grad(add_up)(jnp.asarray(x)), np.ones(size))


def test_a_game_of_an_odd_number_of_devices_is_solved_like_one_of_an_even_number() -> None:
    """A device to which data are too dear changes nothing but the number."""
    rng = np.random.default_rng(1)
    cost = rng.normal(2.5e-4, 1e-5, FEW)
    curve = rfm.GeneralizationBound(a_opt=0.95, k=10.0)

    def solved(cost: np.ndarray) -> rfm.Equilibrium:
        return rfm.solve(rfm.Game(rfm.Devices(cost, curve), rfm.Server(), rfm.RealFM(shaping="exact")))

    even, odd = solved(cost), solved(np.append(cost, 1e9))
    assert even.converged
    assert odd.converged
    np.testing.assert_allclose(odd.contribution[:-1], even.contribution, rtol=1e-12)
    np.testing.assert_allclose(odd.utility[:-1], even.utility, rtol=1e-11)
    assert odd.contribution.shape == (FEW + 1,)
    assert float(odd.contribution[-1]) < 1e-3


def test_the_gradient_of_a_game_of_an_odd_number_of_devices_is_right() -> None:
    rng = np.random.default_rng(2)
    cost = jnp.asarray(rng.normal(2.5e-4, 1e-5, FEW + 1))
    curve = rfm.GeneralizationBound(a_opt=0.95, k=10.0)

    def utility(cost: jax.Array) -> jax.Array:
        game = rfm.Game(rfm.Devices(cost, curve), rfm.Server(profit_margin=0.8), rfm.RealFM())
        return rfm.solve(game, method="aggregate").server_utility

    slope = float(jax.grad(utility)(cost) @ cost)
    up, down = (float(utility(cost * (1 + h))) for h in (1e-4, -1e-4))
    assert slope == pytest.approx((up - down) / 2e-4, rel=1e-6)
