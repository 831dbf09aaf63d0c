"""CIFAR-10's batches and their copy in pictures hold the same images (MNIST's files: test_data)."""

import io
import json
import tarfile

import numpy as np
from PIL import Image

from realfm_jax.federated.originals import DOWNLOADED, PACKAGED, unpacked

NAMES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


def test_batches_and_pictures() -> None:
    random = np.random.default_rng(0)
    images = {name: random.integers(0, 256, (3, 32, 32, 3), np.uint8) for name in NAMES}
    labels = {name: random.integers(0, 10, 3, np.uint8) for name in NAMES}

    packed = io.BytesIO()
    pictures = {}
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in NAMES:
            # The authors' records: the label, then all red, all green, all blue, row by row.
            red_green_blue = [images[name][..., channel].reshape(3, 1024) for channel in range(3)]
            content = np.hstack([labels[name][:, None], *red_green_blue]).tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            # The package's: a row of 1024 pixels per image.
            png = io.BytesIO()
            Image.fromarray(images[name].reshape(3, 1024, 3)).save(png, "png")
            pictures[f"{name}.png"] = png.getvalue()
    train = np.concatenate([labels[name] for name in NAMES[:5]])
    pictures["train_lables.json"] = json.dumps(train.tolist()).encode()
    pictures["test_lables.json"] = json.dumps(labels["test_batch"].tolist()).encode()

    assert set(unpacked(packed.getvalue())) == {f"{name}.bin" for name in NAMES}
    for found in (
        DOWNLOADED["cifar10"]({"cifar-10-binary.tar.gz": packed.getvalue()}),
        PACKAGED["cifar10"](pictures),
    ):
        np.testing.assert_array_equal(
            found["train"][0], np.concatenate([images[name] for name in NAMES[:5]])
        )
        np.testing.assert_array_equal(found["train"][1], train)
        np.testing.assert_array_equal(found["test"][0], images["test_batch"])
        np.testing.assert_array_equal(found["test"][1], labels["test_batch"])
