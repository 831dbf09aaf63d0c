"""The models against PyTorch twins, and any Flax module through the same door."""

import functools
import importlib
import re
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realfm_jax.federated import models
from realfm_jax.federated.models import check_outputs, eval_logits, train_logits

FLOAT = jnp.float32
SHAPES = {"MnistCNN": (28, 28, 1), "DigitsCNN": (8, 8, 1), "ResNet8": (16, 16, 3), "ResNet18": (16, 16, 3)}
WEIGHTS = {"MnistCNN": 187_146, "DigitsCNN": 10_026, "ResNet8": 78_042, "ResNet18": 11_173_962}


def init(module, key, shape):
    """Fresh variables, compiled: quicker than operation by operation."""
    return jax.jit(functools.partial(models.init, module, image_shape=shape))(key)


def twins():
    """PyTorch and our models in it; the test is skipped where it is not installed."""
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    return torch, importlib.import_module("benchmarks.torch_models")


def built(name):
    """A model whose dropout is off: PyTorch's random numbers are not ours."""
    return models.MnistCNN(dropout=0.0) if name == "MnistCNN" else getattr(models, name)()


def batch(name, size, seed=0):
    key = jax.random.key(seed)
    return jax.random.normal(key, (size, *SHAPES[name]), FLOAT), jax.random.randint(key, (size,), 0, 10)


def loss_of(module, params, others, x, labels):
    """Mean cross-entropy and (updated statistics, logits) of a training batch."""
    logits, updated = train_logits(module, {"params": params, **others}, x, jax.random.key(0))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), (updated, logits)


@pytest.mark.parametrize("name", WEIGHTS)
def test_number_of_weights(name):
    shapes = jax.eval_shape(lambda: init(getattr(models, name)(), jax.random.key(0), SHAPES[name]))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes["params"])) == WEIGHTS[name]
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(FLOAT)}


def test_drawn_as_pytorch_draws():
    """Uniform over +-1 / sqrt(inputs), biases too."""
    params = init(models.MnistCNN(), jax.random.key(0), (28, 28, 1))["params"]
    for layer, inputs in ((params["_Block_4"]["Conv3x3_0"], 9 * 64), (params["Dense_0"], 128)):
        for leaf in layer.values():
            scaled = np.asarray(leaf) * inputs**0.5
            assert 0.7 < np.abs(scaled).max() <= 1
            assert np.isclose(scaled.std(), 3**-0.5, rtol=0.02 if leaf.size > 1000 else 0.5)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("MnistCNN", "adam"), ("DigitsCNN", "sgd"), ("DigitsCNN", "adam"), ("ResNet8", "sgd")],
)
def test_trains_as_its_twin(name, optimizer):
    """Logits, loss, gradients from the same weights; loss and evaluation after steps on same batches."""
    torch, torch_models = twins()
    module, size, rate = built(name), 16, {"sgd": 0.01, "adam": 1e-3}[optimizer]
    variables = init(module, jax.random.key(1), SHAPES[name])
    twin = torch_models.twin(name, **({"dropout": 0.0} if name == "MnistCNN" else {}))
    torch_models.load(twin, variables)
    theirs = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](twin.parameters(), rate)
    ours = {"sgd": optax.sgd, "adam": optax.adam}[optimizer](rate)
    grad = jax.jit(jax.value_and_grad(functools.partial(loss_of, module), has_aux=True))
    params, others = variables.pop("params"), variables
    state = ours.init(params)
    for step in range(
        4
    ):  # later, a relu or a maximum decides otherwise by rounding: PyTorch's too, in float64
        x, labels = batch(name, size, step)
        (loss, (updated, logits)), gradients = grad(params, others, x, labels)
        theirs.zero_grad()
        logits_twin = twin(torch_models.images(x))
        loss_twin = torch.nn.functional.cross_entropy(logits_twin, torch.from_numpy(np.array(labels)))
        loss_twin.backward()
        assert float(loss) == pytest.approx(loss_twin.item(), rel=1e-4)
        if step == 0:
            np.testing.assert_allclose(logits, logits_twin.detach().numpy(), atol=2e-5)
            check_gradients(torch_models.converted({"params": gradients}), twin)
        changes, state = ours.update(gradients, state, params)
        params, others = optax.apply_updates(params, changes), updated
        theirs.step()
    check_evaluation(torch_models, module, {"params": params, **others}, twin, x)


def check_gradients(gradients, twin):
    for weight, value in twin.named_parameters():
        wanted = value.grad.numpy()
        # A shift before a normalisation changes nothing: its gradient is rounding, compared with a floor.
        np.testing.assert_allclose(gradients[weight], wanted, atol=1e-4 * max(np.abs(wanted).max(), 1e-2))


def check_evaluation(torch_models, module, variables, twin, x):
    """Same logits from the same statistics; PyTorch's running variance is n / (n - 1) times larger."""
    theirs = torch_models.converted(variables)
    for name, buffer in twin.named_buffers():
        if name.endswith("running_mean"):
            np.testing.assert_allclose(theirs[name], buffer.numpy(), atol=1e-3)
        if name.endswith("running_var"):
            excess = (buffer.numpy() - 0.9**4) / (theirs[name].numpy() - 0.9**4)
            assert ((excess > 0.999) & (excess < 16 / 15 + 1e-2)).all()
    torch_models.load(twin, variables)
    wanted = twin.eval()(torch_models.images(x)).detach().numpy()
    np.testing.assert_allclose(eval_logits(module, variables, x), wanted, atol=1e-4 * np.abs(wanted).max())


