"""Every test runs in float64, with fixed seeds, and treats warnings as errors (pyproject.toml)."""

import sys
from pathlib import Path

import jax
from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))
jax.config.update("jax_enable_x64", True)
settings.register_profile(
    "fixed",
    deadline=None,
    derandomize=True,
    max_examples=40,
    phases=[Phase.explicit, Phase.generate],  # the seed of a random game has nothing to shrink
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")

SHARED = Path(__file__).parents[2] / "shared"
"""The authors' published records, where they are at hand; nothing but extra tests needs them."""
