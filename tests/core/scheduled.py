"""Schedules around one noon, for the tables of the ledger's rules; times are written in seconds from it."""

from datetime import UTC, datetime

from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import Projection, Snapshot
from noonmark.core.policies import misfire, overlap
from noonmark.core.schedule import Declaration, Owner, Schedule
from noonmark.core.targets.work import FunctionTarget
from noonmark.core.triggers import IntervalTrigger

NOON = to_micros(datetime(2026, 11, 15, 12, 0, tzinfo=UTC))
LOOKAHEAD = 2 * SECOND
LEASE = 15 * SECOND
UID = "u1"


def at(seconds):
    """The instant so many seconds after noon, in microseconds."""
    return NOON + int(seconds * SECOND)


def moment(seconds):
    return from_micros(at(seconds))


def after_noon(micros):
    return None if micros is None else (micros - NOON) / SECOND


def one_id(seconds):
    return occurrence_id(UID, TRIGGER, at(seconds))


def every(seconds, *, start=0, end=None, jitter=0):
    return IntervalTrigger(seconds, moment(start), None if end is None else moment(end), jitter_seconds=jitter)


def declared(trigger, **fields):
    usual = {
        "overlap_policy": overlap.Skip(),
        "misfire_policy": misfire.Skip(),
        "target": FunctionTarget(function="tidy"),
    }
    return Declaration(trigger=trigger, **(usual | fields))


def scheduled(trigger=None, *, phase=SchedulePhase.ACTIVE, created=0, revision=1, **fields):
    return Schedule(
        uid=UID,
        schedule_id="s1",
        owner=Owner(tenant="t", user="u"),
        declaration=declared(trigger or every(100), **fields),
        revision=revision,
        phase=phase,
        source="test",
        created=at(created),
        updated=at(created),
    )


def projected(nominal, due=None, **fields):
    """A projection of a time; what is not said is as the planner makes it."""
    due = nominal if due is None else due
    for name in ("caught_up", "first_due"):
        if name in fields:
            fields[name] = at(fields[name])
    return Projection(id=one_id(nominal), nominal=at(nominal), due=at(due), **fields)


def read(schedule, watermark, *projections, admitted=None):
    """A snapshot; a bare number among the projections is the time of an ordinary one."""
    rows = tuple(one if isinstance(one, Projection) else projected(one) for one in projections)
    return Snapshot(
        schedule=schedule,
        watermark=at(watermark),
        projections=rows,
        admitted=None if admitted is None else at(admitted),
    )


def planned(plan):
    """What a plan wants to run: (nominal, due, caught up), in seconds after noon."""
    return [(after_noon(row.nominal), after_noon(row.due), after_noon(row.caught_up)) for row in plan.planned]


def nominals(plan):
    return [after_noon(row.nominal) for row in plan.planned]


def closed(plan):
    """The gaps of a plan: (phase/reason, count, first, last)."""
    return [
        (f"{row.phase}/{row.reason}", row.missed_count, after_noon(row.missed_first), after_noon(row.missed_last))
        for row in plan.closed
    ]


def ids(*seconds):
    return tuple(one_id(one) for one in seconds)
