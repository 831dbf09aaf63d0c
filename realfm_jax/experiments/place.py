"""The directory of a run: what is in it, and that nothing in it is half written or silently replaced."""

import csv
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from realfm_jax.experiments.experiment import Experiment
from realfm_jax.record import save_json, whole

if TYPE_CHECKING:
    import xarray as xr

    from realfm_jax.experiments.run import Finished


class Place:
    """config.toml, result.json, curves.csv, page.png, models/ and checkpoints/ of one experiment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def result(self) -> Path:
        """Written last: a run that has one is finished."""
        return self.path / "result.json"

    def checkpoint(self, name: str) -> Path:
        """Where a training run saves its state."""
        return self.path / "checkpoints" / name

    def claim(self, experiment: Experiment, resume: bool) -> None:
        """Make the directory this experiment's, or make sure that it is and may be gone on with."""
        config, text = self.path / "config.toml", experiment.toml()
        if not self.path.exists() or not any(self.path.iterdir()):
            with whole(config) as unfinished:
                unfinished.write_text(text)
        elif not config.exists():
            raise FileExistsError(f"{self.path} exists and holds no experiment; give another --out")
        elif config.read_text() != text:
            raise FileExistsError(
                f"{self.path} holds another experiment (see its config.toml); give another --out"
            )
        elif not resume:
            state = "a finished run" if self.result.exists() else "an unfinished run"
            raise FileExistsError(
                f"{self.path} holds {state}; give --resume to go on with it, or another --out"
            )

    def forget_checkpoints(self) -> None:
        """Remove what only an unfinished run needs."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def save_curves(self, finished: "Finished") -> None:
        """Losses and accuracies by epoch and device, of both trainings, as CSV."""
        runs = {"local": finished.trained.local.curves, "federated": finished.trained.federated.curves}
        rows = [row for kind, curves in runs.items() for row in _rows(kind, curves)]
        with whole(self.path / "curves.csv") as unfinished, open(unfinished, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def save_models(self, finished: "Finished") -> None:
        """The model that each device earned, as Flax writes variables (`flax.serialization`)."""
        from flax import serialization

        given = finished.rewards["gave"]
        delivered = iter(range(int((~given.own).sum())))
        for device, own in enumerate(given.own):
            if own or given.delivery is None:
                model = finished.trained.local.device_model(device)
            else:
                model = given.delivery.model(next(delivered))
            with whole(self.path / "models" / f"device-{device:02d}.msgpack") as unfinished:
                unfinished.write_bytes(serialization.to_bytes(_host(model)))

    def save_result(self, result: dict[str, Any]) -> None:
        """All numbers."""
        save_json(self.result, result)


def load_result(path: Path) -> dict[str, Any]:
    """The result of a run, by its directory or by the file itself."""
    file = path / "result.json" if path.is_dir() else path
    if not file.exists():
        raise FileNotFoundError(f"{path} holds no result.json: not a run, or one that is not finished")
    found = json.loads(file.read_text())
    if "mechanisms" not in found or "devices" not in found:
        raise ValueError(f"{file} is not the result of an experiment")
    return found


def _host(tree: Any) -> Any:
    import jax

    return jax.tree.map(np.asarray, tree)


def _rows(kind: str, curves: "xr.Dataset") -> list[dict[str, Any]]:
    names = ("loss", "accuracy", "own_accuracy", "global_accuracy", "global_own_accuracy")
    rows = []
    for epoch in curves["epoch"].values:
        for device in curves["device"].values:
            here = curves.sel(epoch=epoch, device=device)
            values = {name: f"{float(here[name]):.6g}" if name in here else "" for name in names}
            rows.append({"kind": kind, "epoch": int(epoch), "device": int(device)} | values)
    return rows
