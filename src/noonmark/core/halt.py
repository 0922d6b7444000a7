"""Halts: a record that stops everything of a tenant at once, or what has some labels or a lineage.

While there is one, what it covers does not start: fires, events, manual runs and backfills end as `skipped/halted`, and
what was running is cancelled. It covers schedules that are made later, too.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from noonmark.core.agents.turns import agent_target, session_of
from noonmark.core.frozen import frozen
from noonmark.core.instants import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule

MAX_HALTS = 100
"""Of one tenant."""
FACTS = ("halt_id", "halted_by", "halted_at", "halt_reason")
"""What is stored with an occurrence that a halt stops."""


@frozen(kw_only=True)
class Halt:
    """What is halted, who did it, and why. Without labels and a lineage, it is the whole tenant."""

    halt_id: str
    tenant: str
    at: Micros
    by: str
    reason: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Only schedules with all of these."""
    lineage: str | None = None
    """Only the session or the schedule with this id, and what it made, directly or not. There are no labels then."""

    @property
    def is_of_tenant(self) -> bool:
        """Whether it stops the whole tenant."""
        return not self.labels and self.lineage is None

    def covers(self, schedule: Schedule) -> bool:
        """Whether it stops a schedule."""
        if schedule.owner.tenant != self.tenant:
            return False
        if self.lineage is not None:
            return _is_of_lineage(schedule, self.lineage)
        labels = schedule.declaration.labels
        return all(labels.get(name) == value for name, value in self.labels.items())

    def facts(self) -> dict[str, str]:
        """Who stopped it, when, and why, for what did not start."""
        facts = {"halt_id": self.halt_id, "halted_by": self.by, "halted_at": to_text(self.at)}
        return facts if self.reason is None else {**facts, "halt_reason": self.reason}


def halted_text(labels: Mapping[str, str], lineage: str | None) -> str:
    """What a halt with these labels or this lineage stops, as the subject of a sentence."""
    if lineage is not None:
        return f"The lineage of {lineage}"
    wanted = " ".join(f"{name}={value}" for name, value in labels.items())
    return f"Everything with {wanted}" if wanted else "Everything"


def _is_of_lineage(schedule: Schedule, ancestor: str) -> bool:
    """Whether a schedule has this id, or talks in the session that has it, or comes from either."""
    if schedule.schedule_id == ancestor or (schedule.lineage is not None and schedule.lineage.includes(ancestor)):
        return True
    target = agent_target(schedule.declaration.target)
    return target is not None and session_of(target, schedule.uid) == ancestor
