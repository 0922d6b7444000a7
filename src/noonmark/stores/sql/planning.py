"""Plans: writing what the planner and the edits decided, on condition that nothing has happened since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.facts import Fact, change
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.policies.delivery import patience
from noonmark.core.reasons import Reason
from noonmark.stores.sql import dependents, endings, following, listening, places, snapshots
from noonmark.stores.sql.records import Sheet, Unreadable, to_json, to_row
from noonmark.stores.telling import More

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Projection, Rewound, Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Row


def create_all(ledger: Ledger, plans: Sequence[Plan]) -> list[bool]:
    """Keep new schedules with their first plans; False where the id is taken."""
    schedules = [plan.schedule or plan.snapshot.schedule for plan in plans]
    identities = {(one.owner.tenant, one.schedule_id) for one in schedules}
    taken, followed = snapshots.known(ledger, identities)
    answers, accepted = [], []
    for plan, schedule in zip(plans, schedules, strict=True):
        identity = (schedule.owner.tenant, schedule.schedule_id)
        fits = identity not in taken and dependents.is_ordered(ledger, schedule.owner.tenant, plan.graph)
        answers.append(fits)
        if fits:
            accepted.append((plan, schedule))
            if schedule.phase is not SchedulePhase.DELETED:
                taken.add(identity)
    # Schedules are numbered in the order of their first occurrences, as those are: see the ledger.
    accepted.sort(key=lambda one: one[0].planned[0].id if one[0].planned else "")
    ledger.reserve(row.id for plan, _ in accepted for row in plan.planned)
    created = []
    for plan, schedule in accepted:
        sheet = _new_sheet(ledger.next_key("schedules", len(accepted)), schedule, plan)
        sheet.followed = int((schedule.owner.tenant, schedule.schedule_id) in followed)
        ledger.add_schedule(sheet, schedule)
        created.append((sheet, schedule))
        if sheet.followed or schedule.declaration.depends_on:
            dependents.bind(ledger, sheet, None, schedule)
            followed |= {(schedule.owner.tenant, one.schedule_id) for one in schedule.declaration.depends_on}
        ledger.tenants[sheet.schedule] = schedule.owner.tenant
        _write(ledger, sheet, plan, schedule, schedule)
        ledger.note(Fact.SCHEDULE_CREATED, sheet, more=More(note=plan.note), schedule=schedule)
        _note(ledger, plan)
    listening.add_all(ledger, created)
    return answers


def commit_all(ledger: Ledger, plans: Sequence[Plan]) -> list[bool]:
    """Write each plan, or False when the schedule or a fire that the plan counts is no longer as it was read."""
    sheets = ledger.read_sheets({plan.snapshot.schedule.uid for plan in plans})
    ledger.read_rows(one for plan in plans for one in _named(plan))
    ledger.reserve({row.id for plan in plans for row in plan.planned})
    return [_commit(ledger, sheets.get(plan.snapshot.schedule.uid), plan) for plan in plans]


def commit_change(ledger: Ledger, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
    """Decide on a schedule as it stands, and write that, in a transaction that has its records to itself."""
    snapshot = snapshots.by_uid(ledger, uid)
    plan = None if snapshot is None else decide(snapshot, ledger.now())
    return plan is not None and commit_all(ledger, [plan])[0]


def add_all(ledger: Ledger, occurrences: Sequence[Occurrence]) -> list[bool]:
    """Keep occurrences; False for one that is known, or whose schedule is not there."""
    sheets = ledger.read_sheets({one.uid for one in occurrences})
    ledger.read_rows(one.id for one in occurrences)
    ledger.reserve({one.id for one in occurrences})
    return [add(ledger, sheets.get(one.uid), one) for one in occurrences]


def add(ledger: Ledger, sheet: Sheet | None, one: Occurrence) -> bool:
    """Keep an occurrence, when all that is known of it and its schedule was read."""
    fits = sheet is not None and sheet.phase != SchedulePhase.DELETED and ledger.known(one.id) is None
    if fits and sheet is not None:
        _insert(ledger, sheet, one)
    return fits


def pause_if_failing(ledger: Ledger, sheet: Sheet, limit: int | None) -> None:
    """Pause an active schedule when so many of its occurrences have failed in a row."""
    if limit is not None and sheet.failures_in_row >= limit and sheet.phase == SchedulePhase.ACTIVE:
        try:
            schedule = ledger.schedule_of(sheet)
        except Unreadable:
            return  # it is not planned any more, and what ends must end
        plan = edits.pause(snapshots.snapshot(ledger, sheet, schedule), now=ledger.now())
        _write(ledger, sheet, plan, schedule, plan.schedule or schedule, failures=sheet.failures_in_row)


def _new_sheet(key: int, schedule: Schedule, plan: Plan) -> Sheet:
    return Sheet(
        key, schedule.uid, schedule.phase, schedule.revision, 1, schedule.updated, plan.watermark, plan.plan_at,
        int(plan.exhausted), 0, None, _patience(schedule), None, 0, None, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None,
        0, 0, None, None, schedule.owner.number, None,
    )  # fmt: skip


def _named(plan: Plan) -> list[str]:
    """Every row that a plan speaks of."""
    rows = [row.id for row in (*plan.planned, *plan.closed)]
    gaps = () if plan.rewound is None else (*plan.rewound.undone, *(gap.id for gap in plan.rewound.shortened))
    return [*rows, *plan.removed, *plan.superseded, *plan.cancelled, *gaps]


def _commit(ledger: Ledger, sheet: Sheet | None, plan: Plan) -> bool:
    before = plan.snapshot.schedule
    then = (before.revision, before.phase, plan.snapshot.watermark)
    if sheet is None or (sheet.revision, sheet.phase, sheet.watermark) != then:
        return False
    is_limited = (plan.schedule or before).declaration.max_runs is not None
    if is_limited and sheet.admitted != plan.snapshot.runs:
        return False
    if plan.snapshot.upstreams is not None and plan.snapshot.upstreams.news != sheet.news:
        return False
    if not dependents.is_ordered(ledger, before.owner.tenant, plan.graph):
        return False
    gone = plan.gone
    if gone and any(one.id in gone and _has_moved_on(ledger, one) for one in plan.snapshot.projections):
        return False
    if plan.schedule is not None and snapshots.readable(ledger, sheet) != before:
        return False
    ledger.tenants[sheet.schedule] = before.owner.tenant
    _write(ledger, sheet, plan, before, plan.schedule or before)
    _note(ledger, plan)
    return True


def _note(ledger: Ledger, plan: Plan) -> None:
    if plan.note is not None:
        ledger.add_note(plan.snapshot.schedule.owner.tenant, plan.note)


def _patience(schedule: Schedule) -> int:
    return patience(schedule.declaration.misfire_policy.grace)


def _projection(ledger: Ledger, occurrence_id: str) -> Row | None:
    row = ledger.row(occurrence_id)
    return row if row is not None and row.is_projection else None


def _has_moved_on(ledger: Ledger, then: Projection) -> bool:
    """Whether a projection that a plan counts has started or begun to wait since the snapshot."""
    row = _projection(ledger, then.id)
    return row is None or (row.waiting_for is not None and then.waiting_for is None)


def _write(ledger: Ledger, sheet: Sheet, plan: Plan, before: Schedule, after: Schedule, *, failures: int = 0) -> None:
    _write_rows(ledger, sheet, plan)
    was_exhausted = sheet.exhausted
    sheet.watermark, sheet.plan_at, sheet.exhausted = plan.watermark, plan.plan_at, int(plan.exhausted)
    ledger.changed_sheet(sheet)
    if after is not before:
        sheet.phase, sheet.revision, sheet.updated = after.phase, after.revision, after.updated
        sheet.patience, sheet.fault = _patience(after), None
        sheet.version += 1
        ledger.keep_schedule(sheet, after)
    if sheet.sent_back:
        _give_times(ledger, sheet)
    if after is not before:
        following.follow(ledger, sheet, before, after)
        ledger.note(change(before, after), sheet, more=More(note=plan.note, failures=failures), schedule=after)
    # When nothing follows, what was withdrawn leaves nothing behind that tells of it: no end, and no change.
    if was_exhausted != sheet.exhausted or (sheet.exhausted and plan.removed):
        dependents.tell(ledger, sheet)
    endings.complete_if_done(ledger, sheet)


def _rewind(ledger: Ledger, sheet: Sheet, rewound: Rewound) -> None:
    """Undo and shorten gaps that a clock which was ahead has closed."""
    for undone in rewound.undone:
        if (row := _gap(ledger, undone)) is not None:
            sheet.fences = max(sheet.fences, row.fence + 1)
            endings.uncount(sheet, row, row.missed_count)
            _forget(ledger, sheet, row)
    for gap in rewound.shortened:
        if (row := _gap(ledger, gap.id)) is not None:
            endings.uncount(sheet, row, row.missed_count - gap.count)
            row.missed_last, row.missed_count = gap.last, gap.count
            ledger.changed(row)
    sheet.newest = rewound.newest


def _gap(ledger: Ledger, occurrence_id: str) -> Row | None:
    row = ledger.row(occurrence_id)
    return row if row is not None and row.ended is not None and row.missed_last is not None else None


def _write_rows(ledger: Ledger, sheet: Sheet, plan: Plan) -> None:
    if plan.rewound is not None:
        _rewind(ledger, sheet, plan.rewound)
    for removed in plan.removed:
        if (row := _projection(ledger, removed)) is not None:
            sheet.fences = max(sheet.fences, row.fence + 1)
            _forget(ledger, sheet, row)
    for one in plan.closed:
        _put(ledger, sheet, one)
    for ids, phase, reason in (
        (plan.superseded, Phase.SUPERSEDED, Reason.EDITED),
        (plan.cancelled, Phase.CANCELLED, Reason.DELETED),
    ):
        for moved in ids:
            if (row := _projection(ledger, moved)) is not None:
                row.fence += 1
                endings.end(ledger, row, phase, reason)
    seen = {one.id for one in plan.snapshot.projections}
    for one in plan.planned:
        # What the plan saw and is not there any more has ended since, and was pruned.
        if one.id not in seen or ledger.known(one.id) is not None:
            _put(ledger, sheet, one)


def _give_times(ledger: Ledger, sheet: Sheet) -> None:
    """What was sent back to be planned, and the plan left as it is, can be claimed again."""
    sheet.sent_back = 0
    for row in ledger.live(sheet):
        if row.ready is None and row.phase == Phase.PENDING and row.waiting_for is None:
            row.ready = row.due
            ledger.changed(row)


def _put(ledger: Ledger, sheet: Sheet, one: Occurrence) -> None:
    """Insert a row, or let it take the place of a projection or of one that an edit had moved."""
    row = ledger.known(one.id)
    if row is None:
        _insert(ledger, sheet, one)
    elif row.is_projection and row.waiting_for is not None and one.phase is Phase.PENDING:
        _rebind(ledger, row, one)
    elif row.is_projection or row.phase == Phase.SUPERSEDED:
        _forget(ledger, sheet, row)
        _insert(ledger, sheet, replace(one, fence=row.fence + 1))


def _rebind(ledger: Ledger, row: Row, one: Occurrence) -> None:
    """Change a row that waits, or has just got its turn; it keeps its place in the line, or its turn."""
    row.revision, row.origin, row.phase, row.route = one.revision, one.origin, one.phase, one.route
    row.nominal, row.first_due, row.caught_up = one.nominal, one.first_due, one.caught_up
    row.reason, row.detail, row.payload = one.reason, one.detail, to_json(one.payload)
    row.fence += 1
    endings.give_back(row)
    ledger.changed(row)


def _insert(ledger: Ledger, sheet: Sheet, one: Occurrence) -> None:
    row = to_row(one, key=ledger.key_for(one.id), sheet=sheet)
    row.fence = max(row.fence, sheet.fences)
    row.held = int(sheet.holds_back(row))
    sheet.live += 1
    ledger.add(row)
    ledger.changed_sheet(sheet)
    if one.phase in FINAL:
        endings.archive(ledger, row)


def _forget(ledger: Ledger, sheet: Sheet, row: Row) -> None:
    """Remove a row, live or ended, and hand on what it held."""
    if row.ended is None:
        places.leave(ledger, row)
        sheet.live = max(0, sheet.live - 1)
    else:
        sheet.history = max(0, sheet.history - 1)
    ledger.changed_sheet(sheet)
    ledger.remove(row)
    places.give_up(ledger, row)
