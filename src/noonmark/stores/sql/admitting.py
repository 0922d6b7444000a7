"""Admissions and settlements: carrying them out, on condition that the fence still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.admission import Busy, End, Replan, Start, Wait
from noonmark.core.facts import Fact, is_late
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.ports.records import Admitted, LeaseLost
from noonmark.stores.facts import to_detail
from noonmark.stores.sql import endings, places, plain, planning
from noonmark.stores.sql.records import REASONS, occurrence, to_json
from noonmark.stores.sql.session import lease_end
from noonmark.stores.telling import More

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Settlement
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Row, Sheet

DELIVERING = (Phase.DISPATCHING, Phase.AWAITING_COMPLETION)


def admit_all(
    ledger: Ledger, admissions: Sequence[Admission], *, now: Micros, lease: Micros
) -> list[Admitted | LeaseLost | Busy]:
    """Carry out admissions, in their order."""
    started = plain.start_all(ledger.session, admissions, now=now, lease=lease)
    return admit_others(ledger, admissions, started, now=now, lease=lease)


def admit_others(
    ledger: Ledger, admissions: Sequence[Admission], started: Mapping[str, Occurrence], *, now: Micros, lease: Micros
) -> list[Admitted | LeaseLost | Busy]:
    """Carry out those that were not as plain as the ones that have started."""
    ids = [one.claim.occurrence.id for one in admissions]
    ledger.read_rows(one for one in ids if one not in started)
    return [
        Admitted(occurrence=started[one]) if one in started else _admit(ledger, admission, now=now, lease=lease)
        for one, admission in zip(ids, admissions, strict=True)
    ]


def all_started(
    admissions: Sequence[Admission], started: Mapping[str, Occurrence]
) -> list[Admitted | LeaseLost | Busy]:
    """The answers, when there was nothing but plain starts."""
    return [Admitted(occurrence=started[one.claim.occurrence.id]) for one in admissions]


def settle_all(ledger: Ledger, settlements: Sequence[Settlement]) -> list[bool]:
    """Write the ends of deliveries, in their order."""
    ended = plain.end_all(ledger.session, settlements, now=ledger.now())
    return settle_others(ledger, settlements, ended)


def settle_others(ledger: Ledger, settlements: Sequence[Settlement], ended: Collection[str]) -> list[bool]:
    """Write those that were not as plain as the ones that have ended."""
    ids = [one.occurrence.id for one in settlements]
    ledger.read_rows(one for one in ids if one not in ended)
    return [one in ended or _settle(ledger, settlement) for one, settlement in zip(ids, settlements, strict=True)]


def cancel(ledger: Ledger, occurrence_id: str) -> bool:
    """End what has not been started; False when there is no such row."""
    row = ledger.row(occurrence_id)
    if row is None or row.phase not in (Phase.PENDING, Phase.CLAIMED):
        return False
    endings.cancel(ledger, row, Reason.CANCELLED)
    endings.complete_if_done(ledger, ledger.sheet_of(row))
    return True


def _admit(ledger: Ledger, admission: Admission, *, now: Micros, lease: Micros) -> Admitted | LeaseLost | Busy:
    claimed = admission.claim.occurrence
    row = ledger.known(claimed.id)
    if row is None or row.fence != claimed.fence:
        return LeaseLost(occurrence_id=claimed.id)
    if row.phase == Phase.DISPATCHING and isinstance(admission, Start):
        return Admitted(occurrence=occurrence(row, claimed.uid, claimed.schedule_id, claimed.payload))
    if row.phase != Phase.CLAIMED or ledger.sheet_of(row).revision != admission.claim.schedule.revision:
        return LeaseLost(occurrence_id=claimed.id)
    ledger.tenants[row.schedule] = admission.claim.schedule.owner.tenant
    if row.damage is not None:
        endings.end_unreadable(ledger, row, row.damage)
        return LeaseLost(occurrence_id=claimed.id)
    match admission:
        case Start():
            busy = places.take(ledger, row, admission)
            if busy is not None:
                return busy
            _start(ledger, row, admission, now=now, lease=lease)
        case End():
            sheet = ledger.sheet_of(row)
            endings.end(ledger, row, admission.phase, admission.reason, to_detail(admission.facts))
            endings.complete_if_done(ledger, sheet)
            planning.pause_if_failing(ledger, sheet, admission.pause_after)
        case Wait():
            _wait(ledger, row, admission, now=now)
        case Replan():
            _replan(ledger, row, now=now)
        case _:
            assert_never(admission)
    return Admitted(occurrence=occurrence(row, claimed.uid, claimed.schedule_id, claimed.payload))


def _settle(ledger: Ledger, settlement: Settlement) -> bool:
    row = ledger.known(settlement.occurrence.id)
    if row is None or row.fence != settlement.occurrence.fence:
        return False
    if row.phase not in (DELIVERING if settlement.deadline is None else (Phase.DISPATCHING,)):
        return False
    sheet = ledger.sheet_of(row)
    ledger.tenants[row.schedule] = settlement.tenant
    ledger.add_run(row, settlement.run, to_json(settlement.run.result))
    row.attempt = settlement.attempt
    ledger.changed(row)
    if settlement.deadline is not None:
        _await(row, settlement, settlement.deadline)
        return True
    if settlement.retry_at is None:
        detail = to_detail(settlement.facts)
        endings.end(ledger, row, settlement.phase, settlement.reason, detail, run=settlement.run)
    elif sheet.phase == SchedulePhase.DELETED:
        endings.end(ledger, row, Phase.CANCELLED, Reason.DELETED, run=settlement.run)
    else:
        _retry(ledger, row, settlement, settlement.retry_at)
    endings.complete_if_done(ledger, sheet)
    planning.pause_if_failing(ledger, sheet, settlement.pause_after)
    return True


def _start(ledger: Ledger, row: Row, start: Start, *, now: Micros, lease: Micros) -> None:
    sheet = ledger.sheet_of(row)
    if not row.has_begun and is_late(row.first_due, now):
        ledger.note(Fact.STARTED_LATE, sheet, row, More(waited_for=REASONS[row.waiting_for]))
    row.phase, row.revision, row.waiting_for = Phase.DISPATCHING, sheet.revision, None
    row.attempt += 1
    row.started, row.lease_end = now, lease_end(ledger.session, now, lease)
    ledger.changed(row)
    sheet.last_started = max(now, row.due)
    endings.note_admitted(sheet, row)
    if start.max_runs is not None and sheet.admitted >= start.max_runs:
        sheet.plan_at = _earlier(sheet.plan_at, now)
    ledger.changed_sheet(sheet)


def _wait(ledger: Ledger, row: Row, decided: Wait, *, now: Micros) -> None:
    sheet = ledger.sheet_of(row)
    if decided.replaces:
        # Only what came about by itself gives way; what was asked for, or has begun, goes on waiting.
        rivals = [other for other in places.in_slot_line(ledger, sheet) if other.is_own and not other.has_begun]
        for rival in rivals:
            if rival.turn < row.turn:
                endings.end(ledger, rival, Phase.SKIPPED, Reason.REPLACED)
        if any(rival.turn > row.turn for rival in rivals):
            endings.end(ledger, row, Phase.SKIPPED, Reason.REPLACED)
            return
    if decided.cancel_grace is not None and (holder := places.holder_of(ledger, sheet)) is not None:
        _stop(ledger, holder, by=now + decided.cancel_grace)
    places.wait(ledger, row, decided)


def _stop(ledger: Ledger, holder: Row, *, by: Micros) -> None:
    if holder.phase in DELIVERING:
        holder.stop, holder.deadline = Reason.REPLACED, _earlier(holder.deadline, by)
        ledger.changed(holder)
    else:  # it waits for a retry or for its turn: nobody would hear the request
        endings.cancel(ledger, holder, Reason.REPLACED)


def _replan(ledger: Ledger, row: Row, *, now: Micros) -> None:
    """It has no time until its schedule has been planned: a claim could do nothing with it."""
    sheet: Sheet = ledger.sheet_of(row)
    row.phase = Phase.PENDING
    row.ready = row.lease_end = row.node = None
    ledger.changed(row)
    sheet.plan_at, sheet.sent_back = _earlier(sheet.plan_at, now), 1
    ledger.changed_sheet(sheet)


def _await(row: Row, settlement: Settlement, deadline: Micros) -> None:
    """The target says later how it ended; until then nobody has to renew anything."""
    row.phase, row.reason, row.detail = settlement.phase, settlement.reason, to_detail(settlement.facts)
    row.deadline, row.lease_end = _earlier(row.deadline, deadline), None


def _retry(ledger: Ledger, row: Row, settlement: Settlement, retry_at: Micros) -> None:
    row.phase, row.reason, row.detail = settlement.phase, settlement.reason, to_detail(settlement.facts)
    endings.give_back(row)
    row.due = row.ready = retry_at
    places.free_key(ledger, row)
    if settlement.reason is Reason.RETRY_SCHEDULED:
        ledger.note(Fact.RETRYING, ledger.sheet_of(row), row, More(run=settlement.run))


def _earlier(one: Micros | None, other: Micros) -> Micros:
    return other if one is None else min(one, other)
