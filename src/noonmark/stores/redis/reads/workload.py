"""What runs, is due, waits, comes next and is overdue, and how much of it; a bounded part of each index is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase
from noonmark.ports.records import Backlog, OccurrenceGroup, Workload
from noonmark.stores.redis.schema.schedules import CARRIES_STEPS, OCCURRENCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

MAX_READ = 1_000
"""How many rows of each kind one call reads at most."""
_TENANT, _IS_HIDDEN = OCCURRENCES.columns.index("tenant"), OCCURRENCES.columns.index("is_hidden")


class _Group:
    """The rows of one kind."""

    def __init__(self, uow: UnitOfWork, tenant: str | None) -> None:
        self._uow, self._tenant = uow, tenant
        self._found: dict[int, tuple[Micros, Row]] = {}
        self.is_complete = True
        """Whether all rows of this kind were read."""

    @property
    def size(self) -> int:
        """How many rows were found."""
        return len(self._found)

    def add(self, keys: Sequence[int], time: Callable[[Row], Micros | None], *, most: int = MAX_READ) -> None:
        """Add rows that are of the tenant and have a time; `most` of them were asked for."""
        self.is_complete &= len(keys) < most
        shown = [
            key
            for (key,), values in self._uow.rows.get_many((key,) for key in keys).items()
            if self._tenant in (None, values[_TENANT]) and values[_IS_HIDDEN] != CARRIES_STEPS
        ]
        for row in self._uow.rows_of(shown):
            at = time(row)
            if isinstance(at, int):
                self._found[row.key] = (at, row)

    def first(self, limit: int) -> OccurrenceGroup:
        """The first ones, and how many were found."""
        timed = sorted(self._found.values(), key=lambda one: (one[0], one[1].key))
        rows = [row for _, row in timed[:limit]]
        return OccurrenceGroup(
            occurrences=self._uow.occurrences_of(rows), count=len(timed), is_complete=self.is_complete
        )


def workload(uow: UnitOfWork, *, now: Micros, limit: int, tenant: str | None) -> Workload:
    """The live occurrences, by what they do."""
    running, due, waiting, overdue = (_Group(uow, tenant) for _ in range(4))
    routes = [(route,) for route in uow.live_routes()]
    records = uow.rows
    ready = records.find_each("ready", routes, until=(now,), limit=MAX_READ, hint=True)
    leased = records.find_each("leased", routes, limit=MAX_READ, hint=True)
    with_deadline = [key for (key,) in records.find_keys("deadlines", limit=MAX_READ, hint=True)]
    late = [key for (key,) in records.find_keys("deadlines", until=(now,), limit=MAX_READ, hint=True)]
    in_line = [key for (key,) in records.find_keys("waiting", limit=MAX_READ, hint=True)]
    every = [key for groups in (ready, leased) for of_route in groups for (key,) in of_route]
    records.read(((key,) for key in (*every, *with_deadline, *late, *in_line)), hint=True)
    for entries in ready:
        due.add(_keys(entries), lambda row: row.ready)
    for entries in leased:
        running.add(_keys(entries), lambda row: row.started if row.phase == Phase.DISPATCHING else None)
        due.add(_keys(entries), lambda row: _expired(row, now))
    running.add(with_deadline, lambda row: row.started if row.phase == Phase.AWAITING_COMPLETION else None)
    waiting.add(in_line, lambda row: row.due if not row.held and _waits(row, now) else None)
    overdue.add(late, lambda row: row.deadline)
    return Workload(
        running=running.first(limit),
        due=due.first(limit),
        waiting=waiting.first(limit),
        upcoming=_upcoming(uow, routes, now=now, limit=limit, tenant=tenant).first(limit),
        overdue=overdue.first(limit),
    )


def _upcoming(uow: UnitOfWork, routes: Sequence[tuple[str]], *, now: Micros, limit: int, tenant: str | None) -> _Group:
    """What can be claimed later and waits for nothing else."""
    # Of another tenant there may be any number in between; of all, few more than are shown are needed.
    for most in (limit + 1, MAX_READ) if tenant is None and limit < MAX_READ else (MAX_READ,):
        group = _Group(uow, tenant)
        later = uow.rows.find_each("ready", routes, after=(now,), limit=most, hint=True)
        uow.rows.read((key for of_route in later for key in of_route), hint=True)
        for entries in later:
            group.add(_keys(entries), lambda row: row.ready if row.waiting_for is None else None, most=most)
        if group.is_complete or group.size > limit:
            break
    return group


def backlog(uow: UnitOfWork, *, now: Micros, limit: int) -> Backlog:
    """How much is due and not claimed, and how much waits."""
    routes = [(route,) for route in uow.live_routes()]
    keys: list[int] = []
    for index in ("leased", "ready"):
        for entries in uow.rows.find_each(index, routes, until=(now,), limit=limit, hint=True):
            keys += _keys(entries)[: limit - len(keys)]
    in_line = [key for (key,) in uow.rows.find_keys("waiting", limit=limit, hint=True)]
    uow.rows.read(((key,) for key in (*keys, *in_line)), hint=True)
    return Backlog(
        schedules=len({row.schedule for row in uow.rows_of(keys)}),
        due=len(keys),
        waiting=sum(_waits(row, now) for row in uow.rows_of(in_line)),
    )


def _waits(row: Row, now: Micros) -> bool:
    return row.ready is None or row.ready > now


def _expired(row: Row, now: Micros) -> Micros | None:
    is_over = row.phase == Phase.CLAIMED and row.lease_end is not None and row.lease_end <= now
    return row.lease_end if is_over else None


def _keys(entries: Iterable[tuple[int, ...]]) -> list[int]:
    return [key for (key,) in entries]
