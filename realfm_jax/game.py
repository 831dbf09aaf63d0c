"""Who plays: the devices, the server, and the game they form with a mechanism."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from realfm_jax._struct import check, check_callable, struct, with_field
from realfm_jax.accuracy import Curve
from realfm_jax.each import add_up, map_each, sum_each
from realfm_jax.payoff import Payoff, PowerPayoff

if TYPE_CHECKING:
    from realfm_jax.local import LocalOptimum


def _shape(leaf: Any) -> tuple[int, ...]:
    return jnp.shape(leaf)


@struct
class Devices:
    """n devices. Every leaf is one number for all of them, or one number each: shape [] or [n].

    Args:
      cost: c_i, utility per sample, > 0.
      payoff: phi_i, what an accuracy is worth to a device.
      accuracy: a_i(m), what accuracy m samples buy it.

    >>> from realfm_jax import GeneralizationBound
    >>> devices = Devices(cost=[1e-4, 2e-4], accuracy=GeneralizationBound(a_opt=0.95, k=10.0))
    >>> len(devices)
    2
    """

    cost: Any
    accuracy: Curve
    payoff: Payoff = dataclasses.field(default_factory=PowerPayoff)

    def __post_init__(self) -> None:
        check(self, "cost", "> 0", lambda x: x > 0)
        check_callable(self, "accuracy")
        check_callable(self, "payoff")
        sizes: dict[int, str] = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self):
            field, shape = f"Devices{jax.tree_util.keystr(path)}", _shape(leaf)
            if len(shape) > 1:
                raise ValueError(f"{field} must have shape [] or [n]; got shape {shape}")
            if shape == (0,):
                raise ValueError(f"{field} is empty; a game needs at least one device")
            if shape:
                sizes.setdefault(shape[0], field)
        if len(sizes) > 1:
            found = ", ".join(f"{field} has {n}" for n, field in sizes.items())
            raise ValueError(f"leaves of Devices must broadcast to one number of devices; {found}")

    def __len__(self) -> int:
        """n, the number of devices."""
        return max((shape[0] for leaf in jax.tree.leaves(self) if (shape := _shape(leaf))), default=1)

    def map(self, f: Callable[..., Any], *args: Any) -> Any:
        """f(device, *args) for each device, stacked; `args` have one row each.

        What devices have in common stays one number inside `f`: what depends on it alone is computed once.
        """
        return map_each(*self._each(f, args))

    def total(self, f: Callable[..., Array], *args: Any) -> Array:
        """The sum of f(device, *args), a scalar, over the devices."""
        return sum_each(*self._each(f, args))

    def _each(self, f: Callable[..., Any], args: Any) -> tuple[Callable[..., Any], int, Any]:
        leaves, tree = jax.tree.flatten(self)
        own = {i: leaf for i, leaf in enumerate(leaves) if _shape(leaf)}

        def one(row: Any) -> Any:
            mine, args = row
            device = jax.tree.unflatten(tree, [mine.get(i, leaf) for i, leaf in enumerate(leaves)])
            return f(device, *args)

        return one, len(self), (own, args)

    def take(self, which: Array) -> "Devices":
        """Some of the devices, by their numbers."""
        alike = not any(_shape(leaf) for leaf in jax.tree.leaves(self))
        if alike:
            return with_field(self, "cost", jnp.broadcast_to(self.cost, which.shape))
        return jax.tree.map(lambda leaf: leaf[which] if _shape(leaf) else leaf, self)

    @property
    def a_opt(self) -> Array:
        """a_opt of each device, [n]; zeros for a curve that has none, where it plays no part."""
        return jnp.broadcast_to(getattr(self.accuracy, "a_opt", 0.0), (len(self),))

    @property
    def differ_in_a_opt(self) -> bool:
        """Whether devices have an a_opt each."""
        return bool(_shape(getattr(self.accuracy, "a_opt", 0.0)))

    def quality(self, contribution: Array) -> Array:
        """T, the sum of m_i a_opt_i (eq:server-acc), []."""
        if self.differ_in_a_opt:
            return add_up(contribution * self.a_opt)
        return add_up(contribution) * self.a_opt[0]


@struct
class Server:
    """The server.

    Args:
      payoff: phi_C, what the federated model's accuracy is worth to it.
      profit_margin: p_m, the share of that value it keeps, in [0, 1]; the rest is paid out.
      accuracy: its accuracy curve; `None`: the devices' (eq:server-acc). In either case a_opt is
        replaced by the contribution-weighted mean of the devices' a_opt.
    """

    payoff: Payoff = dataclasses.field(default_factory=PowerPayoff)
    profit_margin: Any = 1.0
    accuracy: Curve | None = None

    def __post_init__(self) -> None:
        check(self, "profit_margin", "in [0, 1]", lambda x: (x >= 0) & (x <= 1))
        check_callable(self, "payoff")
        if self.accuracy is not None:
            check_callable(self, "accuracy")
        for path, leaf in jax.tree_util.tree_leaves_with_path(self):
            if _shape(leaf):
                field = f"Server{jax.tree_util.keystr(path)}"
                raise ValueError(f"{field} must be one number; got shape {_shape(leaf)}")


@struct
class Federation:
    """What everybody's contributions add up to.

    Attributes:
      total: S = sum of m_i, [], samples.
      error: 1 - a_C(S), [], of the federated model.
      reward_rate: r, [], utility per sample that the server has to give away (eq:server-reward).
    """

    total: Array
    error: Array
    reward_rate: Array


class Mechanism:
    """What a server offers. Subclass it (as a pytree) to play your own mechanism.

    `offer` is written for one device and scalars, and need not be smooth: kinks are expected.
    """

    def offer(
        self, device: Devices, alone: "LocalOptimum", contribution: Array, federation: Federation
    ) -> tuple[Array, Array]:
        """(1 - a^r, R): the error of the model that counts for a device, and the money it gets."""
        raise NotImplementedError(f"{type(self).__name__} must say what it offers")

    def server_error(self, federation: Federation, errors: Array) -> Array:
        """The error of the model the server ends up with, given those of the devices', [n]."""
        del errors
        return federation.error


@struct
class Game:
    """Devices, a server and the mechanism it offers them.

    Args:
      devices: who may contribute.
      server: who trains the federated model.
      mechanism: what a contribution is rewarded with: `RealFM`, `EqualShare`, `LocalOnly` or your own.
    """

    devices: Devices
    server: Server
    mechanism: Mechanism

    def __post_init__(self) -> None:
        for name, kind in (("devices", Devices), ("server", Server), ("mechanism", Mechanism)):
            if not isinstance(getattr(self, name), kind):
                got = type(getattr(self, name)).__name__
                raise ValueError(f"Game.{name} must be a {kind.__name__}; got {got}")
        if self.server.accuracy is None:
            for path, leaf in jax.tree_util.tree_leaves_with_path(self.devices.accuracy):
                name = jax.tree_util.keystr(path)
                if _shape(leaf) and name != ".a_opt":
                    raise ValueError(
                        f"devices.accuracy{name} differs between devices, so the server's curve is open: "
                        f"give Server(accuracy=...); got shape {_shape(leaf)}"
                    )

    @property
    def server_accuracy_curve(self) -> Curve:
        """The curve of the federated model, before its a_opt is replaced by the devices' mean."""
        return self.devices.accuracy if self.server.accuracy is None else self.server.accuracy
