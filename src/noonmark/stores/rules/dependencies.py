"""Dependencies: which schedules depend on which, and how they learn of what happens upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import times_in_question
from noonmark.core.causation import chain_after
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import is_used_up, timed_trigger
from noonmark.core.policies.dependencies import Standing, Standings
from noonmark.stores.rules.records import PHASES, Unreadable, unpack_chain
from noonmark.stores.rules.unit_of_work import FireQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork

    Times = tuple[Micros, Micros]
    Question = tuple[ScheduleState | None, Schedule, Times | None]
    """The state of a schedule, if it still exists, the schedule, and the times in question."""


def bind(uow: UnitOfWork, state: ScheduleState, before: Schedule | None, after: Schedule) -> None:
    """Store what a schedule depends on from now on, and notify its downstream schedules."""
    old, new = [] if before is None else _upstream_ids(before), _upstream_ids(after)
    if old != new:
        tenant = after.owner.tenant
        uow.set_upstreams(state, tenant, new)
        for upstream in uow.states_named([(tenant, one) for one in new]).values():
            upstream.followed = 1
            uow.changed_state(upstream)
        if set(old) != set(new):
            uow.raise_graph_version(tenant)
    notify_downstream(uow, state)


def is_graph_current(uow: UnitOfWork, tenant: str, version: int | None) -> bool:
    """Whether the dependencies are still those that a plan was checked against."""
    return version is None or uow.graph_version(tenant) == version


def note_end(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    """Notify downstream schedules that an occurrence has ended."""
    if state.followed and row.phase != Phase.SUPERSEDED:
        downstream = uow.downstream(state)
        if downstream:
            accounted = [other.watermark + 1 for other, follows in downstream if follows]
            state.ended_at = max([uow.now(), *accounted, *([] if state.ended_at is None else [state.ended_at + 1])])
            if row.phase == Phase.COMPLETED:
                state.completed_at = state.ended_at
            if accounted:
                state.leads = _chain_after(uow, state, row)
            uow.changed_state(state)
    notify_downstream(uow, state, row, is_end=row.phase != Phase.SUPERSEDED)


def notify_downstream(uow: UnitOfWork, state: ScheduleState, row: Row | None = None, *, is_end: bool = False) -> None:
    """Notify downstream schedules that a schedule, or one of its occurrences, has changed."""
    if not state.followed:
        return
    for other, follows in uow.downstream(state):
        other.news += 1
        uow.changed_state(other)
        if follows:
            _plan_follower(uow, other, is_end=is_end)
        else:
            wake_waiting(uow, other, row)


def wake_waiting(uow: UnitOfWork, state: ScheduleState, ended: Row | None = None) -> None:
    """Make the rows ready that wait for upstreams: all of them, or those whose wait this row may end."""
    now = uow.now()
    for row in uow.rows_awaiting_upstreams(state, ended):
        row.ready = now
        uow.wakes_nodes = True
        uow.changed(row)


def of_claims(uow: UnitOfWork, claims: Sequence[Claim]) -> list[Standings]:
    """The upstreams of the schedule of each claim."""
    states = uow.load_states({claim.schedule.uid for claim in claims})
    return standings(uow, [(states.get(one.schedule.uid), one.schedule, times_in_question(one)) for one in claims])


def standings(uow: UnitOfWork, questions: Sequence[Question]) -> list[Standings]:
    """The upstreams of each schedule, with their newest fires in the times in question, if there are any."""
    named = {(of.owner.tenant, one.schedule_id) for _, of, _ in questions for one in of.declaration.depends_on}
    states = uow.states_named(sorted(named)) if named else {}
    schedules = uow.schedules_of(states.values()) if states else {}
    upstreams = [
        (of.owner.tenant, dependency, times) for _, of, times in questions for dependency in of.declaration.depends_on
    ]
    newest = uow.newest_fires(
        [
            FireQuestion(number, upstream.schedule, *times)
            for number, (tenant, dependency, times) in enumerate(upstreams)
            if times is not None and (upstream := states.get((tenant, dependency.schedule_id))) is not None
        ]
    )
    answers = iter(
        [
            _standing(uow, dependency, states.get((tenant, dependency.schedule_id)), schedules, newest.get(number))
            for number, (tenant, dependency, _) in enumerate(upstreams)
        ]
    )
    return [
        Standings(each=tuple(next(answers) for _ in of.declaration.depends_on), news=0 if state is None else state.news)
        for state, of, _ in questions
    ]


def _standing(
    uow: UnitOfWork,
    dependency: Dependency,
    state: ScheduleState | None,
    schedules: dict[int, Schedule | Unreadable],
    newest: tuple[Micros, Phase] | None,
) -> Standing:
    """An upstream as it stands; one whose record is damaged does not run any more and counts as deleted."""
    schedule = None if state is None else schedules[state.schedule]
    if state is None or schedule is None or isinstance(schedule, Unreadable):
        return Standing(dependency=dependency)
    return Standing(
        dependency=dependency,
        phase=schedule.phase,
        fires=timed_trigger(schedule),
        watermark=state.watermark,
        exhausted=state.exhausted == 1,
        newest=newest,
        last_phase=None if state.last_phase is None else PHASES[state.last_phase],
        ended=state.ended_at,
        completed=state.completed_at,
        leads=unpack_chain(state.leads, "leads", uow.unpack),
    )


def _chain_after(uow: UnitOfWork, state: ScheduleState, row: Row) -> object:
    """The causation chain of what the end of a row triggers; a damaged record starts a new one."""
    try:
        chain = chain_after(uow.occurrence(row, uow.schedule_of(state)))
    except Unreadable:
        return None
    return None if chain is None else uow.pack(chain.to_document())


def _plan_follower(uow: UnitOfWork, state: ScheduleState, *, is_end: bool) -> None:
    """Plan a schedule without a trigger, which may owe a fire now; after an end, also a completed one."""
    now = uow.now()
    try:
        schedule = uow.schedule_of(state)
    except Unreadable as error:
        state.fault = state.fault or str(error)
        return
    if is_end and not is_used_up(schedule, state.admitted):
        state.exhausted = 0
        if state.phase == SchedulePhase.COMPLETED:
            state.phase, state.updated = SchedulePhase.ACTIVE, now
            state.version += 1
    if state.phase == SchedulePhase.ACTIVE:
        uow.wakes_nodes = True
        state.plan_at = now if state.plan_at is None else min(state.plan_at, now)
    uow.changed_state(state)


def _upstream_ids(schedule: Schedule) -> list[str]:
    if schedule.phase is SchedulePhase.DELETED:
        return []
    return [one.schedule_id for one in schedule.declaration.depends_on]
