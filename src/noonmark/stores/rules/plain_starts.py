"""Plain starts: those that change nothing but their own row and schedule.

Nearly all starts of a burst are plain: the row never began or waited, and takes nothing but the slot. They skip the
rules that cannot concern them, which is a third of the cost of an admission in memory. What is not plain is left to
`stores.rules.admission`, and a test compares both ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase
from noonmark.core.system_events import SystemEvent, is_late
from noonmark.core.targets import AGENT_KINDS, BundleTarget
from noonmark.stores.rules import completion

if TYPE_CHECKING:
    from noonmark.core.admission import Start
    from noonmark.core.instants import Micros
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork

_DISPATCHING = Phase.DISPATCHING


def takes_only_slot(start: Start) -> bool:
    """Whether a start waits for no turn, names no bundle, and has nothing to watch, to count or to reserve."""
    declaration = start.claim.schedule.declaration
    return not (
        start.is_in_line
        or start.concurrency is not None
        or start.keys
        or start.max_runs is not None
        or start.reservation is not None
        or declaration.expected is not None
        or declaration.expected_rate is not None
        or declaration.runaway is not None  # its starts are counted
        or declaration.target.kind in AGENT_KINDS  # likewise, and it is expected to end before the next fire
        or isinstance(declaration.target, BundleTarget)
    )


def start_if_plain(
    uow: UnitOfWork, row: Row, state: ScheduleState, start: Start, *, now: Micros, until: Micros
) -> bool:
    """Start a claimed row if that is plain; returns whether it was."""
    if row.attempt or row.losses or row.reason is not None or row.waiting_for is not None or row.stop is not None:
        return False
    if row.own is not None or row.place is not None or row.deadline is not None or not takes_only_slot(start):
        return False
    if start.takes_slot and state.holder is not None and state.holder != row.key:
        return False
    if uow.halts(start.claim.schedule.owner.tenant):
        return False
    if is_late(row.first_due, now) and uow.may_have_subscribers(state, SystemEvent.STARTED_LATE):
        return False
    row.phase, row.revision, row.attempt = _DISPATCHING, state.revision, 1
    row.started, row.lease_end = now, until
    if row.late is None:
        row.late = now - row.first_due
    if start.takes_slot:
        state.holder, row.holds_slot = row.key, 1
    if row.is_own:
        state.admitted += 1
    state.last_started = max(now, row.due)
    completion.note_admitted(state, row)
    uow.changed(row)
    uow.changed_state(state)
    return True
