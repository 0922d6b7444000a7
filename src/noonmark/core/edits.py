"""Edits: what happens to a schedule's projections when it is changed, paused, resumed or deleted.

Each is a plan like any other, on condition of revision and watermark. Times up to now belong to the rule that was in
force until now, so they are accounted for first; what lies ahead is the new rule's. What was started finishes as it
began.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.core.lineage import narrowed, stamp
from noonmark.core.planner import (
    Plan,
    Snapshot,
    accounted,
    close_overdue,
    follow,
    gap_row,
    in_force_after,
    is_used_up,
    look_ahead,
    occurrence,
    owed,
    plan,
    timed_trigger,
    unaccounted,
)
from noonmark.core.policies.catch_up import Missed
from noonmark.core.policies.expected_rate import close, count_ping
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason
from noonmark.core.schedule import BY_ITSELF, Pause, automatic_entry
from noonmark.core.triggers import IntervalTrigger

if TYPE_CHECKING:
    from noonmark.core.api_key import Scope
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.proposals import Proposal
    from noonmark.core.schedule import AuditEntry, Declaration, Schedule


@frozen(kw_only=True)
class _Until:
    """The account up to now: what was closed, and what the rule in force still runs, oldest first."""

    closing: Plan
    wanted: tuple[Occurrence, ...] = ()


def edit(
    snapshot: Snapshot,
    declaration: Declaration,
    *,
    now: Micros,
    lookahead: Micros,
    source: str | None = None,
    scopes: frozenset[Scope] | None = None,
) -> Plan:
    """Apply a new declaration. One that changes nothing that runs keeps the revision and the projections.

    With a source, all of it comes from there now, no matter who created the schedule. With scopes, sessions that a new
    target makes may do no more than these.
    """
    before = snapshot.schedule
    lineage = before.lineage
    if lineage is not None and lineage.fingerprint is not None:
        lineage = stamp(lineage, declaration.to_document())
    if scopes is not None and declaration.target != before.declaration.target:
        lineage = narrowed(lineage, scopes)
    after = replace(before, declaration=declaration, updated=now, source=source or before.source, lineage=lineage)
    if _runs_alike(before.declaration, declaration):
        return replace(plan(snapshot, now=now, lookahead=lookahead), schedule=after)
    renewed = before.declaration.trigger != declaration.trigger
    has_same_times = _times(before.declaration) == _times(declaration)
    after = replace(after, revision=before.revision + 1, anchored=before.anchored if has_same_times else now)
    if before.phase is SchedulePhase.PAUSED:
        skipped, exhausted = _skip_paused(snapshot, now=now), is_used_up(after, snapshot.runs)
        # What the old rule's rows account for beyond now says nothing about the times of another one.
        watermark = now if renewed else skipped.watermark
        plan_at = None if before.pause is None else before.pause.until
        return replace(skipped, schedule=after, exhausted=exhausted, watermark=watermark, plan_at=plan_at)
    if before.phase is SchedulePhase.COMPLETED and (renewed or _may_run_more(before.declaration, declaration)):
        after = replace(after, phase=step_schedule(before.phase, SchedulePhase.ACTIVE))
    return _move(snapshot, after, now=now, lookahead=lookahead)


def pause(snapshot: Snapshot, *, now: Micros, why: Pause | None = None) -> Plan:
    """Pause: the trigger starts nothing; what was due and not started is one `skipped/paused` row.

    One that is paused already stays so since then. It gets the new end, and the new reason and author if there is a
    reason.
    """
    why = why or Pause(at=now)
    if snapshot.schedule.phase is SchedulePhase.PAUSED:
        why = _pause_again(snapshot.schedule.pause, why)
        again = replace(snapshot.schedule, pause=why, updated=now)
        return replace(plan(snapshot, now=now, lookahead=0), schedule=again, plan_at=why.until)
    paused = replace(_step(snapshot.schedule, SchedulePhase.PAUSED, now), pause=why)
    withdrawn = _withdraw(snapshot, Phase.SKIPPED, Reason.PAUSED, now=now)
    closed = tuple(_with_pause(row, why) if row.reason is Reason.PAUSED else row for row in withdrawn.closed)
    return replace(withdrawn, schedule=paused, closed=closed, plan_at=why.until)


def stop_runaway(snapshot: Snapshot, breach: Breach, *, now: Micros) -> Plan | None:
    """Pause a schedule that has broken a rule of the runaway guard; None if it is not active any more."""
    schedule = snapshot.schedule
    if schedule.phase is not SchedulePhase.ACTIVE:
        return None
    paused = pause(snapshot, now=now, why=Pause(at=now, by=BY_ITSELF, reason=breach.text))
    note = automatic_entry(schedule, SchedulePhase.PAUSED, at=now, reason=breach.text)
    return replace(paused, note=note, breach=breach)


def _pause_again(before: Pause | None, why: Pause) -> Pause:
    """The pause of a schedule that is paused again: it keeps its start, and its reason unless a new one is given."""
    if before is None:
        return why
    return replace(before, until=why.until) if why.reason is None else replace(why, at=before.at)


def plan_or_resume(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    """Plan a schedule whose time to plan has come; a pause that has ended by then is resumed as of its end.

    So what fell due after that end, while no node was there to resume it, is late and not skipped.
    """
    schedule = snapshot.schedule
    ends = None if schedule.pause is None else schedule.pause.until
    if schedule.phase is not SchedulePhase.PAUSED or ends is None or ends > now:
        return _judge_rate(plan(snapshot, now=now, lookahead=lookahead), now=now)
    resumed = resume(snapshot, now=max(ends, schedule.updated), lookahead=lookahead)
    reason = f"it was paused until {to_text(ends)}"
    note = automatic_entry(schedule, SchedulePhase.ACTIVE, at=now, reason=reason)
    return replace(resumed, note=note)


def _judge_rate(plan: Plan, *, now: Micros) -> Plan:
    """Judge the window of the expected rate, if it has ended."""
    rate, window = plan.snapshot.schedule.declaration.expected_rate, plan.snapshot.rate_window
    if rate is None or window is None or now < window.ends:
        return plan
    judged = close(rate, window, now=now)
    return replace(plan, rate_window=judged.window, rate_alert=judged.alert)


def ping(snapshot: Snapshot, *, is_start: bool, is_success: bool, now: Micros, lookahead: Micros) -> Plan | None:
    """Count a ping for the expected rate; None if the schedule has no rate or no window."""
    rate, window = snapshot.schedule.declaration.expected_rate, snapshot.rate_window
    if rate is None or window is None:
        return None
    counted = count_ping(rate, window, is_start=is_start, is_success=is_success, now=now)
    planned = plan(snapshot, now=now, lookahead=lookahead)
    return replace(planned, rate_window=counted.window, rate_alert=counted.alert)


def resume(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    """Plan from now on; what the pause skipped is one `skipped/paused` row with a count."""
    active = replace(_step(snapshot.schedule, SchedulePhase.ACTIVE, now), pause=None)
    skipped = replace(_skip_paused(snapshot, now=now), schedule=active)
    return look_ahead(skipped, due_times={}, now=now, lookahead=lookahead)


def delete(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Delete: the trigger starts nothing; its projections end as `cancelled/deleted`."""
    deleted = replace(_step(snapshot.schedule, SchedulePhase.DELETED, now), deleted=now, pause=None)
    withdrawn = _withdraw(snapshot, Phase.CANCELLED, Reason.DELETED, now=now)
    ahead = dict.fromkeys(one.id for one in snapshot.projections if one.nominal > now)
    counted = tuple(one for one in withdrawn.removed if one not in ahead)
    return replace(withdrawn, schedule=deleted, removed=counted, cancelled=tuple(ahead))


