"""Admissions and settlements: carrying them out, on condition that the fence still holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from noonmark.core.admission import Admission, Busy, End, Replan, Start, Wait
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.ports.store import Admitted, LeaseLost
from noonmark.stores.facts import to_detail
from noonmark.stores.memory import endings, places, planning

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Settlement
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row

DELIVERING = frozenset({Phase.DISPATCHING, Phase.AWAITING_COMPLETION})


def admit(ledger: Ledger, admission: Admission, *, now: Micros, lease: Micros) -> Admitted | LeaseLost | Busy:
    """Carry out one admission."""
    claim = admission.claim
    row = ledger.rows.get(claim.occurrence.id)
    if row is None or row.occurrence.phase is not Phase.CLAIMED or row.occurrence.fence != claim.occurrence.fence:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    if ledger.sheet_of(row).schedule.revision != claim.schedule.revision:
        return LeaseLost(occurrence_id=claim.occurrence.id)
    match admission:
        case Start():
            busy = places.take(ledger, row, admission)
            if busy is not None:
                return busy
            _start(ledger, row, now=now, lease=lease)
        case End():
            _end(ledger, row, admission)
        case Wait():
            _wait(ledger, row, admission)
        case Replan():
            _replan(ledger, row, now=now)
        case _:
            assert_never(admission)
    return Admitted(occurrence=row.occurrence)


def settle(ledger: Ledger, settlement: Settlement) -> bool:
    """Write the end of one delivery."""
    row = ledger.rows.get(settlement.occurrence.id)
    if row is None or row.occurrence.fence != settlement.occurrence.fence or row.occurrence.phase not in DELIVERING:
        return False
    sheet = ledger.sheet_of(row)
    row.runs.append(settlement.run)
    row.occurrence = replace(row.occurrence, attempt=settlement.attempt)
    if settlement.retry_at is None:
        endings.end(ledger, row, settlement.phase, settlement.reason, to_detail(settlement.facts))
    elif sheet.schedule.phase is SchedulePhase.DELETED:
        endings.end(ledger, row, Phase.CANCELLED, Reason.DELETED)
    else:
        _retry(ledger, row, settlement, settlement.retry_at)
    endings.complete_if_done(ledger, sheet)
    planning.pause_if_failing(ledger, sheet, settlement.pause_after)
    return True


def _start(ledger: Ledger, row: Row, *, now: Micros, lease: Micros) -> None:
    sheet = ledger.sheet_of(row)
    row.occurrence = replace(
        row.occurrence,
        phase=Phase.DISPATCHING,
        attempt=row.occurrence.attempt + 1,
        revision=sheet.schedule.revision,
        waiting_for=None,
    )
    row.lease_end = now + lease
    ledger.file(row)
    sheet.tally = replace(sheet.tally, last_started=now)
    endings.note_admitted(sheet, row.occurrence)


def _end(ledger: Ledger, row: Row, decided: End) -> None:
    sheet = ledger.sheet_of(row)
    endings.end(ledger, row, decided.phase, decided.reason, to_detail(decided.facts))
    endings.complete_if_done(ledger, sheet)
    planning.pause_if_failing(ledger, sheet, decided.pause_after)


def _wait(ledger: Ledger, row: Row, decided: Wait) -> None:
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
    if decided.cancels and sheet.holder is not None:
        _stop(ledger, sheet.holder)
    places.wait(ledger, row, decided.waiting_for, decided.claim.schedule.declaration.concurrency)


def _gives_way(row: Row) -> bool:
    return row.is_own and not row.occurrence.has_begun


def _stop(ledger: Ledger, holder: Row) -> None:
    if holder.occurrence.phase in DELIVERING:
        holder.stop = True
        return
    # It waits for a retry or for its turn: nobody would hear the request.
    holder.occurrence = replace(holder.occurrence, fence=holder.occurrence.fence + 1)
    endings.end(ledger, holder, Phase.CANCELLED, Reason.REPLACED)


def _replan(ledger: Ledger, row: Row, *, now: Micros) -> None:
    """It has no time until its schedule has been planned: a claim could do nothing with it."""
    sheet = ledger.sheet_of(row)
    row.occurrence = replace(row.occurrence, phase=Phase.PENDING)
    row.ready = row.lease_end = row.node = None
    ledger.file(row)
    sheet.plan_at = now if sheet.plan_at is None else min(sheet.plan_at, now)
    ledger.file_plan(sheet)


def _retry(ledger: Ledger, row: Row, settlement: Settlement, retry_at: Micros) -> None:
    row.occurrence = replace(
        row.occurrence,
        phase=settlement.phase,
        reason=settlement.reason,
        detail=to_detail(settlement.facts),
        due=retry_at,
    )
    row.ready, row.lease_end, row.node, row.stop = retry_at, None, None, False
    places.free_key(ledger, row)
    ledger.file(row)
