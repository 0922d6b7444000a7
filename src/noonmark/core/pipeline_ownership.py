"""Pipeline ownership: the schedules of a run belong to the node that runs it.

The run deletes them when their stage has ended. If its process dies, another node deletes them. Their ids say whose
they are. A schedule that a caller created under such an id is none of them, nor is one with a name.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY, SECOND
from noonmark.core.schedule import TRUSTED

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule

PREFIX = "pipeline_"
BEYOND = "pipeline`"
"""The first text after all that begin with the prefix."""
STOPPED_FOR: Micros = 60 * SECOND
"""How long schedules outlive a node that stopped: it may start again under its name within this time."""
UNKNOWN_FOR: Micros = 2 * DAY
"""How old schedules of an unknown node must be to be abandoned: it was silent for days, or has just started."""


def pipeline_schedule_id(node: str, uid: str) -> str:
    """The id of a schedule of a pipeline that a node runs."""
    return f"{PREFIX}{owner_key(node)}_{uid}"


def owner_key(node: str) -> str:
    """The part of the ids of its schedules that stands for a node."""
    return blake2b(node.encode(), digest_size=8, person=b"noonmark-pipe").hexdigest()


def owner_of(schedule: Schedule) -> str | None:
    """The key of the node that runs the pipeline of a schedule; None if it is not that of a pipeline."""
    is_declared = schedule.source != TRUSTED or schedule.declaration.name is not None
    if is_declared or not schedule.schedule_id.startswith(PREFIX):
        return None
    return schedule.schedule_id.removeprefix(PREFIX).partition("_")[0]


def is_abandoned(schedule: Schedule, *, is_alive: bool, left: Micros | None, is_known: bool, now: Micros) -> bool:
    """Whether the node that runs the pipeline of a schedule is gone, as its record says."""
    if not is_known:
        return now - schedule.created > UNKNOWN_FOR
    return not is_alive and (left is None or now - left > STOPPED_FOR)
