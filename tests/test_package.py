"""The package as a whole: quick to import, light, and its records whole or absent."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from realfm_jax.record import save_json

IMPORTED = """
import sys, time
import jax, jax.numpy
begun = time.perf_counter()
import realfm_jax
print(time.perf_counter() - begun)
heavy = "flax", "optax", "orbax", "tensorflow_datasets", "xarray", "matplotlib", "zarr", "tqdm", "scipy"
print(*(name for name in heavy if name in sys.modules))
"""


def test_import_is_quick_and_pulls_in_nothing_heavy() -> None:
    times = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
        seconds, heavy = run.stdout.split("\n")[:2]
        assert heavy == ""
        times.append(float(seconds))
    assert min(times) <= 0.3


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = save_json(tmp_path / "a" / "b.json", {"x": np.arange(3.0), "bad": float("nan")})
    assert json.loads(target.read_text()) == {"x": [0.0, 1.0, 2.0], "bad": None}
    with pytest.raises(TypeError):
        save_json(target, {"x": object()})
    assert json.loads(target.read_text())["bad"] is None
    assert [path.name for path in target.parent.iterdir()] == ["b.json"]
