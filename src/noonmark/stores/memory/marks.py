"""Marks: occurrences on timelines, counts of them, and how far fires are stored."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest, nsmallest
from itertools import pairwise
from typing import TYPE_CHECKING

from noonmark.core.budgets.forecast import percentile
from noonmark.core.budgets.spend import Usage
from noonmark.core.ids import carries_steps
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.outcomes import Mark, counted_as
from noonmark.core.run import Outcome
from noonmark.ports.budgets import UsageBy
from noonmark.ports.records import Horizons, MarkCount, TrendPoint
from noonmark.stores.memory.schedule_lists import ANY, is_wanted
from noonmark.stores.rules.marks import to_horizon, to_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import MarkScope, Span
    from noonmark.stores.memory.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row


def marks(uow: UnitOfWork, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
    """The marks of a span, by time."""
    return nsmallest(limit, _marks(uow, scope, span), key=lambda mark: (mark.at, mark.occurrence_id or ""))


def count(uow: UnitOfWork, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
    """The numbers of marks in buckets."""
    counts = Counter(
        (
            None if scope.uids is None else mark.uid,
            (max(mark.at, span.since) - span.since) // width,
            mark.state,
            None if mark.lag is None else mark.late is not None,
        )
        for mark in _marks(uow, scope, span)
    )
    return [
        MarkCount(uid=uid, bucket=bucket, state=state, is_late=is_late, count=number)
        for (uid, bucket, state, is_late), number in counts.items()
    ]


def last(uow: UnitOfWork, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
    """The last marks of each schedule."""
    marks_by_uid = {}
    for uid in uids:
        if uid in uow.entries:
            marks = [mark for row in uow.entries[uid].rows if row.nominal <= now and (mark := _mark(uow, row, now))]
            marks_by_uid[uid] = nlargest(limit, marks, key=lambda mark: (mark.at, mark.occurrence_id or ""))[::-1]
    return marks_by_uid


def trend(uow: UnitOfWork, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
    """What a schedule did between edges."""
    entry, points = uow.entries.get(uid), []
    for since, until in pairwise(edges):
        if entry is None:
            points.append(TrendPoint())
            continue
        marks = [_mark(uow, row, now) for row in entry.rows if since <= row.nominal < until]
        took = sorted(
            run.ended - run.started
            for row in entry.rows
            for run in uow.runs.get(row.key, ())
            if since <= run.started < until and run.ended is not None and run.outcome is Outcome.COMPLETED
        )
        owner, schedule_id = entry.schedule.owner, entry.schedule.schedule_id
        groups = uow.budgets.usage(
            owner.tenant, UsageBy.SCHEDULE, since=since, until=until, limit=1, user=None, schedule_id=schedule_id
        )
        usage = groups[0].usage if groups else Usage()
        points.append(
            TrendPoint(
                counts=Counter(
                    counted_as(mark.state, is_late=mark.late is not None) for mark in marks if mark is not None
                ),
                duration_p50=percentile(took, 50) if took else None,
                duration_p95=percentile(took, 95) if took else None,
                cost=usage.cost or 0,
                unpriced_calls=groups[0].unpriced_calls if groups else 0,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
            )
        )
    return points


def lateness(uow: UnitOfWork, scope: MarkScope, span: Span, percent: int) -> Micros | None:
    """The percentile of how late marks started."""
    late = sorted(max(0, mark.lag) for mark in _marks(uow, scope, span) if mark.lag is not None)
    return percentile(late, percent) if late else None


def horizons(uow: UnitOfWork, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
    """How far the fires of schedules are stored."""
    wanted = scope.wanted or ANY
    if scope.uids is None:
        listed = (uow.entries[uid] for _, _, uid in uow.listed.get(scope.tenant, []))
        entries = [entry for entry in listed if is_wanted(entry, wanted)]
    else:
        entries = [uow.entries[uid] for uid in scope.uids if uid in uow.entries]
    to_plan = sorted(
        (entry.state.plan_at, entry.state.uid)
        for entry in entries
        if entry.state.plan_at is not None
        and entry.state.plan_at < until
        and entry.state.phase in (SchedulePhase.ACTIVE, SchedulePhase.PAUSED)
    )
    return Horizons(
        horizons=[
            to_horizon(entry.state, entry.current_schedule())
            for entry in (uow.entries[uid] for _, uid in to_plan[:limit])
        ],
        complete_until=to_plan[limit][0] if len(to_plan) > limit else None,
    )


def count_phases(uow: UnitOfWork, tenant: str, user: str | None) -> dict[SchedulePhase, int]:
    """How many schedules are in each phase."""
    schedules = (uow.entries[uid].current_schedule() for _, _, uid in uow.listed.get(tenant, []))
    return dict(Counter(one.phase for one in schedules if user in (None, one.owner.user)))


def _marks(uow: UnitOfWork, scope: MarkScope, span: Span) -> Iterator[Mark]:
    for row in _rows(uow, scope):
        is_in_span = span.since <= row.nominal < span.until
        is_still_open = span.is_open and row.ended is None and row.nominal < span.since
        if (is_in_span or is_still_open) and (mark := _mark(uow, row, span.now)) is not None:
            yield mark


def _mark(uow: UnitOfWork, row: Row, now: Micros) -> Mark | None:
    return to_mark(row, uow.state_of(row).uid, now)


def _rows(uow: UnitOfWork, scope: MarkScope) -> Iterator[Row]:
    if scope.uids is not None:
        for uid in scope.uids:
            if uid in uow.entries:
                yield from uow.entries[uid].rows
        return
    wanted = scope.wanted or ANY
    for entry in uow.entries.values():
        schedule = entry.current_schedule()
        is_own = schedule.owner.tenant == scope.tenant and not carries_steps(schedule.schedule_id)
        if is_own and is_wanted(entry, wanted):
            yield from entry.rows
