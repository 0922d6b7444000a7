"""The planner: which occurrences a schedule should have, decided from a snapshot of it.

The *watermark* is the newest nominal time that has been accounted for: every fire up to it has an occurrence, or is
counted in a row that stands for many. A plan closes what fell due since (by the misfire policy), then looks ahead:
everything within the claim's lookahead, and at least the next fire. Ids are computed, so any number of nodes may plan
the same schedule at once; the store takes the first plan and drops the others, by revision and watermark.

An occurrence of the trigger that was never started is a *projection*: a plan may still move or remove it. No
projection lies beyond the watermark.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import evolver, fast_frozen, frozen
from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import DAY, MIN_INSTANT
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence, Overrides
from noonmark.core.policies.catch_up import decide
from noonmark.core.policies.dependencies import FollowUp, follow_up
from noonmark.core.policies.fires import Listed, without
from noonmark.core.policies.jitter import due_at
from noonmark.core.policies.misfire import judge
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger, IntervalTrigger, OnceTrigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.ids import Origin
    from noonmark.core.instants import Micros
    from noonmark.core.lineage import AgentLimits
    from noonmark.core.policies.catch_up import CatchUp, Missed
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.policies.expected_rate import RateAlert, RateWindow
    from noonmark.core.policies.jitter import Fires
    from noonmark.core.policies.runaway import Breach, Counted
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import AuditEntry, Schedule
    from noonmark.core.triggers import Trigger


@frozen(kw_only=True)
class Projection:
    """What a plan needs to know of an occurrence that it may still change."""

    id: str
    nominal: Micros
    due: Micros
    first_due: Micros | None = None
    """The due time before the misfire policy moved it, where it did."""
    is_claimed: bool = False
    caught_up: Micros | None = None
    waiting_for: Reason | None = None

    @property
    def is_open(self) -> bool:
        """Whether lateness may still be held against it; a claimed one is judged by its holder."""
        return not self.is_claimed and self.waiting_for is None


@frozen(kw_only=True)
class Gap:
    """A row that stands for many fires, or for one that did not run: the first, the last, and how many."""

    id: str
    first: Micros
    last: Micros
    count: int


@frozen(kw_only=True)
class Rewound:
    """What a clock that was ahead has closed, put right."""

    newest: Micros | None
    """The newest nominal time of the trigger that was admitted, or has ended."""
    undone: tuple[str, ...] = ()
    """Gaps whose fires are all still to come: they are deleted, and taken back from the counters."""
    shortened: tuple[Gap, ...] = ()
    """Gaps that end earlier, and count for less."""


@fast_frozen
@frozen(kw_only=True)
class Snapshot:
    """A schedule as it was read, with its projections in the order of their nominal times."""

    schedule: Schedule
    watermark: Micros
    projections: tuple[Projection, ...] = ()
    admitted: Micros | None = None
    """The newest nominal time of the trigger that was admitted, or has ended."""
    runs: int = 0
    """How many occurrences of trigger and events were admitted, for `max_runs`."""
    beyond: tuple[tuple[Micros, Micros], ...] = ()
    """The first and last nominal time of each row of the trigger after the watermark that was admitted or has ended.

    In order. Rarely any: a caller cancelled it ahead of time, or the clock was ahead for a while.
    """
    gaps: tuple[Gap, ...] = ()
    """Those of `beyond` that stand for gaps; read only to rewind, and then both reach back to now."""
    exhausted: bool = False
    """The last plan said that nothing follows."""
    unserved: bool = False
    """Nodes are alive, but none of them has served its route for as long as `patience` with its misfire grace."""
    lacks_node: bool = False
    """The same for as long as `MIN_PATIENCE`: no live node serves it, but its target may not count as missing yet."""
    upstreams: Standings | None = None
    """The schedules it depends on, if it has no trigger."""
    rate_window: RateWindow | None = None
    """What was counted for its expected rate, if it has one and is active."""
    runaway: Counted | None = None
    """What the runaway guard has counted, if it has anything to count."""


@fast_frozen
@frozen(kw_only=True)
class Plan:
    """What to write, on condition that revision and watermark are still those of the snapshot.

    Rows in `planned` are new, take the place of a projection, or reopen a superseded row of the same id; one with a
    `waiting_for` goes on waiting. Rows in `closed` are final, and take the place of a projection or a superseded row of
    the same id. `removed` projections vanish, because a row in `closed` counts them, or because nothing is to come of
    them after all: a pause withdraws them, or `max_runs` is used up. Whatever is touched has its fence raised: whoever
    claimed it has lost it.
    """

    snapshot: Snapshot
    watermark: Micros
    plan_at: Micros | None = None
    """When to plan again; never, unless the schedule is changed."""
    exhausted: bool = False
    """Nothing follows: the trigger names no further time, or `max_runs` is used up."""
    planned: tuple[Occurrence, ...] = ()
    closed: tuple[Occurrence, ...] = ()
    removed: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    schedule: Schedule | None = None
    """The changed schedule, if the plan changes it."""
    graph: int | None = None
    """Written only while this is the version of what depends on what, where the plan was checked against that."""
    catch_up: CatchUp | None = None
    """The decision about what was overdue, for those who ask why."""
    quotas: tuple[Quota, ...] = ()
    """How many schedules the owner may have; counted when the plan adds one or reopens a completed one."""
    note: AuditEntry | None = None
    """The caller's audit entry, if any, written with the plan."""
    may_exist: bool = False
    """Another copy of the request may create the same schedule."""
    proposal: str | None = None
    """The id of the proposal that the plan decides; written only while that is pending, and ends it."""
    agent_limits: AgentLimits | None = None
    """The limits of the agent that makes or changes the schedule: clones, and how many its parent has made."""
    rewound: Rewound | None = None
    """What is put right after a clock was ahead; a planned row may take the place of what is undone."""
    rate_window: RateWindow | None = None
    """The new window of the expected rate, if the plan judges one that has ended or counts a ping."""
    rate_alert: RateAlert | None = None
    """The alert about the expected rate, if it is missed."""
    breach: Breach | None = None
    """The rule of the runaway guard that the schedule has broken, if it is paused for that."""

    @property
    def gone(self) -> frozenset[str]:
        """The removed projections."""
        return frozenset({*self.removed, *(row.id for row in self.closed)})


