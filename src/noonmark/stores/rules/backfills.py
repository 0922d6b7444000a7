"""Backfills: their occurrences are held, released and cancelled together, and counted."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from noonmark.core.ids import backfill
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import BACKFILL_PAUSED
from noonmark.core.reasons import Reason
from noonmark.ports.records import BackfillChange, BackfillProgress
from noonmark.stores.rules import completion, slots, step_ends
from noonmark.stores.rules.completion import to_detail
from noonmark.stores.rules.records import PHASES, UNSTARTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Pause
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork

PREFIX = "backfill:"


class PhaseCount(NamedTuple):
    """The occurrences of one backfill in one phase."""

    origin: str
    phase: str
    number: int
    first: Micros
    last: Micros
    requested: Micros
    held: int


def progress(counts: Iterable[PhaseCount]) -> list[BackfillProgress]:
    """Backfills from the counts of their phases, the last one requested first, then by id."""
    by_origin: dict[str, list[PhaseCount]] = {}
    for count in counts:
        by_origin.setdefault(count.origin, []).append(count)
    backfills = [
        BackfillProgress(
            backfill_id=origin.removeprefix(PREFIX),
            requested=min(one.requested for one in each),
            first=min(one.first for one in each),
            last=max(one.last for one in each),
            phases=_phases(each),
            held=sum(one.held for one in each),
        )
        for origin, each in by_origin.items()
    ]
    return sorted(backfills, key=lambda one: (-one.requested, one.backfill_id))


def _phases(counts: Iterable[PhaseCount]) -> dict[Phase, int]:
    phases: Counter[Phase] = Counter()
    for count in counts:
        if (phase := PHASES.get(count.phase)) is not None:
            phases[phase] += count.number
    return dict(phases)


def change(uow: UnitOfWork, uid: str, backfill_id: str, change: BackfillChange, why: Pause | None = None) -> int:
    """Hold, release or cancel the occurrences of a backfill; returns how many are changed."""
    state = uow.load_states([uid]).get(uid)
    if state is None:
        return 0
    origin = backfill(backfill_id)
    rows = [row for row in uow.live_rows(state) if row.origin == origin]
    match change:
        case BackfillChange.HOLD:
            rows = [row for row in rows if row.phase in UNSTARTED and not row.is_suspended]
            _note_pause(uow, rows, why)
            return _hold(uow, [row for row in rows if not row.held])
        case BackfillChange.RELEASE:
            return _release(uow, state, [row for row in rows if row.held])
        case BackfillChange.CANCEL:
            return _cancel(uow, state, rows)
    assert_never(change)


def _note_pause(uow: UnitOfWork, rows: list[Row], why: Pause | None) -> None:
    """Store in the detail of each row why it is held. A second pause without a reason changes nothing."""
    if why is None:
        return
    for row in rows:
        facts, pause = _facts(row), why.to_document()
        before = facts.get(BACKFILL_PAUSED)
        if isinstance(before, dict):
            pause = before if why.reason is None else pause | {"at_utc": before.get("at_utc")}
        facts[BACKFILL_PAUSED] = pause
        row.detail = to_detail(facts)
        uow.changed(row)


def _facts(row: Row) -> dict[str, Any]:
    try:
        facts = json.loads(row.detail or "{}")
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _hold(uow: UnitOfWork, rows: list[Row]) -> int:
    slots.hold(uow, rows)
    for row in rows:  # once all of them are held: none may get what another one gives back
        slots.free_all(uow, uow.state_of(row), row)
        uow.changed(row)
    return len(rows)


def _release(uow: UnitOfWork, state: ScheduleState, rows: list[Row]) -> int:
    for row in rows:
        row.held = 0
        facts = _facts(row)
        if facts.pop(BACKFILL_PAUSED, None) is not None:
            row.detail = to_detail(facts)
        uow.changed(row)
    slots.hand_over_slot(uow, state)
    slots.hand_over_keys(uow, [row.wanted for row in rows])
    uow.wakes_nodes = True
    return len(rows)


def _cancel(uow: UnitOfWork, state: ScheduleState, rows: list[Row]) -> int:
    changed = 0
    # The last one first: ending one may hand its slot to the next, which would only be ended as well.
    for row in sorted(rows, key=lambda row: row.turn, reverse=True):
        if uow.ends_itself(row):
            step_ends.stop_suspended(uow, row, Reason.CANCELLED)
            changed += 1
        elif row.phase in UNSTARTED:
            completion.cancel(uow, row, Reason.CANCELLED)
            changed += 1
        elif row.phase == Phase.DISPATCHING:
            row.stop = Reason.CANCELLED
            uow.changed(row)
            changed += 1
    completion.complete_if_done(uow, state)
    return changed
