"""Schedules as callers and planning read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.lifecycle import Phase
from noonmark.ports.records import StoredSchedule
from noonmark.stores.redis.reads.schedule_filter import matching
from noonmark.stores.redis.schema.schedules import SCHEDULES
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.snapshots import counters, of_sound, readable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import ScheduleFilter
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row, ScheduleState

_CREATED, _SCHEDULE_ID, _TENANT = (SCHEDULES.columns.index(name) for name in ("created", "schedule_id", "tenant"))
_PAGE = 1_000
"""How many schedules a filter looks at, at a time."""


def by_id(uow: UnitOfWork, tenant: str, schedule_id: str, *, deleted: bool) -> StoredSchedule | None:
    """The schedule with an id, or else the one that was deleted last."""
    values = uow.schedules.look_up("by_id", tenant, schedule_id)
    keys = [] if values is None else [values[0]]
    if not keys and deleted:
        last = uow.schedules.find_keys("deleted_by_id", (tenant,), prefix=(schedule_id,), limit=1, newest_first=True)
        keys = [key for (key,) in last]
    return _one(uow, keys, schedule_id)


def by_uid(uow: UnitOfWork, uid: str) -> StoredSchedule | None:
    """The schedule with a uid."""
    state = uow.load_states([uid]).get(uid)
    return None if state is None else to_stored(uow, [(state, readable(uow, state))])[0]


def by_name(uow: UnitOfWork, tenant: str, user: str, name: str) -> StoredSchedule | None:
    """The owner's oldest schedule with a name."""
    entries = uow.schedules.entries("by_name", (tenant, user), prefix=(name,))
    oldest = [entry[-1] for entry in entries if entry[1] == entries[0][1]]
    states = sorted(uow.states_of(oldest), key=lambda state: state.uid)
    return _one(uow, [state.schedule for state in states[:1]], name)


def _one(uow: UnitOfWork, keys: Sequence[int], name: str) -> StoredSchedule | None:
    states = uow.states_of(keys)
    if keys and not states:
        raise StoreUnavailable(f"the stored state of schedule {name} is not there; noonmark doctor says more")
    return to_stored(uow, [(state, readable(uow, state)) for state in states])[0] if states else None


def by_uids(uow: UnitOfWork, uids: Collection[str]) -> dict[str, StoredSchedule]:
    """The schedules with these uids that can be read."""
    states = [state for uid, state in uow.load_states(uids).items() if uid in uids]
    return {stored.schedule.uid: stored for stored in to_stored(uow, _sound(uow, states))}


def to_stored(uow: UnitOfWork, pairs: Sequence[tuple[ScheduleState, Schedule]]) -> list[StoredSchedule]:
    """Schedules as callers read them."""
    live, now = _live_rows(uow, [state for state, _ in pairs]), uow.now()
    stored = []
    for state, schedule in pairs:
        ahead = [row for row in live[state.schedule] if _is_ahead(row, now)]
        stored.append(
            StoredSchedule(
                schedule=schedule,
                counters=counters(state),
                next_due=min((row.due for row in ahead), default=None),
                next_own=min((row.due for row in ahead if row.is_own), default=None),
            )
        )
    return stored


def plannable(uow: UnitOfWork, now: Micros, limit: int) -> tuple[list[Snapshot], dict[int, str]]:
    """Schedules whose time to plan has come, and what is wrong with those that cannot be read."""
    keys = uow.states.find_keys("to_plan", until=(now,), limit=limit)
    states = uow.states_of(key for (key,) in keys)
    if len(states) < len(keys):
        uow.states.note_strays("to_plan", until=(now,), limit=limit)
    return of_sound(uow, states)


def routes(uow: UnitOfWork, source: str) -> list[str]:
    """The routes of the schedules from a source, each once."""
    [entries] = uow.schedules.distinct("by_source", [(source,)], 1)
    return [str(entry[0]) for entry in entries]


def tenants(uow: UnitOfWork, limit: int) -> list[str]:
    """The tenants with schedules, in order."""
    [entries] = uow.schedules.distinct("by_tenant", [()], 1, steps=limit)
    return [str(entry[0]) for entry in entries]


