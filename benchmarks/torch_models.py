"""The package's models in PyTorch, layer by layer, with weights carried over: to compare numbers and speed.

Submodules bear the names that Flax gives the layers, so that one rule finds the place of every weight.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor, nn


class Block(nn.Module):
    """3x3 convolution, relu, batch normalisation."""

    def __init__(self, inputs: int, features: int, stride: int = 1) -> None:
        super().__init__()
        self.Conv3x3_0 = nn.Conv2d(inputs, features, 3, stride, padding=1)
        self.BatchNorm_0 = nn.BatchNorm2d(features)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        return self.BatchNorm_0(torch.relu(self.Conv3x3_0(x)))


class MnistCNN(nn.Module):
    """The paper's network for MNIST."""

    def __init__(self, classes: int = 10, dropout: float = 0.25) -> None:
        super().__init__()
        sizes = [(1, 32, 1), (32, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 1), (64, 64, 2), (64, 128, 1)]
        for i, size in enumerate(sizes):
            self.add_module(f"_Block_{i}", Block(*size))
        self.after = nn.Sequential(nn.MaxPool2d(2), nn.Dropout(dropout))
        self.Dense_0 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, 1, 28, 28]."""
        for i in range(7):
            x = self.get_submodule(f"_Block_{i}")(x)
            if i in (2, 5, 6):
                x = self.after(x)
        return self.Dense_0(x.flatten(1))


class DigitsCNN(nn.Module):
    """The small network for 8x8 digits."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self._Block_0 = Block(1, 16)
        self._Block_1 = Block(16, 32, 2)
        self.Dense_0 = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, 1, 8, 8]."""
        x = self._Block_1(self._Block_0(x))
        return self.Dense_0(x.permute(0, 2, 3, 1).flatten(1))  # channels last, as the weights are ordered


class Residual(nn.Module):
    """Two 3x3 convolutions around which a shortcut leads."""

    def __init__(self, inputs: int, features: int, stride: int) -> None:
        super().__init__()
        self.Conv3x3_0 = nn.Conv2d(inputs, features, 3, stride, padding=1, bias=False)
        self.BatchNorm_0 = nn.BatchNorm2d(features)
        self.Conv3x3_1 = nn.Conv2d(features, features, 3, padding=1, bias=False)
        self.BatchNorm_1 = nn.BatchNorm2d(features)
        self.changes = stride != 1 or inputs != features
        if self.changes:
            self.Conv1x1_0 = nn.Conv2d(inputs, features, 1, stride, bias=False)
            self.BatchNorm_2 = nn.BatchNorm2d(features)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        y = torch.relu(self.BatchNorm_0(self.Conv3x3_0(x)))
        y = self.BatchNorm_1(self.Conv3x3_1(y))
        return torch.relu(y + (self.BatchNorm_2(self.Conv1x1_0(x)) if self.changes else x))


class ResNet(nn.Module):
    """Residual network with a 3x3 stem and no max-pooling."""

    def __init__(self, widths: Sequence[int], blocks: Sequence[int], classes: int = 10) -> None:
        super().__init__()
        self.Conv3x3_0 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.BatchNorm_0 = nn.BatchNorm2d(widths[0])
        self.count, inputs = 0, widths[0]
        for stage, (features, number) in enumerate(zip(widths, blocks, strict=True)):
            for block in range(number):
                stride = 2 if stage and not block else 1
                self.add_module(f"_Residual_{self.count}", Residual(inputs, features, stride))
                self.count, inputs = self.count + 1, features
        self.Dense_0 = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, 3, H, W]."""
        x = torch.relu(self.BatchNorm_0(self.Conv3x3_0(x)))
        for i in range(self.count):
            x = self.get_submodule(f"_Residual_{i}")(x)
        return self.Dense_0(x.mean((2, 3)))


def twin(name: str, **options: Any) -> nn.Module:
    """The twin of the package's model of that name.

    >>> sum(weight.numel() for weight in twin("ResNet18").parameters())
    11173962
    """
    if name == "ResNet8":
        return ResNet((16, 32, 64), (1, 1, 1), **options)
    if name == "ResNet18":
        return ResNet((64, 128, 256, 512), (2, 2, 2, 2), **options)
    return {"MnistCNN": MnistCNN, "DigitsCNN": DigitsCNN}[name](**options)


NAMES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}


def converted(variables: Mapping[str, Any]) -> dict[str, Tensor]:
    """Variables, or gradients by them, of a model here, named and laid out as its twin's `state_dict`."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
        *place, name = (key.key for key in path[1:])  # path[0] is the collection
        value = np.array(leaf)
        if value.ndim == 2:
            value = value.T
            value = value[:, :, None, None] if place[-1].startswith("Conv") else value
        elif value.ndim == 4:
            value = value.transpose(3, 2, 0, 1)
        found[".".join((*place, NAMES.get(name, name)))] = torch.from_numpy(np.ascontiguousarray(value))
    return found


def load(module: nn.Module, variables: Mapping[str, Any]) -> None:
    """Put the variables of a model here into its twin; every weight must find its place."""
    missing, unexpected = module.load_state_dict(converted(variables), strict=False)
    if unexpected or any(not name.endswith("num_batches_tracked") for name in missing):
        raise RuntimeError(f"weights without a place: {unexpected}; places without a weight: {missing}")


def images(x: Any) -> Tensor:
    """A batch [B, H, W, C] as PyTorch wants it: [B, C, H, W]."""
    return torch.from_numpy(np.array(np.asarray(x).transpose(0, 3, 1, 2), order="C"))
