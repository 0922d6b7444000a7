"""Processes that do the work of a run: how they are stopped, hidden from others, and ended with their parent."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND
from noonmark.core.policies.overlap import CancelRunning, Terminate
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment


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


STOP_GRACE: Micros = 5 * SECOND
"""How long a run has to end after it is asked to stop."""
LOST_GRACE: Micros = SECOND
"""The same when another node owns the occurrence, or will own it as soon as the run has ended."""


class StopSignal:
    """Wakes the thread that watches a run; that thread then stops the run."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.set = wake
        self.was_seen = False


def is_killed(assignment: Assignment) -> bool:
    """Whether a run that must stop is not asked to, because its successor does not wait."""
    policy = assignment.schedule.declaration.overlap_policy
    return assignment.stop_reason is Reason.REPLACED and isinstance(policy, Terminate)


def stop_grace(assignment: Assignment) -> Micros:
    """How long a run has to stop. A replaced run has as long as its successor waits for it."""
    policy = assignment.schedule.declaration.overlap_policy
    if assignment.stop_reason is Reason.REPLACED and isinstance(policy, CancelRunning | Terminate):
        return policy.cancel_grace
    return min(STOP_GRACE, LOST_GRACE) if assignment.stop_reason is Reason.LEASE_LOST else STOP_GRACE
