"""Plots of results: each takes a result and, if you like, the axes to draw on, and returns what it drew on.

A plot without axes of yours is made for one column of a paper (3.4 in, 8 pt), two where there are several
panels. Colours are safe for the colour-blind, and line styles, markers and hatches tell apart without them.
No global setting of matplotlib is touched; nothing is shown or saved: `ax.figure.savefig("plot.pdf")` does.
"""

from realfm_jax.plots.choices import design_path, pareto, sensitivity
from realfm_jax.plots.devices import mechanisms, utility
from realfm_jax.plots.paper import cost_comparison, utility_comparison
from realfm_jax.plots.shards import labels
from realfm_jax.plots.sweeps import heatmap, lines
from realfm_jax.plots.training import delivery, learning

__all__ = [
    "cost_comparison",
    "delivery",
    "design_path",
    "heatmap",
    "labels",
    "learning",
    "lines",
    "mechanisms",
    "pareto",
    "sensitivity",
    "utility",
    "utility_comparison",
]
