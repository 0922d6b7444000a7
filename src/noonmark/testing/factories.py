"""Values for tests, with a default for every field, so that a test names only the fields that matter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.ids import occurrence_id
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence
from noonmark.core.policies import misfire, overlap
from noonmark.core.schedule import Declaration, Owner, Schedule
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import IntervalTrigger

if TYPE_CHECKING:
    from noonmark.core.ids import Origin
    from noonmark.core.instants import Micros

NOW: Micros = 1_900_000_020 * SECOND
"""The moment at which tests begin: a whole minute of the year 2030."""
MINUTE: Micros = 60 * SECOND


def declaration(**changes: Any) -> Declaration:
    """Every minute from the minute after `NOW`, the function `work`, the policies that a document has by default."""
    every_minute = IntervalTrigger(60, start_at=from_micros(NOW + MINUTE))
    default = Declaration(
        target=FunctionTarget(function="work"),
        trigger=every_minute,
        overlap_policy=overlap.Skip(),
        misfire_policy=misfire.Skip(),
    )
    return replace(default, **changes)


def schedule(
    uid: str = "uid-1",
    *,
    schedule_id: str | None = None,
    owner: Owner | None = None,
    created: Micros = NOW,
    phase: SchedulePhase = SchedulePhase.ACTIVE,
    **changes: Any,
) -> Schedule:
    """The first revision of a schedule; what is not its own belongs to its declaration."""
    return Schedule(
        uid=uid,
        schedule_id=f"schedule-of-{uid}" if schedule_id is None else schedule_id,
        owner=Owner(tenant="acme", user="ada") if owner is None else owner,
        declaration=declaration(**changes),
        revision=1,
        phase=phase,
        source="test",
        created=created,
        updated=created,
    )


def occurrence(
    of: Schedule,
    origin: Origin,
    *,
    nominal: Micros = NOW,
    due: Micros | None = None,
    **changes: Any,
) -> Occurrence:
    """A pending occurrence of a schedule, due at its nominal time."""
    due = nominal if due is None else due
    pending = Occurrence(
        id=occurrence_id(of.uid, origin, nominal),
        uid=of.uid,
        schedule_id=of.schedule_id,
        revision=of.revision,
        origin=origin,
        phase=Phase.PENDING,
        route=of.declaration.target.route,
        nominal=nominal,
        due=due,
        first_due=due,
    )
    return replace(pending, **changes)
