"""Salvage: give a record with damaged cells values that a transaction can work with, without failing others.

What can be counted again is counted, and what is only shown to people starts anew; then the schedule goes on. If other
values are damaged, the schedule gets a fault, and is not planned until it is edited. An occurrence is ended. Either is
written only together with another change of the record: reading changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.core.reasons import Reason
from noonmark.stores.sql.records import KEY_COLUMNS, ROW_COLUMNS, STATE_COLUMNS
from noonmark.stores.sql.row_checks import KINDS, RowCheck, describe_problems, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState
    from noonmark.stores.sql.session import Session

STATES = RowCheck("schedule_states", STATE_COLUMNS)
ROWS = RowCheck("occurrences", ROW_COLUMNS)
KEYS = RowCheck("concurrency_keys", KEY_COLUMNS)
GOES_ON = frozenset({
    "fault", "patience", "fences", "holder", "live", "history", "queued", "total", "successful", "failed", "missed",
    "skipped", "failures_in_row", "last_started", "last_phase", "news", "followed", "version", "sent_back", "ended_at",
    "completed_at", "owner", "leads", "rate_window",
})  # fmt: skip
"""With any of these damaged, a schedule goes on."""
_COUNTED = frozenset({"holder", "live", "history", "queued", "fences"})
_IDENTITIES = frozenset({"key", "schedule", "tenant", "name"})
_COUNTS = """
    SELECT count(*) - count(ended), count(ended),
        coalesce(sum(CASE WHEN phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL THEN 1 ELSE 0 END), 0),
        max(CASE WHEN holds_slot = 1 THEN key END), max(CASE WHEN fence < 1000000000 THEN fence END)
    FROM occurrences WHERE schedule = ?
"""
_FENCES = 1_000_000
"""Far beyond the fence of any row."""
_KEY_COUNTS = """
    SELECT (SELECT count(*) FROM occurrences WHERE place = ?), (SELECT count(*) FROM occurrences WHERE wanted = ?)
"""


def mend_state(session: Session, state: ScheduleState, problems: Mapping[str, str]) -> None:
    """Replace damaged values of a schedule state."""
    now = session.now()
    spare = {
        "uid": f"damaged-{state.schedule}",
        "phase": SchedulePhase.PAUSED,
        "revision": 1,
        "version": now // (60 * SECOND),
        "updated": now,
        # Always the same, since an edit is written only if nothing has changed since it was read.
        "watermark": number(state.newest, number(state.updated, 0)),
        "patience": MIN_PATIENCE,
        "followed": 1,
    }
    _put(state, "schedule_states", problems, spare)
    if not _COUNTED.isdisjoint(problems):
        [(live, history, queued, holder, fence)] = session.query(_COUNTS, state.schedule)
        state.live, state.history, state.queued, state.holder = live, history, int(queued), holder
        if "fences" in problems:
            state.fences = number(fence, 0) + _FENCES
    if not GOES_ON.issuperset(problems):
        state.fault = state.fault or describe_problems(problems)


def mend_row(row: Row, problems: Mapping[str, str], now: Micros) -> None:
    """Replace damaged values of a row, and note the damage on it."""
    time = next((one for one in (row.nominal, row.due, row.first_due) if number(one, -1, low=0) >= 0), now)
    is_over = row.ended is not None and "ended" not in problems
    spare = {
        "id": f"damaged-{row.key}",
        "revision": 1,
        "origin": "manual:damaged",
        "phase": Phase.DELIVERY_FAILED if is_over else Phase.PENDING,
        "reason": Reason.UNREADABLE if is_over else None,
        **dict.fromkeys(("nominal", "due", "first_due"), time),
    }
    _put(row, "occurrences", problems, spare)
    row.damage = describe_problems(problems)


def mend_key(session: Session, key: ConcurrencyKey) -> None:
    """Count again the rows that hold and want a place under a concurrency key."""
    [(key.taken, key.waiting)] = session.query(_KEY_COUNTS, key.key, key.key)


def _put(record: ScheduleState | Row, table: str, problems: Mapping[str, str], spare: Mapping[str, object]) -> None:
    for name in problems:
        if name not in _IDENTITIES:
            kind = KINDS[table][name]
            nothing = None if kind.is_optional else "" if kind.holds is str else 0
            setattr(record, name, spare.get(name, nothing))
