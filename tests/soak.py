"""How much longer the long tests take in `make soak`."""

import os

SCALE = int(os.environ.get("NOONMARK_SOAK", "1"))
"""How many times longer than in `make test`: more kills, more fires, more random examples."""


def examples(count):
    """How many random examples a property is tried on: a fifth of them in `make test`."""
    return max(count // 5, 20) if SCALE == 1 else count * SCALE
