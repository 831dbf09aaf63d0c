"""Results on disk: JSON with provenance, written whole or not at all."""

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from realfm_jax._version import __version__


def provenance(config: dict[str, Any]) -> dict[str, Any]:
    """What it takes to get the same numbers again: versions, precision, machine and configuration."""
    return {
        "realfm_jax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "backend": jax.default_backend(),
        "float64": jnp.result_type(float) == "float64",
        "revision": revision(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": config,
    }


@functools.cache  # what this process imported does not change any more, and git takes milliseconds
def revision() -> str | None:
    """The git revision of the source, "-dirty" if files differ from it; None outside a checkout."""
    home = Path(__file__).parents[1]
    if not (home / ".git").exists():
        return None
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def digest(tree: Any, text: str = "") -> str:
    """A fingerprint of a pytree's structure and numbers, and a text, the same in every process."""
    leaves, structure = jax.tree.flatten(tree)
    # A function prints with its address, which no other process shares.
    found = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", f"{structure}{text}").encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        found.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def plain(value: Any) -> Any:
    """Structs, arrays and numbers as what JSON knows; not-a-number becomes null."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return plain(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write in place of `path`, which it becomes at the end, or vanishes if anything goes wrong.

    A reader, or a killed writer, never sees half a file.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(name, 0o644)  # a temporary file is its owner's only; a result is meant to be read
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def save_json(path: str | os.PathLike[str], content: Any) -> Path:
    """Write `content` to `path`, whole or not at all."""
    with whole(path) as unfinished, open(unfinished, "w") as file:
        json.dump(plain(content), file, indent=1, allow_nan=False)
        file.write("\n")
    return Path(path)
