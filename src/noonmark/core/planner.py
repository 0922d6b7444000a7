"""Planning: which occurrences a schedule should have, decided from a snapshot of it.

The *watermark* is the newest nominal time that has been accounted for: every fire up to it has an occurrence, or is
counted in a row that stands for many. A plan closes what fell due since (by the misfire policy), then looks ahead:
everything within the claim's lookahead, and at least the next fire. Ids are computed, so any number of nodes may plan
the same schedule at once; the store takes the first plan and drops the others, by revision and watermark.

An occurrence of the trigger that was never admitted is a *projection*: a plan may still move or remove it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import DAY_SECONDS, MIN_INSTANT, SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import Occurrence
from noonmark.core.policies.catch_up import CatchUp, Missed, decide
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger, OnceTrigger

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
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
    is_claimed: bool = False
    caught_up: Micros | None = None


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

    Rows in `planned` are new, take the place of a projection, or reopen a superseded row of the same id. Rows in `closed`
    are final, and take the place of a projection of the same id. `removed` projections vanish, because a row in `closed`
    counts them or a pause withdraws them. Whatever is touched has its fence raised: whoever claimed it has lost it.
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


def first_plan(schedule: Schedule, *, lookahead: Micros) -> Plan:
    """The plan of a schedule that is being created: times before its creation do not exist."""
    watermark = schedule.created - 1
    if isinstance(schedule.declaration.trigger, OnceTrigger) and schedule.declaration.trigger.due is not None:
        # One that lies in the past, but within its grace, was accepted and must run.
        watermark = min(watermark, schedule.declaration.trigger.due - 1)
    return plan(Snapshot(schedule=schedule, watermark=watermark), now=schedule.created, lookahead=lookahead)


def plan(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan:
    """Close what is overdue, then look ahead."""
    trigger = timed_trigger(snapshot.schedule)
    if trigger is None:
        return Plan(snapshot=snapshot, watermark=snapshot.watermark)
    closed = close_overdue(snapshot, trigger, now=now)
    gone = {*closed.removed, *(row.id for row in closed.closed)}
    kept = {one.nominal: one.due for one in snapshot.projections if one.id not in gone}
    return look_ahead(closed, trigger, kept=kept, now=now, lookahead=lookahead)


def timed_trigger(schedule: Schedule) -> Trigger | None:
    """The trigger of a schedule, if it names times."""
    trigger = schedule.declaration.trigger
    return None if isinstance(trigger, EventTrigger) else trigger


def close_overdue(snapshot: Snapshot, trigger: Trigger, *, now: Micros) -> Plan:
    """Decide about every fire that is due and has not been admitted, all at once.

    Projections that nobody took up within the grace belong to one gap with the unplanned fires after them, so they are
    decided again together.
    """
    schedule = snapshot.schedule
    policy = schedule.declaration.misfire_policy
    late = [one.nominal for one in snapshot.projections if _is_overdue(one, snapshot, now - policy.grace)]
    after = min([snapshot.watermark, *(nominal - 1 for nominal in late)])
    decision = decide(policy, trigger, uid=schedule.uid, after=after, now=now)
    known = {one.nominal for one in snapshot.projections}
    planned = [
        occurrence(schedule, start.nominal, start.due, caught_up=now if start.reason is Reason.CAUGHT_UP else None)
        for start in decision.starts
        if start.reason is Reason.CAUGHT_UP or start.nominal not in known
    ]
    accounted = [start.nominal for start in decision.starts]
    closed: tuple[Occurrence, ...] = ()
    removed: tuple[str, ...] = ()
    if decision.missed is not None:
        missed = decision.missed
        closed = (gap_row(schedule, trigger, missed, phase=Phase.MISFIRED),)
        removed = tuple(one.id for one in snapshot.projections if missed.first < one.nominal <= missed.last)
        accounted.append(missed.last)
    return Plan(
        snapshot=snapshot,
        watermark=max([snapshot.watermark, *accounted]),
        planned=tuple(planned),
        closed=closed,
        removed=removed,
        catch_up=decision,
    )


def look_ahead(so_far: Plan, trigger: Trigger, *, kept: dict[Micros, Micros], now: Micros, lookahead: Micros) -> Plan:
    """Plan everything due within the lookahead, and beyond it as many fires as the horizon asks for.

    `kept` are the due times of the projections that stay, by their nominal times.
    """
    schedule = so_far.schedule or so_far.snapshot.schedule
    horizon = schedule.declaration.horizon
    near, far = now + lookahead, now + horizon.days * DAY_SECONDS * SECOND
    ahead = [due for nominal, due in kept.items() if due > near and nominal <= so_far.watermark]
    planned: list[Occurrence] = []
    watermark = so_far.watermark
    upcoming = trigger.next_micros(watermark)
    while upcoming is not None and len(planned) < MAX_AHEAD:
        due = kept.get(upcoming, due_at(trigger, schedule.uid, upcoming))
        if due > near and (len(ahead) >= horizon.occurrences or (ahead and upcoming > far)):
            break
        if upcoming not in kept:
            planned.append(occurrence(schedule, upcoming, due))
        ahead += [due] if due > near else []
        watermark = upcoming
        upcoming = trigger.next_micros(watermark)
    return replace(
        so_far,
        watermark=watermark,
        # When the first fire beyond the lookahead comes within it, another one is needed behind it.
        plan_at=None if upcoming is None else max(now, min(ahead) - lookahead) if ahead else now,
        exhausted=upcoming is None,
        planned=(*so_far.planned, *planned),
    )


def occurrence(schedule: Schedule, nominal: Micros, due: Micros, *, caught_up: Micros | None = None) -> Occurrence:
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
        first_due=due,
        caught_up=caught_up,
    )


def gap_row(schedule: Schedule, trigger: Trigger, missed: Missed, *, phase: Phase) -> Occurrence:
    """One final row for all the fires that did not run; its id is that of the first of them."""
    return replace(
        occurrence(schedule, missed.first, due_at(trigger, schedule.uid, missed.first)),
        phase=phase,
        reason=missed.reason,
        missed_count=missed.count,
        missed_first=missed.first,
        missed_last=missed.last,
    )


def _is_overdue(one: Projection, snapshot: Snapshot, before: Micros) -> bool:
    """Whether nobody took it up in time. What is older than an admitted fire is judged alone, at its claim."""
    newest = MIN_INSTANT if snapshot.admitted is None else snapshot.admitted
    return not one.is_claimed and one.caught_up is None and one.due < before and one.nominal > newest
