"""Clock repair: the newest time that is stored, and setting back what a clock that was ahead has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import SchedulePhase
from noonmark.stores.redis.accounts import audit_log
from noonmark.stores.redis.schema.schedules import LEADERSHIP, NODES, OCCURRENCES, SERVED_ROUTES, STATES
from noonmark.stores.rules import snapshots
from noonmark.stores.rules.clock_repair import repair_row, repair_state
from noonmark.stores.rules.records import Row, ScheduleState
from noonmark.stores.sql.records import ROW_COLUMNS, STATE_COLUMNS
from noonmark.stores.sql.row_checks import ROWS, number
from noonmark.stores.sql.row_checks import STATES as STATE_CHECK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.stores.redis.transactions.transaction import Records
    from noonmark.stores.redis.unit_of_work import UnitOfWork

_UID, _WATERMARK, _PHASE = (STATES.columns.index(name) for name in ("uid", "watermark", "phase"))


def newest_time(uow: UnitOfWork, before: Micros | None) -> Micros | None:
    """The newest time that something was written, or the newest before another."""
    until = None if before is None else (before,)
    indexes: list[tuple[Records, str, tuple[str, ...]]]
    indexes = [(uow.transaction.records(NODES), "by_seen", ()), (uow.rows, "ended", ())]
    indexes += [(uow.rows, "leased", (route,)) for route in uow.live_routes()]
    uow.transaction.preload(
        records.question(index, partition, before=until, limit=1, newest_first=True)
        for records, index, partition in indexes
    )
    times = [
        number(entry[0], 0)
        for records, index, partition in indexes
        for entry in records.entries(index, partition, before=until, limit=1, newest_first=True, hint=True)
    ]
    noted = audit_log.newest_time(uow.transaction, before)
    return max([*times, *([] if noted is None else [noted])], default=None)


def planned_ahead(uow: UnitOfWork, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
    """Schedules that are accounted for beyond a time; a page is full unless it is the last. This reads all states."""
    ahead = sorted(
        (values[_UID], key)
        for (key,), values in uow.transaction.scan(STATES)
        if number(values[_WATERMARK], 0) > until and values[_PHASE] != SchedulePhase.DELETED
    )
    keys = [key for uid, key in dict.fromkeys(ahead) if uid > after]
    page: list[Snapshot] = []
    for begin in range(0, len(keys), limit):
        states = uow.states_of(keys[begin : begin + limit])
        page += snapshots.of_sound(uow, states, since=now)[0]
        if len(page) >= limit:
            break
    return page[:limit]


def rows_ahead(uow: UnitOfWork, *, now: Micros, after: Micros, lease: Micros) -> list[int]:
    """The keys of the rows that have a time that is too far ahead. This reads all rows."""
    ahead = []
    for (key,), values in uow.transaction.scan(OCCURRENCES):
        columns = values[: len(ROW_COLUMNS)]
        if not ROWS.problems(columns) and repair_row(Row(*columns), now=now, after=after, lease=lease):
            ahead.append(key)
    return ahead


def states_ahead(uow: UnitOfWork, *, now: Micros, after: Micros) -> list[int]:
    """The keys of the schedules that are to be planned too late. This reads all of them."""
    ahead = []
    for (key,), values in uow.transaction.scan(STATES):
        columns = values[: len(STATE_COLUMNS)]
        if not STATE_CHECK.problems(columns) and repair_state(ScheduleState(*columns), now=now, after=after):
            ahead.append(key)
    return ahead


def repair_rows(uow: UnitOfWork, keys: Sequence[int], *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back the times of rows; returns how many."""
    count = 0
    for row in uow.rows_of(keys):
        if repaired := repair_row(row, now=now, after=after, lease=lease):
            uow.changed(row)
            count += repaired
    return count


def repair_states(uow: UnitOfWork, keys: Sequence[int], *, now: Micros, after: Micros) -> int:
    """Plan schedules now; returns how many."""
    repaired = [state for state in uow.states_of(keys) if repair_state(state, now=now, after=after)]
    for state in repaired:
        uow.changed_state(state)
    return len(repaired)


def repair_others(uow: UnitOfWork, *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back heartbeats, the lease of the leader, audit entries and first uses of keys; returns how many."""
    count = 0
    for table in (NODES, SERVED_ROUTES):
        records, place = uow.transaction.records(table), table.columns.index("seen")
        for values in records.find("by_seen", after=(after,)):
            records.put((*values[:place], now, *values[place + 1 :]))
            count += 1
    leadership = uow.transaction.records(LEADERSHIP)
    for values in leadership.get_many([(1,)]).values():
        if values[2] is not None and number(values[3], 0) > after:
            leadership.put((*values[:3], now + lease))
            count += 1
    return count + audit_log.repair(uow.transaction, now=now, after=after)