def denial(proposal: Proposal, *, now: Micros, note: AuditEntry) -> Plan:
    """Store a proposed schedule as a deleted one: nothing of it was ever planned."""
    deleted = replace(_step(proposal.schedule(), SchedulePhase.DELETED, now), deleted=now)
    return Plan(
        snapshot=Snapshot(schedule=deleted, watermark=now),
        watermark=now,
        exhausted=True,
        note=note,
        proposal=proposal.proposal_id,
    )


def _step(schedule: Schedule, phase: SchedulePhase, now: Micros) -> Schedule:
    return replace(schedule, phase=step_schedule(schedule.phase, phase), updated=now)


def _runs_alike(before: Declaration, after: Declaration) -> bool:
    """Whether they differ in nothing that a run depends on."""
    return before == replace(
        after,
        name=before.name,
        description=before.description,
        labels=before.labels,
        schedule_id=before.schedule_id,
        enabled=before.enabled,
        accepts_payload=before.accepts_payload,
    )


def _times(declaration: Declaration) -> dict[str, Any]:
    """What says which times are named: all of the trigger but its jitter."""
    trigger = {} if declaration.trigger is None else declaration.trigger.to_document()
    return {field: value for field, value in trigger.items() if field != "jitter_seconds"}


def _may_run_more(before: Declaration, after: Declaration) -> bool:
    """Whether `max_runs` was raised or lifted."""
    return before.max_runs is not None and (after.max_runs is None or after.max_runs > before.max_runs)


