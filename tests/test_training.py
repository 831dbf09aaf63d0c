"""Training equals what it stands for, on any layout, after any interruption."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clients import SGD, Plain, Rich, bits, rich_run, shards
from hypothesis import given
from hypothesis import strategies as st

from realfm_jax import federated
from realfm_jax.federated import clients as many
from realfm_jax.federated import loop
from realfm_jax.federated.batches import draw

DIGITS = federated.load("digits")
PROGRAM = Path(__file__).with_name("clients.py")


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def loss(variables: Any, drawn: np.ndarray) -> jax.Array:
    x = (DIGITS.train.images[drawn] / np.float32(255) - np.float32(DIGITS.mean)) / np.float32(DIGITS.std)
    logits = Plain().apply(variables, x.astype(np.float32))
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), DIGITS.train.labels[drawn][:, None], 1)
    return -picked.mean()


def initial(partition: federated.Partition) -> Any:
    """The model that training starts from: what one round with a vanishing learning rate ends with."""
    recipe = federated.Recipe(optax.sgd(0.0), epochs=1, batch=1, local_steps=int(partition.sizes.max()))
    return federated.train_local(Plain(), DIGITS, partition, recipe, key=7).device_model(0)


def test_one_client_with_all_the_data_is_plain_training() -> None:
    partition = shards(200)
    recipe = federated.Recipe(SGD, epochs=2, batch=32, local_steps=3)
    run = federated.train_federated(Plain(), DIGITS, partition, recipe, key=7)
    variables = initial(partition)
    state, losses = SGD.init(variables), []
    seed = tuple(np.asarray(jax.random.key_data(jax.random.key(7))).tolist())
    for drawn in draw(partition.indices, seed, 0, 12, 32)[0]:
        value, slope = jax.value_and_grad(loss)(variables, drawn)
        change, state = SGD.update(slope, state)
        variables = optax.apply_updates(variables, change)
        losses.append(value)
    close(run.model, variables)
    np.testing.assert_allclose(run.curves.loss[:, 0], np.reshape(losses, (2, 6)).mean(1), rtol=1e-5)
    right = Plain().apply(variables, DIGITS.floats(DIGITS.test.images)).argmax(-1) == DIGITS.test.labels
    assert float(run.curves.global_accuracy[-1]) == pytest.approx(float(right.mean()), abs=1e-6)


def test_averaging_every_step_is_sgd_on_the_union_of_the_batches() -> None:
    partition, plain = shards(64, 64, 64, 64), optax.sgd(0.1)
    recipe = federated.Recipe(plain, epochs=1, batch=16, local_steps=1)
    run = federated.train_federated(Plain(), DIGITS, partition, recipe, key=7)
    variables = initial(partition)
    seed = tuple(np.asarray(jax.random.key_data(jax.random.key(7))).tolist())
    for step in range(4):
        union = draw(partition.indices, seed, step, 1, 16).reshape(-1)
        slope = jax.grad(loss)(variables, union)
        variables = jax.tree.map(lambda v, g: v - 0.1 * g, variables, slope)
    close(run.model, variables)


def test_the_average_weighs_models_and_batch_statistics_by_their_data() -> None:
    partition = shards(96, 64, 40)
    recipe = federated.Recipe(SGD, epochs=1, batch=48, local_steps=2)  # one round: nothing averaged yet
    together = federated.train_federated(Rich(), DIGITS, partition, recipe, key=3)
    alone = federated.train_local(Rich(), DIGITS, partition, recipe, key=3)
    close(together.clients, alone.clients)
    by_hand = jax.tree.map(lambda v: 0.48 * v[0] + 0.32 * v[1] + 0.2 * v[2], alone.clients)
    assert set(by_hand) == {"params", "batch_stats"}
    close(together.model, by_hand, 1e-6)
    with pytest.raises(ValueError, match="have no common model"):
        _ = alone.model
    # The next round starts from the average on every device.
    once_more = federated.train_federated(Rich(), DIGITS, partition, recipe, key=3, start=together.model)
    each = jax.tree.map(lambda v: jnp.stack([v] * 3), together.model)
    close(
        federated.train_local(Rich(), DIGITS, partition, recipe, key=3, start=each).clients,
        once_more.clients,
    )


def test_every_layout_gives_the_same_numbers(tmp_path: Path) -> None:
    here, again = rich_run(), rich_run()
    assert bits((here.clients, here.curves.loss.values)) == bits((again.clients, again.curves.loss.values))
    for together in (2, 3):  # three clients, two of them at once and then one; all at once
        close(rich_run(together=together).clients, here.clients, 2e-4)
    for devices in (2, 4):  # three clients and one of padding on two JAX devices; one each on three
        found = finished(tmp_path / f"{devices}.npz", "-", 3, devices)
        leaves = [found[f"leaf{i}"] for i in range(len(jax.tree.leaves(here.clients)))]
        close(leaves, jax.tree.leaves(here.clients), 2e-4)
        np.testing.assert_allclose(found["global_accuracy"], here.curves.global_accuracy, atol=1 / 300)
    rich_run(2, checkpoint=tmp_path / "moved")  # begun on one JAX device, finished on two
    found = finished(tmp_path / "moved.npz", tmp_path / "moved", 3, devices=2)
    close([found[f"leaf{i}"] for i in range(len(leaves))], jax.tree.leaves(here.clients), 2e-4)
    assert found["loss"][:2].tobytes() == here.curves.loss.values[:2].tobytes()


def test_rounds_computed_in_one_call_are_the_same_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, advance = [], many.advance

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args[2].shape[:3])
        return advance(*args, **options)

    monkeypatch.setattr(many, "advance", counted)
    several = rich_run(2)
    assert calls == [(3, 3, 2)] * 2  # clients, rounds, steps: an epoch in a call
    monkeypatch.setattr(loop, "CALL_BYTES", 1)
    one = rich_run(2)
    assert calls[2:] == [(3, 1, 2)] * 6
    close(several.clients, one.clients, 2e-4)  # compiled apart, rounded apart
    np.testing.assert_allclose(several.curves.loss, one.curves.loss, rtol=1e-6)


def test_clients_computed_at_once_bound_the_memory_of_a_round() -> None:
    """What a round needs beyond states, pictures and answers grows with the chunk, not with the clients."""

    def temporary(devices: int, together: int) -> int:
        partition = federated.Partition(
            tuple(np.arange(64) for _ in range(devices)), np.zeros((devices, 10), int), None
        )
        task = many.Task(federated.DigitsCNN(), SGD, DIGITS.mean, DIGITS.std)
        places = many.layout(devices, together)
        key = np.asarray(jax.random.key_data(jax.random.key(0)))
        setting = loop.Setting(task, DIGITS, partition.indices, places, key, 64, 1, 1, True, False)
        with jax.enable_x64(False):
            state, batch = loop.begin(setting).clients, loop.batches(setting, 0, 1)
            compiled = many.advance.lower(state, *batch, setting.weights, task, places, True).compile()
        own = sum(leaf.nbytes for leaf in jax.tree.leaves((state.variables, state.optimizer, batch)))
        return compiled.memory_analysis().temp_size_in_bytes - own

    one, many_clients, many_at_once = temporary(2, 1), temporary(32, 1), temporary(32, 32)
    assert many_clients < 2 * one + 2e6
    assert many_at_once > 10 * max(one, many_clients)


def started(result: Path, checkpoints: Path | str, epochs: int, devices: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(checkpoints), str(result), str(epochs), str(devices)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finished(result: Path, checkpoints: Path | str, epochs: int, devices: int = 1) -> dict[str, np.ndarray]:
    process = started(result, checkpoints, epochs, devices)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    with np.load(result) as found:
        return dict(found)


def test_killed_at_any_moment_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    epochs, result, saved = 60, tmp_path / "result.npz", tmp_path / "killed"

    def latest() -> int:
        return max((int(path.stem.removeprefix("seal-")) for path in saved.glob("seal-*.json")), default=0)

    wanted, moment = finished(result, tmp_path / "whole", epochs), random.Random(5)
    result.unlink()
    for _ in range(2):
        before, process = latest(), started(result, saved, epochs)
        while process.poll() is None and latest() == before:
            time.sleep(0.01)
        time.sleep(moment.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert 0 < latest() < 3 * epochs
    found = finished(result, saved, epochs)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].tobytes() == wanted[name].tobytes(), name


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, damage: str) -> None:
    whole = rich_run(3)
    rich_run(2, checkpoint=tmp_path / "run", save_every=0.0)
    steps = sorted((tmp_path / "run" / "rounds").iterdir(), key=lambda path: int(path.name))
    assert len(steps) == 2
    files = [path for path in steps[-1].rglob("*") if path.is_file() and "/d/" in str(path)]
    for file in files:
        content = bytearray(file.read_bytes())
        if damage == "truncated":
            del content[len(content) // 2 :]
        else:
            content[len(content) // 2] ^= 1
        file.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match=f"rounds/{steps[-1].name} is damaged"):
        again = rich_run(3, checkpoint=tmp_path / "run")
    assert bits(again.clients) == bits(whole.clients)
    assert again.curves.drop_attrs().equals(whole.curves.drop_attrs())


def test_ctrl_c_loses_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CALL_BYTES", 1)  # one round a call
    advance, calls = loop.advance, []

    def interrupted(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return advance(*args)

    monkeypatch.setattr(loop, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"5 of 9 rounds are saved in .*run; the same call goes on"):
        rich_run(checkpoint=tmp_path / "run")
    again = rich_run(checkpoint=tmp_path / "run")
    assert len(calls) == 6 + 4
    assert bits(again.clients) == bits(rich_run().clients)


def test_a_directory_belongs_to_one_run(tmp_path: Path) -> None:
    rich_run(1, checkpoint=tmp_path / "run")
    assert rich_run(2, checkpoint=tmp_path / "run").curves.sizes["epoch"] == 2  # going on is no other run
    recipe = federated.Recipe(optax.sgd(0.1, momentum=0.8), epochs=1, batch=16, local_steps=2)
    with pytest.raises(FileExistsError, match="holds another run"):
        federated.train_federated(
            Rich(), DIGITS, shards(96, 64, 40), recipe, key=3, checkpoint=tmp_path / "run"
        )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="holds no training run"):
        rich_run(1, checkpoint=tmp_path / "mine")


def test_a_loss_that_is_no_number_names_device_and_step() -> None:
    wild = federated.Recipe(optax.sgd(1e30), epochs=1, batch=16, local_steps=4)
    with pytest.raises(
        federated.DivergedError, match=r"loss of device \d is (nan|inf) at its step [23] \(epoch 1\)"
    ):
        federated.train_local(Plain(), DIGITS, shards(64, 64), wild, key=0)


def test_a_batch_larger_than_a_shard_comes_round_again() -> None:
    recipe = federated.Recipe(SGD, epochs=2, batch=64, local_steps=2)
    run = federated.train_federated(Plain(), DIGITS, shards(10, 300), recipe, key=0)
    assert np.isfinite(run.curves.loss).all()
    assert run.weights[0] == pytest.approx(10 / 310)


def test_own_accuracy_is_accuracy_on_the_own_mix_of_labels() -> None:
    partition = shards(96, 64, 40, alpha=0.3)
    recipe = federated.Recipe(SGD, epochs=2, batch=16, local_steps=2)
    run = federated.train_federated(Rich(), DIGITS, partition, recipe, key=3)
    logits = Rich().apply(run.model, DIGITS.floats(DIGITS.test.images), False)
    right = np.asarray(logits.argmax(-1) == DIGITS.test.labels)
    wanted = [
        np.average(right, weights=(row / np.bincount(DIGITS.test.labels))[DIGITS.test.labels])
        for row in partition.proportions
    ]
    np.testing.assert_allclose(run.curves.global_own_accuracy[-1], wanted, atol=1e-6)
    assert len(set(np.round(wanted, 3))) > 1


def test_mistakes_are_named(tmp_path: Path) -> None:
    good = federated.Recipe(SGD, epochs=1)
    with pytest.raises(ValueError, match="local_steps must be at least 1; got 0"):
        federated.Recipe(SGD, epochs=1, local_steps=0)
    with pytest.raises(ValueError, match="10"):
        federated.train_local(Plain(classes=7), DIGITS, shards(64), good, key=0)
    with pytest.raises(ValueError, match="together must be at least 1"):
        federated.train_local(Plain(), DIGITS, shards(64), good, key=0, together=0)
    with pytest.raises(ValueError, match='score must be "all" or "global"'):
        federated.train_local(Plain(), DIGITS, shards(64), good, key=0, score="some")
    far = federated.partition(np.arange(5000) % 10, [4000], key=0)
    with pytest.raises(ValueError, match="digits has 1437 for training"):
        federated.train_local(Plain(), DIGITS, far, good, key=0)
    with pytest.raises(RuntimeError, match="use_cores must be called before JAX computes anything"):
        federated.use_cores()
    with pytest.raises(ValueError, match="start must hold arrays"):
        federated.train_local(
            Plain(),
            DIGITS,
            shards(64),
            good,
            key=0,
            start=jax.tree.map(lambda leaf: leaf[..., :1], initial(shards(64))),
        )


@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 6), st.integers(0, 9))
def test_each_time_around_every_sample_comes_once(size: int, batch: int, steps: int, first: int) -> None:
    shard = np.arange(100, 100 + size)
    stream = draw((shard,), (4,), 0, first + steps, batch)
    assert (stream[:, first:] == draw((shard,), (4,), first, steps, batch)).all()
    laps = stream.reshape(-1)
    for lap in range(len(laps) // size):
        assert sorted(laps[lap * size : (lap + 1) * size]) == shard.tolist()


def test_devices_and_seeds_have_orders_of_their_own() -> None:
    shard = np.arange(40)
    one, two = draw((shard, shard), (0,), 0, 1, 40)[:, 0]
    other = draw((shard,), (1,), 0, 1, 40)[0, 0]
    assert (one != two).any()
    assert (one != other).any()
