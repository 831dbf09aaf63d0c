"""Many clients at once: a round of local steps, the average of their models, and what models score.

One client is a function of its own model, optimizer state and batches. It is mapped over the clients of a
JAX device and sharded over the JAX devices: there each core of a CPU works on a client of its own (one
after the other, `together=1`), and an accelerator on many at once (`together` of them).
"""

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from realfm_jax.federated.data import floats
from realfm_jax.federated.models import eval_logits, train_logits

Tree = Any
"""Any pytree of arrays."""

TOGETHER = 64
"""Clients computed at once on an accelerator unless told otherwise: bounds memory, and keeps it busy."""
SCORED = 500
"""Images scored at once."""


class Task(NamedTuple):
    """What a client's step computes; hashable, so that the same task is compiled once."""

    module: nn.Module
    optimizer: optax.GradientTransformation
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def floats(self, images: Array) -> Array:
        """Bytes as the model wants them: float32, mean 0 and deviation 1 in each channel."""
        return floats(images, self.mean, self.std)


class Layout(NamedTuple):
    """Where clients are computed: sharded over the mesh, `together` at once on each of its devices."""

    mesh: Mesh
    together: int

    def put(self, tree: Tree) -> Tree:
        """Arrays [clients, ...], each JAX device holding its share of the clients."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec("clients")))

    def copy(self, tree: Tree) -> Tree:
        """Arrays of which each JAX device holds all."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def padded(self, clients: int) -> int:
        """The number of clients that is a multiple of the JAX devices."""
        return -(-clients // self.mesh.size) * self.mesh.size

    def over(self, function: Any, same: Tree, clients: Tree) -> Tree:
        """`function(same, client)` for every client."""

        def share(same: Tree, clients: Tree) -> Tree:
            at_once = {} if self.together == 1 else {"batch_size": self.together}
            return lax.map(functools.partial(function, same), clients, **at_once)

        each, common = PartitionSpec("clients"), PartitionSpec()
        sharded = jax.shard_map(
            share, mesh=self.mesh, in_specs=(common, each), out_specs=each, check_vma=False
        )
        return sharded(same, clients)


def layout(clients: int, together: int | None = None) -> Layout:
    """All JAX devices that have a client to work on; on a CPU each takes one client at a time."""
    if together is not None and together < 1:
        raise ValueError(f"together must be at least 1 (clients computed at once); got {together}")
    devices = jax.devices()[:clients]
    if together is None:
        together = 1 if devices[0].platform == "cpu" else TOGETHER
    mesh = Mesh(np.array(devices), ("clients",))
    return Layout(mesh, min(together, -(-clients // mesh.size)))


class Clients(NamedTuple):
    """The state of all clients: what training changes and a checkpoint holds."""

    variables: Tree
    """Each client's model after its latest local steps, [clients, ...]."""
    optimizer: Tree
    """Each client's optimizer state, [clients, ...]; it never leaves the client."""
    key: Array
    """Data of the key that seeds dropout, by client and step."""
    step: Array
    """Steps that every client has taken, int32 []."""


@functools.partial(jax.jit, static_argnames=("task", "places", "averaging"))
def advance(
    clients: Clients,
    images: Array,
    labels: Array,
    weights: Array,
    task: Task,
    places: Layout,
    averaging: bool,
) -> tuple[Clients, Array]:
    """Rounds, one after the other: each starts from the average of all models (if `averaging`), then every
    client takes h local steps.

    Args:
      images: uint8 [clients, rounds, h, batch, H, W, C]; labels: [clients, rounds, h, batch].
      weights: [clients], sum 1, what each client counts in the average.

    Returns the clients, and their training losses [clients, rounds, h].
    """
    numbers = jnp.arange(labels.shape[0])

    def one(same: Tree, client: Tree) -> Tree:
        start, key, step = same
        own, optimizer, number, images, labels = client
        key = jax.random.fold_in(jax.random.wrap_key_data(key), number)
        return _local_steps(task, own if start is None else start, optimizer, key, step, images, labels)

    def next_round(clients: Clients, batches: tuple[Array, Array]) -> tuple[Clients, Array]:
        start = average(clients.variables, weights) if averaging else None
        own = None if averaging else clients.variables
        variables, optimizer, losses = places.over(
            one, (start, clients.key, clients.step), (own, clients.optimizer, numbers, *batches)
        )
        return Clients(variables, optimizer, clients.key, clients.step + losses.shape[1]), losses

    clients, losses = lax.scan(next_round, clients, (images.swapaxes(0, 1), labels.swapaxes(0, 1)))
    return clients, losses.swapaxes(0, 1)


def _local_steps(
    task: Task, variables: Tree, optimizer: Tree, key: Array, step: Array, images: Array, labels: Array
) -> tuple[Tree, Tree, Array]:
    """One client's h steps of its optimizer, batch after batch."""

    def one(carry: Tree, batch: tuple[Array, Array]) -> tuple[Tree, Array]:
        variables, optimizer, step = carry
        images, labels = batch

        def loss(params: Tree) -> tuple[Array, Tree]:
            logits, others = train_logits(
                task.module,
                {**variables, "params": params},
                task.floats(images),
                jax.random.fold_in(key, step),
            )
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), others

        (value, others), slope = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        change, optimizer = task.optimizer.update(slope, optimizer, variables["params"])
        params = optax.apply_updates(variables["params"], change)
        return ({**variables, **others, "params": params}, optimizer, step + 1), value

    (variables, optimizer, _), losses = lax.scan(one, (variables, optimizer, step), (images, labels))
    return variables, optimizer, losses


@jax.jit
def average(variables: Tree, weights: Array) -> Tree:
    """The weighted mean of models [clients, ...], batch statistics and all."""
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1).astype(leaf.dtype), variables)


@functools.partial(jax.jit, static_argnames=("task", "places", "classes"))
def score_clients(
    variables: Tree, images: Array, labels: Array, task: Task, places: Layout, classes: int
) -> Array:
    """How many images of each class every client's model gets right: int32 [clients, classes]."""

    def one(split: Tree, variables: Tree) -> Array:
        return lax.map(lambda block: _right(task, variables, block, classes), split).sum(0)

    return places.over(one, (images, labels), variables)


@functools.partial(jax.jit, static_argnames=("task", "places", "classes"))
def score_one(
    variables: Tree, images: Array, labels: Array, task: Task, places: Layout, classes: int
) -> Array:
    """How many images of each class one model gets right, int32 [classes]; the JAX devices share them."""

    def one(variables: Tree, block: tuple[Array, Array]) -> Array:
        return _right(task, variables, block, classes)

    return places._replace(together=1).over(one, variables, (images, labels)).sum(0)


def _right(task: Task, variables: Tree, block: tuple[Array, Array], classes: int) -> Array:
    """Of a block of images, how many of each class are classified right."""
    images, labels = block
    logits = eval_logits(task.module, variables, task.floats(images))
    hits = (logits.argmax(-1) == labels)[:, None] & (labels[:, None] == jnp.arange(classes))
    return hits.sum(0, dtype=jnp.int32)


def blocks(images: np.ndarray, labels: np.ndarray, places: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Images to score in equal blocks, [blocks, size, ...], a multiple of the JAX devices; the last one
    is filled up with images of no class, which nothing counts.
    """
    count = places.padded(-(-len(labels) // SCORED))
    size = -(-len(labels) // count)
    missing = count * size - len(labels)
    filled = np.concatenate([images, np.repeat(images[-1:], missing, 0)])
    classes = np.concatenate([labels.astype(np.int32), np.full(missing, -1, np.int32)])
    return filled.reshape(count, size, *images.shape[1:]), classes.reshape(count, size)