def _move(snapshot: Snapshot, after: Schedule, *, now: Micros, lookahead: Micros) -> Plan:
    """Re-bind what the new rule still names, supersede the rest, and plan on."""
    until = _account(snapshot, now=now)
    trigger = timed_trigger(after)
    has_same_times = trigger == snapshot.schedule.declaration.trigger
    # While `max_runs` was used up no time was named: what is left from before then is no gap with what follows.
    goes_on = has_same_times and unaccounted(snapshot) is not None
    rebound = [_rebind(row, after, None if goes_on else now) for row in until.wanted]
    due_times = {row.nominal: row.due for row in rebound}
    superseded = []
    for projection in snapshot.projections:
        if projection.nominal <= now:
            continue
        if trigger is not None and trigger.next_micros(projection.nominal - 1) == projection.nominal:
            due_times[projection.nominal] = due_at(trigger, after.uid, projection.nominal)
            rebound.append(occurrence(after, projection.nominal, due_times[projection.nominal]))
        else:
            superseded.append(projection.id)
    watermark = _still_accounted(snapshot, now=now) if has_same_times else _in_force_after(snapshot, after, now)
    moved = replace(
        until.closing,
        schedule=after,
        watermark=_not_before(watermark, (*until.closing.closed, *until.wanted), now),
        planned=tuple(rebound),
        superseded=tuple(superseded),
    )
    return _within_watermark(look_ahead(moved, due_times=due_times, now=now, lookahead=lookahead), now)


def _still_accounted(snapshot: Snapshot, *, now: Micros) -> Micros:
    """The watermark from which an edit that keeps the times plans on: before the newest unbroken run of projections.

    It never falls back behind an outcome, such as a gap that was closed while the clock was ahead. A snapshot lists the
    outcomes after its own watermark only, so the fires of that gap would be planned again.
    """
    trigger, watermark = timed_trigger(snapshot.schedule), snapshot.watermark
    if trigger is None:
        return accounted(snapshot, now=now)
    for projection in reversed(snapshot.projections):
        if projection.nominal <= now or trigger.previous_micros(watermark + 1) != projection.nominal:
            break
        before = trigger.previous_micros(projection.nominal)
        watermark = now if before is None else before
    return max(now, watermark)


def _in_force_after(snapshot: Snapshot, after: Schedule, now: Micros) -> Micros:
    """The watermark at which the new rule begins. The start of an interval that the old rule has named is not new.

    Whether the old rule fired for a start of its own that had just passed depends on the grace that it had then, which
    an edit may have changed since. If it did, the start has a row: it is a projection, or the store knows its id.
    """
    before = snapshot.schedule
    watermark, old = in_force_after(after, now), timed_trigger(before)
    if watermark >= now or old is None or not isinstance(after.declaration.trigger, IntervalTrigger):
        return watermark
    start, since = watermark + 1, before.created - 1 if before.anchored is None else before.anchored
    was_used_up = start > snapshot.watermark and unaccounted(snapshot) is None
    is_named = start > since and old.next_micros(watermark) == start and not was_used_up
    is_planned = any(projection.nominal == start for projection in snapshot.projections)
    has_other_jitter = _times(before.declaration) == _times(after.declaration)
    return now if is_named or is_planned or has_other_jitter else watermark


def _rebind(row: Occurrence, after: Schedule, caught_up: Micros | None) -> Occurrence:
    """Bind a fire of the old rule to the new revision.

    Where the new rule has other times, it counts as caught up: it belongs to no gap of the new rule.
    """
    return occurrence(
        after,
        row.nominal,
        row.due,
        first_due=row.first_due,
        caught_up=caught_up if row.caught_up is None else row.caught_up,
        waiting_for=row.waiting_for,
    )


def _not_before(watermark: Micros, rows: tuple[Occurrence, ...], now: Micros) -> Micros:
    """What a schedule owed to its upstreams may lie a moment after now, where its clock has stood still.

    What is past must not hide a single moment just before it, which the new rule still names.
    """
    return max([watermark, *(row.nominal for row in rows if row.nominal > now)])


