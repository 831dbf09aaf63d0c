"""Print and save: federated training here and in PyTorch, same run, same batches; then ever more clients.

First the same weights are trained on the same batches by all, without dropout, and the losses of the first
steps compared with those of PyTorch in float64; then things are timed. PyTorch trains the clients one after
the other, each step on all cores; ours goes through `train_federated`, each core a client of its own; the
first attempt is what one writes in an hour: Flax's own layers and `vmap` over the clients. Times are the
shortest of several runs, compiling apart.
"""

import argparse
import functools
import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax

from benchmarks import first_attempt
from benchmarks.machine import machine, peak_megabytes
from benchmarks.peers import agreed
from benchmarks.rows import Row, table
from realfm_jax import federated
from realfm_jax.federated.batches import draw
from realfm_jax.federated.models import init
from realfm_jax.record import provenance, save_json

BATCH, LOCAL_STEPS = 128, 6
FIRST = 3
"""Steps whose losses are compared with PyTorch's in float64: rounding errors grow tenfold a step."""
ADAM = optax.adam(1e-3)
MODELS: dict[str, tuple[nn.Module, nn.Module, tuple[int, int, int]]] = {
    "MNIST CNN": (federated.MnistCNN(), federated.MnistCNN(dropout=0.0), (28, 28, 1)),
    "ResNet-8": (federated.ResNet8(), federated.ResNet8(), (32, 32, 3)),
}
"""By name: the model timed, the same without dropout, and its images."""
SIZES = (4, 16, 64, 256, 1024)
"""Clients, in the table of scale."""


class Work:
    """What all of them train: initial weights, and a round's worth of pictures for each client.

    The pictures are noise: on enlarged digits float32 parts from float64 sooner, in PyTorch too, presumably
    because Adam makes full steps of gradients that are mere rounding errors.
    """

    def __init__(
        self, module: nn.Module, shape: tuple[int, int, int], clients: int, steps: int = LOCAL_STEPS
    ) -> None:
        random, each = np.random.default_rng(0), BATCH * steps
        large = random.integers(0, 256, (clients * each, *shape), np.uint8)
        train = large, random.integers(0, 10, len(large)).astype(np.uint8)
        names = tuple("0123456789")
        # Two pictures to test: scoring is not what is compared.
        self.data = federated.from_arrays("pictures", train, (large[:2], train[1][:2]), names)
        self.partition = federated.partition(self.data.train.labels, [each] * clients, key=0)
        self.clients, self.steps = clients, steps
        self.variables = init(module, jax.random.key(1), shape)

    def batches(self) -> tuple[np.ndarray, np.ndarray]:
        """What every client sees in the first round: float32 [clients, h, batch, H, W, C], and labels."""
        seed = tuple(int(word) for word in jax.random.key_data(jax.random.key(0)))
        drawn = draw(self.partition.indices, seed, 0, self.steps, BATCH)
        return np.asarray(self.data.floats(self.data.train.images[drawn])), self.data.train.labels[drawn]

    def train(self, module: nn.Module) -> federated.Run:
        """A round through the public API."""
        recipe = federated.Recipe(ADAM, epochs=1, batch=BATCH, local_steps=self.steps)
        return federated.train_federated(
            module, self.data, self.partition, recipe, 0, start=self.variables, score="global"
        )


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    begun = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - begun


def compare(name: str, clients: int, repeats: int) -> list[Row]:
    """One model, trained by all."""
    module, still, shape = MODELS[name]
    check, work = Work(module, shape, min(2, clients), FIRST), Work(module, shape, clients)
    losses = np.asarray(check.train(still).curves.loss)[0]
    torch = Torch(name)
    right = losses if torch.missing else torch.losses(check, "float64")
    train = functools.partial(work.train, module)
    compiling = timed(train)
    seconds = min(timed(train) for _ in range(repeats))
    about, count = "realfm_jax: train_federated", clients * LOCAL_STEPS
    off = agreed(about, [losses], [right], 1e-4)
    ours = Row(about, count, seconds, 1.0, compiling - seconds, math.nan if torch.missing else off)
    others = torch.rows(check, right, work, repeats, ours)
    if name == "MNIST CNN":
        others.append(with_vmap(check, right, ours))
    return [ours, *others]


