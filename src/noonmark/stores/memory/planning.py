"""Plans: writing what the planner and the edits decided, on condition that nothing has happened since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.facts import Fact, change
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.values import altered
from noonmark.stores.memory import dependents, endings, listening, places
from noonmark.stores.memory.rows import Row, Sheet
from noonmark.stores.telling import More

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Projection, Rewound
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.ledger import Ledger


def create(ledger: Ledger, plan: Plan) -> bool:
    """Keep a new schedule with its first plan; False when its id is taken."""
    schedule = plan.schedule or plan.snapshot.schedule
    tenant = schedule.owner.tenant
    if (tenant, schedule.schedule_id) in ledger.ids or not dependents.is_ordered(ledger, tenant, plan.graph):
        return False
    sheet = Sheet(schedule=schedule, watermark=plan.watermark)
    ledger.keep_schedule(sheet, schedule)
    listening.listen(ledger, None, schedule)
    dependents.bind(ledger, sheet, None)
    _write(ledger, sheet, plan)
    ledger.note(Fact.SCHEDULE_CREATED, schedule, more=More(note=plan.note))
    _note(ledger, plan)
    return True


def commit(ledger: Ledger, plan: Plan) -> bool:
    """Write a plan, or False when the schedule or a fire that the plan counts is no longer as it was read."""
    before = plan.snapshot
    sheet = ledger.sheets.get(before.schedule.uid)
    if sheet is None or _version(sheet.schedule, sheet.watermark) != _version(before.schedule, before.watermark):
        return False
    if plan.schedule is not None and sheet.schedule != before.schedule:
        return False
    is_limited = (plan.schedule or before.schedule).declaration.max_runs is not None
    if is_limited and sheet.admitted != before.runs:
        return False
    if before.upstreams is not None and before.upstreams.news != sheet.news:
        return False
    if not dependents.is_ordered(ledger, before.schedule.owner.tenant, plan.graph):
        return False
    if any(one.id in plan.gone and _has_moved_on(ledger, one) for one in before.projections):
        return False
    _write(ledger, sheet, plan)
    _note(ledger, plan)
    return True


def add(ledger: Ledger, one: Occurrence) -> bool:
    """Keep one occurrence more; False when it is known, or its schedule is not there."""
    sheet = ledger.sheets.get(one.uid)
    if sheet is None or sheet.schedule.phase is SchedulePhase.DELETED or one.id in ledger.rows:
        return False
    _insert(ledger, sheet, one)
    return True


def pause_if_failing(ledger: Ledger, sheet: Sheet, limit: int | None) -> None:
    """Pause an active schedule when so many of its occurrences have failed in a row."""
    active = sheet.schedule.phase is SchedulePhase.ACTIVE
    if active and limit is not None and sheet.failures_in_row >= limit:
        snapshot = ledger.snapshot(sheet, dependents.of_schedule(ledger, sheet))
        _write(ledger, sheet, edits.pause(snapshot, now=ledger.now()), failures=sheet.failures_in_row)


def _note(ledger: Ledger, plan: Plan) -> None:
    if plan.note is not None:
        ledger.journal.add(plan.snapshot.schedule.owner.tenant, plan.note)


def _version(schedule: Schedule, watermark: int) -> tuple[int, SchedulePhase, int]:
    return (schedule.revision, schedule.phase, watermark)


def _projection(ledger: Ledger, occurrence_id: str) -> Row | None:
    row = ledger.rows.get(occurrence_id)
    return row if row is not None and row.is_projection else None


def _has_moved_on(ledger: Ledger, then: Projection) -> bool:
    """Whether a projection that a plan counts has started or begun to wait since the snapshot."""
    row = _projection(ledger, then.id)
    return row is None or (row.occurrence.waiting_for is not None and then.waiting_for is None)


def _rewind(ledger: Ledger, sheet: Sheet, rewound: Rewound) -> None:
    """Undo and shorten gaps that a clock which was ahead has closed."""
    for undone in rewound.undone:
        if (row := _gap(ledger, undone)) is not None:
            sheet.fences = max(sheet.fences, row.occurrence.fence + 1)
            endings.uncount(sheet, row.occurrence, row.occurrence.missed_count)
            ledger.forget(row)
    for gap in rewound.shortened:
        if (row := _gap(ledger, gap.id)) is not None:
            endings.uncount(sheet, row.occurrence, row.occurrence.missed_count - gap.count)
            row.occurrence = altered(row.occurrence, missed_last=gap.last, missed_count=gap.count)
    sheet.newest = rewound.newest


def _gap(ledger: Ledger, occurrence_id: str) -> Row | None:
    row = ledger.rows.get(occurrence_id)
    is_gap = row is not None and row.occurrence.phase in FINAL and row.occurrence.missed_last is not None
    return row if is_gap else None


def _write_rows(ledger: Ledger, sheet: Sheet, plan: Plan) -> None:
    if plan.rewound is not None:
        _rewind(ledger, sheet, plan.rewound)
    for removed in plan.removed:
        if (row := _projection(ledger, removed)) is not None:
            sheet.fences = max(sheet.fences, row.occurrence.fence + 1)
            ledger.forget(row)
            places.give_up(ledger, row)
    for one in plan.closed:
        _put(ledger, sheet, one)
    for ids, phase, reason in (
        (plan.superseded, Phase.SUPERSEDED, Reason.EDITED),
        (plan.cancelled, Phase.CANCELLED, Reason.DELETED),
    ):
        for moved in ids:
            if (row := _projection(ledger, moved)) is not None:
                _raise_fence(row)
                endings.end(ledger, row, phase, reason)
    seen = {one.id for one in plan.snapshot.projections}
    for one in plan.planned:
        # What the plan saw and is not there any more has ended since, and was pruned.
        if one.id in ledger.rows or one.id not in seen:
            _put(ledger, sheet, one)


def _write(ledger: Ledger, sheet: Sheet, plan: Plan, *, failures: int = 0) -> None:
    _write_rows(ledger, sheet, plan)
    was_exhausted = sheet.exhausted
    sheet.watermark, sheet.plan_at, sheet.exhausted = plan.watermark, plan.plan_at, plan.exhausted
    before = sheet.schedule
    if plan.schedule is not None:
        sheet.fault = None
    ledger.keep_schedule(sheet, plan.schedule or before)
    for row in tuple(sheet.live.values()):
        if row.ready is None and row.occurrence.phase is Phase.PENDING and row.occurrence.waiting_for is None:
            # It was sent back to be planned, and the plan left it as it is.
            row.ready = row.occurrence.due
            ledger.file(row)
    _follow(ledger, sheet, before)
    if sheet.schedule is not before:
        ledger.note(change(before, sheet.schedule), sheet.schedule, more=More(note=plan.note, failures=failures))
    # When nothing follows, what was withdrawn leaves nothing behind that tells of it: no end, and no change.
    if was_exhausted != sheet.exhausted or (sheet.exhausted and plan.removed):
        dependents.tell(ledger, sheet)
    endings.complete_if_done(ledger, sheet)


def _put(ledger: Ledger, sheet: Sheet, one: Occurrence) -> None:
    """Insert a row, or let it take the place of a projection or of one that an edit had moved."""
    known = ledger.rows.get(one.id)
    if known is None:
        _insert(ledger, sheet, one)
    elif known.is_projection and known.occurrence.waiting_for is not None and one.phase is Phase.PENDING:
        _rebind(ledger, known, one)
    elif known.is_projection or known.occurrence.phase is Phase.SUPERSEDED:
        ledger.forget(known)
        places.give_up(ledger, known)
        _insert(ledger, sheet, altered(one, fence=known.occurrence.fence + 1))


def _rebind(ledger: Ledger, row: Row, one: Occurrence) -> None:
    """Change a row that waits, or has just got its turn; it keeps its place in the line, or its turn."""
    was = row.occurrence
    row.occurrence = altered(
        one, fence=was.fence + 1, due=was.due, waiting_for=was.waiting_for, holds_slot=was.holds_slot, own=was.own
    )
    row.lease_end = None
    ledger.file(row)


def _insert(ledger: Ledger, sheet: Sheet, one: Occurrence) -> None:
    fresh = one if one.fence >= sheet.fences else altered(one, fence=sheet.fences)
    row = Row(occurrence=fresh, sheet=sheet, ready=one.due)
    ledger.add(row)
    if one.phase in FINAL:
        endings.archive(ledger, row)


def _raise_fence(row: Row) -> None:
    row.occurrence = altered(row.occurrence, fence=row.occurrence.fence + 1)


def _follow(ledger: Ledger, sheet: Sheet, before: Schedule) -> None:
    """Bring the rows that the plan does not speak of in line with what the schedule is now."""
    after = sheet.schedule
    if after is before:
        return
    old, new = before.declaration, after.declaration
    if after.phase is not before.phase:
        _change_phase(ledger, sheet, before.phase)
    if old.target.route != new.target.route:
        for row in sheet.live.values():
            row.occurrence = altered(row.occurrence, route=new.target.route)
            ledger.file(row)
    has_other_places = (old.overlap_policy, old.concurrency) != (new.overlap_policy, new.concurrency)
    for row in sorted(sheet.live.values(), key=lambda row: row.turn):
        waits_for_place = row.ready is None and row.occurrence.waiting_for is not None
        is_outdated = after.revision != before.revision and dependents.waits(ledger, row)
        if (has_other_places and waits_for_place) or is_outdated:
            places.wake(ledger, row)
    listening.listen(ledger, before, after)
    dependents.bind(ledger, sheet, before)


def _change_phase(ledger: Ledger, sheet: Sheet, before: SchedulePhase) -> None:
    match sheet.schedule.phase:
        case SchedulePhase.DELETED:
            _cancel(ledger, sheet)
        case SchedulePhase.PAUSED:
            _hold(ledger, sheet)
        case _:
            if before is SchedulePhase.PAUSED:
                sheet.failures_in_row = 0
            _let_go(ledger, sheet)


def _cancel(ledger: Ledger, sheet: Sheet) -> None:
    """Nothing that is not being delivered starts any more."""
    for row in tuple(sheet.live.values()):
        # Ending one may hand its place to the next, which ends in its turn.
        if row.occurrence.phase in (Phase.PENDING, Phase.CLAIMED):
            _raise_fence(row)
            endings.end(ledger, row, Phase.CANCELLED, Reason.DELETED)


def _hold(ledger: Ledger, sheet: Sheet) -> None:
    """Nothing that the schedule asked for by itself can be claimed, or started by whoever has claimed it."""
    for row in tuple(sheet.live.values()):
        if sheet.holds_back(row) and row.occurrence.phase is Phase.CLAIMED:
            _raise_fence(row)
            row.occurrence = altered(row.occurrence, phase=Phase.PENDING, node=None)
            row.lease_end = None
        ledger.file(row)
        places.free_key_if_held(ledger, row)


def _let_go(ledger: Ledger, sheet: Sheet) -> None:
    """What was held can be claimed at its time, and takes what became free in the meantime."""
    rows = tuple(sheet.live.values())
    for row in rows:
        ledger.file(row)
    places.wake_for_slot(ledger, sheet)
    for key in {row.wants[0] for row in rows if row.wants is not None}:
        places.wake_for_key(ledger, key)
