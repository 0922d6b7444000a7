"""Dependencies as records: who depends on a schedule, and the newest fires of upstreams."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.ports.records import Graph
from noonmark.stores.redis.schema.schedules import DEPENDENCIES, DEPENDENCY_GRAPHS, SCHEDULES
from noonmark.stores.rules.records import PHASES
from noonmark.stores.sql.row_checks import number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.redis.schedule_records import ScheduleRecords
    from noonmark.stores.redis.transactions.transaction import Transaction
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.unit_of_work import FireQuestion, Identity

_TENANT, _SCHEDULE_ID, _TRIGGER, _LISTED = (
    SCHEDULES.columns.index(name) for name in ("tenant", "schedule_id", "trigger_document", "is_listed")
)
_PAGE = 8
"""How many rows are read at a time in search of a fire; the first of them usually is one."""


def followed(transaction: Transaction, identities: Collection[Identity]) -> set[Identity]:
    """Those ids that other schedules depend on."""
    records = transaction.records(DEPENDENCIES)
    transaction.preload(
        records.question("by_upstream", (tenant,), prefix=(schedule_id,), limit=1) for tenant, schedule_id in identities
    )
    return {
        (tenant, schedule_id)
        for tenant, schedule_id in identities
        if records.find_keys("by_upstream", (tenant,), prefix=(schedule_id,), limit=1)
    }


def downstream(transaction: Transaction, key: int) -> dict[int, bool]:
    """The schedules that depend on a schedule, in order, and whether each has no trigger.

    Only for the schedule that has the id now: a deleted schedule with that id is no longer an upstream.
    """
    schedules = transaction.records(SCHEDULES)
    own = schedules.get(key)
    if own is None:
        return {}
    tenant, schedule_id = own[_TENANT], own[_SCHEDULE_ID]
    if not own[_LISTED] and schedules.look_up("by_id", tenant, schedule_id) is not None:
        return {}
    entries = transaction.records(DEPENDENCIES).entries("by_upstream", (tenant,), prefix=(schedule_id,))
    others = schedules.get_many((entry[1],) for entry in sorted(entries, key=lambda entry: number(entry[1], 0)))
    return {other: values[_TRIGGER] is None for (other,), values in others.items()}


def replace(transaction: Transaction, key: int, tenant: str, upstreams: Sequence[str]) -> None:
    """Store the ids of the schedules that a schedule depends on."""
    records = transaction.records(DEPENDENCIES)
    for found in records.find_keys("of_schedule", (key,)):
        records.delete(*found)
    records.put_many([(key, position, tenant, one) for position, one in enumerate(upstreams)])


def version(transaction: Transaction, tenant: str) -> int:
    """How often the dependencies of a tenant have changed."""
    graphs = transaction.records(DEPENDENCY_GRAPHS).get(tenant)
    return 0 if graphs is None else number(graphs[1], 0)


def raise_version(transaction: Transaction, tenant: str) -> None:
    """The dependencies of a tenant have changed."""
    transaction.records(DEPENDENCY_GRAPHS).put((tenant, version(transaction, tenant) + 1))


def graph(transaction: Transaction, tenant: str, schedule_ids: Collection[str]) -> Graph:
    """What schedules depend on, directly and through others."""
    schedules, dependencies = transaction.records(SCHEDULES), transaction.records(DEPENDENCIES)
    upstreams: dict[str, tuple[str, ...]] = {}
    unread = list(dict.fromkeys(schedule_ids))
    while unread:
        schedules_by_id = schedules.look_up_many("by_id", [(tenant, one) for one in unread])
        keys = dependencies.find_each("of_schedule", [(values[0],) for values in schedules_by_id.values()])
        records = dependencies.get_many(key for of_one in keys for key in of_one)
        for (_, schedule_id), of_one in zip(schedules_by_id, keys, strict=True):
            upstreams[str(schedule_id)] = tuple(records[key][3] for key in of_one if key in records)
        reached = (one for _, schedule_id in schedules_by_id for one in upstreams[str(schedule_id)])
        unread = list(dict.fromkeys(one for one in reached if one not in upstreams))
    return Graph(version=version(transaction, tenant), upstreams=upstreams)


def is_fire(row: Row) -> bool:
    """Whether a row is of its schedule's trigger, and is not superseded."""
    return row.origin == TRIGGER and row.phase != Phase.SUPERSEDED


def _is_fire_until(row: Row, until: Micros) -> bool:
    return is_fire(row) and row.nominal <= until


def may_end_wait(ended: Row, row: Row) -> bool:
    """Whether a row that waits for an upstream may wait for this row of it."""
    if row.awaits_after is None:
        return True
    return ended.origin == TRIGGER and ended.nominal <= row.nominal and ended.last_nominal > row.awaits_after


def newest_fires(uow: ScheduleRecords, questions: Sequence[FireQuestion]) -> dict[int, tuple[Micros, Phase]]:
    """The newest fire that each question is about, by its number.

    That is the newest row with its nominal time in between, the newest gap that ends there, or the one that reaches
    beyond: where a pause left one within another, that is the inner one. Each is near the end of a range of an index.
    """
    newest = {}
    for question, schedule, after, until in questions:
        found = [
            _first(uow, "history", schedule, is_fire, after=(after,), until=(until,), newest_first=True),
            _first(uow, "gaps", schedule, is_fire, after=(after,), before=(until,), newest_first=True),
            _first(uow, "gaps", schedule, partial(_is_fire_until, until=until), since=(until,)),
        ]
        fires = [(min(row.last_nominal, until), row.nominal, row.phase) for row in found if row is not None]
        if fires:
            last, _, phase = max(fires)
            newest[question] = (last, PHASES[phase])
    return newest


def _first(
    uow: ScheduleRecords, index: str, schedule: int, is_wanted: Callable[[Row], bool], **span: object
) -> Row | None:
    """The first row of a range of an index that is wanted."""
    return next((row for row in _paged(uow, index, schedule, **span) if is_wanted(row)), None)


def _paged(uow: ScheduleRecords, index: str, schedule: int, **span: object) -> Iterator[Row]:
    """The rows of a range of an index, read in pages of rising size."""
    limit, done = _PAGE, 0
    while True:
        rows = uow.find_rows(index, schedule, limit=limit, **span)
        yield from rows[done:]
        if len(rows) < limit:
            return
        limit, done = limit * 4, limit
