"""Outcomes: the state of an occurrence in one word, how late it started, and the fires that are still to come.

Lists, timelines, calendars and the terminal show the same marks, because all of them ask here. A mark stands at the
nominal time of its occurrence. It is late if it first started more than a second after its due time.
"""

from __future__ import annotations

from bisect import bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen
from noonmark.core.ids import TRIGGER, Origin
from noonmark.core.lifecycle import FAILURES, MarkState, Phase, SchedulePhase
from noonmark.core.planner import timed_trigger
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason
from noonmark.core.system_events import is_late

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule


ENDED: Mapping[Phase, MarkState] = MappingProxyType(
    {
        Phase.COMPLETED: MarkState.COMPLETED,
        Phase.SKIPPED: MarkState.SKIPPED,
        Phase.CANCELLED: MarkState.SKIPPED,
        **dict.fromkeys(sorted(FAILURES), MarkState.FAILED),
    }
)
"""By final phase. A superseded occurrence has no mark: an edit moved it, and another one stands for it."""


class Marked(Protocol):
    """What the state of an occurrence follows from: the occurrence, or the record of one."""

    @property
    def phase(self) -> str:
        """Its phase."""

    @property
    def reason(self) -> str | None:
        """Why it is in that phase."""

    @property
    def waiting_for(self) -> str | None:
        """What it waits for."""

    @property
    def due(self) -> Micros:
        """When it is to start."""

    @property
    def has_begun(self) -> bool:
        """Whether it was ever started."""


def mark_state(row: Marked, now: Micros) -> MarkState | None:
    """The state of an occurrence; None if it was superseded."""
    match Phase(row.phase):
        case Phase.DISPATCHING | Phase.AWAITING_COMPLETION:
            return MarkState.RUNNING
        case Phase.PENDING | Phase.CLAIMED:
            if row.reason == Reason.SUSPENDED:  # a workflow that waits for a step is in flight
                return MarkState.RUNNING
            is_ahead = row.due > now and row.waiting_for is None and not row.has_begun
            return MarkState.PLANNED if is_ahead else MarkState.QUEUED
        case ended:
            return ENDED.get(ended)


def late_by(first_due: Micros, began: Micros | None) -> Micros | None:
    """How late an occurrence first started; None if it was on time, or has not started."""
    return began - first_due if began is not None and is_late(first_due, began) else None


LATE = "late"
"""What completed and started late counts as."""
COUNTED = ("completed", LATE, "failed", "skipped", "running", "queued", "planned")
"""What marks are counted as."""


def counted_as(state: MarkState, *, is_late: bool | None) -> str:
    """What a mark is counted as."""
    return LATE if is_late and state is MarkState.COMPLETED else str(state)


@frozen(kw_only=True)
class Mark:
    """An occurrence on a timeline, or a fire that is not stored yet."""

    uid: str
    occurrence_id: str | None
    """None for a fire that is not stored yet."""
    origin: Origin
    phase: Phase
    state: MarkState
    at: Micros
    """Its nominal time."""
    due: Micros
    first_due: Micros
    """Its due time before any retry."""
    lag: Micros | None = None
    """How long after that it first started."""
    ended: Micros | None = None
    reason: Reason | None = None
    """Why it is in its state, or what it waits for."""
    detail: str = ""
    missed_count: int = 0
    missed_last: Micros | None = None
    """The last nominal time that it stands for, if it stands for missed fires."""

    @property
    def began(self) -> Micros | None:
        """Its first start."""
        return None if self.lag is None else self.first_due + self.lag

    @property
    def late(self) -> Micros | None:
        """How late it started, if it was late."""
        return late_by(self.first_due, self.began)


@frozen(kw_only=True)
class Horizon:
    """How far the fires of a schedule are stored, and what limits the others."""

    schedule: Schedule
    watermark: Micros
    """Every fire up to here is stored."""
    runs_left: int | None = None
    """How many more fires `max_runs` allows, besides those that are stored; None if it has no such limit."""


def future_marks(horizon: Horizon, *, since: Micros, until: Micros, now: Micros, limit: int) -> list[Mark]:
    """The fires of a schedule that are not stored, with since <= time < until; up to the limit, in order.

    A fire that has come and that no node has planned yet is queued. A paused schedule fires again once its pause ends.
    """
    schedule, trigger, after = horizon.schedule, timed_trigger(horizon.schedule), _stored_until(horizon)
    marks: list[Mark] = []
    count, runs_left = 0, horizon.runs_left
    while after is not None and trigger is not None and len(marks) < limit and (runs_left is None or count < runs_left):
        if runs_left is None:  # what is before the span need not be counted
            after = max(after, since - 1)
        nominal = trigger.next_micros(after)
        if nominal is None or nominal >= until:
            break
        after, count = nominal, count + 1
        due = due_at(trigger, schedule.uid, nominal)
        if nominal >= since:
            marks.append(
                Mark(
                    uid=schedule.uid,
                    occurrence_id=None,
                    origin=TRIGGER,
                    phase=Phase.PENDING,
                    state=MarkState.PLANNED if nominal > now else MarkState.QUEUED,
                    at=nominal,
                    due=due,
                    first_due=due,
                )
            )
    return marks


def future_counts(horizon: Horizon, edges: Sequence[Micros], *, now: Micros) -> dict[tuple[int, MarkState], int]:
    """How many fires that are not stored are in each bucket, by its number and by state.

    Buckets begin at the edges, and the last edge ends the last one. Fires are counted, not enumerated.
    """
    trigger, after, runs_left = timed_trigger(horizon.schedule), _stored_until(horizon), horizon.runs_left
    counts: dict[tuple[int, MarkState], int] = {}
    if trigger is None or after is None:
        return counts
    if runs_left is not None:
        runs_left = max(0, runs_left - trigger.count_micros(after, max(after, edges[0] - 1)))
    start = max(after + 1, edges[0])
    bucket = bisect_right(edges, start) - 1
    while bucket < len(edges) - 1 and runs_left != 0:
        state = MarkState.PLANNED if start > now else MarkState.QUEUED
        # A bucket in which now lies has two parts.
        end = min(edges[bucket + 1], now + 1) if state is MarkState.QUEUED else edges[bucket + 1]
        count = trigger.count_micros(start - 1, end - 1)
        if runs_left is not None:
            count = min(count, runs_left)
            runs_left -= count
        if count:
            counts[bucket, state] = count
        start, bucket = end, bucket + (end == edges[bucket + 1])
    return counts


def _stored_until(horizon: Horizon) -> Micros | None:
    """The time after which fires are not stored; None if there will be none."""
    schedule = horizon.schedule
    if schedule.phase is SchedulePhase.ACTIVE:
        return horizon.watermark
    if schedule.phase is not SchedulePhase.PAUSED or schedule.pause is None or schedule.pause.until is None:
        return None
    return max(horizon.watermark, schedule.pause.until)
