"""What runs report to have used."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from noonmark.core.budgets.reported import combine

if TYPE_CHECKING:
    from noonmark.core.budgets.spend import Usage
    from noonmark.ports.target import Assignment


class UsageReports:
    """The reports of one run, from any thread; those of a model are added up."""

    __slots__ = ("_lock", "_reports")

    def __init__(self) -> None:
        self._reports: tuple[Usage, ...] = ()
        self._lock = Lock()

    def add(self, *usage: Usage) -> None:
        """Add what calls of a model have used."""
        with self._lock:
            self._reports = combine([*self._reports, *usage])

    @property
    def all(self) -> tuple[Usage, ...]:
        """The usage of each model so far."""
        return self._reports


def usage_reports(assignment: Assignment) -> UsageReports:
    """Where a run reports what it has used. The steps of a workflow share that of their run."""
    if not isinstance(assignment.usage, UsageReports):
        assignment.usage = UsageReports()
    return assignment.usage
