"""Every test runs in float64, with fixed seeds, and treats warnings as errors (pyproject.toml)."""

import os
import sys
from pathlib import Path

# The tests compile hundreds of programs and run each for milliseconds: less optimisation, half the time.
# Set XLA_FLAGS yourself to test what your own runs compile.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)
# What one process has compiled (a worker, a command that a test runs) the others need not compile again.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("MPLBACKEND", "Agg")

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
