"""Data sets: digits, arrays of one's own, and a cache that is right, or refused, and never half written."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import bare_machine, web_server  # noqa: F401 (the fixtures `places` and `server`)

from realfm_jax.federated import catalogue, data, sources


def test_digits_are_all_there() -> None:
    digits = data.load("digits")
    assert digits.train.images.shape == (1437, 8, 8, 1)
    assert digits.test.images.shape == (360, 8, 8, 1)
    assert digits.train.images.dtype == digits.train.labels.dtype == np.uint8
    train, test = (np.bincount(split.labels) for split in (digits.train, digits.test))
    np.testing.assert_array_equal(train + test, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])  # UCI's
    assert np.abs(test - (train + test) * 360 / 1797).max() < 1
    # Grey values are UCI's 0 ... 16, times 255/16: 17 values, of which the first and last are 0 and 255.
    np.testing.assert_array_equal(np.unique(digits.train.images), np.rint(np.arange(17) * 255 / 16))
    assert digits.provenance["train"] == catalogue.digest(digits.train.images, digits.train.labels)
    np.testing.assert_allclose([digits.mean, digits.std], data.moments(digits.train.images), atol=5e-5)


def test_floats_are_normalised_float32_in_any_precision() -> None:
    digits = data.load("digits")
    images = digits.train.images[:5]
    want = (images / 255 - digits.mean[0]) / digits.std[0]
    assert jnp.zeros(()).dtype == jnp.float64  # the tests' own precision must not leak in
    for found in (digits.floats(images), jax.jit(digits.floats)(images)):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, want, atol=1e-6)
    with pytest.raises(ValueError, match="images must be uint8, 0 to 255; got float64"):
        digits.floats(images / 255)


def test_arrays_of_ones_own() -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 2, 3), np.uint8)
    images[..., 2] = 7
    mine = data.from_arrays("mine", (images, [0, 1, 2, 0, 1, 2]), (images[:2], [3, 0]))
    assert mine.classes == ("0", "1", "2", "3")
    np.testing.assert_allclose(mine.mean, (images / 255).mean((0, 1, 2)))
    np.testing.assert_allclose(mine.std[:2], (images / 255).std((0, 1, 2))[:2])
    assert mine.std[2] == 1.0
    assert np.isfinite(mine.floats(images)).all()
    other = data.from_arrays("mine", (images, [0, 1, 2, 0, 1, 1]), (images[:2], [3, 0]))
    assert mine.provenance["train"] != other.provenance["train"]
    assert mine.provenance["test"] == other.provenance["test"]


@pytest.mark.parametrize(
    ("images", "labels", "classes", "message"),
    [
        (
            np.zeros((2, 4, 4, 1)),
            [0, 1],
            None,
            r"train images must be uint8 .*; got float64 \[2, 4, 4, 1\]",
        ),
        (np.zeros((2, 4, 4), np.uint8), [0, 1], None, r"\[N, H, W, C\], not empty; got uint8 \[2, 4, 4\]"),
        (np.zeros((0, 4, 4, 1), np.uint8), [], None, "not empty"),
        (np.zeros((2, 4, 4, 1), np.uint8), [0], None, r"integers \[2\], one per image; got int64 \[1\]"),
        (np.zeros((2, 4, 4, 1), np.uint8), [0.0, 1.0], None, "labels must be integers"),
        (np.zeros((2, 4, 4, 1), np.uint8), [0, 256], None, "labels must be 0 to 255; got 0 to 256"),
        (np.zeros((2, 4, 4, 1), np.uint8), [0, 2], ["a", "b"], "labels must be 0 to 1, .*; got 2"),
        (np.zeros((2, 5, 4, 1), np.uint8), [0, 1], None, r"one shape; got \(5, 4, 1\) and \(4, 4, 1\)"),
    ],
)
def test_wrong_arrays_are_named(images: Any, labels: Any, classes: Any, message: str) -> None:
    good = (np.zeros((2, 4, 4, 1), np.uint8), [0, 1])
    with pytest.raises(ValueError, match=message):
        data.from_arrays("mine", (images, labels), good, classes)


def test_a_wrong_cache_is_refused_by_name_and_replaced_when_asked(
    places: Path, server: dict[str, tuple[int, str]]
) -> None:
    path = data.fetch("mnist")
    good = path.read_bytes()
    assert path == places / "cache" / "mnist-3.0.1.npz"
    with np.load(path) as file:
        parts = {name: file[name] for name in file.files}
    parts["test_images"][0, 0, 0, 0] ^= 1
    np.savez(path, **parts)
    flipped = path.read_bytes()
    for content, reason in (
        (flipped, "is not mnist 3.0.1: test has sha256"),
        (good[: len(good) // 2], "is damaged"),
        (good[:5000] + bytes(500) + good[5500:], "is damaged"),
        (b"", "is damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path} {reason}.*`realfm data fetch mnist --again`"):
            data.load("mnist")
    with pytest.raises(ValueError, match="is damaged"):
        data.fetch("mnist")
    assert data.fetch("mnist", again=True).read_bytes() == good


def test_a_cache_that_cannot_be_written(
    places: Path, server: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "file").touch()
    nowhere = places / "file" / "cache"
    with pytest.warns(
        UserWarning, match=f"mnist must be fetched again next time: {nowhere}.* cannot be written"
    ):
        assert tiny.is_tiny(data.load("mnist", cache_dir=nowhere))
    with monkeypatch.context() as inside:
        inside.setattr(sources, "fetch", None)  # the error comes before anything is fetched
        with pytest.raises(OSError, match=r"cannot be written \(Not a directory\); set \$REALFM_CACHE"):
            data.fetch("mnist", cache_dir=nowhere)

    def full(*args: Any, **kwargs: Any) -> None:
        Path(args[0].name).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left on device"):
        data.fetch("mnist", cache_dir=places / "cache")
    assert list((places / "cache").iterdir()) == []


def test_mistakes_are_named(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'cifar100'; did you mean cifar10\?"):
        data.load("cifar100")
    with pytest.raises(ValueError, match="data_dir must be a directory of TFDS data sets; got '/no/such'"):
        data.load("mnist", data_dir="/no/such")
    monkeypatch.delenv("REALFM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert data.cache_path("cifar10") == Path("/xdg/realfm_jax/cifar10-3.0.2.npz")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data.cache_path("mnist") == places / "home/.cache/realfm_jax/mnist-3.0.1.npz"