def projection(row: Occurrence) -> Projection | None:
    """What a plan needs to know of a row, if the row is a projection."""
    if row.origin != TRIGGER or row.has_begun or row.phase not in (Phase.PENDING, Phase.CLAIMED):
        return None
    return Projection(
        id=row.id,
        nominal=row.nominal,
        due=row.due,
        first_due=row.first_due,
        is_claimed=row.phase is Phase.CLAIMED,
        caught_up=row.caught_up,
        waiting_for=row.waiting_for,
    )


def occurrence(  # noqa: PLR0913 - each is a field of its own
    schedule: Schedule,
    nominal: Micros,
    due: Micros,
    *,
    first_due: Micros | None = None,
    caught_up: Micros | None = None,
    waiting_for: Reason | None = None,
    origin: Origin = TRIGGER,
    payload: Any = None,
    overrides: Overrides | None = None,
) -> Occurrence:
    """A pending occurrence: a projection of the schedule's trigger, unless another origin asked for it."""
    return Occurrence(
        id=occurrence_id(schedule.uid, origin, nominal),
        uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        revision=schedule.revision,
        origin=origin,
        phase=Phase.PENDING,
        route=schedule.declaration.target.route,
        nominal=nominal,
        due=due,
        first_due=due if first_due is None else first_due,
        caught_up=caught_up,
        waiting_for=waiting_for,
        payload=payload,
        overrides=overrides,
    )


def gap_row(schedule: Schedule, missed: Missed, *, due: Micros, phase: Phase) -> Occurrence:
    """One final row for all the fires that did not run; its id, and its due time, are those of the first of them."""
    return replace(
        occurrence(schedule, missed.first, due),
        phase=phase,
        reason=missed.reason,
        missed_count=missed.count,
        missed_first=missed.first,
        missed_last=missed.last,
    )


MAX_AHEAD = 1_000
"""The most fires in one plan; a plan that stops there is repeated at once."""


def first_plan(schedule: Schedule, *, lookahead: Micros) -> Plan:
    """The plan of a schedule that is being created: times before its creation do not exist."""
    snapshot = Snapshot(schedule=schedule, watermark=in_force_after(schedule, schedule.created - 1))
    return plan(snapshot, now=schedule.created, lookahead=lookahead)


