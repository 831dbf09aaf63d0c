"""The blocked convolution and the layers against XLA's and Flax's own: values, gradients, vmap, loops."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec

from realfm_jax.federated import convolution, layers
from realfm_jax.federated.convolution import conv3x3

FLOAT = jnp.float32


def drawn(seed, *shapes):
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return [jax.random.normal(key, shape, FLOAT) for key, shape in zip(keys, shapes, strict=True)]


def close(found, wanted, tolerance=1e-5):
    """Both trees equal to the tolerance, relative to the largest number of each leaf."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(float(jnp.abs(b).max()), 1e-6))


@functools.partial(jax.jit, static_argnums=(0, 1))
def pulled(method, stride, x, kernel):
    """Answer and gradients by both arguments, for a random gradient of the answer."""

    def along(x, kernel):
        y = conv3x3(x, kernel, stride, method)
        return (y * drawn(1, y.shape)[0]).sum(), y

    gradients, y = jax.grad(along, argnums=(0, 1), has_aux=True)(x, kernel)
    return y, gradients


@settings(max_examples=8)
@given(
    st.integers(1, 9),
    st.sampled_from([1, 2, 4, 5, 7, 14]),
    st.sampled_from([1, 2, 3, 4, 6, 28]),
    st.sampled_from([1, 3, 8, 20]),
    st.sampled_from([1, 5, 16]),
    st.sampled_from([1, 2]),
)
@example(6, 28, 28, 1, 32, 1)  # few channels
@example(6, 28, 28, 32, 32, 1)  # one image to a chunk
@example(6, 28, 28, 32, 32, 2)
@example(127, 7, 7, 16, 8, 1)  # chunks that do not divide the batch
@example(127, 7, 7, 16, 8, 2)
def test_blocked_is_native(batch, height, width, channels, outputs, stride):
    x, kernel = drawn(0, (batch, height, width, channels), (3, 3, channels, outputs))
    y, gradients = pulled("blocked", stride, x, kernel)
    assert y.shape == (batch, -(-height // stride), -(-width // stride), outputs)
    close((y, gradients), pulled("native", stride, x, kernel))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [2, 7])
def test_transformations(size, stride):
    """vmap over images and kernels, over kernels only, and lax.map: one client after another."""
    x, kernel = drawn(0, (3, 40, size, size, 16), (3, 3, 3, 16, 8))

    def one(x, kernel):
        return pulled("blocked", stride, x, kernel)

    alone = [one(*pair) for pair in zip(x, kernel, strict=True)]
    wanted = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    close(jax.jit(jax.vmap(one))(x, kernel), wanted)
    close(jax.jit(lambda x, kernel: lax.map(lambda pair: one(*pair), (x, kernel)))(x, kernel), wanted)
    shared = jax.vmap(one, (None, 0))(x[0], kernel)
    close(jax.tree.map(lambda leaf: leaf[0], shared), alone[0])


def test_sharded():
    """Inside shard_map, with its check of what varies over the devices."""
    x, kernel = drawn(0, (2, 40, 7, 7, 16), (2, 3, 3, 16, 8))
    mesh = jax.make_mesh((1,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("clients")

    def clients(x, kernel):
        return lax.map(lambda pair: pulled("blocked", 1, *pair), (x, kernel))

    sharded = jax.shard_map(clients, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    close(jax.jit(sharded)(x, kernel), clients(x, kernel))


def test_choice_and_mistakes():
    x, kernel = drawn(0, (1, 5, 5, 3), (3, 3, 3, 2))
    jaxpr = {
        m: str(jax.make_jaxpr(lambda x, m=m: conv3x3(x, kernel, 1, m))(x))
        for m in ("auto", "blocked", "native")
    }
    assert jaxpr["auto"] == jaxpr["blocked" if jax.default_backend() == "cpu" else "native"]
    assert "custom_vjp" in jaxpr["blocked"]
    assert "custom_vjp" not in jaxpr["native"]
    with pytest.raises(ValueError, match=r"stride must be 1 or 2; got 3"):
        conv3x3(x, kernel, 3)
    with pytest.raises(ValueError, match=r"method must be .*'fast'"):
        conv3x3(x, kernel, 1, "fast")
    with pytest.raises(ValueError, match=r"got \(1, 5, 5, 3\) and \(3, 3, 2, 3\)"):
        conv3x3(x, kernel.swapaxes(2, 3))


def test_chunks_fit_the_cache():
    for batch in (1, 6, 127, 128, 256):
        for image in (100, 6_000, 100_000, 1_000_000):
            size = convolution._chunk(batch, image)
            assert 1 <= size <= batch
            assert size == 1 or size * image <= convolution.CHUNK_BYTES


class Flaxen(nn.Module):
    """Flax's own layers, with PyTorch's momentum."""

    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False, momentum=0.9)(nn.relu(x))
        return nn.max_pool(x, (2, 2), (2, 2))


class Ours(nn.Module):
    """The same with our layers."""

    @nn.compact
    def __call__(self, x):
        return layers.max_pool(layers.BatchNorm()(layers.relu(x), train=True))


@pytest.mark.parametrize("shape", [(16, 6, 6, 3), (5, 7, 9, 2)])
def test_layers_are_those_of_flax(shape):
    """Answers, statistics and gradients of relu, normalisation and pooling; zeros tie in many blocks."""
    pooled = (shape[0], shape[1] // 2, shape[2] // 2, shape[3])
    x, scale, bias, dy = drawn(0, shape, shape[-1:], shape[-1:], pooled)
    stats = {"BatchNorm_0": {"mean": bias, "var": scale**2}}

    @functools.partial(jax.jit, static_argnums=0)
    def run(module, *args):
        def call(x, scale, bias):
            variables = {"params": {"BatchNorm_0": {"scale": scale, "bias": bias}}, "batch_stats": stats}
            return module.apply(variables, x, mutable=["batch_stats"])

        y, pull, updated = jax.vjp(call, *args, has_aux=True)
        return y, pull(dy), updated

    close(run(Ours(), x - 0.5, scale, bias), run(Flaxen(), x - 0.5, scale, bias))
