"""Claims: find the rows that are due, lease them, and keep their leases.

Due rows are read from indexes as hints: another node may have taken one by now. The commit sees whether the row itself
has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Claim
from noonmark.core.fair_queue import rounds
from noonmark.core.ids import MAX_OWNER, Origin, kind_of
from noonmark.core.lifecycle import LIVE, Phase
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.core.reasons import Reason
from noonmark.ports.records import NODE_LISTED, Renewal
from noonmark.stores.redis.schema.schedules import OCCURRENCES, SERVED_ROUTES, STRETCH
from noonmark.stores.rules import completion
from noonmark.stores.rules.admission import held_rows, lease_row
from noonmark.stores.rules.completion import to_detail
from noonmark.stores.rules.records import LEASED, PHASES, REASONS, Unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import Lease, Shares
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

    Faults = dict[int, str]

_MOST_EXPIRED = 1_000
"""How many rows a claim looks at to find those of each owner, or those that no node serves."""
_INDEXES = (("ready", "ready"), ("leased", "lease_end"))
"""The indexes of what can be claimed, and the column that says from when on."""
_OWNER = OCCURRENCES.columns.index("owner")


def due(uow: UnitOfWork, routes: Collection[str], *, now: Micros, until: Micros, limit: int) -> list[Row]:
    """The rows that a claim may take, in its order."""
    entries: list[Values] = []
    questions = [
        uow.rows.question(index, (route,), until=(time,), limit=limit)
        for (index, _), time in zip(_INDEXES, (until, now), strict=True)
        for route in routes
    ]
    uow.transaction.preload(questions)
    for (index, _), time in zip(_INDEXES, (until, now), strict=True):
        for route in routes:
            entries += uow.rows.entries(index, (route,), until=(time,), limit=limit, hint=True)
    keys = [key for _, _, key in sorted(entries)[:limit]]
    rows = _rows(uow, keys, now=now, until=until)
    if keys and not rows:
        _note_strays(uow, routes, now=now, until=until)
    return rows


def only_due(uow: UnitOfWork, occurrence_id: str, routes: Collection[str], *, now: Micros, until: Micros) -> list[Row]:
    """One row, if a claim may take it."""
    row = uow.row(occurrence_id)
    return [row] if row is not None and row.route in routes and _is_due(uow, row, now=now, until=until) else []


def due_in_turn(
    uow: UnitOfWork, routes: Collection[str], shares: Shares, *, now: Micros, until: Micros, limit: int
) -> list[Row]:
    """The rows that a claim may take of each owner, in its order."""
    after = -1 if shares.after is None else shares.after.number
    besides = {one.number for one in shares.besides}
    owners = uow.rows.distinct("ready_of_owners", [(route,) for route in routes], 2, until=(until >> STRETCH,))
    pairs: list[tuple[str, int, int]] = []
    for route, entries in zip(routes, owners, strict=True):
        stretches: dict[int, int] = {}
        for stretch, owner, *_ in entries:
            if owner not in besides and isinstance(owner, int) and isinstance(stretch, int):
                stretches.setdefault(owner, stretch)
        ring = sorted(stretches, key=lambda owner: (owner <= after, owner))
        pairs += [(route, stretches[owner], owner) for owner in ring[:limit]]
    ready = {
        pair: uow.rows.question("ready_of_owners", pair[:1], prefix=pair[1:], until=(until,), limit=shares.each)
        for pair in pairs
    }
    expired = [uow.rows.question("leased", (route,), until=(now,), limit=_MOST_EXPIRED) for route in routes]
    uow.transaction.preload([*ready.values(), *expired])
    keys = [
        key
        for route, *prefix in pairs
        for (key,) in uow.rows.find_keys(
            "ready_of_owners", (route,), prefix=prefix, until=(until,), limit=shares.each, hint=True
        )
    ]
    for route in routes:
        ended = uow.rows.find_keys("leased", (route,), until=(now,), limit=_MOST_EXPIRED, hint=True)
        uow.rows.read(ended, hint=True)
        keys += [values[0] for values in uow.rows.get_many(ended).values() if values[_OWNER] not in besides]
    lines: dict[int, list[Row]] = {}
    rows = _rows(uow, keys, now=now, until=until)
    if keys and not rows:
        _note_strays(uow, routes, now=now, until=until)
    for row in rows:
        if 0 <= row.owner <= MAX_OWNER:
            lines.setdefault(row.owner, []).append(row)
    ring = sorted(lines, key=lambda owner: (owner <= after, owner))
    return rounds([sorted(lines[owner], key=_turn)[: shares.each] for owner in ring], limit)


def lacking(uow: UnitOfWork, *, now: Micros, limit: int) -> list[Row]:
    """The rows that no node has served for as long as their schedules have patience, in the order of a claim."""
    latest = now - MIN_PATIENCE
    routes = uow.live_routes()
    served = uow.transaction.records(SERVED_ROUTES)
    served.read([(route,) for route in routes], hint=True)
    times = {route: seen for (route,), (_, seen) in served.get_many((route,) for route in routes).items()}
    keys: list[int] = []
    for route in routes:
        seen = times.get(route)
        if type(seen) is int and latest < seen <= now + NODE_LISTED:
            continue
        for index, _ in _INDEXES:
            # More than the limit: schedules differ in their patience.
            most = max(limit, _MOST_EXPIRED)
            keys += [key for (key,) in uow.rows.find_keys(index, (route,), before=(latest,), limit=most, hint=True)]
    rows = _rows(uow, keys, now=now, until=now)
    lacking = [row for row in rows if _lacks_target(uow, row, times.get(row.route), now)]
    return sorted(lacking, key=_turn)[:limit]


def take(uow: UnitOfWork, rows: Sequence[Row], node: str, *, now: Micros, lease: Micros) -> tuple[list[Claim], Faults]:
    """Lease rows; returns the claims, and what is wrong with damaged rows."""
    schedules = uow.schedules_of({row.schedule: uow.state_of(row) for row in rows}.values())
    claims: list[Claim] = []
    faults: Faults = {}
    until = uow.lease_end(now, lease)
    for row in rows:
        try:
            claims.append(_take(uow, row, schedules[row.schedule], node, now=now, until=until))
        except Unreadable as error:
            faults[row.key] = str(error)
    return claims, faults


def _take(
    uow: UnitOfWork, row: Row, schedule: Schedule | Unreadable, node: str, *, now: Micros, until: Micros
) -> Claim:
    if isinstance(schedule, Unreadable):
        raise schedule
    if row.damage is not None:
        raise Unreadable(row.damage)
    if row.ended is not None:
        raise Unreadable(f"it has ended as {row.phase}, or should have, and yet it can be claimed")
    try:
        kind_of(Origin(row.origin))
        if not (row.payload is row.own is row.behind is None):
            uow.occurrence(row, schedule)  # before it is leased
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"a column has a value of the wrong kind ({error})") from None
    found_in = PHASES[row.phase]
    lease_row(uow, row, node, now=now, until=until)
    return Claim(occurrence=uow.occurrence(row, schedule), schedule=schedule, claimed=now, found_in=found_in)


def renew(uow: UnitOfWork, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
    """Extend the leases that are still held."""
    held = held_rows(uow, holds)
    until = uow.lease_end(now, lease)
    for row in held.values():
        row.lease_end = until
        uow.changed(row)
    stop = {one: reason for one, row in held.items() if (reason := REASONS.get(row.stop)) is not None}
    return Renewal(lost=frozenset(hold.occurrence_id for hold in holds) - held.keys(), stop=stop)


def end_unreadable(uow: UnitOfWork, faults: Faults) -> None:
    """End damaged rows, so that they do not block others."""
    for row in uow.rows_of(faults):
        uow.schedule_cache.damage.note("occurrences", row.key, faults[row.key])
        if row.phase in LIVE:
            completion.end_unreadable(uow, row, faults[row.key])
        else:  # it has ended, and only seems to be leased
            row.give_back()
            uow.changed(row)


def end_alone(uow: UnitOfWork, keys: Iterable[int]) -> None:
    """End rows that belong to no schedule, or whose schedule is damaged, with nothing that follows."""
    ended = {
        "phase": str(Phase.DELIVERY_FAILED),
        "reason": str(Reason.UNREADABLE),
        "detail": to_detail({"problem": "its schedule does not exist"}),
        "ended": uow.now(),
        **dict.fromkeys(("ready", "lease_end", "node", "stop", "deadline", "waiting_for", "wanted")),
        **dict.fromkeys(("holds_slot", "held"), 0),
    }
    for values in uow.rows.get_many((key,) for key in keys).values():
        uow.rows.put(tuple((OCCURRENCES.named(values) | ended).values()))


def _rows(uow: UnitOfWork, keys: Sequence[int], *, now: Micros, until: Micros) -> list[Row]:
    """The rows of keys that are still due; those that belong to no schedule end."""
    uow.rows.read(((key,) for key in keys), hint=True)  # those that are leased are read again
    rows = uow.rows_of(keys)
    if len(rows) < len(set(keys)):
        live_keys = {row.key for row in rows}
        end_alone(uow, [key for key in keys if key not in live_keys])
    return [row for row in rows if _is_due(uow, row, now=now, until=until)]


def _note_strays(uow: UnitOfWork, routes: Collection[str], *, now: Micros, until: Micros) -> None:
    """Nothing of what indexes say is due can be claimed: perhaps they are wrong."""
    for route in routes:
        for index, time in (("ready", until), ("ready_of_owners", until >> STRETCH), ("leased", now)):
            uow.rows.note_strays(index, (route,), until=(time,), limit=_MOST_EXPIRED)


def _is_due(uow: UnitOfWork, row: Row, *, now: Micros, until: Micros) -> bool:
    """Whether a claim may take a row; a node whose clock is ahead must not take what others still hold."""
    if row.phase == Phase.PENDING:
        return row.ready is not None and row.ready <= until and not row.held
    return row.lease_end is not None and row.lease_end <= min(now, uow.now())


def _turn(row: Row) -> tuple[Micros, Micros, int]:
    """The position of a row in the order of a claim."""
    time = row.lease_end if row.phase in LEASED else row.ready
    return time or 0, row.nominal, row.key


def _lacks_target(uow: UnitOfWork, row: Row, seen: object, now: Micros) -> bool:
    since = now - uow.state_of(row).patience
    is_served = type(seen) is int and since < seen <= now + NODE_LISTED
    return _turn(row)[0] < since and not is_served
