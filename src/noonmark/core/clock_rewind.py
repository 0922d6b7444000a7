"""Clock rewind: a schedule that a fast clock planned too far is planned again from the correct time.

A watermark that lies further ahead than any plan made now could put it is set back to now. A gap that reaches beyond
now is shortened to its fires up to now, or undone if it has none, and projections that no plan made now would have are
withdrawn. What ran ahead of its time keeps its outcome, and is not named again. So every fire has one outcome, and the
sum of them is the number of fires.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.clock_trust import LEAP
from noonmark.core.lifecycle import SchedulePhase, step_schedule
from noonmark.core.planner import Plan, Rewound, is_used_up, look_ahead, occurrence, timed_trigger
from noonmark.core.policies.fires import without

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Gap, Snapshot
    from noonmark.core.policies.fires import Stretch
    from noonmark.core.policies.jitter import Fires
    from noonmark.core.triggers import Trigger


def rewind(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan | None:
    """What to write of a schedule whose `beyond` and `gaps` reach back to now; None if a plan made now could be so."""
    schedule, trigger = snapshot.schedule, timed_trigger(snapshot.schedule)
    if trigger is None or schedule.phase is SchedulePhase.DELETED or is_used_up(schedule, snapshot.runs):
        return None
    stretches = {(gap.first, gap.last) for gap in snapshot.gaps}
    single = tuple(one for one in snapshot.beyond if one not in stretches)
    if not _is_ahead(snapshot, without(trigger, single), now=now, lookahead=lookahead):
        return None
    rewound = _correct(snapshot, trigger, single, now=now)
    replanned = _catch_up_anew(snapshot, now=now)
    plan = Plan(snapshot=snapshot, watermark=now, planned=tuple(replanned), rewound=rewound)
    if schedule.phase is SchedulePhase.PAUSED:
        return plan
    if schedule.phase is SchedulePhase.COMPLETED:
        if without(trigger, single).next_micros(now) is None:
            return None
        plan = replace(
            plan, schedule=replace(schedule, phase=step_schedule(schedule.phase, SchedulePhase.ACTIVE), updated=now)
        )
    due_times = {one.nominal: one.due for one in snapshot.projections if one.nominal > now and one.caught_up is None}
    # It is looked ahead as if the plan had been made now: with what lies beyond now, and no further.
    ahead = look_ahead(
        replace(plan, snapshot=replace(snapshot, beyond=single)), due_times=due_times, now=now, lookahead=lookahead
    )
    removed = tuple(one.id for one in snapshot.projections if one.nominal > ahead.watermark)
    return replace(ahead, snapshot=snapshot, removed=removed)


def _is_ahead(snapshot: Snapshot, fires: Fires, *, now: Micros, lookahead: Micros) -> bool:
    """Whether more is accounted for than a plan made now would, by a margin that no two clocks differ by."""
    if any(gap.last > now + LEAP for gap in snapshot.gaps):
        return True
    if snapshot.schedule.phase is SchedulePhase.COMPLETED:
        return False
    near = now + lookahead + fires.jitter + LEAP
    ahead = fires.count_micros(near, snapshot.watermark) if snapshot.watermark > near else 0
    return ahead > snapshot.schedule.declaration.horizon.occurrences


def _correct(snapshot: Snapshot, trigger: Trigger, single: Sequence[Stretch], *, now: Micros) -> Rewound:
    """What becomes of gaps that reach beyond now, and the newest time that has an outcome then."""
    undone = tuple(gap.id for gap in snapshot.gaps if gap.first > now)
    shortened = tuple(_shorten(snapshot, trigger, gap, now=now) for gap in snapshot.gaps if gap.first <= now)
    times = [last for _, last in single] + [gap.last for gap in shortened]
    # The fire before now is the newest that can have one, where only what is undone came after it.
    newest = max(times) if times else trigger.previous_micros(now + 1)
    if snapshot.admitted is None or (newest is not None and snapshot.admitted < newest):
        newest = snapshot.admitted
    return Rewound(newest=newest, undone=undone, shortened=shortened)


def _shorten(snapshot: Snapshot, trigger: Trigger, gap: Gap, *, now: Micros) -> Gap:
    """A gap up to now. What began after it and has an outcome of its own was never counted in it."""
    inside = [one for one in snapshot.beyond if one[0] > gap.first]
    gone = without(trigger, inside).count_micros(now, gap.last)
    last = trigger.previous_micros(now + 1)
    return replace(gap, last=gap.first if last is None else max(gap.first, last), count=max(1, gap.count - gone))


def _catch_up_anew(snapshot: Snapshot, *, now: Micros) -> list[Occurrence]:
    """Fires up to now that were to be caught up by the time that was ahead are caught up now."""
    late = [
        projection
        for projection in snapshot.projections
        if projection.nominal <= now and projection.caught_up is not None
    ]
    return [
        occurrence(snapshot.schedule, projection.nominal, now, first_due=projection.first_due, caught_up=now)
        for projection in late
        if projection.caught_up is not None and projection.caught_up > now
    ]
