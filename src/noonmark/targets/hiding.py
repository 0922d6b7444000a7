"""Hiding: what a process knows, from the programs that it starts; and other wishes of a process that Linux grants.

They have its user, and on Linux whoever has the user of a process may read its memory, and the environment it was
started with, where the keys of a server often are. A process can ask to be left out of that.
"""

from __future__ import annotations

import sys

PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4


def hide() -> None:
    """Let nobody but root look into this process from now on, debuggers neither; it leaves no core dump."""
    prctl(PR_SET_DUMPABLE)


def is_hidden() -> bool:
    """Whether this process is hidden from others of its user."""
    return sys.platform == "linux" and prctl(PR_GET_DUMPABLE) == 0


def prctl(option: int, value: int = 0) -> int | None:
    """Ask Linux for something; None elsewhere."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - few processes need it

    return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0))
