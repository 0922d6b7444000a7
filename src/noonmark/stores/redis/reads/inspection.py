"""Inspection: read every record of every table for damage, in pages.

A hash has no order. A position is where its scan goes on, and how many of the records found there were looked at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.ports.records import Damaged, Inspected
from noonmark.stores.redis.schema.tables import TABLES
from noonmark.stores.redis.schema.workflows import BUNDLE_CHUNKS
from noonmark.stores.redis.transactions.ordered import decode
from noonmark.stores.redis.transactions.transaction import shown_key
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.sql.reads.inspection import BELONGS
from noonmark.stores.sql.row_checks import KINDS, RowCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noonmark.ports.records import Position
    from noonmark.stores.redis.transactions.table import Table
    from noonmark.stores.redis.unit_of_work import UnitOfWork

    Row = tuple[str, dict[str, Any]]
    """The key of a record, as text, and its columns."""

RECORD = "record"
"""What is damaged of a record that cannot be read at all."""
_NAMES = [name for name in TABLES if name != BUNDLE_CHUNKS.name]  # to read all chunks takes long
_CHECKS = {name: RowCheck(name, list(KINDS[name])) for name in _NAMES}


def inspect(uow: UnitOfWork, after: Position | None, limit: int) -> Inspected:
    """Look at records of one table after another, as many as there may be."""
    uow.transaction.begin()
    seen, damaged = 0, list[Damaged]()
    name, (cursor, skipped) = (_NAMES[0], (0, 0)) if after is None else after
    while seen < limit:
        following, stored = uow.transaction.client.scan(name, cursor, limit)
        left = sorted(stored.items())[skipped:]
        page, rest = left[: limit - seen], left[limit - seen :]
        seen += len(page)
        damaged += _with_ids(uow, _judged(uow, TABLES[name], page))
        if rest:
            return Inspected(rows=seen, damaged=tuple(damaged), after=(name, (cursor, skipped + len(page))))
        cursor, skipped = following, 0
        if cursor == 0:
            beyond = _NAMES[_NAMES.index(name) + 1 :]
            if not beyond:
                return Inspected(rows=seen, damaged=tuple(damaged))
            name = beyond[0]
    return Inspected(rows=seen, damaged=tuple(damaged), after=(name, (cursor, skipped)))


def _judged(uow: UnitOfWork, table: Table, page: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[int | None, Damaged]]:
    """What is wrong with each record, with the number of its schedule."""
    rows: list[Row] = []
    for field, stored in page:
        key = shown_key(decode(field))
        try:
            values = table.from_text(stored.partition(b":")[2])
        except ValueError as error:
            yield None, Damaged(table=table.name, key=key, column=RECORD, problem=f"cannot be read: {error}")
        else:
            rows.append((key, table.named(values)))
    belongs = BELONGS.get(table.name, "")
    lost = _without_state(uow, {row[belongs] for _, row in rows}) if belongs else set()
    unread = _unreadable(uow, rows) if table.name == "schedules" else {}
    for key, row in rows:
        problems = _problems(table.name, row)
        if belongs and row[belongs] in lost and belongs not in problems:
            problems[belongs] = "is that of no schedule" if table.name != "schedules" else "has no state"
        if not problems and row.get("key") in unread:
            problems["terms_document"] = unread[row["key"]]
        if table.name == "schedule_states" and isinstance(row["fault"], str):
            problems["fault"] = f"says why it was set aside: {row['fault']}"
        schedule = row.get("key" if table.name == "schedules" else "schedule")
        for column, problem in problems.items():
            yield schedule, Damaged(table=table.name, key=key, column=column, problem=problem)


def _problems(table: str, row: Mapping[str, Any]) -> dict[str, str]:
    kinds = KINDS[table]
    problems = dict(_CHECKS[table].all_problems([row.get(name) for name in kinds]))
    for name, kind in kinds.items():
        if name not in problems and (problem := kind.misread(row.get(name))):
            problems[name] = problem
    return problems


def _with_ids(uow: UnitOfWork, cells: Iterator[tuple[int | None, Damaged]]) -> list[Damaged]:
    """Damaged cells with the ids of the schedules that their records are about."""
    named = list(cells)
    ids = uow.schedule_ids({number for number, _ in named if type(number) is int})
    return [replace(cell, schedule_id=None if number is None else ids.get(number)) for number, cell in named]


def _without_state(uow: UnitOfWork, keys: set[Any]) -> set[int]:
    """The numbers of schedules that have no state."""
    state_keys = [(key,) for key in keys if type(key) is int]
    uow.states.read(state_keys, hint=True)
    return {key for (key,) in state_keys} - {key for (key,) in uow.states.get_many(state_keys)}


def _unreadable(uow: UnitOfWork, rows: Sequence[Row]) -> dict[int, str]:
    """What keeps schedules from being restored, though each cell may be sound."""
    states = uow.states_of([row["key"] for _, row in rows if type(row["key"]) is int])
    read = uow.schedules_of(states)
    return {key: str(one) for key, one in read.items() if isinstance(one, Unreadable)}
