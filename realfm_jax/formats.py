"""Where results go and in which format; nothing is overwritten unless asked for, or left half written."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from realfm_jax.record import plain, save_json, whole

if TYPE_CHECKING:
    import xarray as xr

    from realfm_jax.plan import Plan

SUFFIXES = {
    "zarr": ".zarr",
    "netcdf": ".nc",
    "csv": ".csv",
    "json": ".json",
    "png": ".png",
    "pdf": ".pdf",
    "svg": ".svg",
}
FOLDER = Path("realfm-results")
"""Of results that were given no place."""
MOST = 2**31
"""Bytes of a variable that NetCDF 3, CSV and JSON are good for."""


def place(
    out: Path | None, format_: str | None, allowed: tuple[str, ...], name: str, force: bool
) -> tuple[Path, str]:
    """Where a result goes, and its format: as said, or by the suffix, or the first allowed.

    Without `out` it goes to a name of its own that is still free. A Zarr store may exist: it is resumed.
    """
    by_suffix = {SUFFIXES[known]: known for known in allowed}
    if out is None:
        format_ = format_ or allowed[0]
        out, count = FOLDER / f"{name}{SUFFIXES[format_]}", 1
        while out.exists() and format_ != "zarr" and not force:
            count += 1
            out = FOLDER / f"{name}-{count}{SUFFIXES[format_]}"
        return out, format_
    if format_ is None and out.suffix not in by_suffix:
        suffixes = ", ".join(by_suffix)
        raise ValueError(f"--out must end in one of {suffixes}, or --format say what it is; got {out}")
    format_ = format_ or by_suffix[out.suffix]
    there = next(folder for folder in out.absolute().parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise PermissionError(f"{there} is no directory to write to; give another --out")
    if format_ != "zarr":
        for path in (out, sidecar(out)) if format_ == "csv" else (out,):
            if path.is_dir():
                raise FileExistsError(f"{path} is a directory; give another --out")
            if path.exists() and not force:
                raise FileExistsError(f"{path} exists; give --force to overwrite it, or another --out")
    return out, format_


def sidecar(path: Path) -> Path:
    """What says where a CSV file comes from, and what its columns are: it has no place for that."""
    return path.with_name(f"{path.name}.json")


def discard(path: Path) -> None:
    """Remove a sweep's store, and nothing but a sweep's store."""
    if not path.exists():
        return
    attributes = path / ".zattrs"
    if not attributes.exists() or "digest" not in json.loads(attributes.read_text()):
        raise FileExistsError(f"{path} exists and is not a sweep; give another --out")
    # Under another name first: interrupted, no half of it is left where a sweep is expected.
    doomed = path.with_name(f".{path.name}.{os.getpid()}.discarded")
    path.rename(doomed)
    shutil.rmtree(doomed)


def prepare(plan: "Plan", path: Path, coordinates: dict[str, Any], config: str) -> None:
    """Make a store for a sweep, or check that the one there is of the same, and label it."""
    import xarray as xr

    from realfm_jax.store import Zarr

    path.parent.mkdir(parents=True, exist_ok=True)
    Zarr(plan, path)
    with xr.open_zarr(path, chunks=None, zarr_format=2, consolidated=False) as found:
        if "config" not in found.attrs or not set(coordinates) <= set(found.coords):
            labels = found.drop_vars(list(found.data_vars)).load().assign_coords(coordinates)
            labels = labels.assign_attrs(config=config)
            labels.to_zarr(path, mode="a", zarr_format=2, consolidated=False)


def share_done(plan: "Plan", path: Path) -> float:
    """How much of a sweep its store holds, 0 to 1."""
    from realfm_jax.store import Zarr

    if not path.exists():
        return 0.0
    held, blocks = Zarr(plan, path), list(plan.blocks())
    return sum(map(held.holds, blocks)) / len(blocks)


def check_size(plan: "Plan") -> None:
    """Refuse, before hours of work, what only a Zarr store can hold."""
    size = 8 * plan.games * plan.devices
    if size >= MOST:
        raise ValueError(
            f"{plan.games} games of {plan.devices} devices are {size / 1e9:.1f} GB per variable; "
            "give an --out that ends in .zarr"
        )


def save_dataset(dataset: "xr.Dataset", path: Path, format_: str) -> Path:
    """Write a result whole or not at all, in any format but Zarr."""
    about = {name: json.loads(dataset.attrs[name]) for name in ("provenance", "config")}
    if format_ == "json":
        return save_json(path, about | dataset.to_dict(data="array"))
    with whole(path) as unfinished:
        if format_ == "netcdf":
            dataset.to_netcdf(unfinished, engine="scipy")
        else:
            dataset.to_dataframe().reset_index().to_csv(unfinished, index=False)
    if format_ == "csv":
        save_json(sidecar(path), about | {"columns": {n: v.attrs for n, v in dataset.variables.items()}})
    return path


def load_dataset(path: Path) -> "xr.Dataset":
    """A result of `realfm sweep`, from Zarr, NetCDF or JSON."""
    import xarray as xr

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir() and (path / ".zgroup").exists():
        return xr.open_zarr(path, chunks=None, zarr_format=2, consolidated=False)
    if path.suffix == ".nc":
        return xr.load_dataset(path, engine="scipy")
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        if "data_vars" in content:
            found = xr.Dataset.from_dict(content)
            # JSON has no not-a-number; devices that a smaller game does not have come back as None.
            gaps = [name for name, array in found.data_vars.items() if array.dtype == object]
            return found.assign({name: found[name].astype(float) for name in gaps})
    raise ValueError(f"{path} must be a sweep (.zarr, .nc, .json) or a TOML file")


def save_rows(path: Path, rows: list[dict[str, Any]], about: dict[str, Any]) -> Path:
    """Write rows as CSV, and beside them what they are."""
    import csv

    with whole(path) as unfinished, open(unfinished, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(plain(rows))
    save_json(sidecar(path), about)
    return path


def text_table(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need be, the first to the left, the others to the right.

    >>> print(text_table([("name", "u")], [("RealFM", "1.5")]))
    name      u
    -----------
    RealFM  1.5
    """
    everything = [*heads, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(everything[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]
    return "\n".join([*lines[: len(heads)], "-" * max(map(len, lines)), *lines[len(heads) :]])


def size(path: Path) -> str:
    """On disk, in words."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    count = float(sum(file.stat().st_size for file in files))
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
