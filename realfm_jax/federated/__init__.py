"""Training of simulated clients: data, shards, models, FedAvg, and models of a promised accuracy."""

from realfm_jax.federated.data import Dataset, Split, from_arrays, load
from realfm_jax.federated.delivery import Delivery, deliver, win_back
from realfm_jax.federated.loop import DivergedError
from realfm_jax.federated.models import CompactCNN, DigitsCNN, MnistCNN, ResNet8, ResNet18
from realfm_jax.federated.partition import Partition, partition
from realfm_jax.federated.paths import Noise, Skew
from realfm_jax.federated.training import Recipe, Run, train_federated, train_local, use_cores

__all__ = [
    "CompactCNN",
    "Dataset",
    "Delivery",
    "DigitsCNN",
    "DivergedError",
    "MnistCNN",
    "Noise",
    "Partition",
    "Recipe",
    "ResNet8",
    "ResNet18",
    "Run",
    "Skew",
    "Split",
    "deliver",
    "from_arrays",
    "load",
    "partition",
    "train_federated",
    "train_local",
    "use_cores",
    "win_back",
]
