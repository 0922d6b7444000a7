"""Plans and what they are made from, as values: a snapshot of a schedule, its projections, the rows to write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import Occurrence

if TYPE_CHECKING:
    from noonmark.core.audit import AuditEntry
    from noonmark.core.ids import Origin
    from noonmark.core.instants import Micros
    from noonmark.core.policies.catch_up import CatchUp, Missed
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.policies.expected_rate import RateAlert, RateWindow
    from noonmark.core.policies.overrides import Overrides
    from noonmark.core.reasons import Reason
    from noonmark.core.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a plan needs to know of an occurrence that it may still change."""

    id: str
    nominal: Micros
    due: Micros
    first_due: Micros | None = None
    """The due time before the misfire policy moved it, where it did."""
    is_claimed: bool = False
    caught_up: Micros | None = None
    waiting_for: Reason | None = None

    @property
    def is_open(self) -> bool:
        """Whether lateness may still be held against it; a claimed one is judged by its holder."""
        return not self.is_claimed and self.waiting_for is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A row that stands for many fires, or for one that did not run: the first, the last, and how many."""

    id: str
    first: Micros
    last: Micros
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """What a clock that was ahead has closed, put right."""

    newest: Micros | None
    """The newest nominal time of the trigger that was admitted, or has ended."""
    undone: tuple[str, ...] = ()
    """Gaps whose fires are all still to come: they are deleted, and taken back from the counters."""
    shortened: tuple[Gap, ...] = ()
    """Gaps that end earlier, and count for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A schedule as it was read, with its projections in the order of their nominal times."""

    schedule: Schedule
    watermark: Micros
    projections: tuple[Projection, ...] = ()
    admitted: Micros | None = None
    """The newest nominal time of the trigger that was admitted, or has ended."""
    runs: int = 0
    """How many occurrences of trigger and events were admitted, for `max_runs`."""
    beyond: tuple[tuple[Micros, Micros], ...] = ()
    """The first and last nominal time of each row of the trigger after the watermark that was admitted or has ended.

    In order. There is hardly ever one: somebody cancelled it ahead, or the clock was ahead for a while.
    """
    gaps: tuple[Gap, ...] = ()
    """Those of `beyond` that stand for gaps; read only to rewind, and then both reach back to now."""
    exhausted: bool = False
    """The last plan said that nothing follows."""
    unserved: bool = False
    """Nodes are alive, but none of them has served its route for as long as `patience` with its misfire grace."""
    upstreams: Standings | None = None
    """The schedules it follows, where it has no trigger of its own."""
    rate_window: RateWindow | None = None
    """What was counted for its expected rate, where it has one and is active."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to write, on condition that revision and watermark are still those of the snapshot.

    Rows in `planned` are new, take the place of a projection, or reopen a superseded row of the same id; one with a
    `waiting_for` goes on waiting. Rows in `closed` are final, and take the place of a projection or a superseded row of
    the same id. `removed` projections vanish, because a row in `closed` counts them, or because nothing is to come of
    them after all: a pause withdraws them, or `max_runs` is used up. Whatever is touched has its fence raised: whoever
    claimed it has lost it.
    """

    snapshot: Snapshot
    watermark: Micros
    plan_at: Micros | None = None
    """When to plan again; never, unless the schedule is changed."""
    exhausted: bool = False
    """Nothing follows: the trigger names no further time, or `max_runs` is used up."""
    planned: tuple[Occurrence, ...] = ()
    closed: tuple[Occurrence, ...] = ()
    removed: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    schedule: Schedule | None = None
    """The schedule as it is from now on, where this changes it."""
    graph: int | None = None
    """Written only while this is the version of what depends on what, where the plan was checked against that."""
    catch_up: CatchUp | None = None
    """The decision about what was overdue, for those who ask why."""
    note: AuditEntry | None = None
    """The caller's audit entry, if any, written with the plan."""
    rewound: Rewound | None = None
    """What is put right after a clock was ahead; a planned row may take the place of what is undone."""
    rate_window: RateWindow | None = None
    """The window of the expected rate from now on, where the plan judges one that has ended or counts a ping."""
    rate_alert: RateAlert | None = None
    """What is reported of the expected rate."""

    @property
    def gone(self) -> frozenset[str]:
        """The removed projections."""
        return frozenset({*self.removed, *(row.id for row in self.closed)})


def projection(row: Occurrence) -> Projection | None:
    """What a plan needs to know of a row, if the row is a projection."""
    if row.origin != TRIGGER or row.has_begun or row.phase not in (Phase.PENDING, Phase.CLAIMED):
        return None
    return Projection(
        id=row.id,
        nominal=row.nominal,
        due=row.due,
        first_due=row.first_due,
        is_claimed=row.phase is Phase.CLAIMED,
        caught_up=row.caught_up,
        waiting_for=row.waiting_for,
    )


def occurrence(  # noqa: PLR0913 - each is a field of its own
    schedule: Schedule,
    nominal: Micros,
    due: Micros,
    *,
    first_due: Micros | None = None,
    caught_up: Micros | None = None,
    waiting_for: Reason | None = None,
    origin: Origin = TRIGGER,
    payload: Any = None,  # noqa: ANN401 - JSON
    overrides: Overrides | None = None,
) -> Occurrence:
    """A pending occurrence: a projection of the schedule's trigger, unless another origin asked for it."""
    return Occurrence(
        id=occurrence_id(schedule.uid, origin, nominal),
        uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        revision=schedule.revision,
        origin=origin,
        phase=Phase.PENDING,
        route=schedule.declaration.target.route,
        nominal=nominal,
        due=due,
        first_due=due if first_due is None else first_due,
        caught_up=caught_up,
        waiting_for=waiting_for,
        payload=payload,
        overrides=overrides,
    )


def gap_row(schedule: Schedule, missed: Missed, *, due: Micros, phase: Phase) -> Occurrence:
    """One final row for all the fires that did not run; its id, and its due time, are those of the first of them."""
    return replace(
        occurrence(schedule, missed.first, due),
        phase=phase,
        reason=missed.reason,
        missed_count=missed.count,
        missed_first=missed.first,
        missed_last=missed.last,
    )