class Torch:
    """The same in PyTorch, where it is installed."""

    def __init__(self, name: str) -> None:
        self.missing = importlib.util.find_spec("torch") is None
        self.twin = type(MODELS[name][0]).__name__
        self.still: Any = {"dropout": 0.0} if name == "MNIST CNN" else {}

    def losses(self, check: Work, kind: str) -> np.ndarray:
        """Mean loss of every client over the first steps, without dropout."""
        import torch

        from benchmarks.torch_clients import Clients

        clients = Clients(self.twin, check.variables, check.clients, getattr(torch, kind), **self.still)
        return clients.round(*check.batches()).mean(1)

    def rows(self, check: Work, right: np.ndarray, work: Work, repeats: int, ours: Row) -> list[Row]:
        """Its rows, one for each layout of images in memory, or that it is missing."""
        if self.missing:
            return [Row("PyTorch (missing: pip install torch==2.13.0)", ours.count)]
        import torch

        from benchmarks.torch_clients import Clients

        off = agreed("PyTorch", [self.losses(check, "float32")], [right], 1e-2)
        batches, rows = work.batches(), []
        for layout in ("contiguous_format", "channels_last"):
            clients = Clients(self.twin, work.variables, work.clients, layout=getattr(torch, layout))
            run = functools.partial(clients.round, *batches)
            seconds = min(timed(run) for _ in range(repeats))
            about = f"PyTorch: clients in turn, {layout.removesuffix('_format')}"
            rows.append(Row(about, ours.count, seconds, seconds / ours.seconds, difference=off))
        return rows


def with_vmap(check: Work, right: np.ndarray, ours: Row) -> Row:
    """The first attempt's row: the steps that are compared, for it is slow."""
    about = "first attempt: Flax's layers, vmap"
    step, state = first_attempt.trained(check.variables, check.clients)
    images, labels = (part.swapaxes(0, 1) for part in check.batches())
    labels, found = labels.astype(np.int32), []
    begun = time.perf_counter()
    program = step.lower(state, images[0], labels[0]).compile()
    compiling, begun = time.perf_counter() - begun, time.perf_counter()
    for batch in zip(images, labels, strict=True):
        state, loss = program(state, *batch)
        found.append(np.asarray(loss))
    seconds = time.perf_counter() - begun
    off = agreed(about, [np.mean(found, 0)], [right], 1e-2)
    count = check.clients * check.steps
    return Row(about, count, seconds, seconds / count / ours.each, compiling, off)


def scale(clients: int) -> dict[str, float]:
    """Time per client-step of the digits' model and peak memory of this process, for so many clients."""
    data, batch, rounds = federated.load("digits"), 32, max(4, 2048 // clients)
    random = np.random.default_rng(0)
    size = batch * LOCAL_STEPS * rounds  # one epoch, scored once
    shards = tuple(random.integers(0, len(data.train), size) for _ in range(clients))
    counts = np.stack([np.bincount(data.train.labels[shard], minlength=10) for shard in shards])
    partition = federated.Partition(shards, counts, None)  # overlapping: there are not enough digits
    recipe = federated.Recipe(ADAM, epochs=1, batch=batch, local_steps=LOCAL_STEPS)

    def train() -> Any:
        return federated.train_federated(
            federated.DigitsCNN(), data, partition, recipe, 0, score="global"
        ).clients

    train()
    seconds = min(timed(train) for _ in range(3))
    return {
        "count": rounds * LOCAL_STEPS * clients,
        "seconds": seconds,
        "peak_megabytes": peak_megabytes(),
    }


def scales(sizes: Sequence[int]) -> list[Row]:
    """Each number of clients in a process of its own, so that its peak of memory is its own."""
    rows: list[Row] = []
    for clients in sizes:
        command = [sys.executable, "-m", "benchmarks.training", "--scale", str(clients)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(run.stdout.splitlines()[-1])
        row = Row(f"realfm_jax: {clients:,} clients", int(found["count"]), found["seconds"])
        ratio = row.each / rows[0].each if rows else 1.0
        more = {"peak_megabytes": found["peak_megabytes"]}
        rows.append(Row(row.name, row.count, row.seconds, ratio, more=more))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--clients", type=int, default=16, help="clients (default 16)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the shortest counts (3)")
    parser.add_argument("--only", choices=[*MODELS, "scale"], help="one table (default: all)")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs and agrees")
    parser.add_argument("--scale", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", default="realfm-results/training.json", help="where to save the tables")
    options = parser.parse_args(arguments)
    federated.use_cores()
    if options.scale:
        return print(json.dumps(scale(options.scale)))
    clients, repeats = (2, 1) if options.quick else (options.clients, options.repeats)
    where = machine()
    print(f"{where['cpu']}, {where['cores']} cores, load {where['load']:.1f}; float32, batch {BATCH}\n")
    tables: dict[str, list[Row]] = {}
    for name in MODELS if options.only is None else {options.only} & set(MODELS):
        tables[name] = compare(name, clients, repeats)
        title = f"{name}, {clients} clients, h = {LOCAL_STEPS}"
        print(table(title, tables[name], "client-step", "ms", {}), flush=True)
    if options.only in (None, "scale"):
        tables["scale"] = scales(SIZES[:1] if options.quick else SIZES)
        title, extras = "Digits' model, batch 32, ever more clients", {"peak_megabytes": "peak MB"}
        print(table(title, tables["scale"], "client-step", "ms", extras))
    about = provenance(vars(options)) | {"hardware": where}
    print("saved", save_json(options.out, {"provenance": about, **tables}))


if __name__ == "__main__":
    main()
