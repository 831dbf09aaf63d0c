"""A TOML file, the game in it by the Python API, and the examples that come with the package."""

from pathlib import Path
from typing import Any

import realfm_jax as rfm
from realfm_jax.comparison import Setting, games

EXPERIMENTS = sorted((Path(__file__).parents[1] / "experiments").glob("*.toml"))
SWEEP = """
[game]
devices = 3
seed = 5
[sweep]
shaping = ["taylor"]
mean_cost = [2e-4]
k = {from = 1, to = 100, count = 4, scale = "log"}
profit_margin = [1.0, 0.9]
method = "aggregate"
chunk = 2
"""
OPTIONS: Any = {"method": "aggregate", "chunk": 2}


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def drawn() -> rfm.Game:
    return games(Setting(devices=3, seed=5))["RealFM"]
