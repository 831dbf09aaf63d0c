"""Models, and one way to call any Flax module: the paper's networks, small ones for CPUs, and yours.

Everything is float32, whatever `jax_enable_x64` says. Weights are drawn as PyTorch draws them by default
(uniform, +-1 / sqrt(inputs)), for the paper's curves began there; Flax's own default has larger weights.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from realfm_jax.federated.convolution import Method
from realfm_jax.federated.layers import FLOAT, BatchNorm, Conv1x1, Conv3x3, Dense, max_pool, relu

Variables = Mapping[str, Any]
"""A module's weights and statistics: {"params": ..., "batch_stats": ... if it has any}."""


class _Block(nn.Module):
    """3x3 convolution, relu, batch normalisation, in the order of the paper's MNIST network."""

    features: int
    strides: int = 1
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        x = relu(Conv3x3(self.features, self.strides, method=self.method)(x))
        return BatchNorm()(x, train)


class MnistCNN(nn.Module):
    """The paper's network for MNIST: 7 convolutions, 28, 14, 7, 4, 2, 1 pixels wide; 187,146 weights.

    Args:
      classes: number of logits.
      dropout: share of activations set to 0 after each of the three stages, in training.
      method: how to convolve, see `convolution.conv3x3`.
    """

    classes: int = 10
    dropout: float = 0.25
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        """Logits [B, classes] of images x [B, 28, 28, 1]."""
        for stage in (((32, 1), (32, 1), (32, 2)), ((64, 1), (64, 1), (64, 2)), ((128, 1),)):
            for features, strides in stage:
                x = _Block(features, strides, self.method)(x, train)
            x = nn.Dropout(self.dropout, deterministic=not train)(max_pool(x))
        return Dense(self.classes)(x.reshape(x.shape[0], -1))


class DigitsCNN(nn.Module):
    """A small network for 8x8 digits: two convolutions, 10,026 weights, seconds to train.

    >>> import numpy as np
    >>> variables = init(DigitsCNN(), jax.random.key(0), (8, 8, 1))
    >>> sum(np.size(leaf) for leaf in jax.tree.leaves(variables["params"]))
    10026
    """

    classes: int = 10
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        """Logits [B, classes] of images x [B, 8, 8, 1]."""
        x = _Block(16, 1, self.method)(x, train)
        x = _Block(32, 2, self.method)(x, train)
        return Dense(self.classes)(x.reshape(x.shape[0], -1))


class CompactCNN(nn.Module):
    """A compact network for MNIST on CPUs: three convolutions, each followed by max-pooling, 29,290 weights
    and a sixth of the paper's network's arithmetic.

    Args:
      classes: number of logits.
      widths: channels of the convolutions; each halves the image.
      dropout: share of the features set to 0 in training.
      method: how to convolve, see `convolution.conv3x3`.
    """

    classes: int = 10
    widths: tuple[int, ...] = (16, 32, 64)
    dropout: float = 0.25
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        """Logits [B, classes] of images x [B, H, W, C]."""
        for features in self.widths:
            x = max_pool(_Block(features, 1, self.method)(x, train))
        x = nn.Dropout(self.dropout, deterministic=not train)(x.reshape(x.shape[0], -1))
        return Dense(self.classes)(x)


class _Residual(nn.Module):
    """Two 3x3 convolutions around which a shortcut leads; 1x1 where the size changes."""

    features: int
    strides: int = 1
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        y = Conv3x3(self.features, self.strides, use_bias=False, method=self.method)(x)
        y = relu(BatchNorm()(y, train))
        y = Conv3x3(self.features, use_bias=False, method=self.method)(y)
        y = BatchNorm()(y, train)
        if self.strides != 1 or x.shape[-1] != self.features:
            x = BatchNorm()(Conv1x1(self.features, self.strides)(x), train)
        return relu(x + y)


class ResNet(nn.Module):
    """Residual network with a 3x3 stem and no max-pooling, for small images; any height and width.

    Args:
      classes: number of logits.
      widths: channels of each stage; every stage but the first halves the image.
      blocks: residual blocks of each stage, two convolutions each.
      method: how to convolve, see `convolution.conv3x3`.
    """

    classes: int = 10
    widths: tuple[int, ...] = (16, 32, 64)
    blocks: tuple[int, ...] = (1, 1, 1)
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        """Logits [B, classes] of images x [B, H, W, C]."""
        x = Conv3x3(self.widths[0], use_bias=False, method=self.method)(x)
        x = relu(BatchNorm()(x, train))
        for stage, (features, blocks) in enumerate(zip(self.widths, self.blocks, strict=True)):
            for block in range(blocks):
                strides = 2 if stage > 0 and block == 0 else 1
                x = _Residual(features, strides, self.method)(x, train)
        return Dense(self.classes)(x.mean((1, 2)))


