"""Layers of the package's own models: what Flax has, arranged so that a CPU goes over images less often.

A training step on a CPU is bound by its matrix products, and next by how often it reads the activations.
Flax's layers give the same numbers; these save whole passes: the normalisation's gradient needs its input
and two sums, relu's its own answer, and max-pooling compares neighbours instead of searching windows.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array, lax

from realfm_jax.federated.convolution import Method, conv3x3, pixelwise

FLOAT = jnp.float32
torch_uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""U(-1 / sqrt(n), 1 / sqrt(n)) for n inputs, PyTorch's default: there the paper's curves began."""


def bias_uniform(inputs: int) -> Any:
    """PyTorch's default for a bias of a layer with so many inputs: the same range as its weights."""

    def draw(key: Array, shape: tuple[int, ...], dtype: Any = FLOAT) -> Array:
        return jax.random.uniform(key, shape, dtype, -1.0, 1.0) * inputs**-0.5

    return draw


class Conv3x3(nn.Module):
    """3x3 convolution, padding 1: [B, H, W, C] -> [B, ceil(H / strides), ceil(W / strides), features].

    >>> images = jnp.zeros((2, 7, 7, 1), jnp.float32)
    >>> Conv3x3(4, strides=2).init_with_output(jax.random.key(0), images)[0].shape
    (2, 4, 4, 4)
    """

    features: int
    strides: int = 1
    use_bias: bool = True
    method: Method = "auto"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Convolve images x."""
        shape = (3, 3, x.shape[-1], self.features)
        x = conv3x3(x, self.param("kernel", torch_uniform, shape, FLOAT), self.strides, self.method)
        if self.use_bias:
            x = x + self.param("bias", bias_uniform(9 * shape[2]), (self.features,), FLOAT)
        return x


class Conv1x1(nn.Module):
    """1x1 convolution without bias: the shortcut of a residual block, a matrix product."""

    features: int
    strides: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Mix the channels of every `strides`-th row and column of x."""
        kernel = self.param("kernel", torch_uniform, (x.shape[-1], self.features), FLOAT)
        return pixelwise(x[:, :: self.strides, :: self.strides], kernel)


class Dense(nn.Module):
    """Affine map of the last axis, drawn as PyTorch draws it."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., C] -> [..., features]."""
        kernel = self.param("kernel", torch_uniform, (x.shape[-1], self.features), FLOAT)
        return x @ kernel + self.param("bias", bias_uniform(x.shape[-1]), (self.features,), FLOAT)


class BatchNorm(nn.Module):
    """Batch normalisation over images and pixels; variables and numbers of `flax.linen.BatchNorm`.

    As PyTorch's (epsilon 1e-5, a tenth of the batch's statistics moves into the running ones), except that
    PyTorch puts n / (n - 1) times the variance of a batch of n pixels into the running variance: 0.8 % more
    where 128 images are down to one pixel, less elsewhere.
    """

    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        """Normalise x, [..., C], by its own statistics when training, by the running ones otherwise."""
        channels = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, channels, FLOAT)
        var = self.variable("batch_stats", "var", jnp.ones, channels, FLOAT)
        scale = self.param("scale", nn.initializers.ones, channels, FLOAT)
        bias = self.param("bias", nn.initializers.zeros, channels, FLOAT)
        if not train:
            factor = scale * lax.rsqrt(var.value + self.epsilon)
            return x * factor + (bias - mean.value * factor)
        y, batch_mean, batch_var = normalise(x, scale, bias, self.epsilon)
        if not self.is_initializing():
            mean.value = self.momentum * mean.value + (1 - self.momentum) * lax.stop_gradient(batch_mean)
            var.value = self.momentum * var.value + (1 - self.momentum) * lax.stop_gradient(batch_var)
        return y


@jax.custom_vjp
def relu(x: Array) -> Array:
    """max(x, 0); gradient 0 at 0. The gradient asks the answer, so that x itself need not be kept."""
    return jnp.maximum(x, 0)


relu.defvjp(lambda x: (relu(x),) * 2, lambda y, dy: (jnp.where(y > 0, dy, 0),))


@jax.custom_vjp
def normalise(x: Array, scale: Array, bias: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(var + epsilon) * scale + bias by channel; and mean and biased variance, [C] each.

    The statistics are for the running averages: no gradient flows through those two answers.
    """
    return _normalise(x, scale, bias, epsilon)[0]


def _normalise(x: Array, scale: Array, bias: Array, epsilon: float) -> Any:
    over = tuple(range(x.ndim - 1))
    mean = x.mean(over)
    var = jnp.maximum((x * x).mean(over) - mean * mean, 0)
    inverse = lax.rsqrt(var + epsilon)
    factor = scale * inverse
    return (x * factor + (bias - mean * factor), mean, var), (x, mean, inverse, factor)


def _normalise_gradient(saved: Any, gradients: Any) -> tuple[Array, Array, Array, None]:
    """With z normalised x: dbias = sum dy, dscale = sum dy z, dx = factor (dy - (dbias + z dscale) / n)."""
    (x, mean, inverse, factor), dy = saved, gradients[0]
    over = tuple(range(x.ndim - 1))
    count = x.size // x.shape[-1]
    dbias = dy.sum(over)
    dscale = ((dy * x).sum(over) - mean * dbias) * inverse
    by_x = -factor * inverse * dscale / count
    constant = -factor * dbias / count - by_x * mean
    return factor * dy + by_x * x + constant, dscale, dbias, None


normalise.defvjp(_normalise, _normalise_gradient)


def max_pool(x: Array) -> Array:
    """The largest of each 2x2 block of pixels, [B, H // 2, W // 2, C]; an odd last row or column drops out.

    Among equals, common after relu, the gradient goes to the first in reading order, as in PyTorch.

    >>> print(max_pool(jnp.arange(9.0).reshape(1, 3, 3, 1))[0, :, :, 0])
    [[4.]]
    """
    return _pool(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2])


@jax.custom_vjp
def _pool(x: Array) -> Array:
    return _pool_forward(x)[0]


def _pool_forward(x: Array) -> tuple[Array, Array]:
    """The largest of each block, and which it was, 0 to 3 in reading order; both [B, H / 2, W / 2, C]."""
    a, b, c, d = (x[:, i::2, j::2] for i in (0, 1) for j in (0, 1))
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    zero, one, two, three = (jnp.uint8(i) for i in range(4))
    which = jnp.where(top >= bottom, jnp.where(a >= b, zero, one), jnp.where(c >= d, two, three))
    return jnp.maximum(top, bottom), which


def _pool_gradient(which: Array, dy: Array) -> tuple[Array]:
    batch, height, width, channels = dy.shape
    number = jnp.arange(4, dtype=jnp.uint8).reshape(2, 1, 2, 1)
    won = which[:, :, None, :, None] == number  # [B, H / 2, 2, W / 2, 2, C]
    return (jnp.where(won, dy[:, :, None, :, None], 0).reshape(batch, 2 * height, 2 * width, channels),)


_pool.defvjp(_pool_forward, _pool_gradient)