def _within_watermark(moved: Plan, now: Micros) -> Plan:
    """Withdraw what the new rule names beyond its own horizon: it is planned again when its time comes.

    A time just past that the new rule names too, and that the old one has missed, has its outcome.
    """
    watermark, missed = max(moved.watermark, now), {row.id for row in moved.closed}
    beyond = tuple(row.id for row in moved.planned if row.nominal > watermark)
    planned = tuple(row for row in moved.planned if row.nominal <= watermark and row.id not in missed)
    return replace(moved, watermark=watermark, planned=planned, removed=(*moved.removed, *beyond))


def _withdraw(snapshot: Snapshot, phase: Phase, reason: Reason, *, now: Micros) -> Plan:
    """Take every projection back; those up to now, which the rule had named, are counted in one final row."""
    until = _account(snapshot, now=now)
    closed = until.closing.closed
    if until.wanted:
        first, last = until.wanted[0], until.wanted[-1]
        missed = Missed(count=len(until.wanted), first=first.nominal, last=last.nominal, reason=reason)
        closed = (*closed, gap_row(snapshot.schedule, missed, due=first.first_due, phase=phase))
    replaced = {row.id for row in closed}
    return replace(
        until.closing,
        watermark=_not_before(accounted(snapshot, now=now), (*closed, *until.wanted), now),
        exhausted=is_used_up(snapshot.schedule, snapshot.runs),
        planned=(),
        closed=closed,
        removed=tuple(one.id for one in snapshot.projections if one.id not in replaced),
    )


def _skip_paused(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Account for the fires of a paused schedule up to now."""
    schedule, trigger = snapshot.schedule, unaccounted(snapshot)
    skipping = Plan(snapshot=snapshot, watermark=max(snapshot.watermark, now))
    if (fire := owed(snapshot)) is not None:
        missed = Missed(count=1, first=fire.nominal, last=fire.nominal, reason=Reason.PAUSED)
        row = _with_pause(gap_row(schedule, missed, due=fire.nominal, phase=Phase.SKIPPED), schedule.pause)
        return replace(skipping, watermark=max(skipping.watermark, fire.nominal), closed=(row,))
    if trigger is None:
        return skipping
    first, last = trigger.next_micros(snapshot.watermark), trigger.previous_micros(now + 1)
    if first is None or last is None or first > last:
        return skipping
    count = trigger.count_micros(snapshot.watermark, now)
    missed = Missed(count=count, first=first, last=last, reason=Reason.PAUSED)
    row = gap_row(schedule, missed, due=due_at(trigger, schedule.uid, first), phase=Phase.SKIPPED)
    return replace(skipping, closed=(_with_pause(row, schedule.pause),))


def _with_pause(row: Occurrence, pause: Pause | None) -> Occurrence:
    """A row that a pause has skipped, with who paused the schedule and why, as far as that is known."""
    facts = {} if pause is None else {"paused_by": pause.by, "pause_reason": pause.reason}
    pause_facts = {name: value for name, value in facts.items() if value is not None}
    return replace(row, detail=json.dumps(pause_facts, sort_keys=True)) if pause_facts else row


def _account(snapshot: Snapshot, *, now: Micros) -> _Until:
    """Close what is overdue, and list every fire up to now that is still to run."""
    schedule, trigger = snapshot.schedule, unaccounted(snapshot)
    if schedule.phase is SchedulePhase.PAUSED:
        return _Until(closing=_skip_paused(snapshot, now=now))
    if schedule.phase is SchedulePhase.COMPLETED:
        return _Until(closing=Plan(snapshot=snapshot, watermark=snapshot.watermark))
    closing = follow(close_overdue(snapshot, now=now), now=now)
    expected = {
        projection.nominal: occurrence(
            schedule,
            projection.nominal,
            projection.due,
            first_due=projection.first_due,
            caught_up=projection.caught_up,
            waiting_for=projection.waiting_for,
        )
        for projection in snapshot.projections
        if projection.nominal <= now and projection.id not in closing.gone
    }
    expected |= {row.nominal: row for row in closing.planned}
    # One that jitter puts after now has not been planned yet, but its nominal time is past.
    unplanned = trigger.next_micros(closing.watermark) if trigger is not None else None
    if trigger is not None and unplanned is not None and unplanned <= now:
        expected[unplanned] = occurrence(schedule, unplanned, due_at(trigger, schedule.uid, unplanned))
    return _Until(closing=closing, wanted=tuple(expected[nominal] for nominal in sorted(expected)))
