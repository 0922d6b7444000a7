"""Admissions and settlements: carrying them out, on condition that the fence still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.admission import Busy, End, Replan, Start, Wait
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.system_events import SystemEvent, is_late
from noonmark.ports.records import Admitted, LeaseLost
from noonmark.stores.detail import to_detail
from noonmark.stores.sql import completion, fast_path, plan_writes, slots
from noonmark.stores.sql.records import REASONS, occurrence, to_json
from noonmark.stores.sql.session import lease_end
from noonmark.stores.system_events import More

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Settlement
    from noonmark.stores.sql.records import Row, ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork

DELIVERING = (Phase.DISPATCHING, Phase.AWAITING_COMPLETION)


def admit_all(
    uow: UnitOfWork, admissions: Sequence[Admission], *, now: Micros, lease: Micros
) -> list[Admitted | LeaseLost | Busy]:
    """Carry out admissions, in their order."""
    started = fast_path.start_all(uow.session, admissions, now=now, lease=lease)
    return admit_others(uow, admissions, started, now=now, lease=lease)


def admit_others(
    uow: UnitOfWork, admissions: Sequence[Admission], started: Mapping[str, Occurrence], *, now: Micros, lease: Micros
) -> list[Admitted | LeaseLost | Busy]:
    """Carry out those that were not as plain as the ones that have started."""
    ids = [one.claim.occurrence.id for one in admissions]
    uow.read_rows(one for one in ids if one not in started)
    return [
        Admitted(occurrence=started[one]) if one in started else _admit(uow, admission, now=now, lease=lease)
        for one, admission in zip(ids, admissions, strict=True)
    ]


def all_started(
    admissions: Sequence[Admission], started: Mapping[str, Occurrence]
) -> list[Admitted | LeaseLost | Busy]:
    """The answers, when there was nothing but plain starts."""
    return [Admitted(occurrence=started[one.claim.occurrence.id]) for one in admissions]


def settle_all(uow: UnitOfWork, settlements: Sequence[Settlement]) -> list[bool]:
    """Write the ends of deliveries, in their order."""
    ended = fast_path.end_all(uow.session, settlements, now=uow.now())
    return settle_others(uow, settlements, ended)


def settle_others(uow: UnitOfWork, settlements: Sequence[Settlement], ended: Collection[str]) -> list[bool]:
    """Write those that were not as plain as the ones that have ended."""
    ids = [one.occurrence.id for one in settlements]
    uow.read_rows(one for one in ids if one not in ended)
    return [one in ended or _settle(uow, settlement) for one, settlement in zip(ids, settlements, strict=True)]


def cancel(uow: UnitOfWork, occurrence_id: str) -> bool:
    """End what has not been started; False when there is no such row."""
    row = uow.row(occurrence_id)
    if row is None or row.phase not in (Phase.PENDING, Phase.CLAIMED):
        return False
    completion.cancel(uow, row, Reason.CANCELLED)
    completion.complete_if_done(uow, uow.state_of(row))
    return True


def _admit(uow: UnitOfWork, admission: Admission, *, now: Micros, lease: Micros) -> Admitted | LeaseLost | Busy:
    claimed = admission.claim.occurrence
    row = uow.known(claimed.id)
    if row is None or row.fence != claimed.fence:
        return LeaseLost(occurrence_id=claimed.id)
    if row.phase == Phase.DISPATCHING and isinstance(admission, Start):
        return Admitted(occurrence=occurrence(row, claimed.uid, claimed.schedule_id, claimed.payload))
    if row.phase != Phase.CLAIMED or uow.state_of(row).revision != admission.claim.schedule.revision:
        return LeaseLost(occurrence_id=claimed.id)
    uow.tenants[row.schedule] = admission.claim.schedule.owner.tenant
    if row.damage is not None:
        completion.end_unreadable(uow, row, row.damage)
        return LeaseLost(occurrence_id=claimed.id)
    match admission:
        case Start():
            busy = slots.take(uow, row, admission)
            if busy is not None:
                return busy
            _start(uow, row, admission, now=now, lease=lease)
        case End():
            state = uow.state_of(row)
            completion.end(uow, row, admission.phase, admission.reason, to_detail(admission.facts))
            completion.complete_if_done(uow, state)
            plan_writes.pause_if_failing(uow, state, admission.pause_after)
        case Wait():
            _wait(uow, row, admission, now=now)
        case Replan():
            _replan(uow, row, now=now)
        case _:
            assert_never(admission)
    return Admitted(occurrence=occurrence(row, claimed.uid, claimed.schedule_id, claimed.payload))


def _settle(uow: UnitOfWork, settlement: Settlement) -> bool:
    row = uow.known(settlement.occurrence.id)
    if row is None or row.fence != settlement.occurrence.fence:
        return False
    if row.phase not in (DELIVERING if settlement.deadline is None else (Phase.DISPATCHING,)):
        return False
    state = uow.state_of(row)
    uow.tenants[row.schedule] = settlement.tenant
    uow.add_run(row, settlement.run, to_json(settlement.run.result))
    row.attempt = settlement.attempt
    uow.changed(row)
    if settlement.deadline is not None:
        _await(row, settlement, settlement.deadline)
        return True
    if settlement.retry_at is None:
        detail = to_detail(settlement.facts)
        completion.end(uow, row, settlement.phase, settlement.reason, detail, run=settlement.run)
    elif state.phase == SchedulePhase.DELETED:
        completion.end(uow, row, Phase.CANCELLED, Reason.DELETED, run=settlement.run)
    else:
        _retry(uow, row, settlement, settlement.retry_at)
    completion.complete_if_done(uow, state)
    plan_writes.pause_if_failing(uow, state, settlement.pause_after)
    return True


def _start(uow: UnitOfWork, row: Row, start: Start, *, now: Micros, lease: Micros) -> None:
    state = uow.state_of(row)
    if not row.has_begun and is_late(row.first_due, now):
        uow.note(SystemEvent.STARTED_LATE, state, row, More(waited_for=REASONS[row.waiting_for]))
    row.phase, row.revision, row.waiting_for = Phase.DISPATCHING, state.revision, None
    row.attempt += 1
    row.started, row.lease_end = now, lease_end(uow.session, now, lease)
    uow.changed(row)
    state.last_started = max(now, row.due)
    completion.note_admitted(state, row)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        state.plan_at = _earlier(state.plan_at, now)
    uow.changed_state(state)


def _wait(uow: UnitOfWork, row: Row, decided: Wait, *, now: Micros) -> None:
    state = uow.state_of(row)
    if decided.replaces:
        # Only what came about by itself gives way; what was asked for, or has begun, goes on waiting.
        rivals = [other for other in slots.in_slot_line(uow, state) if other.is_own and not other.has_begun]
        for rival in rivals:
            if rival.turn < row.turn:
                completion.end(uow, rival, Phase.SKIPPED, Reason.REPLACED)
        if any(rival.turn > row.turn for rival in rivals):
            completion.end(uow, row, Phase.SKIPPED, Reason.REPLACED)
            return
    if decided.cancel_grace is not None and (holder := slots.holder_of(uow, state)) is not None:
        _stop(uow, holder, by=now + decided.cancel_grace)
    slots.wait(uow, row, decided)


def _stop(uow: UnitOfWork, holder: Row, *, by: Micros) -> None:
    if holder.phase in DELIVERING:
        holder.stop, holder.deadline = Reason.REPLACED, _earlier(holder.deadline, by)
        uow.changed(holder)
    else:  # it waits for a retry or for its turn: nobody would hear the request
        completion.cancel(uow, holder, Reason.REPLACED)


def _replan(uow: UnitOfWork, row: Row, *, now: Micros) -> None:
    """It has no time until its schedule has been planned: a claim could do nothing with it."""
    state: ScheduleState = uow.state_of(row)
    row.phase = Phase.PENDING
    row.ready = row.lease_end = row.node = None
    uow.changed(row)
    state.plan_at, state.sent_back = _earlier(state.plan_at, now), 1
    uow.changed_state(state)


def _await(row: Row, settlement: Settlement, deadline: Micros) -> None:
    """The target says later how it ended; until then nobody has to renew anything."""
    row.phase, row.reason, row.detail = settlement.phase, settlement.reason, to_detail(settlement.facts)
    row.deadline, row.lease_end = _earlier(row.deadline, deadline), None


def _retry(uow: UnitOfWork, row: Row, settlement: Settlement, retry_at: Micros) -> None:
    row.phase, row.reason, row.detail = settlement.phase, settlement.reason, to_detail(settlement.facts)
    completion.give_back(row)
    row.due = row.ready = retry_at
    slots.free_key(uow, row)
    if settlement.reason is Reason.RETRY_SCHEDULED:
        uow.note(SystemEvent.RETRYING, uow.state_of(row), row, More(run=settlement.run))


def _earlier(one: Micros | None, other: Micros) -> Micros:
    return other if one is None else min(one, other)
