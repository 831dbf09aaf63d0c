"""What moves an equilibrium: its derivatives and elasticities in every number of the game."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from realfm_jax._struct import floating
from realfm_jax.equilibrium import Equilibrium, Method, solve
from realfm_jax.game import Game
from realfm_jax.mechanism import RealFM
from realfm_jax.parameters import UNITS, numbers, unknown

if TYPE_CHECKING:
    import xarray as xr


@dataclasses.dataclass(frozen=True)
class Output:
    """A number that an equilibrium comes down to, or one per device.

    Attributes:
      long_name: what it is.
      units: "samples", "utility", "utility / sample" or "1".
      of: how it is computed, [] or [n].
      each: whether there is one per device.
    """

    long_name: str
    units: str
    of: Callable[[Equilibrium], Array]
    each: bool = False


OUTPUTS = {
    "server_utility": Output("server utility", "utility", lambda eq: eq.server_utility),
    "server_accuracy": Output("server accuracy", "1", lambda eq: eq.server_accuracy),
    "total": Output("total contribution", "samples", lambda eq: eq.federation.total),
    "mean_utility": Output("mean device utility", "utility", lambda eq: eq.utility.mean()),
    "mean_contribution": Output("mean contribution", "samples", lambda eq: eq.contribution.mean()),
    "min_utility": Output("least device utility", "utility", lambda eq: eq.utility.min()),
    "welfare": Output(
        "utility of server and devices", "utility", lambda eq: eq.server_utility + eq.utility.sum()
    ),
    "reward_rate": Output("reward rate", "utility / sample", lambda eq: eq.reward_rate),
    "contribution": Output("contribution", "samples", lambda eq: eq.contribution, each=True),
    "accuracy": Output("accuracy", "1", lambda eq: eq.accuracy, each=True),
    "money": Output("money", "utility", lambda eq: eq.money, each=True),
    "utility": Output("device utility", "utility", lambda eq: eq.utility, each=True),
}
"""What `sensitivity` differentiates; `design` maximises, or keeps above a floor, those without `each`."""
SUMMARY = ("server_utility", "server_accuracy", "total", "mean_utility", "mean_contribution")
"""The outputs of `sensitivity` unless others are asked for."""


def sensitivity(
    game: Game, outputs: Sequence[str] = SUMMARY, *, each: bool = False, method: Method | None = None
) -> "xr.Dataset":
    """The labelled Jacobian of the equilibrium in every number of the game.

    Args:
      game: the game.
      outputs: names of `OUTPUTS`; "contribution", "accuracy", "money", "utility" give one per device.
      each: move every device's numbers one by one ("cost[0]", ...), not all devices' together.
      method: of `solve`; `None`: "aggregate" for RealFM, else "best_response".

    Returns:
      `derivative` (output, parameter): of adding the same amount for all devices. `elasticity`: percent
      by which the output moves for +1 % on the parameter of all devices, NaN for an output of 0. `value`
      (output), `parameter_value` (parameter; mean over devices), and `converged`: whether it is an
      equilibrium at all; a warning says so if not.

    At the end of a parameter's range (profit_margin = 1) the derivative is the one from inside.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices([1e-3, 2e-3], rfm.InverseSqrt(a_opt=0.9, k=0.25), rfm.LinearPayoff())
    >>> found = sensitivity(rfm.Game(devices, rfm.Server(), rfm.RealFM()))
    >>> round(float(found.elasticity.sel(output="total", parameter="cost")), 3)
    -0.667
    """
    chosen = _checked(outputs)
    method = method or ("aggregate" if isinstance(game.mechanism, RealFM) else "best_response")
    by_shift, by_stretch, values, found = _jacobian(game, chosen, each, method)
    if not found.converged:
        warnings.warn(
            f"not an equilibrium (residual {float(found.residual):.1e}), so these derivatives are not its: "
            f"a device would still move; method={method!r}, try 'best_response'",
            stacklevel=2,
        )
    return _dataset(game, chosen, each, [np.asarray(x) for x in (by_shift, by_stretch, values)], found)


def _checked(outputs: Sequence[str]) -> tuple[str, ...]:
    chosen = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for name in chosen:
        if name not in OUTPUTS:
            raise unknown("output", name, OUTPUTS)
    if not chosen:
        raise ValueError(f"outputs must name at least one of {', '.join(OUTPUTS)}; got none")
    return chosen


@functools.partial(jax.jit, static_argnames=("outputs", "each", "method"))
def _jacobian(
    game: Game, outputs: tuple[str, ...], each: bool, method: Method
) -> tuple[Array, Array, Array, Equilibrium]:
    """Derivatives in a shift p + s and in a stretch p (1 + s) of every parameter, [outputs, parameters]."""
    leaves, tree = jax.tree.flatten(game)
    leaves = [floating(leaf) for leaf in leaves]
    rest = [jnp.zeros_like(leaf if each else leaf.ravel()[0]) for leaf in leaves]

    def moved(shift: list[Array], stretch: list[Array]) -> tuple[Array, Any]:
        steps = zip(leaves, shift, stretch, strict=True)
        found = solve(jax.tree.unflatten(tree, [p * (1 + s) + d for p, d, s in steps]), method)
        values = jnp.concatenate([jnp.atleast_1d(OUTPUTS[name].of(found)) for name in outputs])
        return values, (values, found)

    rows = sum(len(game.devices) if OUTPUTS[name].each else 1 for name in outputs)
    columns = 2 * sum(zero.size for zero in rest)
    mode: Any = jax.jacfwd if columns < rows else jax.jacrev
    slopes, (values, found) = mode(moved, argnums=(0, 1), has_aux=True)(rest, rest)
    by_shift, by_stretch = (
        jnp.concatenate([slope.reshape(rows, -1) for slope in way], axis=1) for way in slopes
    )
    return by_shift, by_stretch, values, found


def _dataset(
    game: Game, outputs: tuple[str, ...], each: bool, arrays: list[np.ndarray], found: Equilibrium
) -> "xr.Dataset":
    import xarray as xr

    by_shift, by_stretch, values = arrays
    known = {name: np.asarray(leaf) for name, leaf in numbers(game).items()}
    parameters = [
        (label, UNITS.get(name, "1")) for name, p in known.items() for label in _labels(name, p, each)
    ]
    device_values = np.empty(len(game.devices))
    rows = [
        (label, OUTPUTS[name].units)
        for name in outputs
        for label in _labels(name, device_values, OUTPUTS[name].each)
    ]
    at = [p.ravel() if each else p.mean(keepdims=True).ravel() for p in known.values()]
    elasticity = np.divide(
        by_stretch, values[:, None], out=np.full_like(by_stretch, np.nan), where=values[:, None] != 0
    )
    both = ("output", "parameter")
    return xr.Dataset(
        {
            "derivative": (both, by_shift, _about("derivative", "output_units / parameter_units")),
            "elasticity": (both, elasticity, _about("elasticity: % of output per % of parameter", "1")),
            "value": ("output", values, _about("value of the output", "output_units")),
            "parameter_value": ("parameter", np.concatenate(at), _about("parameter", "parameter_units")),
            "converged": ((), bool(found.converged), _about("is an equilibrium", "1")),
        },
        coords={
            "output": [label for label, _ in rows],
            "parameter": [label for label, _ in parameters],
            "output_units": ("output", [units for _, units in rows]),
            "parameter_units": ("parameter", [units for _, units in parameters]),
        },
    )


def _labels(name: str, values: np.ndarray, each: bool) -> list[str]:
    if not each or not values.ndim:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(values.shape)]


def _about(long_name: str, units: str) -> dict[str, str]:
    return {"long_name": long_name, "units": units}
