"""3x3 convolution, padding 1, whose gradients are fast on a CPU too.

XLA's own convolution is quick forwards on a CPU and slow backwards: the weight gradient takes most of a
training step, a stride of 2 makes it worse, and maps of a few pixels are slower than a matrix product. Here
the forward pass stays XLA's, and matrix products compute the gradients:

- The weight gradient is one product per chunk of images, summed over chunks small enough for the L2 cache;
  what is copied to line pixels up with their neighbours never goes to memory.
- The input gradient of stride 2 is four small convolutions, one per parity of row and column, in place of
  one over a map three quarters of which are zeros.
- On maps below 4x4 the whole convolution is a product of patches and kernel; with 16 channels out or fewer,
  pairs of columns make 32.

Every convolution spells out its layouts: left to XLA they make a loop (`scan`, `lax.map`) much slower
on a CPU (jax issue 12868). Accelerators have good gradients of their own and get the native convolution.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

Method = Literal["auto", "blocked", "native"]
"""How to convolve: `blocked` (this file's gradients), `native` (XLA's), `auto`: blocked on a CPU only."""

CHUNK_BYTES = 1 << 17
"""Images whose pixels take this much are dealt with at once: they, stacked thrice, stay in an L2 cache."""
SMALL_MAP = 4
"""Height or width below which XLA's convolution is slower than a product of patches."""
FEW_CHANNELS = 8
"""Below, stacking both sides saves nothing: the patches themselves are small."""
FEW_OUTPUTS = 16
"""Up to so many channels out, XLA's convolution on a CPU is a slow one."""
SAME = ((1, 1), (1, 1))


def conv3x3(x: Array, kernel: Array, stride: int = 1, method: Method = "auto") -> Array:
    """Convolve images with a 3x3 kernel, padding 1: pixel p of the answer sees those around stride * p.

    May be jitted, vmapped (over kernels too), looped, sharded; reverse-mode differentiable once if blocked.

    Args:
      x: images, [B, H, W, C], float.
      kernel: [3, 3, C, O], rows, columns, channels in, channels out.
      stride: 1 or 2; H becomes ceil(H / stride).
      method: `auto` chooses by `jax.default_backend()` when traced.

    >>> x, kernel = jnp.ones((1, 3, 3, 1)), jnp.ones((3, 3, 1, 1))
    >>> print(conv3x3(x, kernel)[0, :, :, 0])  # how many neighbours each pixel has, itself included
    [[4. 6. 4.]
     [6. 9. 6.]
     [4. 6. 4.]]
    """
    if method not in ("auto", "blocked", "native"):
        raise ValueError(f"method must be 'auto', 'blocked' or 'native'; got {method!r}")
    if stride not in (1, 2):
        raise ValueError(f"stride must be 1 or 2; got {stride!r}")
    if x.ndim != 4 or kernel.shape[:3] != (3, 3, x.shape[3]) or kernel.ndim != 4:
        raise ValueError(
            f"need images [B, H, W, C] and a kernel [3, 3, C, O]; got {x.shape} and {kernel.shape}"
        )
    if method == "native" or (method == "auto" and jax.default_backend() != "cpu"):
        return _convolve(x, kernel, stride)
    if min(x.shape[:3]) == 0 or min(x.shape[1:3]) < SMALL_MAP:
        return pixelwise(_patches(x, stride), kernel.reshape(-1, kernel.shape[3]))
    return _blocked(x, kernel, stride)


def pixelwise(x: Array, kernel: Array) -> Array:
    """The matrix product of every pixel's channels with a kernel: [..., C] by [C, O] gives [..., O].

    Pixels are lined up first: XLA transposes what it contracts over several axes, slowly, in the gradient.
    """
    return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], kernel.shape[1])


def _convolve(x: Array, kernel: Array, stride: int, padding: tuple[tuple[int, int], ...] = SAME) -> Array:
    layouts = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=layouts)


