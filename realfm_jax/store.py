"""Where a sweep's pieces go: into memory, or chunk by chunk into a Zarr store that survives anything."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
import zarr

from realfm_jax._version import __version__
from realfm_jax.parameters import UNITS, parameters
from realfm_jax.plan import Axis, Plan
from realfm_jax.record import digest, plain, provenance

WRITE_ALL: Any = {"write_empty_chunks": True}
"""Else Zarr leaves out a chunk of zeros, money for instance; and a missing chunk means not computed."""


class Memory:
    """A sweep held in memory."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.arrays: dict[str, np.ndarray] = {}

    def holds(self, at: tuple[int, ...]) -> bool:
        """Nothing is there before it is written."""
        del at
        return False

    def write(self, at: tuple[int, ...], piece: dict[str, np.ndarray]) -> None:
        """Put one piece where it belongs."""
        for name, values in piece.items():
            shape = tuple(self.plan.dimensions(self.plan.fields[name]).values())
            if values.shape == shape:  # the only piece: no need to copy
                self.arrays[name] = values
            else:
                whole = self.arrays.setdefault(name, np.empty(shape, values.dtype))
                whole[self.plan.region(at)] = values

    def dataset(self) -> xr.Dataset:
        """The result."""
        variables = {
            name: (tuple(self.plan.dimensions(field)), self.arrays[name], _attributes(self.plan, name))
            for name, field in self.plan.fields.items()
        }
        return xr.Dataset(variables, _coordinates(self.plan), _description(self.plan))


class Zarr:
    """A sweep on disk. A piece is one chunk of every variable; the last one written vouches for the rest.

    Zarr writes each chunk to another name first and renames it, so a chunk is there whole or not at all.
    """

    def __init__(self, plan: Plan, path: Path) -> None:
        self.plan, self.path = plan, path
        self.last = list(plan.fields)[-1]
        if path.exists():
            self._check()
            for half in path.glob("*/*.partial"):  # what Zarr was writing when it was killed
                half.unlink()
        else:
            # The skeleton too appears whole or not at all.
            unfinished = path.with_name(f".{path.name}.unfinished")
            about = _description(plan) | {"digest": _digest(plan)}
            xr.Dataset(None, _coordinates(plan), about).to_zarr(
                unfinished, mode="w", zarr_format=2, consolidated=False
            )
            unfinished.rename(path)
        self.group = zarr.open_group(path, mode="r+", zarr_format=2)
        self.arrays: dict[str, Any] = {}

    def _check(self) -> None:
        if not (self.path / ".zattrs").exists():
            raise FileExistsError(f"{self.path} exists and is not a sweep; give another store")
        held = json.loads((self.path / ".zattrs").read_text())
        if held.get("digest") != _digest(self.plan):
            raise FileExistsError(
                f"{self.path} holds another sweep (of {held.get('created', 'unknown date')}, other game, "
                "parameters, chunk or precision); give another store, or delete this one"
            )

    def holds(self, at: tuple[int, ...]) -> bool:
        """Whether a piece has been written completely."""
        chunk = (*at, 0) if self.plan.fields[self.last].per_device else at
        return (self.path / self.last / ".".join(map(str, chunk))).exists()

    def write(self, at: tuple[int, ...], piece: dict[str, np.ndarray]) -> None:
        """Write one piece; only after its last variable does it count."""
        for name, values in piece.items():
            if name not in self.arrays:
                self.arrays[name] = self._array(name, values.dtype)
            self.arrays[name][self.plan.region(at)] = values

    def _array(self, name: str, dtype: np.dtype) -> Any:
        if name in self.group:
            array: Any = self.group[name]  # which has forgotten to write zeros, too
            return array.with_config(WRITE_ALL)
        lengths = self.plan.dimensions(self.plan.fields[name])
        block = self.plan.block | {"device": self.plan.devices}
        return self.group.create_array(
            name,
            shape=tuple(lengths.values()),
            chunks=tuple(block[dimension] for dimension in lengths),
            dtype=dtype,
            fill_value=None,  # xarray would read a fill value as missing, and money is often 0
            compressors=None,  # utilities and contributions are noise to a compressor
            config=WRITE_ALL,
            attributes={"_ARRAY_DIMENSIONS": list(lengths), **_attributes(self.plan, name)},
        )

    def dataset(self) -> xr.Dataset:
        """The result, read from disk as it is used."""
        return xr.open_zarr(self.path, chunks=None, zarr_format=2, consolidated=False)


def _attributes(plan: Plan, name: str) -> dict[str, str]:
    return {"long_name": plan.fields[name].meaning, "units": plan.fields[name].units}


def _coordinates(plan: Plan) -> dict[str, Any]:
    """The values of every parameter that varies, and the devices' numbers."""
    found: dict[str, Any] = {"device": ("device", np.arange(plan.devices), {"long_name": "device"})}
    for axis in plan.axes:
        attributes = {"long_name": axis.name.replace("_", " "), "units": UNITS.get(axis.name, "1")}
        values = np.array(_labels(axis)) if axis.is_choice else axis.values
        dimensions = (axis.dimension, "device")[: values.ndim]
        found[axis.name] = (dimensions, values, attributes)
    return found


def _labels(axis: Axis) -> list[Any]:
    """Choices as a coordinate: mechanisms by their names, told apart by their parameters if need be."""
    if axis.name != "mechanism":
        return list(axis.values)
    names = [type(mechanism).__name__ for mechanism in axis.values]
    if len(set(names)) == len(names):
        return names
    return [f"{name} {plain(mechanism)}" for name, mechanism in zip(names, axis.values, strict=True)]


def _description(plan: Plan) -> dict[str, str]:
    """Attributes of the result: what it takes to get it again."""
    varied = [axis.name for axis in plan.axes]
    fixed = {
        name: plain(value) if np.size(value) <= 64 else f"{np.size(value)} values"
        for name, value in parameters(plan.game).items()
        if name not in varied and name != "mechanism"
    }
    config = {
        "command": "sweep",
        "mechanism": type(plan.game.mechanism).__name__,
        "fixed": fixed,
        "varied": varied,
        "method": plan.method,
        "block": plan.block,
    }
    made = provenance(config)
    return {
        "title": f"{plan.games} equilibria of realfm_jax",
        "created": made["written"],
        "provenance": json.dumps(plain(made)),
    }


def _digest(plan: Plan) -> str:
    """Of everything that the numbers depend on."""
    labels = [(axis.name, axis.dimension, str(axis.values) if axis.is_choice else "") for axis in plan.axes]
    text = [__version__, labels, plan.block, plan.method, list(plan.fields), jnp.result_type(float).name]
    return digest((plan.game, [axis.values for axis in plan.axes if not axis.is_choice]), json.dumps(text))
