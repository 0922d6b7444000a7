"""How much longer the long tests take in `make soak`."""

import os

SCALE = int(os.environ.get("NOONMARK_SOAK", "1"))
"""How many times longer than in `make test`: more kills, more fires, more random examples."""
