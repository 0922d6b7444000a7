"""Marks on timelines, and how far fires are stored, as every store says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.core.ids import Origin
from noonmark.core.instants import SECOND
from noonmark.core.outcomes import Horizon, Mark, Marked, mark_state
from noonmark.stores.rules.records import PHASES, REASONS

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import ScheduleState

NEAR: Micros = 60 * SECOND
"""What has not ended and whose time is further ahead is planned: nothing starts or waits so early."""


class MarkRow(Marked, Protocol):
    """The columns of an occurrence that its mark is made of."""

    @property
    def id(self) -> str:
        """The id of the occurrence."""

    @property
    def origin(self) -> str:
        """What planned it."""

    @property
    def nominal(self) -> Micros:
        """Its nominal time."""

    @property
    def first_due(self) -> Micros:
        """Its due time before any retry."""

    @property
    def late(self) -> Micros | None:
        """How long after that it first started."""

    @property
    def ended(self) -> Micros | None:
        """When it ended."""

    @property
    def detail(self) -> str:
        """Facts beside its reason."""

    @property
    def missed_count(self) -> int:
        """How many missed fires it stands for."""

    @property
    def missed_last(self) -> Micros | None:
        """The last nominal time that it stands for, if those were missed."""


def to_mark(row: MarkRow, uid: str, now: Micros) -> Mark | None:
    """The mark of an occurrence; None if it was superseded, or its phase is damaged."""
    if row.phase not in PHASES or (state := mark_state(row, now)) is None:
        return None
    return Mark(
        uid=uid,
        occurrence_id=row.id,
        origin=Origin(row.origin),
        phase=PHASES[row.phase],
        state=state,
        at=row.nominal,
        due=row.due,
        first_due=row.first_due,
        lag=row.late,
        ended=row.ended,
        reason=REASONS.get(row.reason) or REASONS.get(row.waiting_for),
        detail=row.detail,
        missed_count=row.missed_count,
        missed_last=row.missed_last,
    )


def to_horizon(state: ScheduleState, schedule: Schedule) -> Horizon:
    """How far the fires of a schedule are stored."""
    most = schedule.declaration.max_runs
    left = None if most is None else max(0, most - state.admitted - state.live)
    return Horizon(schedule=schedule, watermark=state.watermark, runs_left=left)
