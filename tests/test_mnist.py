"""The paper's network on the real MNIST, where it is at hand: `pytest -m slow tests/test_mnist.py -s`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from realfm_jax.federated import data

AT_HAND = (
    data.cache_path("mnist").exists() or (Path(os.environ.get("TFDS_DATA_DIR", "-")) / "mnist").exists()
)

PROGRAM = """
import json
from realfm_jax import federated
federated.use_cores()
import optax
mnist = federated.load("mnist")
shards = federated.partition(mnist.train.labels, [3750] * 16, key=0)
recipe = federated.Recipe(optax.adam(3e-3), epochs=3)
together = federated.train_federated(federated.MnistCNN(), mnist, shards, recipe, key=0, score="global")
alone = federated.train_local(federated.MnistCNN(), mnist, shards, recipe, key=0)
found = {"together": together.curves.global_accuracy, "alone": alone.curves.accuracy.mean("device")}
print(json.dumps({name: values.values.tolist() for name, values in found.items()}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not AT_HAND, reason="MNIST is not at hand: realfm data fetch mnist")
def test_sixteen_devices_learn_more_together_than_alone() -> None:
    # With XLA's full optimisation, which the other tests do without.
    free: Any = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=free, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    print(found)
    # The authors' curve has 0.989 here. At their learning rate, 1e-3, neither this package nor PyTorch gets
    # beyond 0.98: see docs/federation.md.
    assert found["together"][-1] >= 0.985
    assert found["together"][-1] > found["alone"][-1]
