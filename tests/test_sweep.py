"""Sweeps: the same numbers as one `solve` after another, however cut, stored, killed or sharded."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import realfm_jax as rfm
from realfm_jax import batch
from realfm_jax.plan import make_plan
from realfm_jax.store import Zarr

COSTS = np.array([1e-3, 2e-3, 3e-3])
GAME = rfm.Game(
    rfm.Devices(cost=COSTS, accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25)),
    rfm.Server(),
    rfm.RealFM(),
)
K, MARGIN = np.geomspace(0.05, 4.0, 7), np.array([1.0, 0.95])


@pytest.fixture(scope="module")
def grid() -> xr.Dataset:
    return rfm.sweep(GAME, k=K, profit_margin=MARGIN)


def same(one: xr.Dataset, other: xr.Dataset) -> None:
    """Equal to the last bit."""
    assert set(one.data_vars) == set(other.data_vars)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=str(name))


@pytest.mark.parametrize("at", [(0, 0), (3, 1), (6, 0)])
def test_each_game_is_what_solve_finds(grid: xr.Dataset, at: tuple[int, int]) -> None:
    found = rfm.solve(rfm.replace(GAME, k=K[at[0]], profit_margin=MARGIN[at[1]]))
    there = grid.isel(k=at[0], profit_margin=at[1])
    np.testing.assert_allclose(there.contribution, found.contribution, rtol=1e-12)
    np.testing.assert_allclose(there.local_contribution, found.local.contribution, rtol=1e-12)
    np.testing.assert_allclose(there.server_utility, found.server_utility, rtol=1e-12)
    np.testing.assert_allclose(there.utility, found.utility, rtol=1e-10)
    assert bool(there.converged)


def test_results_have_names_units_and_provenance(grid: xr.Dataset) -> None:
    assert grid.contribution.dims == ("k", "profit_margin", "device")
    assert grid.server_utility.dims == ("k", "profit_margin")
    np.testing.assert_array_equal(grid.k, K)
    for name, variable in grid.variables.items():
        assert variable.attrs["long_name"], name
    assert grid.contribution.attrs["units"] == "samples"
    assert grid.k.attrs["units"] == "samples"
    assert rfm.__version__ in grid.attrs["provenance"]
    assert set(batch.FIELDS) == set(grid.data_vars)


@pytest.mark.parametrize("chunk", [1, 3, 5, 14, 1000])
def test_pieces_make_no_difference(grid: xr.Dataset, chunk: int) -> None:
    pieces = rfm.sweep(GAME, k=K, profit_margin=MARGIN, chunk=chunk)
    for name in ("contribution", "money", "server_utility", "total"):
        np.testing.assert_allclose(pieces[name], grid[name], rtol=1e-12, atol=1e-15)


def test_the_same_structure_is_compiled_once() -> None:
    rfm.sweep(GAME, k=K, profit_margin=MARGIN)
    compiled = batch._kernel._cache_size()
    rfm.sweep(rfm.replace(GAME, a_opt=0.8), k=2 * K, profit_margin=MARGIN)
    assert batch._kernel._cache_size() == compiled


def test_matched_lists_go_together_with_a_row_per_game() -> None:
    rows = COSTS * np.linspace(0.5, 2.0, 14)[:, None]
    found = rfm.sweep(GAME, matched=True, cost=rows, k=np.resize(K, 14))
    assert dict(found.contribution.sizes) == {"game": 14, "device": 3}
    np.testing.assert_array_equal(found.cost, rows)
    one = rfm.solve(rfm.replace(GAME, cost=rows[9], k=np.resize(K, 14)[9]))
    np.testing.assert_allclose(found.contribution[9], one.contribution, rtol=1e-12)
    crossed = rfm.sweep(GAME, cost=rows[:7], profit_margin=MARGIN)
    assert crossed.contribution.dims == ("cost_row", "profit_margin", "device")
    assert crossed.cost.dims == ("cost_row", "device")


def test_choices_and_the_number_of_devices(grid: xr.Dataset) -> None:
    found = rfm.sweep(GAME, devices=[2, 3], k=K, profit_margin=MARGIN, shaping=["taylor", "exact"])
    assert found.contribution.dims == ("devices", "k", "profit_margin", "shaping", "device")
    taylor = found.sel(devices=3, shaping="taylor")
    np.testing.assert_allclose(taylor.contribution, grid.contribution, rtol=1e-12)
    assert np.isnan(found.contribution.sel(devices=2, device=2)).all()
    assert not np.isnan(found.contribution.sel(devices=2, device=[0, 1])).any()
    exact = found.sel(shaping="exact", devices=3)
    assert (exact.total > taylor.total).all()
    two = rfm.solve(rfm.replace(GAME, devices=2, shaping="exact", k=K[2]))
    np.testing.assert_allclose(
        found.contribution.sel(devices=2, shaping="exact", profit_margin=1.0)[2, :2], two.contribution
    )


@pytest.mark.xdist_group("best_response")
@pytest.mark.slow
def test_mechanisms_and_games_that_need_best_responses() -> None:
    found = rfm.sweep(GAME, mechanism=[rfm.RealFM(), rfm.EqualShare()], certificate=True)
    assert list(found.mechanism.values) == ["RealFM", "EqualShare"]
    assert found.total.sel(mechanism="RealFM") > found.total.sel(mechanism="EqualShare")
    assert float(found.regret.max()) < 1e-8
    assert float(found.free_ride.sel(mechanism="EqualShare").max()) > 0.5
    # Unequal a_opt and money: here the root in the total is not yet an equilibrium.
    unequal = rfm.replace(GAME, a_opt=np.array([0.9, 0.88, 0.91]), profit_margin=0.5)
    first = rfm.sweep(unequal, k=[0.25, 0.5], method="aggregate")
    assert not first.converged.all()
    then = rfm.sweep(unequal, k=[0.25, 0.5])
    for i, k in enumerate([0.25, 0.5]):
        one = rfm.solve(rfm.replace(unequal, k=k))
        assert bool(then.converged[i]) == bool(one.converged)
        np.testing.assert_allclose(then.contribution[i], one.contribution, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing to sweep; give values for any of cost, a_opt"),
        ({"csot": [1.0]}, "unknown parameter 'csot'; did you mean cost?"),
        ({"k": [1.0, -1.0]}, "InverseSqrt.k must be > 0; got -1.0"),
        ({"k": []}, "k must have at least one value"),
        ({"k": [1.0, np.nan]}, "k must have at least one value, all finite"),
        ({"shaping": ["cubic"]}, "RealFM.shaping must be one of taylor, exact; got 'cubic'"),
        ({"cost": [[1.0, 2.0]]}, "cost must be a list of numbers, or rows of 3 numbers, one per device"),
        ({"devices": [7]}, "devices must be at least 1 and at most 3"),
        ({"k": [1.0], "chunk": 0}, "chunk must be at least 1; got 0"),
        ({"k": [1.0], "method": "guess"}, "method must be one of auto, aggregate, best_response"),
        ({"matched": True, "k": [1.0, 2.0], "a_opt": [0.9]}, "need equally many values; got 1 of a_opt"),
        (
            {"mechanism": [rfm.EqualShare()], "method": "aggregate"},
            "method 'aggregate' needs the mechanism RealFM; got EqualShare",
        ),
    ],
)
def test_mistakes_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("?", r"\?")):
        rfm.sweep(GAME, **given)


def test_a_store_holds_what_memory_holds_and_is_not_computed_twice(
    grid: xr.Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "grid.zarr"
    stored = rfm.sweep(GAME, k=K, profit_margin=MARGIN, store=path, chunk=14)
    same(stored, grid)
    xr.testing.assert_equal(stored.k, grid.k)
    assert stored.contribution.attrs == grid.contribution.attrs
    written = {p: p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()}
    same(rfm.sweep(GAME, k=K, profit_margin=MARGIN, store=path, chunk=14), grid)
    assert written == {p: p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()}
    with pytest.raises(FileExistsError, match="holds another sweep"):
        rfm.sweep(GAME, k=2 * K, profit_margin=MARGIN, store=path, chunk=14)
    (tmp_path / "notes").mkdir()
    with pytest.raises(FileExistsError, match="is not a sweep"):
        rfm.sweep(GAME, k=K, store=tmp_path / "notes")


@pytest.mark.parametrize("certificate", [False, True])
def test_a_piece_counts_once_its_last_variable_is_there(tmp_path: Path, certificate: bool) -> None:
    plan = make_plan(GAME, {"k": K, "profit_margin": MARGIN}, False, "auto", certificate, 4)
    store, at = Zarr(plan, tmp_path / "grid.zarr"), (1, 0)
    piece = {
        name: np.zeros(plan.sizes(at) + (plan.devices,) * field.per_device)
        for name, field in plan.fields.items()
    }
    *others, last = piece
    store.write(at, {name: piece[name] for name in others})
    assert not store.holds(at)
    store.write(at, {last: piece[last]})
    assert [store.holds(at) for at in plan.blocks()] == [at == (1, 0) for at in plan.blocks()]


STREAM = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import realfm_jax as rfm
devices = rfm.Devices(cost=[1e-3, 2e-3, 3e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
found = rfm.sweep(game, k=np.geomspace(0.05, 4.0, {size}), store={store!r}, chunk={chunk})
np.savez({out!r}, **{{name: found[name].values for name in found.data_vars}})
"""


