"""Admission, settlement and leases: carried out on condition that the fence still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.admission import Busy, End, Place, Replan, Start, Wait
from noonmark.core.budgets.budget import Reserved, approval_id
from noonmark.core.frozen import evolve, evolver
from noonmark.core.interruption import alert_at, real_deadline, stop_deadline
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import RESOURCE_WAITS, Occurrence
from noonmark.core.reasons import Reason
from noonmark.core.settlement import lost_run
from noonmark.core.system_events import SystemEvent, is_late
from noonmark.ports.budgets import reported_usage
from noonmark.ports.records import Admitted, LeaseLost, make_admitted
from noonmark.ports.workflows import OF_OCCURRENCE, Approval
from noonmark.stores.rules import (
    budgets,
    bundles,
    completion,
    halts,
    plain_starts,
    plan_writes,
    rate_windows,
    runaway,
    slots,
    step_ends,
)
from noonmark.stores.rules.completion import to_detail
from noonmark.stores.rules.records import DELIVERING, LEASED, REASONS, UNSTARTED, to_occurrence
from noonmark.stores.rules.unit_of_work import Fact

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.instants import Micros
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.settlement import Settlement
    from noonmark.ports.records import Lease
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork

    Answer = Admitted | LeaseLost | Busy

NONE_STARTED: Mapping[str, Occurrence] = {}
_CLAIMED, _DISPATCHING = Phase.CLAIMED, Phase.DISPATCHING


def admit_all(
    uow: UnitOfWork,
    admissions: Sequence[Admission],
    started: Mapping[str, Occurrence] = NONE_STARTED,
    *,
    now: Micros,
    lease: Micros,
) -> list[Answer]:
    """Carry out admissions, in their order, besides those that a fast path has started."""
    ids = [one.claim.occurrence.id for one in admissions]
    uow.load_rows(one for one in ids if one not in started)
    until = uow.lease_end(now, lease)
    return [
        make_admitted(occurrence=started[occurrence_id])
        if occurrence_id in started
        else _admit(uow, admission, now=now, until=until)
        for occurrence_id, admission in zip(ids, admissions, strict=True)
    ]


def settle_all(uow: UnitOfWork, settlements: Sequence[Settlement], ended: Collection[str] = ()) -> list[bool]:
    """Write the ends of deliveries, in their order, besides those that a fast path has written."""
    ids = [one.occurrence.id for one in settlements]
    uow.load_rows(one for one in ids if one not in ended)
    step_ends.load(uow, settlements)
    return [one in ended or _settle(uow, settlement) for one, settlement in zip(ids, settlements, strict=True)]


def cancel(uow: UnitOfWork, occurrence_id: str) -> bool:
    """End a row that was not started, or ask a workflow that has begun to stop; False if there is none."""
    row = uow.row(occurrence_id)
    if row is None or row.phase not in UNSTARTED:
        return False
    if uow.ends_itself(row):
        step_ends.stop_suspended(uow, row, Reason.CANCELLED)
        return True
    completion.cancel(uow, row, Reason.CANCELLED)
    completion.complete_if_done(uow, uow.state_of(row))
    return True


def release(uow: UnitOfWork, leases: Sequence[Lease]) -> None:
    """Give claimed rows back unchanged."""
    for row in held_rows(uow, leases).values():
        if row.phase == Phase.CLAIMED:
            row.phase = Phase.PENDING
            row.lease_end = row.node = None
            uow.changed(row)
            slots.free_keys_if_held(uow, row)


def request_stop(uow: UnitOfWork, occurrence_id: str) -> bool:
    """Ask what delivers a row, or resumes it, to stop; False if nothing does."""
    row = uow.row(occurrence_id)
    if row is not None and uow.ends_itself(row):
        step_ends.stop_suspended(uow, row, Reason.CANCELLED)
        return True
    if row is None or row.phase not in DELIVERING:
        return False
    row.deadline = stop_deadline(row, now=uow.now(), is_workflow_run=uow.is_workflow_run(row))
    row.stop = Reason.CANCELLED
    uow.changed(row)
    return True


def held_rows(uow: UnitOfWork, leases: Sequence[Lease]) -> dict[str, Row]:
    """The rows whose leases are still held with these fences; of several leases of a row, the last counts."""
    fences = {lease.occurrence_id: lease.fence for lease in leases}
    uow.load_rows(fences)
    rows = ((one, uow.loaded_row(one), fence) for one, fence in fences.items())
    return {one: row for one, row, fence in rows if row is not None and row.fence == fence and row.phase in LEASED}


def lease_row(uow: UnitOfWork, row: Row, node: str, *, now: Micros, until: Micros) -> None:
    """Lease a row; the run of a delivery that was lost with its node is stored."""
    if row.phase == Phase.DISPATCHING:
        lost = to_occurrence(row, uow.state_of(row).uid, "", None, uow.unpack)
        uow.add_run(row, lost_run(lost, now=now, is_process_gone=uow.process_of(row.node).is_gone))
        row.losses += 1
        row.attempt -= 1
    row.fence += 1
    row.phase, row.node, row.started, row.lease_end = Phase.CLAIMED, node, None, until
    uow.changed(row)


def after_start(start: Start, now: Micros) -> Occurrence:
    """The occurrence of a claim after its start."""
    was = start.claim.occurrence
    return _started(
        was,
        revision=start.claim.schedule.revision,
        phase=_DISPATCHING,
        attempt=was.attempt + 1,
        waiting_for=None,
        holds_slot=was.holds_slot or start.takes_slot,
        started=now,
    )


_started = evolver(Occurrence, "revision", "phase", "attempt", "waiting_for", "holds_slot", "started")


def _admit(uow: UnitOfWork, admission: Admission, *, now: Micros, until: Micros) -> Answer:
    claimed = admission.claim.occurrence
    row = uow.loaded_row(claimed.id)
    if row is None or row.fence != claimed.fence:
        return LeaseLost(occurrence_id=claimed.id)
    if row.phase == _DISPATCHING and isinstance(admission, Start):
        return _admitted(uow, row, claimed)  # asked again: the first answer was lost
    state = uow.state_of(row)
    if row.phase != _CLAIMED or state.revision != admission.claim.schedule.revision:
        return LeaseLost(occurrence_id=claimed.id)
    uow.tenants[row.schedule] = admission.claim.schedule.owner.tenant
    if row.damage is not None:
        completion.end_unreadable(uow, row, row.damage)
        return LeaseLost(occurrence_id=claimed.id)
    match admission:
        case Start():
            if plain_starts.start_if_plain(uow, row, state, admission, now=now, until=until):
                return make_admitted(occurrence=after_start(admission, now))
            return start_if_free(uow, row, admission, now=now, until=until)
        case End():
            _end(uow, row, admission)
        case Wait():
            return _wait(uow, row, admission, now=now) or _admitted(uow, row, claimed)
        case Replan():
            _replan(uow, row, now=now)
        case _:
            assert_never(admission)
    return _admitted(uow, row, claimed)


def _end(uow: UnitOfWork, row: Row, decided: End) -> None:
    state = uow.state_of(row)
    row.attempt += decided.was_begun
    completion.end(uow, row, decided.phase, decided.reason, to_detail(decided.facts))
    if decided.breach is not None:
        plan_writes.stop_runaway(uow, state, decided.breach)
    completion.complete_if_done(uow, state)
    plan_writes.pause_if_failing(uow, state, decided.pause_after)
    if decided.pause is not None:
        plan_writes.pause_itself(uow, state, decided.pause)


def _admitted(uow: UnitOfWork, row: Row, claimed: Occurrence, alert: RateAlert | None = None) -> Admitted:
    occurrence = to_occurrence(row, claimed.uid, claimed.schedule_id, claimed.payload, uow.unpack)
    return Admitted(occurrence=occurrence, alert=alert)


def _settle(uow: UnitOfWork, settlement: Settlement) -> bool:
    row = uow.loaded_row(settlement.occurrence.id)
    if row is None or row.fence != settlement.occurrence.fence:
        return False
    may_end = settlement.deadline is None or settlement.begins or settlement.is_overdue
    if row.phase not in (DELIVERING if may_end else (Phase.DISPATCHING,)):
        return False
    state = uow.state_of(row)
    uow.tenants[row.schedule] = settlement.tenant
    if settlement.is_overdue:
        return _report_overdue(uow, row, settlement)
    _record(uow, row, settlement)
    row.attempt = settlement.attempt
    if settlement.suspended is not None:
        step_ends.suspend(uow, row, settlement.reason, to_detail(settlement.facts), settlement.suspended)
        return True
    if settlement.deadline is not None:
        _await(uow, row, settlement, settlement.deadline)
        return True
    if settlement.retry_at is None:
        detail = to_detail(settlement.facts)
        completion.end(uow, row, settlement.phase, settlement.reason, detail, run=settlement.run)
    elif (reason := _cancel_reason(uow, row, settlement)) is not None:
        completion.end(uow, row, Phase.CANCELLED, reason, run=settlement.run)
    else:
        _retry(uow, row, settlement, settlement.retry_at)
        if state.phase == SchedulePhase.DELETED:  # a node resumes it, undoes its completed steps, and ends it
            step_ends.stop_suspended(uow, row, Reason.DELETED)
    if settlement.max_identical is not None:
        _count_result(uow, state, settlement, settlement.max_identical)
    completion.complete_if_done(uow, state)
    plan_writes.pause_if_failing(uow, state, settlement.pause_after)
    return True


def _record(uow: UnitOfWork, row: Row, settlement: Settlement) -> None:
    """Store a run and what it has used; a node that could not start it has nothing to store but why."""
    if settlement.reason not in RESOURCE_WAITS:
        uow.add_run(row, settlement.run)
    if settlement.reported:
        budgets.record_all(uow, reported_usage(settlement))


def _count_result(uow: UnitOfWork, state: ScheduleState, settlement: Settlement, limit: int) -> None:
    """Count a result, and pause its schedule if there were too many of the same; its own steps have no such rule."""
    breach = runaway.count_result(uow, state, settlement.run, limit)
    if breach is not None:
        plan_writes.stop_runaway(uow, state, breach)


def start_if_free(uow: UnitOfWork, row: Row, start: Start, *, now: Micros, until: Micros) -> Admitted | Busy:
    """Start a row that has everything it needs, and take that."""
    busy = halts.in_the_way(uow, row, start.claim.schedule) or runaway.in_the_way(uow, row, start)
    busy = busy or slots.busy(uow, row, start) or _reserve(uow, row, start)
    if busy is not None:
        return busy
    slots.take(uow, row, start)
    alert = _start(uow, row, start, now=now, until=until)
    if row.own is not None:
        return _admitted(uow, row, start.claim.occurrence, alert)
    occurrence = after_start(start, now)
    occurrence = evolve(occurrence, detail=row.detail, stop=REASONS[row.stop], deadline=row.deadline)
    return Admitted(occurrence=occurrence, alert=alert)


def _start(uow: UnitOfWork, row: Row, start: Start, *, now: Micros, until: Micros) -> RateAlert | None:
    """Start a row; returns an alert if its schedule starts more often than expected."""
    state, schedule = uow.state_of(row), start.claim.schedule
    is_first = not row.has_begun
    if is_first and is_late(row.first_due, now):
        waited_for = REASONS[row.waiting_for]
        uow.facts.append(Fact(event=SystemEvent.STARTED_LATE, state=state, row=row, waited_for=waited_for))
    if is_first and row.waiting_for == Reason.APPROVAL:
        uow.workflows.drop(row, [OF_OCCURRENCE])
        row.detail = ""
    row.phase, row.revision, row.waiting_for = Phase.DISPATCHING, state.revision, None
    row.attempt += 1
    row.late = now - row.first_due if row.late is None else row.late
    row.started, row.lease_end = now, until
    bundles.pin(uow, row, schedule)
    if row.stop is None:
        row.deadline = alert_at(schedule.declaration, max(now, row.due))
    uow.changed(row)
    state.last_started = max(now, row.due)
    completion.note_admitted(state, row)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        state.plan_at = _earlier(state.plan_at, now)
    uow.changed_state(state)
    if not is_first:
        return None
    runaway.count_start(uow, row, start)
    return rate_windows.count_start(uow, state, schedule, at=max(now, row.due))


def _reserve(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """Reserve the first call of a start; what is in the way, if a budget has no room for it."""
    if start.reservation is None:
        return None
    answer = budgets.reserve(uow, start.reservation)
    if isinstance(answer, Reserved):
        return None
    approval = uow.workflows.approval(start.reservation.tenant, approval_id(row.id))
    until = None if approval is None else approval.expires
    return Busy(place=Place.BUDGET, refused=answer, asked_until=until, at=uow.now())


def _ask(uow: UnitOfWork, row: Row, decided: Wait, message: str, until: Micros) -> None:
    """Ask somebody to approve a start, unless that was done before."""
    tenant, now = decided.claim.schedule.owner.tenant, uow.now()
    row.detail = to_detail(decided.facts)
    if uow.workflows.approval(tenant, approval_id(row.id)) is not None:
        return
    approval = Approval(
        approval_id=approval_id(row.id),
        tenant=tenant,
        occurrence_id=row.id,
        step_id=OF_OCCURRENCE,
        message=message,
        requested=now,
        expires=until,
    )
    uow.workflows.add_approvals(row, [approval])
    uow.facts.append(Fact(event=SystemEvent.APPROVAL_REQUESTED, state=uow.state_of(row), row=row))


def _wait(uow: UnitOfWork, row: Row, decided: Wait, *, now: Micros) -> Busy | None:
    """Put a row in line; what is in the way, if it cannot have the slot that it holds while it waits."""
    state = uow.state_of(row)
    if decided.takes_slot:
        holder = slots.slot_holder(uow, state)
        if holder is not None and holder is not row:
            return Busy(place=Place.SLOT, waiting=state.queued, holder=holder.id)
        slots.give_slot(uow, state, row)
    if decided.replaces:
        # Only what the schedule started by itself gives way. Manual rows, rows that have begun and rows that were
        # caught up go on waiting.
        rivals = [other for other in slots.slot_queue(uow, state) if _gives_way(other)]
        for rival in rivals:
            if rival.turn < row.turn:
                completion.end(uow, rival, Phase.SKIPPED, Reason.REPLACED)
        if any(rival.turn > row.turn for rival in rivals):
            completion.end(uow, row, Phase.SKIPPED, Reason.REPLACED)
            return None
    if decided.joins_line and row.caught_up is None:
        row.caught_up = now
    if decided.cancel_grace is not None and (holder := slots.slot_holder(uow, state)) is not None:
        _stop(uow, holder, by=now + decided.cancel_grace)
    if decided.asks is not None and decided.until is not None:
        _ask(uow, row, decided, decided.asks, decided.until)
    slots.wait(uow, row, decided)
    return None


def _gives_way(row: Row) -> bool:
    """Whether a newer row may replace it while it waits."""
    return row.is_own and not row.has_begun and row.caught_up is None


def _stop(uow: UnitOfWork, holder: Row, *, by: Micros) -> None:
    if holder.phase in DELIVERING:
        holder.stop, holder.deadline = Reason.REPLACED, _earlier(real_deadline(holder), by)
        uow.changed(holder)
    elif uow.ends_itself(holder):
        step_ends.stop_suspended(uow, holder, Reason.REPLACED, by=by)
    elif (
        holder.caught_up is None or holder.has_begun
    ):  # it waits for a retry or for its turn: no node would see the request
        completion.cancel(uow, holder, Reason.REPLACED)


def _cancel_reason(uow: UnitOfWork, row: Row, settlement: Settlement) -> Reason | None:
    """Why a row ends that would be delivered again; a workflow does not, since it undoes its completed steps."""
    if uow.is_workflow_run(row):
        return None
    if uow.state_of(row).phase == SchedulePhase.DELETED:
        return Reason.DELETED
    # What a node hands back that stops is treated as if the node had been lost: a request to stop holds.
    return REASONS[row.stop] if settlement.reason is Reason.LEASE_LOST else None


def _replan(uow: UnitOfWork, row: Row, *, now: Micros) -> None:
    """Send a row back to the planner; it has no time until then."""
    state: ScheduleState = uow.state_of(row)
    row.phase = Phase.PENDING
    row.ready = row.lease_end = row.node = None
    uow.changed(row)
    state.plan_at, state.sent_back = _earlier(state.plan_at, now), 1
    uow.changed_state(state)


def _await(uow: UnitOfWork, row: Row, settlement: Settlement, deadline: Micros) -> None:
    """The target reports later how it ended; until then there is no lease to renew."""
    row.phase, row.reason = settlement.phase, settlement.reason
    row.detail = row.with_halt(to_detail(settlement.facts))
    if row.stop is None:  # what was asked to stop keeps the time that it has for that
        row.deadline = None
    if settlement.begins:
        row.started = settlement.run.started
        row.late = row.started - row.first_due
        if is_late(row.first_due, row.started):
            uow.facts.append(Fact(event=SystemEvent.STARTED_LATE, state=uow.state_of(row), row=row))
    row.deadline, row.lease_end = _earlier(row.deadline, deadline), None
    if row.stop is None and settlement.alert is not None:
        row.deadline = min(row.deadline, settlement.alert)
    uow.changed(row)


def _report_overdue(uow: UnitOfWork, row: Row, settlement: Settlement) -> bool:
    """Report that a delivery takes longer than expected, unless its deadline has changed since."""
    if row.stop is not None or row.deadline != settlement.occurrence.deadline:
        return False
    row.deadline = settlement.deadline
    uow.changed(row)
    uow.facts.append(Fact(event=SystemEvent.OVERDUE, state=uow.state_of(row), row=row))
    return True


def _retry(uow: UnitOfWork, row: Row, settlement: Settlement, retry_at: Micros) -> None:
    row.phase, row.reason, row.detail = settlement.phase, settlement.reason, to_detail(settlement.facts)
    row.give_back()
    row.due = row.ready = retry_at
    uow.changed(row)
    slots.free_keys(uow, row)
    if settlement.reason is Reason.RETRY_SCHEDULED:
        state = uow.state_of(row)
        uow.facts.append(Fact(event=SystemEvent.RETRYING, state=state, row=row, run=settlement.run))


def _earlier(instant: Micros | None, other: Micros) -> Micros:
    return other if instant is None else min(instant, other)
