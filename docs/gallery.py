"""Draw every plot from real solves, in about four minutes: `python docs/gallery.py docs/pictures`."""

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

import realfm_jax as rfm
from realfm_jax import comparison, plots
from realfm_jax.design import design
from realfm_jax.pareto import pareto
from realfm_jax.sensitivity import sensitivity

SETTING = comparison.Setting(devices=8, cost_spread=0.2, profit_margin=0.8)
"""The paper's CIFAR-10 setting with fewer and more different devices, and a server that pays."""
DOTS_PER_INCH = 200


def draw() -> dict[str, Any]:
    """Every plot, by the name of its file."""
    games = comparison.games(SETTING)
    paying = games["RealFM"]
    keeping = rfm.replace(paying, profit_margin=1.0)
    ks = rfm.sweep(keeping, shaping=["taylor", "exact"], k=np.geomspace(0.5, 100.0, 13))
    margins = rfm.sweep(paying, cost=np.geomspace(2e-5, 1e-2, 13), profit_margin=np.linspace(0.4, 1.0, 7))
    front = pareto(paying, profit_margin=np.linspace(0.4, 1.0, 9), epsilon=np.geomspace(1e-9, 1e-4, 9))
    moved = sensitivity(paying, ["total", "server_utility", "mean_utility"])
    found = design(paying, floor={"mean_utility": 120.0}, method="aggregate")
    return {
        "utility": plots.utility(keeping, rfm.solve(keeping), device=2),
        "cost-comparison": plots.cost_comparison(),
        "utility-comparison": plots.utility_comparison(),
        "mechanisms": plots.mechanisms({name: rfm.solve(game) for name, game in games.items()}),
        "lines": plots.lines(ks, "contribution"),
        "heatmap": plots.heatmap(margins, "server_utility", x="cost", y="profit_margin"),
        "pareto": plots.pareto(front),
        "sensitivity": plots.sensitivity(moved),
        "design-path": plots.design_path(found),
    }


def main() -> None:
    """Draw everything into the folder given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go, as PNG")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in draw().items():
        figure = drawn if hasattr(drawn, "savefig") else drawn.figure
        figure.savefig(folder / f"{name}.png", dpi=DOTS_PER_INCH)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    matplotlib.use("Agg")
    jax.config.update("jax_enable_x64", True)
    main()
