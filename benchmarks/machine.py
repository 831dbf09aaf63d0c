"""What a benchmark ran on."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """The processor, how busy it is, and the peers' versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
    versions = {d.name.lower(): d.version for d in importlib.metadata.distributions()}
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        **{
            name: versions.get(name)
            for name in ("jaxlib", "scipy", "optimistix", "xarray", "flax", "torch")
        },
    }


def peak_megabytes() -> float:
    """The most memory that this process has held, from Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1.024e-3 for line in lines if line.startswith("VmHWM"))
