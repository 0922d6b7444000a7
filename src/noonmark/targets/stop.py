"""Stopping work that runs in another process: the signal that wakes its watcher, and the grace period."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND
from noonmark.core.policies.overlap import CancelRunning, Terminate
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment

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
