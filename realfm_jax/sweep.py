"""Thousands to millions of games: any parameters varied, results with names, units and provenance."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from realfm_jax.batch import Field, solve_games
from realfm_jax.equilibrium import Method
from realfm_jax.game import Game
from realfm_jax.plan import Plan, make_plan
from realfm_jax.progress import bar

if TYPE_CHECKING:
    import xarray as xr


def sweep(
    game: Game,
    *,
    matched: bool = False,
    method: Method = "auto",
    certificate: bool = False,
    store: str | os.PathLike[str] | None = None,
    chunk: int | None = None,
    progress: bool | None = None,
    **parameters: Any,
) -> "xr.Dataset":
    """Solve a game for many values of any of its parameters; returns an `xarray.Dataset`.

    Args:
      game: what is not varied is taken from here.
      matched: False solves every combination, one dimension per parameter. True takes the first value of
        each number, then the second of each ..., along one dimension "game"; choices (shaping, money,
        mechanism, devices) are still combined with them.
      method: of `solve`.
      certificate: also compute regret, best deviation and free riding of every device.
      store: directory of a Zarr store to stream into, for results larger than memory. The same call after
        an interruption, even `kill -9`, goes on where it stopped; a finished one is only opened.
      chunk: games solved together; default: what fits well into memory.
      progress: show a bar; default: in a terminal, for what takes longer than two seconds.
      **parameters: values by the names of `parameters(game)`, e.g. `cost=[1e-4, 1e-3]`; for what belongs
        to devices also one row of n values per game, [games, n].

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=[1e-3, 2e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    >>> found = sweep(game, k=[0.25, 1.0, 4.0], profit_margin=[1.0, 0.9])
    >>> dict(found.contribution.sizes)
    {'k': 3, 'profit_margin': 2, 'device': 2}
    """
    plan = make_plan(game, parameters, matched, method, certificate, chunk)
    from realfm_jax.store import Memory, Zarr  # xarray and zarr are slow to import

    target = Memory(plan) if store is None else Zarr(plan, Path(store))
    waiting = [at for at in plan.blocks() if not target.holds(at)]
    done = plan.games - sum(math.prod(plan.sizes(at)) for at in waiting)
    with bar(plan.games, "game", progress, done) as advance:
        for at in waiting:
            target.write(at, _solve_block(plan, at))
            advance(math.prod(plan.sizes(at)))
    return target.dataset()


def _solve_block(plan: Plan, at: tuple[int, ...]) -> dict[str, np.ndarray]:
    """One piece of the result: its variables, with all its dimensions."""
    game, rows = plan.games_of(at)
    padded = math.prod(plan.block.values())  # so that a smaller last piece needs no kernel of its own
    found = solve_games(game, rows, padded, plan.method, plan.certificate)

    def fill(values: np.ndarray, field: Field) -> np.ndarray:
        """Along the dimensions; devices that a smaller game does not have are not-a-number."""
        missing = plan.devices - values.shape[1] if field.per_device else 0
        if missing:
            nothing = False if values.dtype == bool else np.nan
            values = np.pad(values, ((0, 0), (0, missing)), constant_values=nothing)
        return values.reshape(*plan.sizes(at), *values.shape[1:])

    return {name: fill(found[name], field) for name, field in plan.fields.items()}
