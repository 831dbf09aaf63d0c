"""Federated averaging in PyTorch, one client after the other, each step on all cores."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from benchmarks import torch_models


class Clients:
    """Clients with models of their own, all from the same weights, each with an Adam of its own.

    `kind` is the precision of everything: float32 as anybody trains, float64 to know what is right;
    `layout` that of images and kernels in memory.
    """

    def __init__(
        self,
        name: str,
        variables: Mapping[str, Any],
        clients: int,
        kind: torch.dtype = torch.float32,
        layout: torch.memory_format = torch.contiguous_format,
        learning_rate: float = 1e-3,
        **options: Any,
    ) -> None:
        self.kind, self.layout = kind, layout
        self.models: list[Any] = [torch_models.twin(name, **options).train() for _ in range(clients)]
        for model in self.models:
            torch_models.load(model, variables)
            model.to(dtype=kind, memory_format=layout)
        self.optimizers = [torch.optim.Adam(model.parameters(), learning_rate) for model in self.models]

    def round(self, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The losses of a round of local steps, [clients, steps], after which all models are averaged."""
        losses = []
        for model, optimizer, x, y in zip(self.models, self.optimizers, images, labels, strict=True):
            losses.append([self._step(model, optimizer, *batch) for batch in zip(x, y, strict=True)])
        self._average()
        return np.array(losses)

    def _step(self, model: Any, optimizer: Any, images: np.ndarray, labels: np.ndarray) -> float:
        optimizer.zero_grad(set_to_none=True)
        logits = model(torch_models.images(images).to(dtype=self.kind, memory_format=self.layout))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels.astype(np.int64)))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def _average(self) -> None:
        states = [model.state_dict() for model in self.models]
        for name, first in states[0].items():
            if first.is_floating_point():
                mean = torch.stack([state[name] for state in states]).mean(0)
                for state in states:
                    state[name].copy_(mean)
