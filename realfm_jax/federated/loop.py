"""Round after round until the training is done; saved on the way, and resumed to the same bits."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from realfm_jax.federated import clients as many
from realfm_jax.federated.batches import draw
from realfm_jax.federated.checkpoint import Checkpoints
from realfm_jax.federated.clients import Clients, Layout, Task, Tree
from realfm_jax.federated.data import Dataset
from realfm_jax.federated.models import init
from realfm_jax.progress import bar
from realfm_jax.record import digest

CALL_BYTES = 1 << 20
"""Rounds whose pictures together take no more than this are computed in one call: a call takes its
milliseconds, too."""


class DivergedError(FloatingPointError):
    """A training loss is no longer a finite number."""


class Setting(NamedTuple):
    """Everything about a training run that does not change."""

    task: Task
    data: Dataset
    shards: tuple[np.ndarray, ...]
    places: Layout
    key: np.ndarray
    batch: int
    local_steps: int
    epoch: int  # rounds in it
    averaging: bool
    score_devices: bool
    due: Callable[[int], bool] = lambda epoch: True  # whether the devices' models are scored after an epoch
    start: Tree | None = None  # the model, or [devices, ...] models, to start from

    @property
    def padded(self) -> tuple[np.ndarray, ...]:
        """The shards; the first ones again where clients are padded to a multiple of the JAX devices."""
        devices = len(self.shards)
        return tuple(self.shards[i % devices] for i in range(self.places.padded(devices)))

    @property
    def at_once(self) -> int:
        """Rounds computed in one call, a divisor of those in an epoch, after which models are scored."""
        pictures = len(self.shards) * self.local_steps * self.batch * self.data.train.images[0].nbytes
        most = max(1, min(self.epoch, CALL_BYTES // pictures))
        return max(count for count in range(1, most + 1) if self.epoch % count == 0)

    @property
    def weights(self) -> np.ndarray:
        """m_i / sum m, 0 for padding: float32 [clients]."""
        sizes = np.array([len(shard) for shard in self.padded], float)
        sizes[len(self.shards) :] = 0.0
        return (sizes / sizes.sum()).astype(np.float32)


class Progress(NamedTuple):
    """What training has come to."""

    clients: Clients
    losses: list[np.ndarray]
    """By round: each device's mean training loss, [devices]."""
    device_scores: list[np.ndarray]
    """By epoch: test images of each class that each device's model gets right, [devices, classes]; -1 after
    an epoch in which they were not scored."""
    model_scores: list[np.ndarray]
    """By epoch: those that the federated model gets right, [classes]."""


def run(
    setting: Setting, epochs: int, checkpoint: Path | None, save_every: float, progress: bool | None
) -> Progress:
    """Train from the start, or from the latest checkpoint, to the last round of the last epoch."""
    reached = begin(setting)
    store = Checkpoints(checkpoint, fingerprint(setting, reached)) if checkpoint else None
    if store:
        found = store.latest(lambda rounds: _saved(setting, reached, rounds))
        reached = reached if found is None else _resumed(setting, found)
    rounds, steps = epochs * setting.epoch, setting.local_steps * len(setting.shards)
    test = setting.places.copy(
        many.blocks(setting.data.test.images, setting.data.test.labels, setting.places)
    )
    saved = time.monotonic()
    try:
        with bar(rounds * steps, "client-step", progress, len(reached.losses) * steps) as shown:
            while len(reached.losses) < rounds:
                reached = advance(setting, reached, test)
                shown(steps * setting.at_once, **_facts(setting, reached))
                if store and time.monotonic() - saved >= save_every:
                    _save(setting, store, reached)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        if store is None:
            raise
        _save(setting, store, reached)
        done = f"{len(reached.losses)} of {rounds} rounds are saved in {checkpoint}"
        raise KeyboardInterrupt(f"{done}; the same call goes on from there") from None
    if store:
        _save(setting, store, reached)
        store.close()
    return reached


def begin(setting: Setting) -> Progress:
    """All clients at the same initial model (or at those they were given), nothing trained."""
    devices = len(setting.shards)
    weights, dropout = jax.random.split(jax.random.wrap_key_data(jnp.asarray(setting.key)))
    new = jax.jit(init, static_argnums=(0, 2))
    variables = new(setting.task.module, weights, setting.data.train.images.shape[1:])
    optimizer = setting.task.optimizer.init(variables["params"])
    models = variables if setting.start is None else setting.start
    own = Clients(
        jax.tree.map(lambda given, leaf: _rows(given, leaf, devices), models, variables),
        jax.tree.map(lambda leaf: _rows(leaf, leaf, devices), optimizer),
        jax.random.key_data(dropout),
        jnp.int32(0),
    )
    return Progress(_placed(setting, own), [], [], [])


def _rows(given: Any, leaf: Any, devices: int) -> np.ndarray:
    """One row for each device of what is given: for one model like `leaf`, or for each device already."""
    shape = (devices, *np.shape(leaf))
    if np.shape(given) not in (shape, shape[1:]):
        raise ValueError(
            f"start must hold arrays {shape[1:]} or {shape} as the model does; got {np.shape(given)}"
        )
    return np.broadcast_to(np.asarray(given, np.asarray(leaf).dtype), shape)


