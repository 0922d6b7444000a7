"""Which schedules match a filter, by their columns: their documents are not read."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase
from noonmark.ports.records import lowered
from noonmark.stores.redis.schema.schedules import EVENT_LISTENERS, SCHEDULES, STATES
from noonmark.stores.sql.schedule_documents import label_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import ScheduleFilter
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

_GIVEN = [SCHEDULES.columns.index(name) for name in ("username", "route", "name", "fingerprint")]
_TEXTS = [SCHEDULES.columns.index(name) for name in ("schedule_id", "name", "description")]
_KIND, _LABELS = SCHEDULES.columns.index("trigger_type"), SCHEDULES.columns.index("labels")
_PHASE, _LAST_PHASE = STATES.columns.index("phase"), STATES.columns.index("last_phase")


def matching(uow: UnitOfWork, keys: Iterable[int], wanted: ScheduleFilter | None) -> list[int]:
    """Those of some schedules that match a filter, in their order."""
    record_keys = [(key,) for key in keys]
    if wanted is None:
        return [key for (key,) in record_keys]
    uow.schedules.read(record_keys, hint=True)
    lines = [label_line(name, value) for name, value in wanted.labels.items()]
    matches = [
        key for (key,), values in uow.schedules.get_many(record_keys).items() if _has_columns(values, wanted, lines)
    ]
    if wanted.phases or wanted.last_phases:
        matches = _in_phases(uow, matches, wanted)
    if wanted.event_type is not None:
        listeners = uow.transaction.records(EVENT_LISTENERS)
        listeners.read(((key, wanted.event_type) for key in matches), hint=True)
        listening = listeners.get_many((key, wanted.event_type) for key in matches)
        matches = [key for key in matches if (key, wanted.event_type) in listening]
    if wanted.asks_next:
        times = _next_times(uow, matches)
        matches = [key for key in matches if wanted.is_next(times.get(key))]
    return matches


def _has_columns(values: Values, wanted: ScheduleFilter, lines: Sequence[str]) -> bool:
    given = (wanted.user, wanted.target, wanted.name, wanted.fingerprint)
    if any(one is not None and values[place] != one for place, one in zip(_GIVEN, given, strict=True)):
        return False
    if wanted.kinds and values[_KIND] not in wanted.kinds:
        return False
    labels = values[_LABELS]
    if lines and not (isinstance(labels, str) and all(line in labels for line in lines)):
        return False
    texts = [values[place] for place in _TEXTS if isinstance(values[place], str)]
    return not wanted.text or any(lowered(wanted.text) in lowered(one) for one in texts)


def _in_phases(uow: UnitOfWork, keys: Sequence[int], wanted: ScheduleFilter) -> list[int]:
    uow.states.read(((key,) for key in keys), hint=True)
    return [
        key
        for (key,), values in uow.states.get_many((key,) for key in keys).items()
        if (not wanted.phases or values[_PHASE] in wanted.phases)
        and (not wanted.last_phases or values[_LAST_PHASE] in wanted.last_phases)
    ]


def _next_times(uow: UnitOfWork, keys: Sequence[int]) -> dict[int, Micros]:
    """When schedules are next due by their triggers; of rows that wait, that is not known."""
    live = [key for of_one in uow.rows.find_each("live", [(key,) for key in keys], hint=True) for (key,) in of_one]
    uow.rows.read(((key,) for key in live), hint=True)
    times: defaultdict[int, list[Micros]] = defaultdict(list)
    for row in uow.rows_of(live):
        if row.is_own and _is_ahead(row):
            times[row.schedule].append(row.due)
    return {key: min(dues) for key, dues in times.items()}


def _is_ahead(row: Row) -> bool:
    is_ready = row.phase == Phase.PENDING and not row.held and row.ready is not None and row.waiting_for is None
    return row.phase == Phase.CLAIMED or is_ready
