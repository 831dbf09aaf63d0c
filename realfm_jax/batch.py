"""Many games of one structure at once: one compiled kernel, sharded over all JAX devices.

RealFM's equilibria are first sought as roots in the total, all games together; the few in which a device
would still move are gathered and solved again by following best responses. What needs a grid over
deviations per device (best responses, certificates) goes in smaller batches, so that memory stays bounded.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from realfm_jax.certificate import certify
from realfm_jax.equilibrium import Method, outcome_at, solve
from realfm_jax.game import Game
from realfm_jax.mechanism import RealFM
from realfm_jax.parameters import replace

BATCH = 2**18
"""Devices (games x devices in each) solved together, per JAX device: 2 MB for each array of float64, a few
of which a processor's cache can hold."""
SMALL_BATCH = 2**13
"""Where each device is searched on a grid of some hundred contributions."""

COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": 512}
"""XLA takes 256 bits even where a CPU has 512, because of those that slow down; no kernel of another
platform reads this."""

Numbers = dict[str, np.ndarray]
"""Parameters by name, one row per game: shape [games] or [games, n]."""


class Field(NamedTuple):
    """A variable of the result."""

    meaning: str
    units: str
    per_device: bool
    of: Callable[[Any], Array]


FIELDS = {
    "contribution": Field("samples contributed", "samples", True, lambda eq: eq.contribution),
    "accuracy": Field("accuracy of the model received", "1", True, lambda eq: eq.accuracy),
    "money": Field("money received", "utility", True, lambda eq: eq.money),
    "utility": Field("device utility", "utility", True, lambda eq: eq.utility),
    "local_contribution": Field("samples used alone", "samples", True, lambda eq: eq.local.contribution),
    "local_accuracy": Field("accuracy alone", "1", True, lambda eq: eq.local.accuracy),
    "local_utility": Field("device utility alone", "utility", True, lambda eq: eq.local.utility),
    "better_alone": Field("own model beats the federated one", "1", True, lambda eq: eq.better_alone),
    "total": Field("samples contributed by all", "samples", False, lambda eq: eq.federation.total),
    "server_accuracy": Field("accuracy of the server's model", "1", False, lambda eq: eq.server_accuracy),
    "server_utility": Field("server utility", "utility", False, lambda eq: eq.server_utility),
    "reward_rate": Field("money per sample", "utility / sample", False, lambda eq: eq.reward_rate),
    "residual": Field("relative distance from equilibrium", "1", False, lambda eq: eq.residual),
    "steps": Field("iterations taken", "1", False, lambda eq: eq.steps),
    "converged": Field("residual at rounding level", "1", False, lambda eq: eq.converged),
}
"""Every field of an equilibrium; errors appear as accuracies, 1 - error."""

CERTIFIED = {
    "regret": Field("gain by the best deviation", "utility", True, lambda cert: cert.regret),
    "deviation": Field("contribution of the best deviation", "samples", True, lambda cert: cert.deviation),
    "free_ride": Field("share of federated value got free", "1", True, lambda cert: cert.free_ride),
}
"""What a certificate adds."""


def solve_games(
    game: Game, numbers: Numbers, padded: int, method: Method, certificate: bool
) -> dict[str, np.ndarray]:
    """The equilibria of `game` with its parameters replaced row by row, by the names of `FIELDS`.

    What is compiled is for `padded` games, so that fewer of them need no kernel of their own.
    """
    games = next((len(rows) for rows in numbers.values()), 1)
    if isinstance(game.mechanism, RealFM) and method != "best_response":
        found = _in_one(_equilibria, game, numbers, games, padded, "aggregate")
        again = np.flatnonzero(~found["converged"]) if method == "auto" else np.zeros(0, int)
    else:
        found, again = {}, np.arange(games)
    if again.size:
        rows = {name: values[again] for name, values in numbers.items()}
        following: Method = "auto" if method == "auto" else "best_response"
        _scatter(found, _in_parts(_equilibria, game, rows, again.size, following), again, games)
    if certificate:
        rows = numbers | {"contribution": found["contribution"]}
        found |= _in_parts(_certificates, game, rows, games, method)
    return found


def _equilibria(game: Game, numbers: dict[str, Array], method: Method) -> dict[str, Array]:
    found = solve(replace(game, **numbers), method)
    return {name: field.of(found) for name, field in FIELDS.items()}


def _certificates(game: Game, numbers: dict[str, Array], method: Method) -> dict[str, Array]:
    del method
    m = numbers.pop("contribution")
    game = replace(game, **numbers)
    found: Any = certify(game, outcome_at(game, m), probes=0, sample=len(game.devices))
    return {name: field.of(found) for name, field in CERTIFIED.items()}


@functools.partial(
    jax.jit,
    static_argnames=("one", "games", "method", "mesh"),
    compiler_options=COMPILER_OPTIONS,
)
def _kernel(one: Any, game: Game, numbers: Any, games: int, method: Method, mesh: Mesh) -> Any:
    """`one(game, numbers of one row, method)` for every row, each JAX device its share of the rows."""

    def batch(game: Game, numbers: Any) -> Any:
        return jax.vmap(lambda row: one(game, row, method), axis_size=games // mesh.size)(numbers)

    if mesh.size == 1:
        return batch(game, numbers)
    rows, same = PartitionSpec("games"), PartitionSpec()
    return jax.shard_map(batch, mesh=mesh, in_specs=(same, rows), out_specs=rows, check_vma=False)(
        game, numbers
    )


def _in_one(
    one: Any, game: Game, numbers: Numbers, games: int, padded: int, method: Method
) -> dict[str, np.ndarray]:
    """All rows in one call, with the last one repeated up to `padded` and a multiple of the JAX devices."""
    mesh = Mesh(np.array(jax.devices()), ("games",))
    padded = -(-padded // mesh.size) * mesh.size
    given = {name: _padded(rows, padded) for name, rows in numbers.items()}
    found = _kernel(one, game, given, padded, method, mesh)
    return {name: np.asarray(values)[:games] for name, values in found.items()}


def _in_parts(one: Any, game: Game, numbers: Numbers, games: int, method: Method) -> dict[str, np.ndarray]:
    """The same in small batches of one size."""
    most = max(1, SMALL_BATCH * len(jax.devices()) // len(game.devices))
    size = min(most, 2 ** math.ceil(math.log2(games)))
    parts = []
    for start in range(0, games, size):
        rows = {name: values[start : start + size] for name, values in numbers.items()}
        parts.append(_in_one(one, game, rows, min(size, games - start), size, method))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _scatter(found: dict[str, np.ndarray], new: dict[str, np.ndarray], at: np.ndarray, games: int) -> None:
    """Put rows solved again where they belong."""
    for name, values in new.items():
        whole = found.get(name)
        whole = np.empty((games, *values.shape[1:]), values.dtype) if whole is None else whole.copy()
        whole[at] = values
        found[name] = whole


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    """As many rows as asked for, the last one repeated."""
    missing = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing else rows


def batch(devices: int) -> int:
    """How many games of so many devices are solved together."""
    return max(1, BATCH * len(jax.devices()) // devices)
