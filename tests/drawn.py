"""What the tests of plots draw, and how they read it back."""

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes

import realfm_jax as rfm


def game(**values: Any) -> rfm.Game:
    devices = rfm.Devices(
        cost=[1e-3, 2e-3, 5e-4], accuracy=rfm.InverseSqrt(0.95, 0.25), payoff=rfm.PowerPayoff(np.ones(3))
    )
    return rfm.replace(rfm.Game(devices, rfm.Server(), rfm.RealFM()), **values)


def curve(ax: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Data of the line with this label."""
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def legend_texts(drawn: Any) -> list[str]:
    legend = drawn.get_legend() if isinstance(drawn, Axes) else drawn.legends[0]
    return [text.get_text() for text in legend.get_texts()]


def spans(ax: Axes) -> list[tuple[float, float]]:
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]


def sweep() -> xarray.Dataset:
    """As `rfm.sweep` makes it, with values that say where they are from."""
    cost, margin = [1e-4, 1e-3, 1e-2, 1e-1], [0.5, 0.75, 1.0]
    shaping, device = ["taylor", "exact"], [0, 1, 2]
    grid = np.arange(1.0, 25.0).reshape(2, 4, 3)
    dims = ("shaping", "cost", "profit_margin")
    data = xarray.Dataset(
        {
            "contribution": ((*dims, "device"), 1e3 * grid[..., None] + np.array([-50.0, 0.0, 80.0])),
            "total": (dims, 1e3 * grid),
            "residual": (dims, 1e-12 * grid),
        },
        {"shaping": shaping, "cost": cost, "profit_margin": margin, "device": device},
    )
    data["contribution"].attrs = {"long_name": "contribution", "units": "samples"}
    data["total"].attrs = {"long_name": "total contribution", "units": "samples"}
    data["cost"].attrs = {"long_name": "marginal cost", "units": "utility / sample"}
    data["profit_margin"].attrs = {"long_name": "profit margin", "units": "1"}
    return data


def front() -> xarray.Dataset:
    dims = ("shaping", "epsilon", "profit_margin")
    server = np.array([[[4.0, 3.0], [1.0, 1.0]], [[5.0, 2.0], [3.0, 1.0]]])
    mean = np.array([[[1.0, 2.0], [1.5, 1.0]], [[0.5, 1.0], [0.4, 1.5]]])
    efficient = np.array([[[1, 1], [0, 0]], [[1, 1], [0, 1]]], bool)
    overall = np.array([[[1, 1], [0, 0]], [[1, 0], [0, 0]]], bool)
    data = {
        "server_utility": server,
        "mean_utility": mean,
        "efficient": efficient,
        "efficient_overall": overall,
    }
    return xarray.Dataset(
        {name: (dims, values) for name, values in data.items()}, {"shaping": ["taylor", "exact"]}
    )
