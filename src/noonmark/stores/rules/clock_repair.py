"""Clock repair: setting back what was written while the clock was ahead.

The SQL stores do the same to whole tables, by statements: there may be millions of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.retry import LONGEST_RETRY

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.stores.rules.records import Row, ScheduleState


def repair_row(row: Row, *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back the times of a row that are too far ahead; returns how many were.

    A projection keeps its due time: that is what its trigger names. What was asked for, or is retried, is due now.
    """
    count = 0
    if row.phase == Phase.PENDING and row.ready is not None:
        if row.ready > row.due and row.ready > after:
            row.ready, count = now, 1
        is_asked = row.origin != TRIGGER and row.attempt == 0 and row.due > after
        is_retry = row.attempt > 0 and row.due - LONGEST_RETRY > after
        if is_asked or is_retry:
            row.due = row.ready = now
            count += 1
    elif row.lease_end is not None and row.due > after:
        row.due, count = now, 1
    if row.lease_end is not None and row.lease_end > after:
        row.lease_end = now + lease
        count += 1
    elif row.ended is not None and row.ended > after:
        row.ended = now
        count += 1
    return count


def repair_state(state: ScheduleState, *, now: Micros, after: Micros) -> bool:
    """Plan a schedule now whose time to plan is too far ahead, and not because it is accounted for until then."""
    is_ahead = state.plan_at is not None and state.plan_at > after and state.plan_at > state.watermark
    if is_ahead:
        state.plan_at = now
    return is_ahead
