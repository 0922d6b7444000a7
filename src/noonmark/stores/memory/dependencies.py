"""Dependents: who depends on whom, and how they learn of what happens upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import times_in_question
from noonmark.core.causation import chain_after
from noonmark.core.frozen import evolve
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.core.planner import is_used_up, timed_trigger
from noonmark.core.policies.dependencies import Standing, Standings
from noonmark.core.reasons import Reason
from noonmark.ports.records import Graph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.records import Row, ScheduleState
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def bind(uow: UnitOfWork, state: ScheduleState, before: Schedule | None) -> None:
    """Remember what a schedule depends on from now on; whoever depends on it has news."""
    schedule = state.schedule
    tenant = schedule.owner.tenant
    old = set() if before is None else _named(before)
    new = _named(schedule)
    for upstream in old - new:
        uow.followers[tenant, upstream].discard(schedule.uid)
    for upstream in new - old:
        uow.followers[tenant, upstream].add(schedule.uid)
    uow.graphs[tenant] += old != new
    tell(uow, state)


def is_ordered(uow: UnitOfWork, tenant: str, version: int | None) -> bool:
    """Whether what depends on what is still as a plan was checked against."""
    return version is None or uow.graphs[tenant] == version


def graph(uow: UnitOfWork, tenant: str, schedule_ids: Iterable[str]) -> Graph:
    """What some schedules depend on, directly and through others."""
    found: dict[str, tuple[str, ...]] = {}
    left = list(schedule_ids)
    while left:
        uid = uow.ids.get((tenant, one := left.pop()))
        if uid is not None and one not in found:
            found[one] = tuple(up.schedule_id for up in uow.states[uid].schedule.declaration.depends_on)
            left += found[one]
    return Graph(version=uow.graphs[tenant], upstreams=found)


def note_end(uow: UnitOfWork, state: ScheduleState, one: Occurrence) -> None:
    """Tell whoever depends on a schedule that an occurrence of it has ended."""
    downstream = _downstream(uow, state)
    if downstream and one.phase is not Phase.SUPERSEDED:
        accounted = [other.watermark + 1 for other in downstream if other.follows]
        state.ended_at = max([uow.now(), *accounted, *([] if state.ended_at is None else [state.ended_at + 1])])
        if one.phase is Phase.COMPLETED:
            state.completed_at = state.ended_at
        if accounted:
            state.leads = chain_after(one)
    if downstream:
        tell(uow, state, one)


def tell(uow: UnitOfWork, state: ScheduleState, one: Occurrence | None = None) -> None:
    """Whoever depends on a schedule has news: of one of its occurrences, or of itself."""
    for other in _downstream(uow, state):
        other.news += 1
        if other.follows:
            _follow_up(uow, other, is_end=one is not None and one.phase is not Phase.SUPERSEDED)
            continue
        for row in other.live.values():
            if waits(uow, row) and _concerns(one, row):
                row.ready = uow.now()
                uow.file(row)


def waits(uow: UnitOfWork, row: Row) -> bool:
    """Whether a row waits for its upstreams, and has not got its turn."""
    is_waiting = row.occurrence.phase is Phase.PENDING and row.occurrence.waiting_for is Reason.DEPENDENCY_PENDING
    return is_waiting and (row.ready is None or row.ready > uow.now())


def of_claim(uow: UnitOfWork, claim: Claim) -> Standings:
    """The upstreams of a claim's schedule."""
    state = uow.states[claim.schedule.uid]
    return _standings(uow, state, claim.schedule, times_in_question(claim))


def of_schedule(uow: UnitOfWork, state: ScheduleState) -> Standings | None:
    """The upstreams of a schedule that follows them."""
    return _standings(uow, state, state.schedule, None) if state.follows else None


def _standings(uow: UnitOfWork, state: ScheduleState, of: Schedule, times: tuple[Micros, Micros] | None) -> Standings:
    tenant = of.owner.tenant
    each = [
        _standing(one, None if uid is None else uow.states[uid], times)
        for one in of.declaration.depends_on
        for uid in (uow.ids.get((tenant, one.schedule_id)),)
    ]
    return Standings(each=tuple(each), news=state.news)


def _standing(dependency: Dependency, state: ScheduleState | None, times: tuple[Micros, Micros] | None) -> Standing:
    if state is None:
        return Standing(dependency=dependency)
    return Standing(
        dependency=dependency,
        phase=state.schedule.phase,
        fires=timed_trigger(state.schedule),
        watermark=state.watermark,
        exhausted=state.exhausted,
        newest=None if times is None else _newest(state, *times),
        last_phase=state.last_phase,
        ended=state.ended_at,
        completed=state.completed_at,
        leads=state.leads,
    )


def _newest(state: ScheduleState, after: Micros, until: Micros) -> tuple[Micros, Phase] | None:
    rows = [row.occurrence for row in (*state.live.values(), *state.ended.values())]
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


def _follow_up(uow: UnitOfWork, state: ScheduleState, *, is_end: bool) -> None:
    """Let the planner look whether a schedule without a trigger owes a fire now; an end may let it go on."""
    phase, now = state.schedule.phase, uow.now()
    if is_end and not is_used_up(state.schedule, state.admitted):
        state.exhausted = False
        if phase is SchedulePhase.COMPLETED:
            phase = step_schedule(phase, SchedulePhase.ACTIVE)
            state.schedule = evolve(state.schedule, phase=phase, updated=now)
    if phase is SchedulePhase.ACTIVE:
        state.plan_at = now if state.plan_at is None else min(state.plan_at, now)
        uow.file_plan(state)


def _downstream(uow: UnitOfWork, state: ScheduleState) -> list[ScheduleState]:
    if not uow.followers:
        return []
    identity = (state.schedule.owner.tenant, state.schedule.schedule_id)
    # Only the schedule that has the id now: one that was deleted under it is nobody's upstream any more.
    if uow.ids.get(identity, state.schedule.uid) != state.schedule.uid or identity not in uow.followers:
        return []
    return [uow.states[uid] for uid in sorted(uow.followers[identity])]


def _named(schedule: Schedule) -> set[str]:
    if schedule.phase is SchedulePhase.DELETED:
        return set()
    return {one.schedule_id for one in schedule.declaration.depends_on}


def _last(one: Occurrence) -> Micros:
    return one.nominal if one.missed_last is None else one.missed_last
