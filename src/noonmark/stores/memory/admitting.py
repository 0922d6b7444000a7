"""Admissions and settlements: carrying them out, on condition that the fence still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.admission import Admission, Busy, End, Replan, Start, Wait
from noonmark.core.facts import Fact, is_late
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.values import altered
from noonmark.ports.records import Admitted, LeaseLost
from noonmark.stores.facts import to_detail
from noonmark.stores.memory import endings, places, planning
from noonmark.stores.memory.ledger import DELIVERING, give_back
from noonmark.stores.telling import More

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row, Sheet


def admit(ledger: Ledger, admission: Admission, *, now: Micros, lease: Micros) -> Admitted | LeaseLost | Busy:
    """Carry out one admission."""
    claim = admission.claim
    row = ledger.rows.get(claim.occurrence.id)
    if row is None or row.occurrence.fence != claim.occurrence.fence:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    if row.occurrence.phase is Phase.DISPATCHING and isinstance(admission, Start):
        return Admitted(occurrence=row.occurrence)  # whoever asks again did not hear the answer
    if row.occurrence.phase is not Phase.CLAIMED:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    if ledger.sheet_of(row).schedule.revision != claim.schedule.revision:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    match admission:
        case Start():
            busy = places.take(ledger, row, admission)
            if busy is not None:
                return busy
            _start(ledger, row, admission, now=now, lease=lease)
        case End():
            _end(ledger, row, admission)
        case Wait():
            _wait(ledger, row, admission, now=now)
        case Replan():
            _replan(ledger, row, now=now)
        case _:
            assert_never(admission)
    return Admitted(occurrence=row.occurrence)


def settle(ledger: Ledger, settlement: Settlement) -> bool:
    """Write the end of one delivery, or that it is yet to come."""
    row = ledger.rows.get(settlement.occurrence.id)
    if row is None or row.occurrence.fence != settlement.occurrence.fence:
        return False
    if row.occurrence.phase not in (DELIVERING if settlement.deadline is None else {Phase.DISPATCHING}):
        return False
    sheet = ledger.sheet_of(row)
    row.keep_run(settlement.run)
    row.occurrence = altered(row.occurrence, attempt=settlement.attempt)
    if settlement.deadline is not None:
        _await(ledger, row, settlement, settlement.deadline)
        return True
    if settlement.retry_at is None:
        detail = to_detail(settlement.facts)
        endings.end(ledger, row, settlement.phase, settlement.reason, detail, run=settlement.run)
    elif sheet.schedule.phase is SchedulePhase.DELETED:
        endings.end(ledger, row, Phase.CANCELLED, Reason.DELETED, run=settlement.run)
    else:
        _retry(ledger, row, settlement, settlement.retry_at)
    endings.complete_if_done(ledger, sheet)
    planning.pause_if_failing(ledger, sheet, settlement.pause_after)
    return True


def progress(ledger: Ledger, interim: Interim) -> bool:
    """Keep what a delivery that goes on has put out so far."""
    row = ledger.rows.get(interim.occurrence.id)
    if row is None or row.occurrence.fence != interim.occurrence.fence or row.occurrence.phase is not Phase.DISPATCHING:
        return False
    row.keep_run(interim.run)
    return True


def _start(ledger: Ledger, row: Row, start: Start, *, now: Micros, lease: Micros) -> None:
    sheet, was = ledger.sheet_of(row), row.occurrence
    row.occurrence = altered(
        row.occurrence,
        phase=Phase.DISPATCHING,
        attempt=row.occurrence.attempt + 1,
        revision=sheet.schedule.revision,
        waiting_for=None,
        started=now,
        holds_slot=row.occurrence.holds_slot or start.takes_slot,
    )
    row.lease_end = max(now, ledger.now()) + lease
    ledger.file(row)
    if not was.has_begun and is_late(was.first_due, now):
        ledger.note(Fact.STARTED_LATE, sheet.schedule, row.occurrence, More(waited_for=was.waiting_for))
    sheet.last_started = max(now, was.due)
    endings.note_admitted(sheet, row.occurrence)
    if start.max_runs is not None and sheet.admitted >= start.max_runs:
        _plan_at_once(ledger, sheet, now=now)


def _end(ledger: Ledger, row: Row, decided: End) -> None:
    sheet = ledger.sheet_of(row)
    endings.end(ledger, row, decided.phase, decided.reason, to_detail(decided.facts))
    endings.complete_if_done(ledger, sheet)
    planning.pause_if_failing(ledger, sheet, decided.pause_after)


def _wait(ledger: Ledger, row: Row, decided: Wait, *, now: Micros) -> None:
    sheet = ledger.sheet_of(row)
    if decided.replaces:
        # Only what came about by itself gives way; what was asked for, or has begun, goes on waiting.
        rivals = [other for *_, one in sheet.queue if _gives_way(other := sheet.live[one])]
        for rival in rivals:
            if rival.turn < row.turn:
                endings.end(ledger, rival, Phase.SKIPPED, Reason.REPLACED)
        if any(rival.turn > row.turn for rival in rivals):
            endings.end(ledger, row, Phase.SKIPPED, Reason.REPLACED)
            return
    if decided.cancel_grace is not None and sheet.holder is not None:
        _stop(ledger, sheet.holder, by=now + decided.cancel_grace)
    places.wait(ledger, row, decided)


def _gives_way(row: Row) -> bool:
    return row.is_own and not row.occurrence.has_begun


def _stop(ledger: Ledger, holder: Row, *, by: Micros) -> None:
    if holder.occurrence.phase in DELIVERING:
        holder.occurrence = altered(
            holder.occurrence, stop=Reason.REPLACED, deadline=_earlier(holder.occurrence.deadline, by)
        )
        ledger.file(holder)
    else:  # it waits for a retry or for its turn: nobody would hear the request
        endings.cancel(ledger, holder, Reason.REPLACED)


def _await(ledger: Ledger, row: Row, settlement: Settlement, deadline: Micros) -> None:
    """The target says later how it ended; until then nobody has to renew anything."""
    row.occurrence = altered(
        row.occurrence,
        phase=settlement.phase,
        reason=settlement.reason,
        detail=to_detail(settlement.facts),
        deadline=_earlier(row.occurrence.deadline, deadline),
    )
    row.lease_end = None
    ledger.file(row)


def _earlier(one: Micros | None, other: Micros) -> Micros:
    return other if one is None else min(one, other)


def _replan(ledger: Ledger, row: Row, *, now: Micros) -> None:
    """It has no time until its schedule has been planned: a claim could do nothing with it."""
    sheet = ledger.sheet_of(row)
    row.occurrence = altered(row.occurrence, phase=Phase.PENDING, node=None)
    row.ready = row.lease_end = None
    ledger.file(row)
    _plan_at_once(ledger, sheet, now=now)


def _plan_at_once(ledger: Ledger, sheet: Sheet, *, now: Micros) -> None:
    sheet.plan_at = _earlier(sheet.plan_at, now)
    ledger.file_plan(sheet)


def _retry(ledger: Ledger, row: Row, settlement: Settlement, retry_at: Micros) -> None:
    row.occurrence = altered(
        row.occurrence,
        phase=settlement.phase,
        reason=settlement.reason,
        detail=to_detail(settlement.facts),
        due=retry_at,
    )
    give_back(row)
    row.ready = retry_at
    places.free_key(ledger, row)
    ledger.file(row)
    if settlement.reason is Reason.RETRY_SCHEDULED:
        ledger.note(Fact.RETRYING, row.sheet.schedule, row.occurrence, More(run=settlement.run))