def _paired(x: Array, kernel: Array) -> Array:
    """Stride 1; with few channels out, as twice as many channels of half as many columns.

    XLA has a quick kernel for 32 channels and more, worth the zeros that pairs of columns multiply.
    """
    (batch, height, width, channels), outputs = x.shape, kernel.shape[3]
    if outputs > FEW_OUTPUTS or width % 2:
        return _convolve(x, kernel, 1)
    # Of the six columns of a pair and its neighbours, the left one reads 1 to 3, the right one 2 to 4.
    left, right = (jnp.pad(kernel, [(0, 0), sides, (0, 0), (0, 0)]) for sides in ((1, 2), (2, 1)))
    both = jnp.stack([left, right], axis=3).reshape(3, 3, 2 * channels, 2 * outputs)
    answer = _convolve(x.reshape(batch, height, width // 2, 2 * channels), both, 1)
    return answer.reshape(batch, height, width, outputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _blocked(x: Array, kernel: Array, stride: int) -> Array:
    return _paired(x, kernel) if stride == 1 else _convolve(x, kernel, stride)


def _forward(x: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return _blocked(x, kernel, stride), (x, kernel)


def _backward(stride: int, saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, kernel = saved
    return _input_gradient(dy, kernel, stride, x.shape[1:3]), _weight_gradient(x, dy, stride)


_blocked.defvjp(_forward, _backward)


def _input_gradient(dy: Array, kernel: Array, stride: int, size: tuple[int, ...]) -> Array:
    """Gradient by the images, [B, *size, C], of the gradient by the answer, `dy` [B, H', W', O]."""
    back = kernel.swapaxes(2, 3)  # [3, 3, O, C]
    if stride == 1:
        return _paired(dy, back[::-1, ::-1])
    # A pixel in an even row was read by the kernel's middle row only, one in an odd row by the last row of
    # the kernel above it and the first row of the one below it; so it is with columns.
    taps = {0: slice(1, 2), 1: slice(None, None, -2)}
    dx = jnp.zeros((), dy.dtype)
    for row in (0, 1):
        for column in (0, 1):
            part = _convolve(dy, back[taps[row], taps[column]], 1, ((0, row), (0, column)))
            # Into its own rows and columns of the map, zeros between: the four sum up in one pass.
            spread = [(0, 0, 0), (row, 1 - row, 1), (column, 1 - column, 1), (0, 0, 0)]
            dx = dx + lax.pad(part, jnp.zeros((), dy.dtype), spread)
    return dx[:, : size[0], : size[1]]


def _weight_gradient(x: Array, dy: Array, stride: int) -> Array:
    """Gradient by the kernel, [3, 3, C, O]: sum of each pixel read times the gradient at its reader."""
    channels, outputs = x.shape[3], dy.shape[3]
    if stride == 1 and channels >= FEW_CHANNELS:
        # Shifting a reader by a row is as good as shifting what it reads: three shifts of either side make
        # all nine pairs in one square product, and copy 3 + 3 times in place of nine.
        stacked = _summed(lambda x, dy: _outer(_shifts(x, 2), _shifts(dy, 1, reverse=True)), x, dy)
        return stacked.reshape(3, channels, 3, outputs).transpose(2, 0, 1, 3)
    if 9 * channels < outputs:  # a product is quicker with its wider side on the right
        return _summed(lambda x, dy: _outer(_patches(x, stride), dy), x, dy).reshape(
            3, 3, channels, outputs
        )
    flat = _summed(lambda x, dy: _outer(dy, _patches(x, stride)), x, dy)
    return flat.T.reshape(3, 3, channels, outputs)


def _summed(product: Callable[[Array, Array], Array], x: Array, dy: Array) -> Array:
    """Sum of product(x, dy) over chunks of images."""
    batch = x.shape[0]
    size = _chunk(batch, max(x[0].size, dy[0].size) * x.dtype.itemsize)
    if size == batch:
        return product(x, dy)
    missing = [(0, -batch % size), (0, 0), (0, 0), (0, 0)]  # images of zeros, which add nothing
    x, dy = (jnp.pad(a, missing) if missing[0][1] else a for a in (x, dy))

    def chunk(index: int | Array) -> Array:
        # Slices of the whole: cut up in advance, by a reshape, XLA would compute and store x a second time.
        return product(*(lax.dynamic_slice_in_dim(a, index * size, size) for a in (x, dy)))

    # Begun with a chunk, not with zeros: they do not vary over the devices of a shard_map.
    return lax.fori_loop(1, x.shape[0] // size, lambda index, total: total + chunk(index), chunk(0))


def _chunk(batch: int, image_bytes: int) -> int:
    """How many images to a chunk: a divisor of the batch if a good one exists.

    >>> _chunk(128, 100_000), _chunk(96, 6_000), _chunk(127, 6_000)
    (1, 16, 21)
    """
    most = min(max(CHUNK_BYTES // max(image_bytes, 1), 1), max(batch, 1))
    divisor = max(size for size in range(1, most + 1) if batch % size == 0)
    return divisor if 2 * divisor > most else most


def _outer(a: Array, b: Array) -> Array:
    """Sum over images and pixels of the outer products of channels, [channels of a, channels of b]."""
    return a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1])


def _shifts(x: Array, axis: int, reverse: bool = False) -> Array:
    """Each pixel's neighbours before, itself and after along an axis, on the channels: [B, H, W, 3 C]."""
    padded = jnp.pad(x, [(1, 1) if i == axis else (0, 0) for i in range(4)])
    found = [lax.slice_in_dim(padded, i, i + x.shape[axis], axis=axis) for i in range(3)]
    return jnp.concatenate(found[::-1] if reverse else found, axis=-1)


def _patches(x: Array, stride: int) -> Array:
    """The nine pixels that each pixel of the answer reads, on the channels: [B, H', W', 9 C]."""
    padded = jnp.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    height, width = x.shape[1:3]
    pixels = [
        padded[:, i : i + height : stride, j : j + width : stride] for i in range(3) for j in range(3)
    ]
    return jnp.concatenate(pixels, axis=-1)
