"""Plans: writing what the planner and the edits decided, on condition that nothing has happened since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.system_events import SystemEvent, change
from noonmark.stores.memory import completion, dependencies, slots, subscriptions
from noonmark.stores.memory.records import Row, ScheduleState
from noonmark.stores.system_events import More

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Projection, Rewound
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def create(uow: UnitOfWork, plan: Plan) -> bool:
    """Keep a new schedule with its first plan; False when its id is taken."""
    schedule = plan.schedule or plan.snapshot.schedule
    tenant = schedule.owner.tenant
    if (tenant, schedule.schedule_id) in uow.ids or not dependencies.is_ordered(uow, tenant, plan.graph):
        return False
    state = ScheduleState(schedule=schedule, watermark=plan.watermark)
    uow.keep_schedule(state, schedule)
    subscriptions.listen(uow, None, schedule)
    dependencies.bind(uow, state, None)
    _write(uow, state, plan)
    uow.note(SystemEvent.SCHEDULE_CREATED, schedule, more=More(note=plan.note))
    _note(uow, plan)
    return True


def commit(uow: UnitOfWork, plan: Plan) -> bool:
    """Write a plan, or False when the schedule or a fire that the plan counts is no longer as it was read."""
    before = plan.snapshot
    state = uow.states.get(before.schedule.uid)
    if state is None or _version(state.schedule, state.watermark) != _version(before.schedule, before.watermark):
        return False
    if plan.schedule is not None and state.schedule != before.schedule:
        return False
    is_limited = (plan.schedule or before.schedule).declaration.max_runs is not None
    if is_limited and state.admitted != before.runs:
        return False
    if before.upstreams is not None and before.upstreams.news != state.news:
        return False
    if not dependencies.is_ordered(uow, before.schedule.owner.tenant, plan.graph):
        return False
    if any(one.id in plan.gone and _has_moved_on(uow, one) for one in before.projections):
        return False
    _write(uow, state, plan)
    _note(uow, plan)
    return True


def add(uow: UnitOfWork, one: Occurrence) -> bool:
    """Keep one occurrence more; False when it is known, or its schedule is not there."""
    state = uow.states.get(one.uid)
    if state is None or state.schedule.phase is SchedulePhase.DELETED or one.id in uow.rows:
        return False
    _insert(uow, state, one)
    return True


def pause_if_failing(uow: UnitOfWork, state: ScheduleState, limit: int | None) -> None:
    """Pause an active schedule when so many of its occurrences have failed in a row."""
    active = state.schedule.phase is SchedulePhase.ACTIVE
    if active and limit is not None and state.failures_in_row >= limit:
        snapshot = uow.snapshot(state, dependencies.of_schedule(uow, state))
        _write(uow, state, edits.pause(snapshot, now=uow.now()), failures=state.failures_in_row)


def _note(uow: UnitOfWork, plan: Plan) -> None:
    if plan.note is not None:
        uow.journal.add(plan.snapshot.schedule.owner.tenant, plan.note)


def _version(schedule: Schedule, watermark: int) -> tuple[int, SchedulePhase, int]:
    return (schedule.revision, schedule.phase, watermark)


def _projection(uow: UnitOfWork, occurrence_id: str) -> Row | None:
    row = uow.rows.get(occurrence_id)
    return row if row is not None and row.is_projection else None


def _has_moved_on(uow: UnitOfWork, then: Projection) -> bool:
    """Whether a projection that a plan counts has started or begun to wait since the snapshot."""
    row = _projection(uow, then.id)
    return row is None or (row.occurrence.waiting_for is not None and then.waiting_for is None)


def _rewind(uow: UnitOfWork, state: ScheduleState, rewound: Rewound) -> None:
    """Undo and shorten gaps that a clock which was ahead has closed."""
    for undone in rewound.undone:
        if (row := _gap(uow, undone)) is not None:
            state.fences = max(state.fences, row.occurrence.fence + 1)
            completion.uncount(state, row.occurrence, row.occurrence.missed_count)
            uow.forget(row)
    for gap in rewound.shortened:
        if (row := _gap(uow, gap.id)) is not None:
            completion.uncount(state, row.occurrence, row.occurrence.missed_count - gap.count)
            row.occurrence = evolve(row.occurrence, missed_last=gap.last, missed_count=gap.count)
    state.newest = rewound.newest


def _gap(uow: UnitOfWork, occurrence_id: str) -> Row | None:
    row = uow.rows.get(occurrence_id)
    is_gap = row is not None and row.occurrence.phase in FINAL and row.occurrence.missed_last is not None
    return row if is_gap else None


def _write_rows(uow: UnitOfWork, state: ScheduleState, plan: Plan) -> None:
    if plan.rewound is not None:
        _rewind(uow, state, plan.rewound)
    for removed in plan.removed:
        if (row := _projection(uow, removed)) is not None:
            state.fences = max(state.fences, row.occurrence.fence + 1)
            uow.forget(row)
            slots.give_up(uow, row)
    for one in plan.closed:
        _put(uow, state, one)
    for ids, phase, reason in (
        (plan.superseded, Phase.SUPERSEDED, Reason.EDITED),
        (plan.cancelled, Phase.CANCELLED, Reason.DELETED),
    ):
        for moved in ids:
            if (row := _projection(uow, moved)) is not None:
                _raise_fence(row)
                completion.end(uow, row, phase, reason)
    seen = {one.id for one in plan.snapshot.projections}
    for one in plan.planned:
        # What the plan saw and is not there any more has ended since, and was pruned.
        if one.id in uow.rows or one.id not in seen:
            _put(uow, state, one)


def _write(uow: UnitOfWork, state: ScheduleState, plan: Plan, *, failures: int = 0) -> None:
    _write_rows(uow, state, plan)
    was_exhausted = state.exhausted
    state.watermark, state.plan_at, state.exhausted = plan.watermark, plan.plan_at, plan.exhausted
    before = state.schedule
    if plan.schedule is not None:
        state.fault = None
    uow.keep_schedule(state, plan.schedule or before)
    for row in tuple(state.live.values()):
        if row.ready is None and row.occurrence.phase is Phase.PENDING and row.occurrence.waiting_for is None:
            # It was sent back to be planned, and the plan left it as it is.
            row.ready = row.occurrence.due
            uow.file(row)
    _follow(uow, state, before)
    if state.schedule is not before:
        uow.note(change(before, state.schedule), state.schedule, more=More(note=plan.note, failures=failures))
    # When nothing follows, what was withdrawn leaves nothing behind that tells of it: no end, and no change.
    if was_exhausted != state.exhausted or (state.exhausted and plan.removed):
        dependencies.tell(uow, state)
    completion.complete_if_done(uow, state)


def _put(uow: UnitOfWork, state: ScheduleState, one: Occurrence) -> None:
    """Insert a row, or let it take the place of a projection or of one that an edit had moved."""
    known = uow.rows.get(one.id)
    if known is None:
        _insert(uow, state, one)
    elif known.is_projection and known.occurrence.waiting_for is not None and one.phase is Phase.PENDING:
        _rebind(uow, known, one)
    elif known.is_projection or known.occurrence.phase is Phase.SUPERSEDED:
        uow.forget(known)
        slots.give_up(uow, known)
        _insert(uow, state, evolve(one, fence=known.occurrence.fence + 1))


def _rebind(uow: UnitOfWork, row: Row, one: Occurrence) -> None:
    """Change a row that waits, or has just got its turn; it keeps its place in the line, or its turn."""
    was = row.occurrence
    row.occurrence = evolve(
        one,
        fence=was.fence + 1,
        due=was.due,
        waiting_for=was.waiting_for,
        holds_slot=was.holds_slot,
        overrides=was.overrides,
    )
    row.lease_end = None
    uow.file(row)


def _insert(uow: UnitOfWork, state: ScheduleState, one: Occurrence) -> None:
    fresh = one if one.fence >= state.fences else evolve(one, fence=state.fences)
    row = Row(occurrence=fresh, state=state, ready=one.due)
    uow.add(row)
    if one.phase in FINAL:
        completion.archive(uow, row)


def _raise_fence(row: Row) -> None:
    row.occurrence = evolve(row.occurrence, fence=row.occurrence.fence + 1)


def _follow(uow: UnitOfWork, state: ScheduleState, before: Schedule) -> None:
    """Bring the rows that the plan does not speak of in line with what the schedule is now."""
    after = state.schedule
    if after is before:
        return
    old, new = before.declaration, after.declaration
    if after.phase is not before.phase:
        _change_phase(uow, state, before.phase)
    if old.target.route != new.target.route:
        for row in state.live.values():
            row.occurrence = evolve(row.occurrence, route=new.target.route)
            uow.file(row)
    has_other_places = (old.overlap_policy, old.concurrency) != (new.overlap_policy, new.concurrency)
    for row in sorted(state.live.values(), key=lambda row: row.turn):
        waits_for_place = row.ready is None and row.occurrence.waiting_for is not None
        is_outdated = after.revision != before.revision and dependencies.waits(uow, row)
        if (has_other_places and waits_for_place) or is_outdated:
            slots.wake(uow, row)
    subscriptions.listen(uow, before, after)
    dependencies.bind(uow, state, before)


def _change_phase(uow: UnitOfWork, state: ScheduleState, before: SchedulePhase) -> None:
    match state.schedule.phase:
        case SchedulePhase.DELETED:
            _cancel(uow, state)
        case SchedulePhase.PAUSED:
            _hold(uow, state)
        case _:
            if before is SchedulePhase.PAUSED:
                state.failures_in_row = 0
            _let_go(uow, state)


def _cancel(uow: UnitOfWork, state: ScheduleState) -> None:
    """Nothing that is not being delivered starts any more."""
    for row in tuple(state.live.values()):
        # Ending one may hand its place to the next, which ends in its turn.
        if row.occurrence.phase in (Phase.PENDING, Phase.CLAIMED):
            _raise_fence(row)
            completion.end(uow, row, Phase.CANCELLED, Reason.DELETED)


def _hold(uow: UnitOfWork, state: ScheduleState) -> None:
    """Nothing that the schedule asked for by itself can be claimed, or started by whoever has claimed it."""
    for row in tuple(state.live.values()):
        if state.holds_back(row) and row.occurrence.phase is Phase.CLAIMED:
            _raise_fence(row)
            row.occurrence = evolve(row.occurrence, phase=Phase.PENDING, node=None)
            row.lease_end = None
        uow.file(row)
        slots.free_key_if_held(uow, row)


def _let_go(uow: UnitOfWork, state: ScheduleState) -> None:
    """What was held can be claimed at its time, and takes what became free in the meantime."""
    rows = tuple(state.live.values())
    for row in rows:
        uow.file(row)
    slots.wake_for_slot(uow, state)
    for key in {row.wants[0] for row in rows if row.wants is not None}:
        slots.wake_for_key(uow, key)
