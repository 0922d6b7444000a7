"""Dependents: who depends on whom, and how they learn of what happens upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import times_in_question
from noonmark.core.chains import trail_after
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.core.planner import is_used_up, timed_trigger
from noonmark.core.policies.dependencies import Standing, Standings
from noonmark.core.reasons import Reason
from noonmark.core.values import altered
from noonmark.ports.records import Graph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row, Sheet


def bind(ledger: Ledger, sheet: Sheet, before: Schedule | None) -> None:
    """Remember what a schedule depends on from now on; whoever depends on it has news."""
    schedule = sheet.schedule
    tenant = schedule.owner.tenant
    old = set() if before is None else _named(before)
    new = _named(schedule)
    for upstream in old - new:
        ledger.followers[tenant, upstream].discard(schedule.uid)
    for upstream in new - old:
        ledger.followers[tenant, upstream].add(schedule.uid)
    ledger.graphs[tenant] += old != new
    tell(ledger, sheet)


def is_ordered(ledger: Ledger, tenant: str, version: int | None) -> bool:
    """Whether what depends on what is still as a plan was checked against."""
    return version is None or ledger.graphs[tenant] == version


def graph(ledger: Ledger, tenant: str, schedule_ids: Iterable[str]) -> Graph:
    """What some schedules depend on, directly and through others."""
    found: dict[str, tuple[str, ...]] = {}
    left = list(schedule_ids)
    while left:
        uid = ledger.ids.get((tenant, one := left.pop()))
        if uid is not None and one not in found:
            found[one] = tuple(up.schedule_id for up in ledger.sheets[uid].schedule.declaration.depends_on)
            left += found[one]
    return Graph(version=ledger.graphs[tenant], upstreams=found)


def note_end(ledger: Ledger, sheet: Sheet, one: Occurrence) -> None:
    """Tell whoever depends on a schedule that an occurrence of it has ended."""
    downstream = _downstream(ledger, sheet)
    if downstream and one.phase is not Phase.SUPERSEDED:
        accounted = [other.watermark + 1 for other in downstream if other.follows]
        sheet.ended_at = max([ledger.now(), *accounted, *([] if sheet.ended_at is None else [sheet.ended_at + 1])])
        if one.phase is Phase.COMPLETED:
            sheet.completed_at = sheet.ended_at
        if accounted:
            sheet.leads = trail_after(one)
    if downstream:
        tell(ledger, sheet, one)


def tell(ledger: Ledger, sheet: Sheet, one: Occurrence | None = None) -> None:
    """Whoever depends on a schedule has news: of one of its occurrences, or of itself."""
    for other in _downstream(ledger, sheet):
        other.news += 1
        if other.follows:
            _follow_up(ledger, other, is_end=one is not None and one.phase is not Phase.SUPERSEDED)
            continue
        for row in other.live.values():
            if waits(ledger, row) and _concerns(one, row):
                row.ready = ledger.now()
                ledger.file(row)


def waits(ledger: Ledger, row: Row) -> bool:
    """Whether a row waits for its upstreams, and has not got its turn."""
    is_waiting = row.occurrence.phase is Phase.PENDING and row.occurrence.waiting_for is Reason.DEPENDENCY_PENDING
    return is_waiting and (row.ready is None or row.ready > ledger.now())


def of_claim(ledger: Ledger, claim: Claim) -> Standings:
    """The upstreams of a claim's schedule."""
    sheet = ledger.sheets[claim.schedule.uid]
    return _standings(ledger, sheet, claim.schedule, times_in_question(claim))


def of_schedule(ledger: Ledger, sheet: Sheet) -> Standings | None:
    """The upstreams of a schedule that follows them."""
    return _standings(ledger, sheet, sheet.schedule, None) if sheet.follows else None


def _standings(ledger: Ledger, sheet: Sheet, of: Schedule, times: tuple[Micros, Micros] | None) -> Standings:
    tenant = of.owner.tenant
    each = [
        _standing(one, None if uid is None else ledger.sheets[uid], times)
        for one in of.declaration.depends_on
        for uid in (ledger.ids.get((tenant, one.schedule_id)),)
    ]
    return Standings(each=tuple(each), news=sheet.news)


def _standing(dependency: Dependency, sheet: Sheet | None, times: tuple[Micros, Micros] | None) -> Standing:
    if sheet is None:
        return Standing(dependency=dependency)
    return Standing(
        dependency=dependency,
        phase=sheet.schedule.phase,
        fires=timed_trigger(sheet.schedule),
        watermark=sheet.watermark,
        exhausted=sheet.exhausted,
        newest=None if times is None else _newest(sheet, *times),
        last_phase=sheet.last_phase,
        ended=sheet.ended_at,
        completed=sheet.completed_at,
        leads=sheet.leads,
    )


def _newest(sheet: Sheet, after: Micros, until: Micros) -> tuple[Micros, Phase] | None:
    rows = [row.occurrence for row in (*sheet.live.values(), *sheet.ended.values())]
    named = [one for one in rows if one.origin == TRIGGER and one.phase is not Phase.SUPERSEDED]
    found = [
        (min(_last(one), until), one.nominal, one.phase) for one in named if one.nominal <= until and _last(one) > after
    ]
    last, _, phase = max(found, default=(0, 0, None))
    return None if phase is None else (last, phase)


def _concerns(one: Occurrence | None, row: Row) -> bool:
    """Whether the end of an upstream's occurrence, or a change of the upstream, may be what a row waits for."""
    if one is None or row.awaits_after is None:
        return True
    return one.origin == TRIGGER and one.nominal <= row.occurrence.nominal and _last(one) > row.awaits_after


def _follow_up(ledger: Ledger, sheet: Sheet, *, is_end: bool) -> None:
    """Let the planner look whether a schedule without a trigger owes a fire now; an end may let it go on."""
    phase, now = sheet.schedule.phase, ledger.now()
    if is_end and not is_used_up(sheet.schedule, sheet.admitted):
        sheet.exhausted = False
        if phase is SchedulePhase.COMPLETED:
            phase = step_schedule(phase, SchedulePhase.ACTIVE)
            sheet.schedule = altered(sheet.schedule, phase=phase, updated=now)
    if phase is SchedulePhase.ACTIVE:
        sheet.plan_at = now if sheet.plan_at is None else min(sheet.plan_at, now)
        ledger.file_plan(sheet)


def _downstream(ledger: Ledger, sheet: Sheet) -> list[Sheet]:
    if not ledger.followers:
        return []
    identity = (sheet.schedule.owner.tenant, sheet.schedule.schedule_id)
    # Only the schedule that has the id now: one that was deleted under it is nobody's upstream any more.
    if ledger.ids.get(identity, sheet.schedule.uid) != sheet.schedule.uid or identity not in ledger.followers:
        return []
    return [ledger.sheets[uid] for uid in sorted(ledger.followers[identity])]


def _named(schedule: Schedule) -> set[str]:
    if schedule.phase is SchedulePhase.DELETED:
        return set()
    return {one.schedule_id for one in schedule.declaration.depends_on}


def _last(one: Occurrence) -> Micros:
    return one.nominal if one.missed_last is None else one.missed_last
