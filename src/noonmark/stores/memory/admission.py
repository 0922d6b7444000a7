"""Admissions and settlements: carrying them out, on condition that the fence still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.admission import Admission, Busy, End, Replan, Start, Wait
from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.system_events import SystemEvent, is_late
from noonmark.ports.records import Admitted, LeaseLost
from noonmark.stores.detail import to_detail
from noonmark.stores.memory import completion, plan_writes, slots
from noonmark.stores.memory.unit_of_work import DELIVERING, give_back
from noonmark.stores.system_events import More

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.stores.memory.records import Row, ScheduleState
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def admit(uow: UnitOfWork, admission: Admission, *, now: Micros, lease: Micros) -> Admitted | LeaseLost | Busy:
    """Carry out one admission."""
    claim = admission.claim
    row = uow.rows.get(claim.occurrence.id)
    if row is None or row.occurrence.fence != claim.occurrence.fence:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    if row.occurrence.phase is Phase.DISPATCHING and isinstance(admission, Start):
        return Admitted(occurrence=row.occurrence)  # whoever asks again did not hear the answer
    if row.occurrence.phase is not Phase.CLAIMED:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    if uow.state_of(row).schedule.revision != claim.schedule.revision:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    match admission:
        case Start():
            busy = slots.take(uow, row, admission)
            if busy is not None:
                return busy
            _start(uow, row, admission, now=now, lease=lease)
        case End():
            _end(uow, row, admission)
        case Wait():
            _wait(uow, row, admission, now=now)
        case Replan():
            _replan(uow, row, now=now)
        case _:
            assert_never(admission)
    return Admitted(occurrence=row.occurrence)


def settle(uow: UnitOfWork, settlement: Settlement) -> bool:
    """Write the end of one delivery, or that it is yet to come."""
    row = uow.rows.get(settlement.occurrence.id)
    if row is None or row.occurrence.fence != settlement.occurrence.fence:
        return False
    if row.occurrence.phase not in (DELIVERING if settlement.deadline is None else {Phase.DISPATCHING}):
        return False
    state = uow.state_of(row)
    row.keep_run(settlement.run)
    row.occurrence = evolve(row.occurrence, attempt=settlement.attempt)
    if settlement.deadline is not None:
        _await(uow, row, settlement, settlement.deadline)
        return True
    if settlement.retry_at is None:
        detail = to_detail(settlement.facts)
        completion.end(uow, row, settlement.phase, settlement.reason, detail, run=settlement.run)
    elif state.schedule.phase is SchedulePhase.DELETED:
        completion.end(uow, row, Phase.CANCELLED, Reason.DELETED, run=settlement.run)
    else:
        _retry(uow, row, settlement, settlement.retry_at)
    completion.complete_if_done(uow, state)
    plan_writes.pause_if_failing(uow, state, settlement.pause_after)
    return True


def progress(uow: UnitOfWork, interim: Interim) -> bool:
    """Keep what a delivery that goes on has put out so far."""
    row = uow.rows.get(interim.occurrence.id)
    if row is None or row.occurrence.fence != interim.occurrence.fence or row.occurrence.phase is not Phase.DISPATCHING:
        return False
    row.keep_run(interim.run)
    return True


def _start(uow: UnitOfWork, row: Row, start: Start, *, now: Micros, lease: Micros) -> None:
    state, was = uow.state_of(row), row.occurrence
    row.occurrence = evolve(
        row.occurrence,
        phase=Phase.DISPATCHING,
        attempt=row.occurrence.attempt + 1,
        revision=state.schedule.revision,
        waiting_for=None,
        started=now,
        holds_slot=row.occurrence.holds_slot or start.takes_slot,
    )
    row.lease_end = max(now, uow.now()) + lease
    uow.file(row)
    if not was.has_begun and is_late(was.first_due, now):
        uow.note(SystemEvent.STARTED_LATE, state.schedule, row.occurrence, More(waited_for=was.waiting_for))
    state.last_started = max(now, was.due)
    completion.note_admitted(state, row.occurrence)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        _plan_at_once(uow, state, now=now)


def _end(uow: UnitOfWork, row: Row, decided: End) -> None:
    state = uow.state_of(row)
    completion.end(uow, row, decided.phase, decided.reason, to_detail(decided.facts))
    completion.complete_if_done(uow, state)
    plan_writes.pause_if_failing(uow, state, decided.pause_after)


def _wait(uow: UnitOfWork, row: Row, decided: Wait, *, now: Micros) -> None:
    state = uow.state_of(row)
    if decided.replaces:
        # Only what came about by itself gives way; what was asked for, or has begun, goes on waiting.
        rivals = [other for *_, one in state.queue if _gives_way(other := state.live[one])]
        for rival in rivals:
            if rival.turn < row.turn:
                completion.end(uow, rival, Phase.SKIPPED, Reason.REPLACED)
        if any(rival.turn > row.turn for rival in rivals):
            completion.end(uow, row, Phase.SKIPPED, Reason.REPLACED)
            return
    if decided.cancel_grace is not None and state.holder is not None:
        _stop(uow, state.holder, by=now + decided.cancel_grace)
    slots.wait(uow, row, decided)


def _gives_way(row: Row) -> bool:
    return row.is_own and not row.occurrence.has_begun


def _stop(uow: UnitOfWork, holder: Row, *, by: Micros) -> None:
    if holder.occurrence.phase in DELIVERING:
        holder.occurrence = evolve(
            holder.occurrence, stop=Reason.REPLACED, deadline=_earlier(holder.occurrence.deadline, by)
        )
        uow.file(holder)
    else:  # it waits for a retry or for its turn: nobody would hear the request
        completion.cancel(uow, holder, Reason.REPLACED)


def _await(uow: UnitOfWork, row: Row, settlement: Settlement, deadline: Micros) -> None:
    """The target says later how it ended; until then nobody has to renew anything."""
    row.occurrence = evolve(
        row.occurrence,
        phase=settlement.phase,
        reason=settlement.reason,
        detail=to_detail(settlement.facts),
        deadline=_earlier(row.occurrence.deadline, deadline),
    )
    row.lease_end = None
    uow.file(row)


def _earlier(one: Micros | None, other: Micros) -> Micros:
    return other if one is None else min(one, other)


def _replan(uow: UnitOfWork, row: Row, *, now: Micros) -> None:
    """It has no time until its schedule has been planned: a claim could do nothing with it."""
    state = uow.state_of(row)
    row.occurrence = evolve(row.occurrence, phase=Phase.PENDING, node=None)
    row.ready = row.lease_end = None
    uow.file(row)
    _plan_at_once(uow, state, now=now)


def _plan_at_once(uow: UnitOfWork, state: ScheduleState, *, now: Micros) -> None:
    state.plan_at = _earlier(state.plan_at, now)
    uow.file_plan(state)


def _retry(uow: UnitOfWork, row: Row, settlement: Settlement, retry_at: Micros) -> None:
    row.occurrence = evolve(
        row.occurrence,
        phase=settlement.phase,
        reason=settlement.reason,
        detail=to_detail(settlement.facts),
        due=retry_at,
    )
    give_back(row)
    row.ready = retry_at
    slots.free_key(uow, row)
    uow.file(row)
    if settlement.reason is Reason.RETRY_SCHEDULED:
        uow.note(SystemEvent.RETRYING, row.state.schedule, row.occurrence, More(run=settlement.run))
