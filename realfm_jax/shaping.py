"""Accuracy shaping: how much accuracy a device earns by giving more than its local optimum.

A device that gives d samples beyond m_i^o is owed s d in value, s = c_i - r + eps (a touch more than what
they cost it, money deducted). Shaping turns this into accuracy, `gain`; `worth` is the inverse. The paper's
Taylor shaping measures value by the second-order expansion of phi at the local accuracy, exact shaping by
phi itself.
"""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from realfm_jax._struct import Numbers, callable_tree, floating
from realfm_jax.payoff import Expansion, Payoff, error_for, expand, value_at
from realfm_jax.scalar import greater, lesser

Shaping = Literal["taylor", "exact"]
EPSILON = 1e-9
"""The paper's eps -> 0+, utility per sample: the least a device gains by every further sample."""


def check_shaping(shaping: str, field: str = "shaping") -> None:
    """Refuse an unknown shaping."""
    if shaping not in get_args(Shaping):
        raise ValueError(f"{field} must be one of {', '.join(get_args(Shaping))}; got {shaping!r}")


def gain(shaping: Shaping, payoff: Payoff, local: Expansion, owed: Array) -> Array:
    """gamma: the accuracy beyond the local one whose worth is `owed` (eq:gamma), one device, >= 0.

    Args:
      shaping: "taylor" (the paper) or "exact".
      payoff: phi_i.
      local: phi_i seen from the local accuracy a-bar_i.
      owed: (c_i - r + eps)(m - m_i^o), [], utility, >= 0.
    """
    if shaping == "exact":
        return local.error - error_for(payoff, value_at(payoff, local.error) + owed)
    # The quadratic formula rationalised: no division by phi'', hence smooth through phi'' = 0.
    discriminant = local.slope**2 + 2 * local.curvature * owed
    tiny = jnp.finfo(discriminant.dtype).tiny
    return 2 * owed / (local.slope + jnp.sqrt(greater(discriminant, tiny)))


def worth(shaping: Shaping, payoff: Payoff, local: Expansion, error: Array) -> Array:
    """What lowering the error from the local one to `error` is worth: the inverse of `gain`.

    Negative if `error` is higher (assumption 3 violated: the federated model has nothing to give).
    """
    if shaping == "exact":
        return value_at(payoff, error) - value_at(payoff, local.error)
    gained = local.error - error
    return local.slope * gained + local.curvature * gained**2 / 2


def accuracy_gain(
    accuracy_local: Numbers,
    extra: Numbers,
    cost: Numbers,
    payoff: Payoff,
    *,
    shaping: Shaping = "taylor",
    reward_rate: Numbers = 0.0,
    epsilon: Numbers = EPSILON,
) -> Array:
    """gamma_i(m): accuracy earned by `extra` = m - m_i^o samples beyond the local optimum (eq:gamma).

    Arguments broadcast; leaves of `payoff` too. `reward_rate` is r(m), at most `cost`.

    >>> from realfm_jax import LinearPayoff
    >>> round(float(accuracy_gain(0.5, 100.0, 1e-3, LinearPayoff())), 6)
    0.1
    """
    check_shaping(shaping)

    def one(payoff: Payoff, a: Array, extra: Array, c: Array, r: Array, eps: Array) -> Array:
        owed = greater(c - r + eps, 0) * greater(extra, 0)
        return greater(gain(shaping, payoff, expand(payoff, 1 - a), owed), 0)

    return _broadcast_vmap(one, payoff, accuracy_local, extra, cost, reward_rate, epsilon)


def required_contribution(
    accuracy_local: Numbers,
    accuracy_target: Numbers,
    contribution_local: Numbers,
    cost: Numbers,
    payoff: Payoff,
    *,
    shaping: Shaping = "taylor",
    reward_rate: Numbers = 0.0,
    epsilon: Numbers = EPSILON,
) -> Array:
    """The contribution at which shaping lifts a device from local to target accuracy (gamma inverted).

    Step 8 of the paper's experimental process, with measured accuracies. Arguments broadcast; leaves of
    `payoff` too. For a target below the local accuracy the formula gives less than m_i^o, as in the
    authors' records; the mechanism never asks for that.

    Args:
      accuracy_local: a-bar_i, in [0, 1).
      accuracy_target: the accuracy to be reached, in [0, 1).
      contribution_local: m_i^o, samples.
      cost: c_i, utility per sample.
      payoff: phi_i.
      shaping: "taylor" (the paper) or "exact".
      reward_rate: r(m), utility per sample, at most `cost`.
      epsilon: eps, utility per sample.

    >>> from realfm_jax import LinearPayoff
    >>> round(float(required_contribution(0.5, 0.6, 300.0, 1e-3, LinearPayoff())), 2)
    400.0
    """
    check_shaping(shaping)

    def one(payoff: Payoff, a: Array, b: Array, m: Array, c: Array, r: Array, eps: Array) -> Array:
        return m + worth(shaping, payoff, expand(payoff, 1 - a), 1 - b) / (c - lesser(r, c) + eps)

    return _broadcast_vmap(
        one, payoff, accuracy_local, accuracy_target, contribution_local, cost, reward_rate, epsilon
    )


def _broadcast_vmap(f: Callable[..., Array], payoff: Payoff, *args: Numbers) -> Array:
    """Map a function of one payoff and scalars over everything broadcast together."""
    leaves, tree = jax.tree.flatten(callable_tree(payoff))
    arrays = [floating(x) for x in (*leaves, *args)]
    dtype = jnp.result_type(*arrays)
    flat = jnp.broadcast_arrays(*(x.astype(dtype) for x in arrays))

    def one(*scalars: Array) -> Array:
        return f(jax.tree.unflatten(tree, scalars[: len(leaves)]), *scalars[len(leaves) :])

    return jax.vmap(one)(*(x.ravel() for x in flat)).reshape(flat[0].shape)
