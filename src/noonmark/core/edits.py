"""Edits: what becomes of a schedule's projections when it is changed, paused, resumed or deleted.

Each is a plan like any other, on condition of revision and watermark. Times up to now belong to the rule that was in
force until now, so they are accounted for first; what lies ahead is the new rule's. What was admitted finishes as it
began.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.core.planner import Plan, close_overdue, gap_row, look_ahead, occurrence, plan, timed_trigger
from noonmark.core.policies.catch_up import Missed
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Snapshot
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.triggers import Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class _Until:
    """The trigger's account up to now: what was closed, and what the old rule still wants to run."""

    closing: Plan
    wanted: tuple[Occurrence, ...]
    gone: frozenset[str]


def edit(snapshot: Snapshot, declaration: Declaration, *, now: Micros, lookahead: Micros) -> Plan:
    """Put a new declaration in force. One that changes nothing that runs keeps the revision and the projections."""
    before = snapshot.schedule
    if _runs_alike(before.declaration, declaration):
        renamed = replace(before, declaration=declaration, updated=now)
        return replace(_as_it_is(snapshot, now=now, lookahead=lookahead), schedule=renamed)
    after = replace(before, declaration=declaration, revision=before.revision + 1, updated=now)
    if before.phase is SchedulePhase.PAUSED:
        return replace(_swallow(snapshot, now=now), schedule=after)
    if before.phase is SchedulePhase.COMPLETED and before.declaration.trigger != declaration.trigger:
        after = replace(after, phase=step_schedule(before.phase, SchedulePhase.ACTIVE))
    return _move(snapshot, after, now=now, lookahead=lookahead)


