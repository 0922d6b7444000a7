"""The Linux call prctl(2): hide this process from others of the same user, and die with the parent.

Programs that a process starts have its user. On Linux they may therefore read its memory and its initial environment,
where the keys of a server often are, unless the process is marked as not dumpable.
"""

from __future__ import annotations

import signal
import sys

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE = 1, 3, 4


def hide_process() -> None:
    """Forbid everyone but root, debuggers included, to inspect this process. It leaves no core dump."""
    prctl(PR_SET_DUMPABLE)


def is_process_hidden() -> bool:
    """Whether this process is hidden from others of its user."""
    return sys.platform == "linux" and prctl(PR_GET_DUMPABLE) == 0


def die_with_parent(*, enabled: bool = True) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL if enabled else 0)


def prctl(option: int, value: int = 0) -> int | None:
    """Call prctl; None on other systems."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - few processes need it

    return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0))
