"""Planning: which occurrences a schedule should have, decided from a snapshot of it.

The *watermark* is the newest nominal time that has been accounted for: every fire up to it has an occurrence, or is
counted in a row that stands for many. A plan closes what fell due since (by the misfire policy), then looks ahead:
everything within the claim's lookahead, and at least the next fire. Ids are computed, so any number of nodes may plan
the same schedule at once; the store takes the first plan and drops the others, by revision and watermark.

An occurrence of the trigger that was never started is a *projection*: a plan may still move or remove it. No
projection lies beyond the watermark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import DAY_SECONDS, MIN_INSTANT, SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence
from noonmark.core.policies.catch_up import CatchUp, Missed, decide
from noonmark.core.policies.jitter import due_at
from noonmark.core.policies.misfire import judge
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger, OnceTrigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.policies.jitter import Fires
    from noonmark.core.policies.misfire import MisfirePolicy
    from noonmark.core.schedule import Schedule
    from noonmark.core.triggers import Trigger

MAX_AHEAD = 1_000
"""So many fires are planned at a time; a plan that stops there asks to be made again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A schedule as it was read, with its projections in the order of their nominal times."""

    schedule: Schedule
    watermark: Micros
    projections: tuple[Projection, ...] = ()
    admitted: Micros | None = None
    """The newest nominal time of the trigger that was admitted, or has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to write, on condition that revision and watermark are still those of the snapshot.

    Rows in `planned` are new, take the place of a projection, or reopen a superseded row of the same id; one with a
    `waiting_for` goes on waiting. Rows in `closed` are final, and take the place of a projection or a superseded row of
    the same id. `removed` projections vanish, because a row in `closed` counts them or a pause withdraws them. Whatever
    is touched has its fence raised: whoever claimed it has lost it.
    """

    snapshot: Snapshot
    watermark: Micros
    plan_at: Micros | None = None
    """When to plan again; never, unless the schedule is changed."""
    exhausted: bool = False
    """The trigger names no further time."""
    planned: tuple[Occurrence, ...] = ()
    closed: tuple[Occurrence, ...] = ()
    removed: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    schedule: Schedule | None = None
    """The schedule as it is from now on, where this changes it."""
    catch_up: CatchUp | None = None
    """The decision about what was overdue, for those who ask why."""

    @property
    def gone(self) -> frozenset[str]:
        """The projections that are no more."""
        return frozenset({*self.removed, *(row.id for row in self.closed)})


@dataclass(frozen=True, slots=True)
class _Listed:
    """Exactly these fires, in order, each due at its nominal time."""

    nominals: tuple[Micros, ...]
    jitter: Micros = 0

    def next_micros(self, after: Micros) -> Micros | None:
        return next(iter(self.nominals[bisect_right(self.nominals, after) :]), None)

    def previous_micros(self, before: Micros) -> Micros | None:
        return next(reversed(self.nominals[: bisect_left(self.nominals, before)]), None)

    def count_micros(self, after: Micros, until: Micros) -> int:
        return bisect_right(self.nominals, until) - bisect_right(self.nominals, after)


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


def first_plan(schedule: Schedule, *, lookahead: Micros) -> Plan:
    """The plan of a schedule that is being created: times before its creation do not exist."""
    snapshot = Snapshot(schedule=schedule, watermark=in_force_after(schedule, schedule.created - 1))
    return plan(snapshot, now=schedule.created, lookahead=lookahead)


def in_force_after(schedule: Schedule, instant: Micros) -> Micros:
    """The watermark at which a rule begins that is put in force after an instant."""
    trigger, grace = schedule.declaration.trigger, schedule.declaration.misfire_policy.grace
    if isinstance(trigger, OnceTrigger) and trigger.due is not None and trigger.due >= instant - grace:
        # One that lies in the past, but within its grace, was accepted and must run.
        return min(instant, trigger.due - 1)
    return instant


def plan(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    """Close what is overdue, then look ahead. Only an active schedule is planned."""
    phase = snapshot.schedule.phase
    if phase is not SchedulePhase.ACTIVE:
        return Plan(snapshot=snapshot, watermark=snapshot.watermark, exhausted=phase is SchedulePhase.COMPLETED)
    closed = close_overdue(snapshot, now=now)
    kept = {one.nominal: one.due for one in snapshot.projections if one.id not in closed.gone}
    return look_ahead(closed, kept=kept, now=now, lookahead=lookahead)


def timed_trigger(schedule: Schedule) -> Trigger | None:
    """The trigger of a schedule, if it names times."""
    trigger = schedule.declaration.trigger
    return None if isinstance(trigger, EventTrigger) else trigger


def close_overdue(snapshot: Snapshot, *, now: Micros) -> Plan:
    """Decide about every fire that is due and that nobody took up, all at once.

    Projections at the end belong to one gap with the unplanned fires after them, so they are decided together. A late
    one apart from those, because a later fire was taken up before it or because it had been caught up already, is no
    part of that gap.
    """
    trigger, policy = timed_trigger(snapshot.schedule), snapshot.schedule.declaration.misfire_policy
    taken = [one.nominal for one in snapshot.projections if not one.is_open]
    newest_taken = max([MIN_INSTANT if snapshot.admitted is None else snapshot.admitted, *taken])
    ending, apart = [], []
    for one in snapshot.projections:
        if not one.is_open or one.due > now:
            continue
        if one.caught_up is None and one.nominal > newest_taken:
            ending.append(one)
        elif _is_late(one, policy, now):
            apart.append(one)
    closing = Plan(snapshot=snapshot, watermark=snapshot.watermark)
    if apart:
        listed = _Listed(tuple(one.nominal for one in apart))
        closing = _decide(closing, listed, apart, after=MIN_INSTANT - 1, now=now)
    if trigger is not None:
        after = min([snapshot.watermark, *(one.nominal - 1 for one in ending)])
        closing = _decide(closing, trigger, ending, after=after, now=now)
    return closing


def look_ahead(so_far: Plan, *, kept: dict[Micros, Micros], now: Micros, lookahead: Micros) -> Plan:
    """Plan everything due within the lookahead, and beyond it as many fires as the horizon asks for.

    `kept` are the due times of the projections that stay, by their nominal times.
    """
    schedule = so_far.schedule or so_far.snapshot.schedule
    trigger = timed_trigger(schedule)
    if trigger is None:
        return so_far
    horizon = schedule.declaration.horizon
    near, days = now + lookahead, horizon.days * DAY_SECONDS * SECOND
    watermark = so_far.watermark
    if watermark > max([near, *kept]):
        # Nothing stands so far ahead: the clock was ahead for a while. Ids prevent repeats.
        watermark = max([now, *kept])
    # What is past and yet to start, by jitter or a catch-up, does not stand for the next fire.
    ahead = [due for nominal, due in kept.items() if now < nominal <= watermark and due > near]
    planned: list[Occurrence] = []
    upcoming = trigger.next_micros(watermark)
    while upcoming is not None and len(planned) < MAX_AHEAD:
        due = kept.get(upcoming, due_at(trigger, schedule.uid, upcoming))
        is_ahead = upcoming > now and due > near
        if is_ahead and (len(ahead) >= horizon.occurrences or (ahead and upcoming > now + days)):
            break
        if upcoming not in kept:
            planned.append(occurrence(schedule, upcoming, due))
        ahead += [due] if is_ahead else []
        watermark = upcoming
        upcoming = trigger.next_micros(watermark)
    plan_at = None
    if upcoming is not None:
        # Another one is needed when the first beyond the lookahead comes within it, or the days reach the next one.
        needed = [due - lookahead for due in ahead] + ([upcoming - days] if len(ahead) < horizon.occurrences else [])
        plan_at = now if len(planned) == MAX_AHEAD else max(now, min(needed))
    return replace(
        so_far,
        watermark=watermark,
        plan_at=plan_at,
        exhausted=upcoming is None,
        planned=(*so_far.planned, *planned),
    )


def occurrence(
    schedule: Schedule,
    nominal: Micros,
    due: Micros,
    *,
    first_due: Micros | None = None,
    caught_up: Micros | None = None,
    waiting_for: Reason | None = None,
) -> Occurrence:
    """A projection of the schedule's trigger."""
    return Occurrence(
        id=occurrence_id(schedule.uid, TRIGGER, nominal),
        uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        revision=schedule.revision,
        origin=TRIGGER,
        phase=Phase.PENDING,
        route=schedule.declaration.target.route,
        nominal=nominal,
        due=due,
        first_due=due if first_due is None else first_due,
        caught_up=caught_up,
        waiting_for=waiting_for,
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


def _decide(so_far: Plan, fires: Fires, rows: Sequence[Projection], *, after: Micros, now: Micros) -> Plan:
    """Put what the misfire policy says about the fires after an instant into a plan; `rows` are their projections."""
    snapshot, schedule = so_far.snapshot, so_far.snapshot.schedule
    decision = decide(schedule.declaration.misfire_policy, fires, uid=schedule.uid, after=after, now=now)
    if decision.reason is Reason.NOT_DUE:
        return so_far
    first_dues = {one.nominal: one.due if one.first_due is None else one.first_due for one in rows}

    def first_due(nominal: Micros) -> Micros:
        return first_dues.get(nominal, due_at(fires, schedule.uid, nominal))

    planned = []
    for start in decision.starts:
        if start.reason is Reason.CAUGHT_UP:
            first = first_due(start.nominal)
            planned.append(occurrence(schedule, start.nominal, max(start.due, first), first_due=first, caught_up=now))
        elif start.nominal > snapshot.watermark:
            planned.append(occurrence(schedule, start.nominal, start.due))
    missed = decision.missed
    closed = [gap_row(schedule, missed, due=first_due(missed.first), phase=Phase.MISFIRED)] if missed else []
    counted = [one.id for one in rows if missed and missed.first < one.nominal <= missed.last]
    accounted = [start.nominal for start in decision.starts] + ([missed.last] if missed else [])
    return replace(
        so_far,
        watermark=max([so_far.watermark, *accounted]),
        planned=(*so_far.planned, *planned),
        closed=(*so_far.closed, *closed),
        removed=(*so_far.removed, *counted),
        catch_up=decision,
    )


def _is_late(one: Projection, policy: MisfirePolicy, now: Micros) -> bool:
    return not judge(policy, due=one.due, now=now, caught_up_at=one.caught_up).runs