def in_force_after(schedule: Schedule, instant: Micros) -> Micros:
    """The watermark at which a rule begins that is put in force after an instant."""
    trigger, grace = schedule.declaration.trigger, schedule.declaration.misfire_policy.grace
    if trigger is None:
        return instant + 1  # what ended before does not count, not even in the same moment
    if isinstance(trigger, IntervalTrigger) and (instant < schedule.created or instant == schedule.anchored):
        return _before_start(trigger, grace, instant)
    if isinstance(trigger, OnceTrigger) and trigger.due is not None and trigger.due >= instant - grace:
        # One that lies in the past, but within its grace, was accepted and must run.
        return min(instant, trigger.due - 1)
    return instant


def _before_start(trigger: IntervalTrigger, grace: Micros, instant: Micros) -> Micros:
    """The watermark of a new interval: a start that has just passed fires at once, as in "every minute from now on".

    Of several times since then, the newest stands for it. An edit to other times is a new interval as well.
    """
    newest = trigger.previous_micros(instant + 1)
    is_in_grace = trigger.start is not None and trigger.start >= instant - grace
    return newest - 1 if newest is not None and is_in_grace else instant


def plan(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    """Close what is overdue, then look ahead. Only an active schedule is planned."""
    phase = snapshot.schedule.phase
    if phase is not SchedulePhase.ACTIVE:
        exhausted, paused = snapshot.exhausted or phase is SchedulePhase.COMPLETED, snapshot.schedule.pause
        ends = None if paused is None else paused.until
        return Plan(snapshot=snapshot, watermark=snapshot.watermark, plan_at=ends, exhausted=exhausted)
    closed = close_overdue(snapshot, now=now)
    due_times = {one.nominal: one.due for one in snapshot.projections if one.id not in closed.gone}
    return look_ahead(closed, due_times=due_times, now=now, lookahead=lookahead)


def timed_trigger(schedule: Schedule) -> Trigger | None:
    """The trigger of a schedule, if it names times."""
    trigger = schedule.declaration.trigger
    return None if isinstance(trigger, EventTrigger) else trigger


def unaccounted(snapshot: Snapshot) -> Fires | None:
    """The fires after the watermark that nothing accounts for; there are none once `max_runs` was found used up."""
    trigger = timed_trigger(snapshot.schedule)
    if trigger is None or (snapshot.exhausted and is_used_up(snapshot.schedule, snapshot.runs)):
        return None
    return without(trigger, snapshot.beyond)


def accounted(snapshot: Snapshot, *, now: Micros) -> Micros:
    """The watermark when everything up to now is accounted for, and everything ahead is withdrawn.

    It falls back to the fire before the first of those, and no further: one beyond now that no projection stands for
    has an outcome already, from a clock that was ahead.
    """
    ahead = next((one.nominal for one in snapshot.projections if one.nominal > now), None)
    if ahead is None:
        return max(now, snapshot.watermark)
    trigger = timed_trigger(snapshot.schedule)
    before = None if trigger is None else trigger.previous_micros(ahead)
    return now if before is None else max(now, before)


def is_used_up(schedule: Schedule, runs: int) -> bool:
    """Whether a schedule has run as often as it may."""
    limit = schedule.declaration.max_runs
    return limit is not None and runs >= limit


def close_overdue(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Decide all fires that are due and were not claimed, at once.

    Projections at the end belong to one gap with the unplanned fires after them, so they are decided together. A late
    one apart from those, because a later fire was taken up before it or because it had been caught up already, is no
    part of that gap; it makes one of its own, with those next to it.
    """
    trigger, policy = unaccounted(snapshot), snapshot.schedule.declaration.misfire_policy
    closing = Plan(snapshot=snapshot, watermark=snapshot.watermark)
    if not snapshot.projections:
        return closing if trigger is None else _decide(closing, trigger, (), after=snapshot.watermark, now=now)
    # A caught-up one ends the gap before it as well: what follows it is counted from there.
    taken = [one.nominal for one in snapshot.projections if not one.is_open or one.caught_up is not None]
    newest_taken = max([MIN_INSTANT if snapshot.admitted is None else snapshot.admitted, *taken])
    ending, apart = [], []
    for projection in snapshot.projections:
        if not projection.is_open or projection.due > now:
            continue
        if trigger is not None and projection.caught_up is None and projection.nominal > newest_taken:
            ending.append(projection)
        elif not judge(policy, due=projection.due, now=now, caught_up_at=projection.caught_up).runs:
            apart.append(projection)
    for gap in _gaps(apart, timed_trigger(snapshot.schedule)):
        listed = Listed(tuple(one.nominal for one in gap))
        closing = _decide(closing, listed, gap, after=MIN_INSTANT - 1, now=now)
    if trigger is not None:
        after = min([snapshot.watermark, *(one.nominal - 1 for one in ending)])
        closing = _decide(closing, trigger, ending, after=after, now=now)
    return closing


def _gaps(late: Sequence[Projection], trigger: Trigger | None) -> list[list[Projection]]:
    """Late fires in stretches, in each of which the trigger names no other between them."""
    gaps: list[list[Projection]] = []
    for projection in late:
        if gaps and trigger is not None and trigger.next_micros(gaps[-1][-1].nominal) == projection.nominal:
            gaps[-1].append(projection)
        else:
            gaps.append([projection])
    return gaps


def look_ahead(so_far: Plan, *, due_times: dict[Micros, Micros], now: Micros, lookahead: Micros) -> Plan:
    """Plan everything due within the lookahead, and beyond it as many fires as the horizon asks for.

    `kept` are the due times of the projections that stay, by their nominal times. The watermark only rises here: fires
    up to it are accounted for even when the clock that said so was ahead.
    """
    schedule = so_far.schedule or so_far.snapshot.schedule
    if is_used_up(schedule, so_far.snapshot.runs):
        return _stop(so_far, now=now)
    trigger = timed_trigger(schedule)
    if trigger is None:
        return _look_upstream(so_far, schedule, now=now)
    horizon = schedule.declaration.horizon
    near, days = now + lookahead, horizon.days * DAY
    watermark = so_far.watermark
    # What is past and yet to start, by jitter or a catch-up, does not stand for the next fire.
    ahead = [due for nominal, due in due_times.items() if now < nominal <= watermark and due > near]
    planned: list[Occurrence] = []
    # Another trigger is in force from now on, whatever the old one's rows account for.
    beyond, before = so_far.snapshot.beyond, so_far.snapshot.schedule.declaration.trigger
    fires = without(trigger, beyond) if beyond and trigger == before else trigger
    upcoming = fires.next_micros(watermark)
    while upcoming is not None and len(planned) < MAX_AHEAD:
        due = due_times.get(upcoming, due_at(trigger, schedule.uid, upcoming))
        is_ahead = upcoming > now and due > near
        if is_ahead and (len(ahead) >= horizon.occurrences or (ahead and upcoming > now + days)):
            break
        if upcoming not in due_times:
            planned.append(occurrence(schedule, upcoming, due))
        ahead += [due] if is_ahead else []
        watermark = upcoming
        upcoming = fires.next_micros(watermark)
    plan_at = None
    if upcoming is not None:
        # Another one is needed when the first beyond the lookahead comes within it, or the days reach the next one.
        needed = [due - lookahead for due in ahead] + ([upcoming - days] if len(ahead) < horizon.occurrences else [])
        plan_at = now if len(planned) == MAX_AHEAD else max(now, min(needed))
    return _with_planned(
        so_far,
        watermark=watermark,
        plan_at=plan_at,
        exhausted=upcoming is None,
        planned=(*so_far.planned, *planned),
    )


_with_planned = evolver(Plan, "watermark", "plan_at", "exhausted", "planned")


def owed(snapshot: Snapshot) -> FollowUp | None:
    """The fire that a schedule without a trigger owes to its upstreams, if it owes one that is not planned yet."""
    if snapshot.upstreams is None or is_used_up(snapshot.schedule, snapshot.runs):
        return None
    has_fired = snapshot.admitted is not None or bool(snapshot.projections)
    return follow_up(snapshot.upstreams.each, watermark=snapshot.watermark, has_fired=has_fired)


def follow(so_far: Plan, *, now: Micros) -> Plan:
    """Plan the fire that is owed to the upstreams; when one of them has failed, it is skipped at once."""
    schedule, fire = so_far.snapshot.schedule, owed(so_far.snapshot)
    if fire is None:
        return so_far
    # It has waited for them until now, so that it cannot be late.
    due, overrides = min(fire.nominal, now), None if fire.behind is None else Overrides(behind=fire.behind)
    row = occurrence(schedule, fire.nominal, due, waiting_for=Reason.DEPENDENCY_PENDING, overrides=overrides)
    if not fire.detail:
        return replace(so_far, watermark=fire.nominal, planned=(*so_far.planned, row))
    skipped = replace(row, phase=Phase.SKIPPED, reason=Reason.DEPENDENCY_FAILED, detail=fire.detail, waiting_for=None)
    return replace(so_far, watermark=fire.nominal, closed=(*so_far.closed, skipped))


def _look_upstream(so_far: Plan, schedule: Schedule, *, now: Micros) -> Plan:
    """Plan a schedule that names no times; what an edit lets it follow is read with the next snapshot."""
    upstreams, trigger = so_far.snapshot.upstreams, schedule.declaration.trigger
    if trigger is not None:
        return _listen(so_far, trigger.end, now=now)
    if upstreams is None or so_far.schedule is not None:
        return replace(so_far, plan_at=now)
    return replace(follow(so_far, now=now), exhausted=all(one.is_over for one in upstreams.each))


def _listen(so_far: Plan, end: Micros | None, *, now: Micros) -> Plan:
    """Plan a schedule that waits for events: nothing follows once its trigger has ended."""
    if end is None:
        return so_far
    return replace(so_far, exhausted=end < now, plan_at=end + 1 if end >= now else None)


def _stop(so_far: Plan, *, now: Micros) -> Plan:
    """Plan nothing more, and withdraw what is ahead; past fires are left to admission."""
    snapshot = so_far.snapshot
    ahead = [one for one in snapshot.projections if one.nominal > now and one.id not in so_far.superseded]
    planned = [row for row in so_far.planned if row.nominal <= now]
    watermark = min(so_far.watermark, accounted(snapshot, now=now)) if ahead else so_far.watermark
    # One that jitter puts after now has not been planned yet, but its nominal time is past. An edit has seen to it.
    trigger = unaccounted(snapshot) if so_far.schedule is None else None
    late = None if trigger is None else trigger.next_micros(watermark)
    if trigger is not None and late is not None and late <= now:
        planned.append(occurrence(snapshot.schedule, late, due_at(trigger, snapshot.schedule.uid, late)))
        watermark = late
    return replace(
        so_far,
        watermark=watermark,
        plan_at=None,
        exhausted=True,
        planned=tuple(planned),
        removed=(*so_far.removed, *(one.id for one in ahead)),
    )


def _decide(so_far: Plan, fires: Fires, rows: Sequence[Projection], *, after: Micros, now: Micros) -> Plan:
    """Put what the misfire policy says about the fires after an instant into a plan; `rows` are their projections."""
    snapshot, schedule = so_far.snapshot, so_far.snapshot.schedule
    oldest = fires.next_micros(after)
    if oldest is None or oldest > now:  # as for nearly every new schedule
        return so_far
    decision = decide(schedule.declaration.misfire_policy, fires, uid=schedule.uid, after=after, now=now)
    if decision.reason is Reason.NOT_DUE:
        return so_far
    first_dues = {one.nominal: one.due if one.first_due is None else one.first_due for one in rows}

    def first_due(nominal: Micros) -> Micros:
        return first_dues.get(nominal, due_at(fires, schedule.uid, nominal))

    planned = []
    for start in decision.starts:
        if start.reason is Reason.CAUGHT_UP or decision.is_line:
            first = first_due(start.nominal)
            planned.append(occurrence(schedule, start.nominal, max(start.due, first), first_due=first, caught_up=now))
        elif start.nominal > snapshot.watermark:
            planned.append(occurrence(schedule, start.nominal, start.due))
    missed = decision.missed
    closed = [_close(snapshot, missed, due=first_due(missed.first))] if missed else []
    counted = [one.id for one in rows if missed and missed.first < one.nominal <= missed.last]
    times = [start.nominal for start in decision.starts] + ([missed.last] if missed else [])
    return replace(
        so_far,
        watermark=max([so_far.watermark, *times]),
        planned=(*so_far.planned, *planned),
        closed=(*so_far.closed, *closed),
        removed=(*so_far.removed, *counted),
        catch_up=decision,
    )


def _close(snapshot: Snapshot, missed: Missed, *, due: Micros) -> Occurrence:
    """The row of a gap; its reason is not lateness if no node could have been in time."""
    phase = Phase.MISFIRED
    if snapshot.unserved:
        phase = snapshot.schedule.declaration.missing_target_policy.phase
        missed = replace(missed, reason=Reason.TARGET_MISSING)
    row = gap_row(snapshot.schedule, missed, due=due, phase=phase)
    if snapshot.lacks_node and row.reason is Reason.NEWER_FIRE:
        return replace(row, detail=json.dumps({"route": row.route}))
    return row