class ResNet8(ResNet):
    """Compact ResNet for CPUs: 16, 32, 64 channels, one block each; 78,042 weights for colour images."""


class ResNet18(ResNet):
    """The paper's network for CIFAR-10: 64 to 512 channels, two blocks each; 11,173,962 weights."""

    widths: tuple[int, ...] = (64, 128, 256, 512)
    blocks: tuple[int, ...] = (2, 2, 2, 2)


def init(module: nn.Module, key: Array, image_shape: tuple[int, ...]) -> dict[str, Any]:
    """Fresh variables of a module for images of shape (H, W, C), float32.

    >>> variables = init(ResNet8(), jax.random.key(0), (32, 32, 3))
    >>> sorted(variables)
    ['batch_stats', 'params']
    """
    images = jnp.zeros((1, *image_shape), FLOAT)
    weights, noise = jax.random.split(key)
    found = module.init({"params": weights, "dropout": noise}, images, **_flag(module, train=False))
    return _float32(dict(found))


def train_logits(
    module: nn.Module, variables: Variables, x: Array, key: Array
) -> tuple[Array, dict[str, Any]]:
    """Logits [B, classes] of a batch x as in training, and what else changed: batch statistics, {} if none.

    `key` draws the dropout, and whatever else the module asks random numbers for.
    """
    changing = [name for name in variables if name != "params"]
    keys = {"dropout": key, "params": jax.random.fold_in(key, 1)}  # other streams fall back to "params"
    flag = _flag(module, train=True)
    logits, updated = module.apply(variables, x.astype(FLOAT), rngs=keys, mutable=changing, **flag)
    return logits.astype(FLOAT), _float32(dict(updated))


def eval_logits(module: nn.Module, variables: Variables, x: Array) -> Array:
    """Logits [B, classes] of a batch x: running statistics, no dropout."""
    logits: Any = module.apply(variables, x.astype(FLOAT), **_flag(module, train=False))
    return logits.astype(FLOAT)


def check_outputs(module: nn.Module, image_shape: tuple[int, ...], classes: int) -> None:
    """Say what is wrong, by a ValueError, with a module that cannot classify such images; computes nothing.

    >>> check_outputs(DigitsCNN(classes=7), (8, 8, 1), classes=10)
    Traceback (most recent call last):
    ValueError: DigitsCNN gives an array of shape (2, 7) for 2 images, but 10 classes need (2, 10)
    """
    name = type(module).__name__
    if not isinstance(module, nn.Module):
        raise ValueError(f"model must be a flax.linen Module; got {module!r}")

    def both() -> tuple[Array, Array]:
        variables = init(module, jax.random.key(0), image_shape)
        images = jnp.zeros((2, *image_shape), FLOAT)
        return train_logits(module, variables, images, jax.random.key(1))[0], eval_logits(
            module, variables, images
        )

    for logits in jax.eval_shape(both):
        if logits.shape != (2, classes):
            raise ValueError(
                f"{name} gives an array of shape {logits.shape} for 2 images, "
                f"but {classes} classes need (2, {classes})"
            )


_TRAINING = ("train", "training", "is_training")
_EVALUATING = ("deterministic", "use_running_average")


def _flag(module: nn.Module, train: bool) -> dict[str, Any]:
    """The arguments that tell a module whether it is in training, by the names that Flax users give."""
    asked = [
        p for name, p in inspect.signature(type(module).__call__).parameters.items() if name != "self"
    ][1:]
    flags = {p.name: train for p in asked if p.name in _TRAINING}
    flags |= {p.name: not train for p in asked if p.name in _EVALUATING}
    for p in asked:
        optional = p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if p.name not in flags and not optional:
            raise ValueError(
                f"{type(module).__name__}.__call__ needs {p.name!r}, which is not known here; give it a "
                f"default, or name the flag of training one of {', '.join(_TRAINING + _EVALUATING)}"
            )
    return flags


def _float32(tree: Any) -> Any:
    """Every floating-point leaf as float32; others (counters, say) as they are."""

    def cast(leaf: Any) -> Any:
        return leaf.astype(FLOAT) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)
