"""Print: the paper's network on MNIST, federated here and in PyTorch: same weights, same batches.

Dropout is drawn by each on its own; so the curves agree in the large, not to the digit.
`python -m benchmarks.mnist`: two to ten minutes on two cores.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from realfm_jax import federated
from realfm_jax.federated.batches import draw
from realfm_jax.federated.models import init
from realfm_jax.formats import text_table
from realfm_jax.record import provenance, save_json

BATCH, LOCAL_STEPS = 128, 6


def ours(
    data: federated.Dataset, shards: federated.Partition, variables: Any, epochs: int, learning_rate: float
) -> np.ndarray:
    """Test accuracy of the federated model after each epoch, by this package."""
    recipe = federated.Recipe(optax.adam(learning_rate), epochs, BATCH, LOCAL_STEPS)
    run = federated.train_federated(
        federated.MnistCNN(), data, shards, recipe, 0, start=variables, score="global"
    )
    return run.curves["global_accuracy"].values


def theirs(
    data: federated.Dataset, shards: federated.Partition, variables: Any, epochs: int, learning_rate: float
) -> np.ndarray:
    """The same in PyTorch, clients in turn."""
    import torch

    from benchmarks.torch_clients import Clients

    torch.manual_seed(0)
    clients = Clients(
        "MnistCNN", variables, len(shards.indices), layout=torch.channels_last, learning_rate=learning_rate
    )
    seed = tuple(int(word) for word in jax.random.key_data(jax.random.key(0)))
    rounds = federated.Recipe(optax.identity(), 1, BATCH, LOCAL_STEPS).rounds_per_epoch(
        int(shards.sizes.max())
    )
    found = []
    for number in range(epochs * rounds):
        drawn = draw(shards.indices, seed, number * LOCAL_STEPS, LOCAL_STEPS, BATCH)
        clients.round(np.asarray(data.floats(data.train.images[drawn])), data.train.labels[drawn])
        if (number + 1) % rounds == 0:
            found.append(_accuracy(clients.models[0], data))
    return np.array(found)


def _accuracy(model: Any, data: federated.Dataset) -> float:
    import torch

    from benchmarks import torch_models

    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(data.test), 500):
            images = np.asarray(data.floats(data.test.images[start : start + 500]))
            chosen = model(torch_models.images(images)).argmax(1).numpy()
            right += int((chosen == data.test.labels[start : start + 500]).sum())
    model.train()
    return right / len(data.test)


def main() -> None:
    """Train both and print their curves."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mnist", description=__doc__)
    parser.add_argument("--devices", type=int, default=16, help="with 60,000 / devices images each (16)")
    parser.add_argument("--epochs", type=int, default=3, help="of training (3)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of Adam (the paper's: 0.001)")
    parser.add_argument("--out", type=Path, help="save the curves as JSON, too")
    options = parser.parse_args()
    federated.use_cores()
    data = federated.load("mnist")
    sizes = [len(data.train) // options.devices] * options.devices
    shards = federated.partition(data.train.labels, sizes, key=0)
    variables = init(federated.MnistCNN(), jax.random.key(1), data.train.images.shape[1:])
    what = data, shards, variables, options.epochs, options.learning_rate
    found = {"realfm_jax": ours(*what).tolist(), "PyTorch": theirs(*what).tolist()}
    rows = [(str(i + 1), *(f"{curve[i]:.4f}" for curve in found.values())) for i in range(options.epochs)]
    print(text_table([("epoch", *found)], rows))
    if options.out:
        save_json(
            options.out,
            {"provenance": provenance(json.loads(json.dumps(vars(options), default=str))), **found},
        )


if __name__ == "__main__":
    main()
