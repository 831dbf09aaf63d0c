"""Print and save: the convolutions of a network one by one, on one core: ours, XLA's own, PyTorch's.

Where a training step spends its time, and on which layers PyTorch is ahead. Answers are checked first.
Times are the shortest of several runs, in milliseconds for a batch of 128: forwards, and the gradients by
images and kernel together. `python -m benchmarks.layers`: a minute.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import machine
from benchmarks.peers import agreed
from benchmarks.training import BATCH
from realfm_jax.federated.convolution import Method, conv3x3
from realfm_jax.formats import text_table
from realfm_jax.record import provenance, save_json


class Layer(NamedTuple):
    """A 3x3 convolution: size of its images, channels in and out, stride, how often a network has it."""

    size: int
    inputs: int
    outputs: int
    stride: int
    times: int = 1

    def __str__(self) -> str:
        """As in the printed table."""
        return f"{self.size}x{self.size}, {self.inputs} -> {self.outputs}, stride {self.stride}"


NETWORKS = {
    "MNIST CNN": (
        *(Layer(28, 1, 32, 1), Layer(28, 32, 32, 1), Layer(28, 32, 32, 2), Layer(7, 32, 64, 1)),
        *(Layer(7, 64, 64, 1), Layer(7, 64, 64, 2), Layer(2, 64, 128, 1)),
    ),
    "ResNet-8": (
        *(Layer(32, 3, 16, 1), Layer(32, 16, 16, 1, 2), Layer(32, 16, 32, 2), Layer(16, 32, 32, 1)),
        *(Layer(16, 32, 64, 2), Layer(8, 64, 64, 1)),
    ),
}


class Times(NamedTuple):
    """Milliseconds."""

    forward: float
    gradient: float


def best(run: Callable[[], Any], repeats: int) -> float:
    """The shortest of some runs, milliseconds."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return 1e3 * min(times)


def drawn(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, kernel and a gradient by the answer."""
    random, out = np.random.default_rng(0), -(-layer.size // layer.stride)
    shapes = (
        (BATCH, layer.size, layer.size, layer.inputs),
        (3, 3, layer.inputs, layer.outputs),
        (BATCH, out, out, layer.outputs),
    )
    x, kernel, dy = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    return x, kernel, dy


class Runs(NamedTuple):
    """One layer by one of them: what is timed, and its answers: forwards, by images, by kernel."""

    forward: Callable[[], Any]
    gradient: Callable[[], Any]
    answers: list[np.ndarray]

    def times(self, repeats: int) -> Times:
        """The shortest of some runs of either."""
        return Times(best(self.forward, repeats), best(self.gradient, repeats))


def with_jax(layer: Layer, method: Method) -> Runs:
    """Ours ("blocked") or XLA's ("native"). A gradient needs no answer: XLA leaves the forward pass out."""
    x, kernel, dy = map(jnp.asarray, drawn(layer))
    forward = jax.jit(lambda x, k: conv3x3(x, k, layer.stride, method))
    both = jax.jit(lambda x, k, dy: jax.vjp(lambda x, k: conv3x3(x, k, layer.stride, method), x, k)[1](dy))
    return Runs(
        lambda: jax.block_until_ready(forward(x, kernel)),
        lambda: jax.block_until_ready(both(x, kernel, dy)),
        [np.asarray(answer) for answer in (forward(x, kernel), *both(x, kernel, dy))],
    )


def with_torch(layer: Layer) -> Runs:
    """PyTorch's, images and kernel in the faster of its layouts, channels_last."""
    import torch

    torch.set_num_threads(1)
    x, kernel, dy = drawn(layer)

    def put(array: np.ndarray, axes: tuple[int, ...]) -> Any:
        tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(axes)))
        return tensor.contiguous(memory_format=torch.channels_last)

    images, weights, slope = put(x, (0, 3, 1, 2)), put(kernel, (3, 2, 0, 1)), put(dy, (0, 3, 1, 2))
    # Strides, padding, dilation; not transposed, no output padding, one group.
    how = [layer.stride] * 2, [1, 1], [1, 1], False, [0, 0], 1

    def forward() -> Any:
        return torch.nn.functional.conv2d(images, weights, None, layer.stride, 1)

    def gradient() -> Any:
        return torch.ops.aten.convolution_backward(slope, images, weights, None, *how, [True, True, False])

    by_images, by_kernel, _ = gradient()
    pictures = [each.permute(0, 2, 3, 1).numpy() for each in (forward(), by_images)]
    return Runs(forward, gradient, [*pictures, by_kernel.permute(2, 3, 1, 0).numpy()])


def measure(layer: Layer, repeats: int) -> dict[str, Times]:
    """One layer by all of them, once their answers agree."""
    runs = {
        "ours": with_jax(layer, "blocked"),
        "XLA": with_jax(layer, "native"),
        "PyTorch": with_torch(layer),
    }
    for name in ("ours", "XLA"):
        for answer, wanted in zip(runs[name].answers, runs["PyTorch"].answers, strict=True):
            size = np.abs(wanted).max()  # what differences are small against, also where the answer is 0
            agreed(f"{name}, {layer}", [2 + answer / size], [2 + wanted / size], 1e-4)
    return {name: run.times(repeats) for name, run in runs.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="runs of which the shortest counts (30)")
    parser.add_argument("--out", default="realfm-results/layers.json", help="where to save the table")
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    names, record = ("ours", "XLA", "PyTorch"), {}
    heads = [("", *(f"{name}: forward" for name in names), *(f"{name}: gradient" for name in names))]
    for network, layers in NETWORKS.items():
        found = [measure(layer, options.repeats) for layer in layers]
        columns = [(part, name) for part in Times._fields for name in names]
        each = [[getattr(times[name], part) for part, name in columns] for times in found]
        total = np.array(each).T @ [layer.times for layer in layers]
        labels = [f"{layer}{f' ({layer.times} times)' if layer.times > 1 else ''}" for layer in layers]
        rows = [(label, *(f"{x:.2f}" for x in row)) for label, row in zip(labels, each, strict=True)]
        print(
            f"{network}\n{text_table(heads, [*rows, ('all', *(f'{x:.2f}' for x in total))])}\n", flush=True
        )
        record[network] = {str(layer): times for layer, times in zip(layers, found, strict=True)}
    about = provenance(vars(options)) | {"hardware": machine()}
    print("saved", save_json(options.out, {"provenance": about, **record}))


if __name__ == "__main__":
    main()