def run(code: str, **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment)


@pytest.mark.xdist_group("processes")
def test_kill_9_loses_nothing_that_was_finished_and_changes_no_bit(tmp_path: Path) -> None:
    size, chunk = 1600, 8
    whole, broken = (tmp_path / name for name in ("whole", "broken"))
    code = STREAM.format(size=size, chunk=chunk, store=str(broken), out=str(tmp_path / "broken.npz"))
    process = run(code)
    pieces = broken / "converged"
    deadline = time.monotonic() + 120
    while len(list(pieces.glob("*[0-9]")) if pieces.exists() else []) < 20:
        assert time.monotonic() < deadline
        assert process.poll() is None, "finished before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (pieces / "20.cd12.partial").touch()  # what a writer killed at a worse moment leaves
    finished = {p: p.stat().st_mtime_ns for p in pieces.glob("*[0-9]")}
    assert 20 <= len(finished) < size // chunk
    assert run(code).wait() == 0
    assert all(p.stat().st_mtime_ns == at for p, at in finished.items()), "nothing computed twice"
    assert (
        run(STREAM.format(size=size, chunk=chunk, store=str(whole), out=str(tmp_path / "whole.npz"))).wait()
        == 0
    )
    chunks = {path.relative_to(whole): path.read_bytes() for path in whole.glob("*/[0-9]*")}
    assert {p.relative_to(broken): p.read_bytes() for p in broken.glob("*/[0-9]*")} == chunks
    one, other = np.load(tmp_path / "broken.npz"), np.load(tmp_path / "whole.npz")
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("count", [2, 4])
def test_many_jax_devices_give_the_numbers_of_one(tmp_path: Path, count: int) -> None:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    out = tmp_path / "found.npz"
    code = STREAM.format(size=21, chunk=21, store=str(tmp_path / "s"), out=str(out))
    assert run(code + f"assert len(jax.devices()) == {count}", XLA_FLAGS=flags).wait() == 0
    found = np.load(out)
    one = rfm.sweep(GAME, k=np.geomspace(0.05, 4.0, 21))
    assert len(jax.devices()) == 1
    for name in ("contribution", "utility", "server_utility", "local_contribution", "residual"):
        np.testing.assert_allclose(found[name], one[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_bar_shows_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    rfm.sweep(GAME, k=K, profit_margin=MARGIN, progress=True)
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert "games/s" in shown
    rfm.sweep(GAME, k=K, profit_margin=MARGIN)
    assert capsys.readouterr().err == ""