def _placed(setting: Setting, own: Clients) -> Clients:
    """The state of the devices on the JAX devices, padded; always placed alike, so that nothing is compiled
    twice.
    """
    devices = len(setting.shards)
    again = np.arange(setting.places.padded(devices)) % devices
    stacked = jax.tree.map(lambda leaf: leaf[again], (own.variables, own.optimizer))
    return Clients(*setting.places.put(stacked), *setting.places.copy((own.key, own.step)))


def advance(setting: Setting, reached: Progress, test: tuple[np.ndarray, np.ndarray]) -> Progress:
    """A round more, or as many as are computed at once, and the scores if an epoch ends."""
    images, labels = batches(setting, len(reached.losses), setting.at_once)
    clients, losses = many.advance(
        reached.clients,
        *setting.places.put((images, labels)),
        setting.weights,
        task=setting.task,
        places=setting.places,
        averaging=setting.averaging,
    )
    by_step = np.asarray(losses)[: len(setting.shards)]
    _check_finite(by_step.reshape(len(by_step), -1), len(reached.losses) * setting.local_steps, setting)
    reached = reached._replace(clients=clients, losses=[*reached.losses, *by_step.mean(2).T])
    return reached if len(reached.losses) % setting.epoch else _scored(setting, reached, test)


def batches(setting: Setting, first: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of some rounds: uint8 images [clients, rounds, h, batch, H, W, C], and their labels."""
    seed, h = tuple(int(word) for word in setting.key), setting.local_steps
    drawn = draw(setting.padded, seed, first * h, rounds * h, setting.batch)
    drawn = drawn.reshape(len(drawn), rounds, h, setting.batch)
    train = setting.data.train
    return train.images[drawn], train.labels[drawn].astype(np.int32)


def _scored(setting: Setting, reached: Progress, test: tuple[np.ndarray, np.ndarray]) -> Progress:
    how: Any = {"task": setting.task, "places": setting.places, "classes": len(setting.data.classes)}
    variables = reached.clients.variables
    if setting.score_devices:
        right = np.full((len(setting.shards), len(setting.data.classes)), -1, np.int32)
        if setting.due(len(reached.losses) // setting.epoch):
            right = np.asarray(many.score_clients(variables, *test, **how))[: len(setting.shards)]
        reached = reached._replace(device_scores=[*reached.device_scores, right])
    if setting.averaging:
        right = np.asarray(many.score_one(many.average(variables, setting.weights), *test, **how))
        reached = reached._replace(model_scores=[*reached.model_scores, right])
    return reached


def _check_finite(losses: np.ndarray, step: int, setting: Setting) -> None:
    if np.isfinite(losses).all():
        return
    later, device = np.argwhere(~np.isfinite(losses.T))[0]
    raise DivergedError(
        f"the loss of device {device} is {losses[device, later]} at its step {step + later + 1} (epoch "
        f"{step // (setting.local_steps * setting.epoch) + 1}): try a smaller learning rate"
    )


def _facts(setting: Setting, reached: Progress) -> dict[str, str]:
    """What to show beside the bar."""
    facts = {"loss": f"{reached.losses[-1].mean():.3f}"}
    scores = [s for s in reached.model_scores or reached.device_scores if s.min() >= 0]
    if scores:
        facts["accuracy"] = f"{scores[-1].sum(-1).mean() / len(setting.data.test.labels):.4f}"
    return facts


def _save(setting: Setting, store: Checkpoints, reached: Progress) -> None:
    rounds = len(reached.losses)
    store.save(rounds, _saved(setting, reached, rounds))


def _saved(setting: Setting, reached: Progress, rounds: int) -> Tree:
    """What a checkpoint after so many rounds holds (or, of another round, the shapes of it): no padding, so
    that a run may go on with another number of JAX devices.
    """
    devices, classes, epochs = len(setting.shards), len(setting.data.classes), rounds // setting.epoch

    def stacked(rows: list[np.ndarray], length: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        whole = np.zeros((length, *shape), dtype)
        whole[: len(rows)] = rows if rows else 0
        return whole

    state = reached.clients
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[:devices], (state.variables, state.optimizer))
    return (
        Clients(own[0], own[1], state.key, state.step),
        stacked(reached.losses, rounds, (devices,), "float32"),
        stacked(reached.device_scores, epochs * setting.score_devices, (devices, classes), "int32"),
        stacked(reached.model_scores, epochs * setting.averaging, (classes,), "int32"),
    )


def _resumed(setting: Setting, found: Tree) -> Progress:
    """What a checkpoint holds, back on the JAX devices."""
    clients, losses, device_scores, model_scores = found
    return Progress(_placed(setting, clients), list(losses), list(device_scores), list(model_scores))


def fingerprint(setting: Setting, start: Progress) -> str:
    """What makes two runs the same: the program of a round itself, the initial models, data and shards."""
    images, labels = batches(setting, 0, 1)
    places = many.layout(1, 1)
    one = jax.tree.map(lambda leaf: leaf[:1], (start.clients.variables, start.clients.optimizer))
    program = jax.make_jaxpr(many.advance, static_argnums=(4, 5, 6))(
        start.clients._replace(variables=one[0], optimizer=one[1]),
        images[:1],
        labels[:1],
        np.ones(1, np.float32),
        setting.task,
        places,
        setting.averaging,
    )
    about = f"{re.sub('0x[0-9a-f]+', '', str(program))}{setting.epoch}{dict(setting.data.provenance)}"
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(setting.shards)], start.clients.variables)
    return digest((own, setting.key, setting.shards), about)
