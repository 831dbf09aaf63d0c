"""`python -m realfm_jax`: the command line."""

import sys

from realfm_jax.cli import main

sys.exit(main())
