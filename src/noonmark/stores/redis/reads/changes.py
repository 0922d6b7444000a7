"""What was written lately, as far as times tell. Each part is the end of an index, and names its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.ports.changes import StoredChange, Topic
from noonmark.stores.redis.schema.accounts import MODEL_CALLS, NOTES
from noonmark.stores.redis.schema.schedules import EVENTS, SCHEDULES
from noonmark.stores.redis.schema.workflows import APPROVALS, SESSION_MESSAGES, SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.instants import Micros
    from noonmark.stores.redis.transactions.table import Table
    from noonmark.stores.redis.unit_of_work import UnitOfWork

    Change = tuple[Any, Any, Any, Any, Any]
    """A kind, a tenant, a user, a schedule id and a time, perhaps damaged."""


def recent(uow: UnitOfWork, since: Micros, limit: int) -> list[StoredChange]:
    """What was written since a time: at most `limit` changes of each kind, the newest. Damaged ones are left out."""
    parts = (
        _noted(uow, since, limit),
        _started(uow, since, limit),
        _ended(uow, since, limit),
        [(Topic.EVENTS, one["tenant"], None, None, one["emitted"]) for one in _newest(uow, EVENTS, since, limit)],
        _appended(uow, since, limit),
        [
            (Topic.USAGE, one["tenant"], one["username"], one["schedule_id"], one["called"])
            for one in _newest(uow, MODEL_CALLS, since, limit, index="settled")
        ],
        [
            (Topic.APPROVALS, one["tenant"], None, None, one["requested"])
            for one in _newest(uow, APPROVALS, since, limit, index="pending")
        ],
    )
    return [change for part in parts for change in _grouped(part)]


def _noted(uow: UnitOfWork, since: Micros, limit: int) -> list[Change]:
    notes = _newest(uow, NOTES, since, limit)
    states = uow.load_states({one["uid"] for one in notes if isinstance(one["uid"], str)})
    owners = _owners(uow, {state.schedule for state in states.values()})
    users = {uid: owners[state.schedule][1] for uid, state in states.items() if state.schedule in owners}
    return [
        (one["operation"], one["tenant"], users.get(one["uid"], one["caller"]), one["schedule_id"], one["noted"])
        for one in notes
    ]


def _started(uow: UnitOfWork, since: Micros, limit: int) -> list[Change]:
    routes = [(route,) for route in uow.live_routes()]
    keys = [key for found in uow.rows.find_each("leased", routes, limit=limit, hint=True) for (key,) in found]
    uow.rows.read(((key,) for key in keys), hint=True)
    rows = [row for row in uow.rows_of(keys) if row.started is not None and row.started >= since]
    owners = _owners(uow, {row.schedule for row in rows})
    return [(Topic.OCCURRENCES, *owners[row.schedule], row.started) for row in rows if row.schedule in owners]


def _ended(uow: UnitOfWork, since: Micros, limit: int) -> list[Change]:
    rows = uow.find_rows("ended", since=(since,), limit=limit, newest_first=True, hint=True)
    owners = _owners(uow, {row.schedule for row in rows})
    return [(Topic.RUNS, *owners[row.schedule], row.ended) for row in rows if row.schedule in owners]


def _appended(uow: UnitOfWork, since: Micros, limit: int) -> list[Change]:
    entries = uow.transaction.records(SESSION_MESSAGES).entries(
        "by_age", since=(since,), limit=limit, newest_first=True, hint=True
    )
    sessions = uow.transaction.records(SESSIONS)
    keys = [(session,) for _, session, _ in entries]
    sessions.read(keys, hint=True)
    sessions_by_key = {key: SESSIONS.named(values) for (key,), values in sessions.get_many(keys).items()}
    return [
        (Topic.SESSIONS, one["tenant"], one["username"], one["schedule_id"], at)
        for at, session, _ in entries
        if (one := sessions_by_key.get(session)) is not None
    ]


def _newest(uow: UnitOfWork, table: Table, since: Micros, limit: int, *, index: str = "by_age") -> list[dict[str, Any]]:
    records = uow.transaction.records(table)
    keys = records.find_keys(index, since=(since,), limit=limit, newest_first=True, hint=True)
    records.read(keys, hint=True)
    return [table.named(values) for values in records.get_many(keys).values()]


def _owners(uow: UnitOfWork, keys: set[int]) -> dict[int, tuple[Any, Any, Any]]:
    """The tenants, users and ids of schedules."""
    keys_read = [(key,) for key in keys]
    uow.schedules.read(keys_read, hint=True)
    rows = {key: SCHEDULES.named(values) for (key,), values in uow.schedules.get_many(keys_read).items()}
    return {key: (one["tenant"], one["username"], one["schedule_id"]) for key, one in rows.items()}


def _grouped(changes: Iterable[Change]) -> list[StoredChange]:
    """One change of each kind, tenant, user and schedule: the newest."""
    latest: dict[tuple[str, str, str | None, str | None], Micros] = {}
    for kind, tenant, user, schedule_id, at in changes:
        is_sound = isinstance(tenant, str) and isinstance(user, str | None) and isinstance(schedule_id, str | None)
        if isinstance(kind, str) and is_sound and type(at) is int:
            key = (str(kind), tenant, user, schedule_id)
            latest[key] = max(at, latest.get(key, at))
    return [
        StoredChange(kind=kind, tenant=tenant, user=user, schedule_id=schedule_id, at=at)
        for (kind, tenant, user, schedule_id), at in latest.items()
    ]
