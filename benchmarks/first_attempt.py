"""What one writes first in JAX: Flax's own layers as they come, a training step, `jit(vmap(step))`."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
from jax import Array


class MnistCNN(nn.Module):
    """The paper's network for MNIST, of Flax's own layers; its weights fit the package's by their order."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits of images, in training."""
        for stage in (((32, 1), (32, 1), (32, 2)), ((64, 1), (64, 1), (64, 2)), ((128, 1),)):
            for features, strides in stage:
                x = nn.relu(nn.Conv(features, (3, 3), strides, padding=1)(x))
                x = nn.BatchNorm(use_running_average=False, momentum=0.9)(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def trained(variables: Any, clients: int) -> tuple[Any, Any]:
    """A step of all clients, jitted, and the state it starts from; without dropout."""
    module, optimizer = MnistCNN(), optax.adam(1e-3)
    like = jax.eval_shape(module.init, jax.random.key(0), np.zeros((1, 28, 28, 1), np.float32))
    own = _ordered(variables, like)
    state = (own["params"], own["batch_stats"], optimizer.init(own["params"]))
    stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (clients, *np.shape(leaf))), state)

    def step(state: Any, images: Array, labels: Array) -> tuple[Any, Array]:
        params, statistics, memory = state

        def loss(params: Any) -> tuple[Array, Any]:
            logits, changed = module.apply(
                {"params": params, "batch_stats": statistics}, images, mutable=["batch_stats"]
            )
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

        (value, changed), slope = jax.value_and_grad(loss, has_aux=True)(params)
        change, memory = optimizer.update(slope, memory, params)
        return (optax.apply_updates(params, change), changed["batch_stats"], memory), value

    return jax.jit(jax.vmap(step)), stacked


def _ordered(variables: Any, like: Any) -> Any:
    """The package's variables under Flax's own names: layers are numbered by kind in both."""
    found = {kind: dict(layers) for kind, layers in like.items()}
    for kind, layers in variables.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(layers):
            block, *layer, name = (key.key for key in path)
            number = block.rsplit("_", 1)[1] if layer else "0"
            place = (layer[0] if layer else block).rsplit("_", 1)[0].replace("Conv3x3", "Conv")
            found[kind][f"{place}_{number}"] = {**found[kind][f"{place}_{number}"], name: leaf}
    return found
