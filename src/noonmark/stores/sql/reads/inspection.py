"""Inspection: read every row of every table for damage, in pages by primary key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.ports.records import Damaged, Inspected
from noonmark.stores.sql.row_checks import KINDS, RowCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.ports.records import Position
    from noonmark.stores.sql.session import Values
    from noonmark.stores.sql.unit_of_work import UnitOfWork

PRIMARY = {
    "schedules": ("key",),
    "schedule_states": ("schedule",),
    "occurrences": ("key",),
    "runs": ("occurrence", "fence"),
    "concurrency_keys": ("key",),
    "dependencies": ("schedule", "position"),
    "dependency_graphs": ("tenant",),
    "event_listeners": ("schedule", "event_type"),
    "event_streams": ("tenant",),
    "events": ("key",),
    "notes": ("key",),
    "idempotency_keys": ("key",),
    "secrets": ("key",),
    "api_keys": ("key",),
    "bundles": ("key",),
    "bundle_chunks": ("bundle", "number"),
    "workflows": ("key",),
    "workflow_runs": ("occurrence",),
    "workflow_steps": ("occurrence", "step_id", "element"),
    "step_waits": ("occurrence", "step_id", "event_type"),
    "approvals": ("key",),
    "sessions": ("key",),
    "session_messages": ("session", "number"),
    "mobs": ("key",),
    "target_uses": ("schedule", "kind", "name"),
    "budgets": ("tenant", "scope", "scope_id", "period"),
    "budget_counters": ("tenant", "scope", "scope_id", "period", "period_start"),
    "model_calls": ("tenant", "call_id"),
    "breakers": ("tenant", "username"),
    "halts": ("tenant", "halt_id"),
    "page_sessions": ("digest",),
    "proposals": ("tenant", "schedule_id"),
    "rate_buckets": ("name",),
    "nodes": ("name",),
    "leadership": ("key",),
    "served_routes": ("route",),
}
"""The tables in the order in which they are looked at, and what finds a row of each."""
_TABLES = list(PRIMARY)
_JUDGES = {table: RowCheck(table, list(KINDS[table])) for table in PRIMARY}
_STATES = "SELECT schedule FROM schedule_states WHERE schedule IN EACH(bigint)"
_IDS = "SELECT key, schedule_id FROM schedules WHERE key IN EACH(bigint)"
BELONGS = {
    "schedules": "key",
    "occurrences": "schedule",
    "runs": "schedule",
    "event_listeners": "schedule",
    "target_uses": "schedule",
}
"""The column that names the schedule to which a row belongs."""


def inspect(uow: UnitOfWork, after: Position | None, limit: int) -> Inspected:
    """Look at rows of one table after another, as many as there may be."""
    rows, damaged = 0, list[Damaged]()
    table, place = (_TABLES[0], ()) if after is None else after
    while rows < limit:
        page = _page(uow, table, place, limit - rows)
        damaged += _with_ids(uow, _judged(uow, table, page))
        rows += len(page)
        if page and rows >= limit:
            return Inspected(rows=rows, damaged=tuple(damaged), after=(table, _key(table, page[-1])))
        following = _TABLES[_TABLES.index(table) + 1 :]
        if not following:
            return Inspected(rows=rows, damaged=tuple(damaged))
        table, place = following[0], ()
    return Inspected(rows=rows, damaged=tuple(damaged), after=(table, place))  # asked for none


def _page(uow: UnitOfWork, table: str, place: tuple[Any, ...], limit: int) -> list[Values]:
    keys = ", ".join(PRIMARY[table])
    where = f"WHERE ({keys}) > ({', '.join('?' for _ in place)})" if place else ""
    text = f"SELECT {', '.join(KINDS[table])} FROM {table} {where} ORDER BY {keys} LIMIT ?"
    return uow.session.query(text, *place, limit)


def _judged(uow: UnitOfWork, table: str, rows: Sequence[Values]) -> Iterator[tuple[Any, Damaged]]:
    """What is wrong with each row, with the number of its schedule, and with rows that belong to no schedule."""
    kinds = KINDS[table]
    lost = _without_schedule(uow, table, rows)
    unread = _unreadable(uow, rows) if table == "schedules" else {}
    for values in rows:
        row = dict(zip(kinds, values, strict=True))
        key = ", ".join(str(one) for one in _key(table, values))
        problems = _JUDGES[table].all_problems(values, narrow=uow.session.is_narrow)
        for name, kind in kinds.items():
            if name not in problems and (problem := kind.misread(row[name])):
                problems[name] = problem
        belongs = BELONGS.get(table, "")
        if belongs and row[belongs] in lost and belongs not in problems:
            problems[belongs] = "is that of no schedule" if table != "schedules" else "has no state"
        if not problems and values[0] in unread:
            problems["terms_document"] = unread[values[0]]
        if table == "schedule_states" and isinstance(row["fault"], str):
            problems["fault"] = f"says why it was set aside: {row['fault']}"
        for name, problem in problems.items():
            schedule = row.get("key" if table == "schedules" else "schedule")
            yield schedule, Damaged(table=table, key=key, column=name, problem=problem)


def _with_ids(uow: UnitOfWork, cells: Iterator[tuple[Any, Damaged]]) -> list[Damaged]:
    """Damaged cells with the ids of the schedules that their rows are about."""
    named = list(cells)
    numbers = sorted({number for number, _ in named if type(number) is int})
    ids = uow.session.query(_IDS, numbers) if numbers else []
    texts = {number: text for number, text in ids if isinstance(text, str)}
    return [replace(cell, schedule_id=texts.get(number)) for number, cell in named]


def _without_schedule(uow: UnitOfWork, table: str, rows: Sequence[Values]) -> set[Any]:
    """The numbers of schedules that have no state."""
    if table not in BELONGS:
        return set()
    place = list(KINDS[table]).index(BELONGS[table])
    named = {values[place] for values in rows if type(values[place]) is int}
    return named - {schedule for (schedule,) in uow.session.query(_STATES, sorted(named))}


def _unreadable(uow: UnitOfWork, rows: Sequence[Values]) -> dict[Any, str]:
    """What keeps schedules from being restored, though each cell may be sound."""
    read = uow.schedule_cache.read(uow.session, {values[0]: -1 for values in rows})
    return {key: str(one) for key, one in read.items() if isinstance(one, Exception)}


def _key(table: str, values: Values) -> tuple[Any, ...]:
    columns = list(KINDS[table])
    return tuple(values[columns.index(name)] for name in PRIMARY[table])
