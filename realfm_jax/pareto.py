"""What the server gives up for its devices: the front between their utilities over RealFM's parameters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from realfm_jax._struct import Numbers
from realfm_jax.equilibrium import Method
from realfm_jax.game import Game
from realfm_jax.mechanism import RealFM
from realfm_jax.shaping import EPSILON, Shaping
from realfm_jax.sweep import sweep

if TYPE_CHECKING:
    import xarray as xr


def pareto(
    game: Game,
    *,
    profit_margin: Numbers | None = None,
    epsilon: Numbers | None = None,
    shaping: Sequence[Shaping] = ("taylor", "exact"),
    method: Method = "auto",
) -> "xr.Dataset":
    """Server utility against mean device utility for every profit margin, eps and shaping of RealFM.

    Args:
      game: a game of RealFM; all else is taken from here.
      profit_margin: p_m, values in [0, 1]; `None`: 21 of them.
      epsilon: eps, values > 0, utility per sample; `None`: 21 from 1e-9 to the lowest cost.
      shaping: which ones.
      method: of `solve`. "aggregate" is much faster, and leaves out parameters at which money makes a
        device go beyond what RealFM rewards in full: there `converged` is False.

    Returns:
      `server_utility`, `mean_utility` and `converged` (shaping, epsilon, profit_margin), and which of the
      games no other beats for the one without loss to the other: `efficient` among those of the same
      shaping, `efficient_overall` among all. What did not converge is neither, and beats nothing.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices([1e-3, 2e-3], rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> game = rfm.Game(devices, rfm.Server(), rfm.RealFM())
    >>> front = pareto(game, profit_margin=[0.9, 1.0], epsilon=[1e-9], method="aggregate")
    >>> front.efficient.sel(shaping="taylor").values.tolist()
    [[True, True]]
    """
    if not isinstance(game.mechanism, RealFM):
        name = type(game.mechanism).__name__
        raise ValueError(f"pareto varies the parameters of the mechanism RealFM; got {name}")
    if profit_margin is None:
        profit_margin = np.linspace(0.0, 1.0, 21)
    if epsilon is None:
        epsilon = np.geomspace(EPSILON, max(float(jnp.min(game.devices.cost)), 10 * EPSILON), 21)
    found = sweep(game, method=method, shaping=shaping, epsilon=epsilon, profit_margin=profit_margin)
    mean = found.utility.mean("device").assign_attrs(long_name="mean device utility", units="utility")
    front = found[["server_utility", "converged"]].assign(mean_utility=mean)
    front = front.transpose("shaping", "epsilon", "profit_margin")
    server, devices = (
        front[name].where(front.converged).values for name in ("server_utility", "mean_utility")
    )
    each = np.stack([undominated(*both) for both in zip(server, devices, strict=True)])
    meaning = "no other game is better for the server or the devices and no worse for the other"
    for name, marks, among in (
        ("efficient", each, "of the same shaping"),
        ("efficient_overall", undominated(server, devices), "of any shaping"),
    ):
        front[name] = (front.server_utility.dims, marks, {"long_name": f"{meaning}, {among}", "units": "1"})
    return front


def undominated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Which points no other one beats in one coordinate without being beaten in the other, in N log N.

    Of equal points all or none are marked; not-a-number marks a point that does not take part.

    >>> undominated(np.array([3.0, 2.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0, 1.0])).tolist()
    [True, True, True, False]
    """
    marks = np.zeros(first.shape, bool)
    taking_part = np.flatnonzero(np.isfinite(first) & np.isfinite(second))
    if not taking_part.size:
        return marks
    x, y = first.ravel()[taking_part], second.ravel()[taking_part]
    order = np.lexsort((-y, -x))
    x, y = x[order], y[order]
    # From the largest x down: the first point of a group of equal x has its largest y, which has to be
    # larger than every y before.
    begins = np.append(True, x[1:] != x[:-1])
    group = np.cumsum(begins) - 1
    highest = y[begins]
    before = np.append(-np.inf, np.maximum.accumulate(highest)[:-1])
    marks.flat[taking_part[order]] = (y == highest[group]) & (y > before[group])
    return marks
