"""The tour of docs/federation.md: share out digits, train alone and together, hand out models, draw it all.

`python docs/federation.py docs/pictures` takes a minute or two on two cores, without any download.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import optax

from realfm_jax import federated, plots

SIZES = (40, 50, 60, 70, 80, 90, 100, 110)
"""Samples of each device."""
PROMISES = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
"""What each device has earned."""
DOTS_PER_INCH = 200


def tour() -> dict[str, Any]:
    """Every step, printed; the plots by the names of their files."""
    data = federated.load("digits")
    shards = federated.partition(data.train.labels, SIZES, key=0, alpha=0.6)
    recipe = federated.Recipe(optax.adam(3e-3), epochs=20, batch=32, local_steps=2)
    alone = federated.train_local(federated.DigitsCNN(), data, shards, recipe, key=0)
    together = federated.train_federated(federated.DigitsCNN(), data, shards, recipe, key=0)
    local, common = alone.curves.accuracy[-1], float(together.curves.global_accuracy[-1])
    print(f"alone {float(local.min()):.3f} to {float(local.max()):.3f}, mean {float(local.mean()):.3f}")
    print(f"together {common:.3f}")
    noise = hand_out(together, data, shards, federated.Noise())
    skew = hand_out(together, data, shards, federated.Skew())
    return {
        "labels": plots.labels(shards, classes=data.classes),
        "learning": plots.learning({"together": together, "alone": alone}),
        "delivery": plots.delivery({"noise": noise, "skewed training": skew}),
    }


def hand_out(
    run: federated.Run, data: federated.Dataset, shards: federated.Partition, method: Any
) -> federated.Delivery:
    """Models of the accuracies promised, and what fine-tuning them on the own shard wins back."""
    half = len(data.test) // 2
    held_out = federated.Split(data.test.images[:half], data.test.labels[:half])
    fresh = federated.Split(data.test.images[half:], data.test.labels[half:])
    given = federated.deliver(
        run.module, run.model, PROMISES, data, 0, method=method, held_out=held_out, fresh=fresh
    )
    gentle = federated.Recipe(optax.adam(1e-3), epochs=3, batch=32, local_steps=2)
    given = federated.win_back(run.module, given, data, shards, gentle, key=1, held_out=held_out)
    print(given, f"largest miss {np.abs(given.achieved - given.promised).max():.4f}", sep="\n")
    return given


def main() -> None:
    """Draw everything into the folder given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go, as PNG")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    federated.use_cores()
    for name, drawn in tour().items():
        drawn.figure.savefig(folder / f"{name}.png", dpi=DOTS_PER_INCH)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    matplotlib.use("Agg")
    main()
