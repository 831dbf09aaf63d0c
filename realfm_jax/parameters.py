"""Every number and choice of a game by name: what sweeps vary, design chooses and files set."""

import dataclasses
import difflib
import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from realfm_jax._struct import floating, with_field
from realfm_jax.game import Devices, Game

UNITS = {
    "cost": "utility / sample",
    "epsilon": "utility / sample",
    "k": "samples",
    "server_k": "samples",
    "payoff_scale": "utility",
    "server_payoff_scale": "utility",
    "devices": "devices",
}
"""Of the parameters that have one; the others are pure numbers or choices."""


def parameters(game: Game) -> dict[str, Any]:
    """The parameters of a game and their values: what `replace`, `sweep`, `sensitivity` and `design` know.

    A name is the path in the game without the words that go without saying: `devices.accuracy.a_opt` is
    "a_opt", `server.payoff.scale` "server_payoff_scale", `mechanism.epsilon` "epsilon". "mechanism" is
    the mechanism itself, "devices" the number of devices.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=1e-3, accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> print(*parameters(rfm.Game(devices, rfm.Server(), rfm.EqualShare())))
    cost a_opt k payoff_scale payoff_exponent server_payoff_scale server_payoff_exponent profit_margin \
mechanism devices
    """
    choices = {f.name: getattr(game.mechanism, f.name) for f in _choices(game)}
    return numbers(game) | choices | {"mechanism": game.mechanism, "devices": len(game.devices)}


def numbers(game: Game) -> dict[str, Any]:
    """The parameters that can be differentiated: the leaves of the game, by name."""
    leaves, structure = jax.tree.flatten(game)
    return dict(zip(_names(structure), leaves, strict=True))


def replace(game: Game, **values: Any) -> Game:
    """The game with some parameters changed, by the names of `parameters`; checked like a new one.

    One number for all devices, or one for each, may be given for what belongs to devices; their number
    changes only by `devices`, which keeps the first so many of them.

    >>> import realfm_jax as rfm
    >>> devices = rfm.Devices(cost=[1e-3, 2e-3, 3e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25))
    >>> game = replace(rfm.Game(devices, rfm.Server(), rfm.RealFM()), profit_margin=0.5, devices=2)
    >>> float(game.server.profit_margin), len(game.devices)
    (0.5, 2)
    """
    if not values:
        return game
    if "mechanism" in values:
        game = dataclasses.replace(game, mechanism=values.pop("mechanism"))
    count = values.pop("devices", len(game.devices))
    choices = {f.name: values.pop(f.name) for f in _choices(game) if f.name in values}
    leaves, tree = jax.tree.flatten(game)
    names, n = _names(tree), len(game.devices)
    for name, value in values.items():
        if name not in names:
            raise unknown("parameter", name, parameters(game))
        leaves[names.index(name)] = number = floating(value)
        if number.ndim and number.shape != (n,):
            raise ValueError(f"{name} must have shape [] or [{n}]; got shape {number.shape}")
    game = jax.tree.unflatten(tree, leaves)
    game = with_field(game, "devices", _first(game.devices, count))
    if choices:
        mechanism: Any = game.mechanism
        game = dataclasses.replace(game, mechanism=dataclasses.replace(mechanism, **choices))
    return _checked(game)


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that does not exist: names the nearest that do."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return ValueError(f"unknown {kind} {name!r}; {hint}")


@functools.lru_cache(maxsize=64)  # games of one structure are many, and every sweep asks several times
def _names(structure: jax.tree_util.PyTreeDef) -> tuple[str, ...]:
    numbered = jax.tree.unflatten(structure, range(structure.num_leaves))
    return tuple(_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(numbered))


def _name(path: tuple[Any, ...]) -> str:
    head, *rest = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
    rest = [part for part in rest if part != "accuracy"]
    own = head == "server" and rest != ["profit_margin"]
    return "_".join(["server", *rest] if own else rest)


def _choices(game: Game) -> list[dataclasses.Field[Any]]:
    """The mechanism's static fields: `shaping` and `money` of RealFM."""
    mechanism: Any = game.mechanism
    known = dataclasses.fields(mechanism) if dataclasses.is_dataclass(mechanism) else ()
    return [field for field in known if field.metadata.get("static")]


def _first(devices: Devices, count: int) -> Devices:
    """The first `count` devices; if all are alike, there are as many as you like."""
    if count == len(devices):
        return devices
    alike = not any(jnp.ndim(leaf) for leaf in jax.tree.leaves(devices))
    most = "" if alike else f" and at most {len(devices)}, as many as have parameters of their own"
    if count < 1 or (count > len(devices) and not alike):
        raise ValueError(f"devices must be at least 1{most}; got {count}")
    cut = jax.tree.map(lambda leaf: leaf[:count] if jnp.ndim(leaf) else leaf, devices)
    return with_field(cut, "cost", jnp.broadcast_to(floating(cut.cost), (count,)))


def _checked(tree: Any) -> Any:
    """Every struct built anew through its constructor, which checks what a person typed in."""
    if not dataclasses.is_dataclass(tree) or isinstance(tree, type):
        return tree
    children = {f.name: _checked(getattr(tree, f.name)) for f in dataclasses.fields(tree) if f.init}
    return dataclasses.replace(tree, **children)