def pause(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Nothing of the trigger starts from now on; what was due and not yet admitted is one `skipped/paused` row."""
    paused = _step(snapshot.schedule, SchedulePhase.PAUSED, now)
    return replace(_withdraw(snapshot, Phase.SKIPPED, Reason.PAUSED, now=now), schedule=paused)


def resume(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    """Plan from now on; what the pause swallowed is one `skipped/paused` row with a count."""
    active = _step(snapshot.schedule, SchedulePhase.ACTIVE, now)
    swallowed = replace(_swallow(snapshot, now=now), schedule=active)
    trigger = timed_trigger(active)
    return swallowed if trigger is None else look_ahead(swallowed, trigger, kept={}, now=now, lookahead=lookahead)


def delete(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Nothing of the trigger starts from now on; its projections end as `cancelled/deleted`."""
    deleted = replace(_step(snapshot.schedule, SchedulePhase.DELETED, now), deleted=now)
    withdrawn = _withdraw(snapshot, Phase.CANCELLED, Reason.DELETED, now=now)
    ahead = tuple(one.id for one in snapshot.projections if one.nominal > now)
    counted = tuple(one for one in withdrawn.removed if one not in ahead)
    return replace(withdrawn, schedule=deleted, removed=counted, cancelled=ahead)


def _step(schedule: Schedule, phase: SchedulePhase, now: Micros) -> Schedule:
    return replace(schedule, phase=step_schedule(schedule.phase, phase), updated=now)


def _runs_alike(one: Declaration, other: Declaration) -> bool:
    """Whether they differ in nothing but what people read."""
    return one == replace(
        other,
        name=one.name,
        description=one.description,
        labels=one.labels,
        schedule_id=one.schedule_id,
        enabled=one.enabled,
    )


def _as_it_is(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    if snapshot.schedule.phase is SchedulePhase.ACTIVE:
        return plan(snapshot, now=now, lookahead=lookahead)
    return Plan(
        snapshot=snapshot,
        watermark=snapshot.watermark,
        exhausted=snapshot.schedule.phase is SchedulePhase.COMPLETED,
    )


def _move(snapshot: Snapshot, after: Schedule, *, now: Micros, lookahead: Micros) -> Plan:
    """Re-bind what the new rule still names, supersede the rest, and plan on."""
    until = _account(snapshot, now=now)
    trigger = timed_trigger(after)
    rebound = [occurrence(after, row.nominal, row.due, caught_up=row.caught_up) for row in until.wanted]
    kept: dict[Micros, Micros] = {}
    superseded = []
    for one in snapshot.projections:
        if one.nominal <= now or one.id in until.gone:
            continue
        if trigger is not None and trigger.next_micros(one.nominal - 1) == one.nominal:
            kept[one.nominal] = due_at(trigger, after.uid, one.nominal)
            rebound.append(occurrence(after, one.nominal, kept[one.nominal]))
        else:
            superseded.append(one.id)
    moved = replace(
        until.closing,
        schedule=after,
        watermark=now,
        planned=tuple(rebound),
        superseded=tuple(superseded),
    )
    return moved if trigger is None else look_ahead(moved, trigger, kept=kept, now=now, lookahead=lookahead)


def _withdraw(snapshot: Snapshot, phase: Phase, reason: Reason, *, now: Micros) -> Plan:
    """Take every projection back; those up to now, which the rule had named, are counted in one final row."""
    until = _account(snapshot, now=now)
    trigger = timed_trigger(snapshot.schedule)
    counted = () if trigger is None else _counted(snapshot.schedule, trigger, until.wanted, phase, reason)
    replaced = {row.id for row in (*until.closing.closed, *counted)}
    return replace(
        until.closing,
        watermark=now,
        planned=(),
        closed=(*until.closing.closed, *counted),
        removed=tuple(one.id for one in snapshot.projections if one.id not in replaced),
    )


def _swallow(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Account for the fires of a paused schedule up to now."""
    trigger = timed_trigger(snapshot.schedule)
    closed: tuple[Occurrence, ...] = ()
    if trigger is not None:
        count = trigger.count_micros(snapshot.watermark, now)
        first, last = trigger.next_micros(snapshot.watermark), trigger.previous_micros(now + 1)
        if count and first is not None and last is not None:
            missed = Missed(count=count, first=first, last=last, reason=Reason.PAUSED)
            closed = (gap_row(snapshot.schedule, trigger, missed, phase=Phase.SKIPPED),)
    return Plan(snapshot=snapshot, watermark=max(snapshot.watermark, now), closed=closed)


def _account(snapshot: Snapshot, *, now: Micros) -> _Until:
    """Close what is overdue, and list every fire up to now that is still to run."""
    schedule = snapshot.schedule
    trigger = timed_trigger(schedule)
    if trigger is None or schedule.phase is SchedulePhase.COMPLETED:
        return _Until(closing=Plan(snapshot=snapshot, watermark=snapshot.watermark), wanted=(), gone=frozenset())
    closing = close_overdue(snapshot, trigger, now=now)
    gone = frozenset({*closing.removed, *(row.id for row in closing.closed)})
    wanted = {
        one.nominal: occurrence(schedule, one.nominal, one.due, caught_up=one.caught_up)
        for one in snapshot.projections
        if one.nominal <= now and one.id not in gone
    }
    wanted |= {row.nominal: row for row in closing.planned}
    # One that jitter puts after now has not been planned yet, but its nominal time is past.
    unplanned = trigger.next_micros(closing.watermark)
    if unplanned is not None and unplanned <= now:
        wanted[unplanned] = occurrence(schedule, unplanned, due_at(trigger, schedule.uid, unplanned))
    return _Until(closing=closing, wanted=tuple(wanted[nominal] for nominal in sorted(wanted)), gone=gone)


def _counted(
    schedule: Schedule, trigger: Trigger, rows: tuple[Occurrence, ...], phase: Phase, reason: Reason
) -> tuple[Occurrence, ...]:
    if not rows:
        return ()
    missed = Missed(count=len(rows), first=rows[0].nominal, last=rows[-1].nominal, reason=reason)
    return (gap_row(schedule, trigger, missed, phase=phase),)