def of_pipelines(uow: UnitOfWork, tenant: str, limit: int) -> list[Schedule]:
    """The schedules of pipelines, by id."""
    keys = uow.schedules.find_keys("of_pipelines", (tenant,), limit=limit)
    pairs = _sound(uow, uow.states_of(key for (key,) in keys))
    return sorted((schedule for _, schedule in pairs), key=lambda schedule: schedule.schedule_id)


def page(  # noqa: PLR0913 - as the verb has it
    uow: UnitOfWork,
    tenant: str,
    wanted: ScheduleFilter | None,
    *,
    after: str | None,
    limit: int,
    deleted: bool,
    newest_first: bool,
) -> list[StoredSchedule]:
    """A page of a tenant's schedules; damaged ones are skipped, and others fill the page."""
    place: Values | None = None
    if after is not None:
        state = uow.load_states([after]).get(after)
        record = None if state is None else uow.schedules.get(state.schedule)
        if record is None or record[_TENANT] != tenant:
            return []
        place = (record[_CREATED], record[_SCHEDULE_ID])
    pairs: list[tuple[ScheduleState, Schedule]] = []
    size = limit if wanted is None else max(limit, _PAGE)
    for keys in _pages(uow, tenant, wanted, place, size, deleted=deleted, newest_first=newest_first):
        pairs += _sound(uow, uow.states_of(matching(uow, keys, wanted)))
        if len(pairs) >= limit:
            break
    return to_stored(uow, pairs[:limit])


def count(uow: UnitOfWork, tenant: str, wanted: ScheduleFilter | None, *, deleted: bool) -> int:
    """How many there are."""
    index, partition = _listed(tenant, wanted, deleted=deleted)
    if wanted is None:
        return uow.schedules.count(index, partition, hint=True)
    pages = _pages(uow, tenant, wanted, None, _PAGE, deleted=deleted, newest_first=False)
    return sum(len(matching(uow, keys, wanted)) for keys in pages)


def _listed(tenant: str, wanted: ScheduleFilter | None, *, deleted: bool) -> tuple[str, tuple[str, ...]]:
    """The index that has the schedules which a filter may want, and the partition of it."""
    if deleted:
        return "deleted", (tenant,)
    if wanted is None or wanted.user is None:
        return "by_creation", (tenant,)
    return "by_owner", (tenant, wanted.user)


def _pages(  # noqa: PLR0913 - likewise
    uow: UnitOfWork,
    tenant: str,
    wanted: ScheduleFilter | None,
    place: Values | None,
    size: int,
    *,
    deleted: bool,
    newest_first: bool,
) -> Iterator[list[int]]:
    """The keys of a tenant's schedules after a place, in pages."""
    index, partition = _listed(tenant, wanted, deleted=deleted)
    while True:
        after, before = (None, place) if newest_first else (place, None)
        entries = uow.schedules.entries(
            index, partition, after=after, before=before, limit=size, newest_first=newest_first, hint=True
        )
        yield [entry[-1] for entry in entries]
        uow.schedules.forget_hints()
        uow.states.forget_hints()
        if len(entries) < size:
            return
        place = entries[-1][:2]


def _is_ahead(row: Row, now: Micros) -> bool:
    """Whether it is known when a row starts: it is claimed, or ready, or becomes so and waits for nothing."""
    if row.phase == Phase.CLAIMED:
        return True
    if row.phase != Phase.PENDING or row.held or row.ready is None:
        return False
    return row.waiting_for is None or row.ready <= now


def _live_rows(uow: UnitOfWork, states: Sequence[ScheduleState]) -> dict[int, list[Row]]:
    """The live rows of schedules, by key."""
    keys_by_state = uow.rows.find_each("live", [(state.schedule,) for state in states])
    uow.rows_of(key for keys in keys_by_state for (key,) in keys)
    return {
        state.schedule: uow.rows_of(key for (key,) in keys) for state, keys in zip(states, keys_by_state, strict=True)
    }


def _sound(uow: UnitOfWork, states: Sequence[ScheduleState]) -> list[tuple[ScheduleState, Schedule]]:
    """States with their schedules, as far as these can be read."""
    schedules = uow.schedules_of(states)
    return [(state, schedule) for state in states if not isinstance(schedule := schedules[state.schedule], Unreadable)]