def test_resnet18_is_its_twin():
    torch, torch_models = twins()
    module = models.ResNet18()
    variables = init(module, jax.random.key(0), (16, 16, 3))
    twin = torch_models.twin("ResNet18")
    torch_models.load(twin, variables)
    x = jax.random.normal(jax.random.key(1), (2, 16, 16, 3), FLOAT)
    with torch.no_grad():
        for ours, theirs in (
            (jax.jit(functools.partial(train_logits, module))(variables, x, jax.random.key(0))[0], twin),
            (eval_logits(module, variables, x), None),
        ):
            if theirs is None:
                torch_models.load(twin, variables)  # training has moved the statistics
                theirs = twin.eval()
            np.testing.assert_allclose(ours, theirs(torch_models.images(x)).numpy(), atol=1e-4)


def test_native_and_blocked_train_alike():
    x, labels = batch("DigitsCNN", 8)
    found = []
    for method in ("blocked", "native"):
        module = models.DigitsCNN(method=method)
        variables = init(module, jax.random.key(0), (8, 8, 1))
        params = variables.pop("params")
        found.append(
            jax.grad(functools.partial(loss_of, module), has_aux=True)(params, variables, x, labels)[0]
        )
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), *found)


def test_digits_are_learned():
    """Above 0.97 on every fifth digit, after six epochs on the others, in seconds."""
    datasets = pytest.importorskip("realfm_jax.federated.data")
    digits = datasets.load("digits")
    module = models.DigitsCNN()
    variables = init(module, jax.random.key(0), (8, 8, 1))
    params, others = variables.pop("params"), variables
    optimizer = optax.adam(3e-3)
    state = optimizer.init(params)

    @jax.jit
    def epoch(params, others, state, order):
        def step(carry, chosen):
            params, others, state = carry
            x, labels = (
                digits.floats(jnp.asarray(digits.train.images)[chosen]),
                jnp.asarray(digits.train.labels)[chosen],
            )
            gradients, (updated, _) = jax.grad(functools.partial(loss_of, module), has_aux=True)(
                params, others, x, labels
            )
            changes, state = optimizer.update(gradients, state, params)
            return (optax.apply_updates(params, changes), updated, state), None

        return jax.lax.scan(step, (params, others, state), order)[0]

    count = len(digits.train.labels)
    for number in range(6):
        order = jax.random.permutation(jax.random.key(number), count)[: count // 32 * 32].reshape(-1, 32)
        params, others, state = epoch(params, others, state, order)
    logits = eval_logits(module, {"params": params, **others}, digits.floats(digits.test.images))
    assert (np.asarray(logits).argmax(1) == digits.test.labels).mean() > 0.97


class Plain(nn.Module):
    """Neither statistics nor dropout nor a flag."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Dropping(nn.Module):
    """Dropout, and the flag that Flax's own layer has."""

    @nn.compact
    def __call__(self, x, deterministic):
        return nn.Dropout(0.5, deterministic=deterministic)(Plain()(x))


class Normal(nn.Module):
    """Flax's normalisation, its flag; weights of double precision if allowed to."""

    @nn.compact
    def __call__(self, x, use_running_average=True):
        shift = self.param("shift", nn.initializers.zeros, (), float)
        return nn.BatchNorm(use_running_average)(Plain()(x)) + shift


class Noisy(nn.Module):
    """A stream of random numbers of its own."""

    @nn.compact
    def __call__(self, x, *, training=False):
        y = Plain()(x)
        return y + jax.random.normal(self.make_rng("noise"), y.shape) if training else y


class Strange(nn.Module):
    """A flag that nobody knows."""

    @nn.compact
    def __call__(self, x, mode):
        return Plain()(x)


@pytest.mark.parametrize(
    ("module", "collections", "differs"),
    [(Plain(), [], False), (Dropping(), [], True), (Normal(), ["batch_stats"], True), (Noisy(), [], True)],
)
def test_modules_of_every_sort(module, collections, differs):
    check_outputs(module, (8, 8, 1), 10)
    x, _ = batch("DigitsCNN", 4)
    variables = init(module, jax.random.key(0), (8, 8, 1))
    evaluated = eval_logits(module, variables, x)
    logits, updated = train_logits(module, variables, x, jax.random.key(1))
    assert list(updated) == collections
    assert {leaf.dtype for leaf in jax.tree.leaves((variables, logits, updated, evaluated))} == {
        jnp.dtype(FLOAT)
    }
    assert jax.tree.structure({**variables, **updated}) == jax.tree.structure(variables)
    assert bool(jnp.any(logits != evaluated)) == differs
    again, _ = train_logits(module, variables, x, jax.random.key(1))
    np.testing.assert_array_equal(logits, again)


def test_dropout_follows_the_key():
    x, _ = batch("MnistCNN", 4)
    module = models.MnistCNN()
    variables = init(module, jax.random.key(0), (28, 28, 1))
    run = jax.jit(functools.partial(train_logits, module))
    one, same, other = (run(variables, x, jax.random.key(seed))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert jnp.any(one != other)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Strange(), "Strange.__call__ needs 'mode', which is not known here"),
        (models.ResNet8(classes=100), "ResNet8 gives an array of shape (2, 100) for 2 images"),
        (nn.Dense(10), "Dense gives an array of shape (2, 8, 8, 10) for 2 images"),
        (models.MnistCNN, "model must be a flax.linen Module"),
    ],
)
def test_mistakes(module, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_outputs(module, (8, 8, 1), 10)
