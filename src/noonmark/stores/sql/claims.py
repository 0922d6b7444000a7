"""Claims: find the rows that are due, lease them, and keep their leases.

Each query reads a partial index in its order, and no other row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import make_claim
from noonmark.core.fair_queue import rounds
from noonmark.core.ids import MAX_OWNER, kind_of
from noonmark.core.lifecycle import LIVE, Phase
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.ports.records import NODE_LISTED, Renewal
from noonmark.stores.rules import completion
from noonmark.stores.rules.admission import lease_row
from noonmark.stores.rules.completion import to_detail
from noonmark.stores.rules.records import LEASED, PHASES, REASONS, Unreadable, make_occurrence, unpack_overrides
from noonmark.stores.sql.records import from_json
from noonmark.stores.sql.row_checks import RowCheck, describe_problems

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import Lease, Shares
    from noonmark.stores.sql.session import Session, Values
    from noonmark.stores.sql.unit_of_work import UnitOfWork

    Faults = dict[int, str]

IS_READY = "phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = {route}"
IS_LEASED = "lease_end IS NOT NULL AND occurrences.route = {route}"
FIRST_READY = f"(SELECT ready FROM occurrences WHERE {IS_READY.format(route='j.value')} ORDER BY ready LIMIT 1)"
FIRST_LEASED = (
    f"(SELECT lease_end FROM occurrences WHERE {IS_LEASED.format(route='j.value')} ORDER BY lease_end LIMIT 1)"
)
# A value for each row, not a condition: PostgreSQL might read all schedules to see which of them are missing.
STRAY = "(SELECT s.schedule FROM schedule_states AS s WHERE s.schedule = occurrences.schedule) IS NULL"
DUE_ROUTES = f"""
    SELECT value FROM EACH(text) AS j WHERE {FIRST_READY} <= ? UNION ALL
    SELECT value FROM EACH(text) AS j WHERE {FIRST_LEASED} <= ?
"""
_NAMES = """
    nominal, id, key, schedule, version, phase, revision, origin, route, due, first_due, attempt, fence, reason, detail,
    missed_count, missed_first, missed_last, caught_up, losses, waiting_for, holds_slot, stop, deadline, payload, own,
    behind, ended
"""
SELECTED = _NAMES.replace(",", " ").split()
"""The columns after the time at which a row can be claimed; the version is that of its schedule."""
COLUMNS = _NAMES.replace("phase, revision", "occurrences.phase AS phase, occurrences.revision AS revision")
GATHERED = f"time, {_NAMES}"
READY = f"""
    SELECT ready AS time, {COLUMNS} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE occurrences.{IS_READY.format(route="?")} AND ready <= ? ORDER BY ready, nominal, key LIMIT ?
    /* quick: occurrences */
"""
EXPIRED = f"""
    SELECT lease_end AS time, {COLUMNS} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE {IS_LEASED.format(route="?")} AND lease_end <= ? ORDER BY lease_end, nominal, key LIMIT ?
    /* quick: occurrences */
"""
DUE = f"(SELECT * FROM ({READY}) AS ready_ones UNION ALL SELECT * FROM ({EXPIRED}) AS expired_ones)"
ONE = f"""
    SELECT 0, {COLUMNS} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE id = ? AND route IN EACH(text)
    AND ((occurrences.phase = 'pending' AND held = 0 AND ready <= ?) OR lease_end <= ?) /* quick: occurrences */
"""
# Each step finds the next route after the one before, so that the cost follows the routes and not the rows.
_ROUTES = """
    WITH RECURSIVE found(route) AS (
        SELECT min(route) FROM occurrences WHERE {condition}
        UNION ALL
        SELECT (SELECT min(route) FROM occurrences WHERE {condition} AND route > found.route)
        FROM found WHERE found.route IS NOT NULL
    )
    SELECT found.route, served_routes.seen FROM found LEFT JOIN served_routes ON served_routes.route = found.route
    WHERE found.route IS NOT NULL AND coalesce(served_routes.seen <= ? OR served_routes.seen > ?, TRUE)
"""
READY_ROUTES = _ROUTES.format(condition="phase = 'pending' AND held = 0 AND ready IS NOT NULL")
LEASED_ROUTES = _ROUTES.format(condition="lease_end IS NOT NULL")
_LACKING = """
    SELECT {time}, {columns} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE {condition} AND {time} < ? AND {time} < ? - patience AND coalesce(CAST(? AS bigint) <= ? - patience, TRUE)
    ORDER BY {time}, nominal, key LIMIT ? /* quick: occurrences */
"""
LACKING_READY = _LACKING.format(
    time="ready",
    columns=COLUMNS,
    condition="occurrences.phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = ?",
)
LACKING_LEASED = _LACKING.format(time="lease_end", columns=COLUMNS, condition=IS_LEASED.format(route="?"))

Found = Sequence[Any]
"""When a row can be claimed, its nominal time, its id, its key, then the other columns."""


def due(session: Session, routes: Collection[str], *, now: Micros, until: Micros, limit: int) -> list[Found]:
    """The rows that a claim may take, in its order."""
    rows: list[Found] = []
    for route in due_routes(session, routes, now=now, until=until):
        rows += session.gather(GATHERED, DUE, route, until, limit, route, now, limit)
    return sorted(rows, key=turn)[:limit]


def due_routes(session: Session, routes: Collection[str], *, now: Micros, until: Micros) -> set[str]:
    """The routes that have anything for a claim to take."""
    named = list(routes)
    return {route for (route,) in session.gather("value", f"({DUE_ROUTES})", named, until, named, now)}


def only_due(
    session: Session, occurrence_id: str, routes: Collection[str], *, now: Micros, until: Micros
) -> list[Found]:
    """One row, if a claim may take it."""
    return [*session.query(ONE, occurrence_id, list(routes), until, now)]


def lacking(session: Session, *, now: Micros, limit: int) -> list[Found]:
    """The rows that no node has served for as long as their schedules have patience, in the order of a claim."""
    latest = now - MIN_PATIENCE
    claimable: list[Found] = []
    for routes, rows in ((READY_ROUTES, LACKING_READY), (LEASED_ROUTES, LACKING_LEASED)):
        for route, seen in session.query(routes, latest, now + NODE_LISTED):
            if isinstance(route, str):
                served = seen if type(seen) is int and seen <= latest else None
                claimable += session.query(rows, route, latest, now, served, now, limit)
    return sorted(claimable, key=turn)[:limit]


def turn(columns: Found) -> tuple[int, int, int]:
    """The position of a row in the order of a claim.

    The key comes last: rows that were planned together are stored together, so that a batch touches few pages.
    """
    time, nominal, _, key = columns[:4]
    return (time if isinstance(time, int) else 0), (nominal if isinstance(nominal, int) else 0), key


STEPS = 10_000
STRETCH = "(ready >> 25)"
"""The stretch of time, of about half a minute, in which a row can first be claimed; as the index has it."""

_IS_READY = "occurrences.phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = :route"
_IN_STRETCH = f"SELECT {{}} FROM occurrences WHERE {_IS_READY} AND {STRETCH} = "
_OWNER, _READY, _KEY = (_IN_STRETCH.format(column) for column in ("owner", "ready", "key"))
_LAST = "CAST(:until AS bigint) >> 25"
OWNERS = f"""
    WITH RECURSIVE stretches(stretch, step) AS (
        SELECT (SELECT {STRETCH} FROM occurrences WHERE {_IS_READY} ORDER BY {STRETCH} LIMIT 1), 1
        UNION ALL
        SELECT (
            SELECT {STRETCH} FROM occurrences WHERE {_IS_READY} AND {STRETCH} > stretches.stretch
            ORDER BY {STRETCH} LIMIT 1
        ), step + 1
        FROM stretches WHERE stretch < {_LAST} AND step < :steps
    ),
    owners(stretch, owner, step) AS (
        SELECT stretch, ({_OWNER} stretch AND owner BETWEEN :first AND :last ORDER BY owner LIMIT 1), 1
        FROM stretches WHERE stretch <= {_LAST}
        UNION ALL
        SELECT stretch, ({_OWNER} stretch AND owner > owners.owner AND owner <= :last ORDER BY owner LIMIT 1), step + 1
        FROM owners WHERE owner IS NOT NULL AND step < :steps
    )
    SELECT owner, min(stretch) AS stretch FROM owners
    WHERE owner IS NOT NULL AND NOT owner IN EACH(bigint)
    AND (stretch < {_LAST} OR :until >= ({_READY} stretch AND owner = owners.owner ORDER BY ready LIMIT 1))
    GROUP BY owner ORDER BY owner LIMIT :limit
"""
FAIR_READY = f"""
    SELECT (SELECT group_concat(key) FROM (
        {_KEY} j.c1 AND owner = j.c0 AND ready <= :until ORDER BY ready, nominal, key LIMIT :each
    ) AS first_ones) FROM ROWS(bigint, bigint) AS j
"""
FAIR_EXPIRED = f"""
    SELECT key FROM (
        SELECT key, row_number() OVER (PARTITION BY owner ORDER BY lease_end, nominal, key) AS place
        FROM occurrences WHERE lease_end IS NOT NULL AND route = :route AND lease_end <= :now
        AND owner BETWEEN 0 AND {MAX_OWNER} AND NOT owner IN EACH(bigint)
    ) AS expired WHERE place <= :each
"""
# Another node may have taken one of them by now.
TAKEN = f"""
    SELECT coalesce(lease_end, ready) AS time, {COLUMNS}, occurrences.owner AS owner
    FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE key IN EACH(bigint) AND (
        (occurrences.phase = 'pending' AND held = 0 AND ready <= :until) OR lease_end <= :now
    ) /* quick: occurrences */
"""
_PARAMETERS = re.compile(r":(?P<name>\w+)|EACH\(|ROWS\(")


def due_in_turn(
    session: Session, routes: Collection[str], shares: Shares, *, now: Micros, until: Micros, limit: int
) -> list[Found]:
    """The rows that a claim may take of each owner, in its order."""
    after = -1 if shares.after is None else shares.after.number
    besides = [one.number for one in shares.besides]
    common = {"now": now, "until": until, "each": shares.each, "limit": limit, "steps": STEPS}
    keys: list[int] = []
    for route in due_routes(session, routes, now=now, until=until):
        parameters = {**common, "route": route}
        keys += [key for (key,) in _ask(session, FAIR_EXPIRED, parameters, besides)]
        owners: list[Values] = []
        for first, last in ((after + 1, MAX_OWNER), (0, after)):
            if len(owners) < limit and first <= last:
                owners += _ask(session, OWNERS, {**parameters, "first": first, "last": last}, besides)
        for (listed,) in _ask(session, FAIR_READY, parameters, owners) if owners else ():
            keys += [int(key) for key in str(listed).split(",")] if listed else []
    lines: dict[int, list[Found]] = {}
    for *columns, owner in _ask(session, TAKEN, common, keys, f"{GATHERED}, owner") if keys else ():
        lines.setdefault(owner, []).append(columns)
    ring = sorted(lines, key=lambda owner: (owner <= after, owner))
    return rounds([sorted(lines[owner], key=turn)[: shares.each] for owner in ring], limit)


def _ask(
    session: Session, text: str, named: dict[str, Any], listed: list[Any], columns: str | None = None
) -> list[Values]:
    """Query with named parameters, and one that is a list; with columns, for many rows at once."""
    parameters: list[Any] = []

    def put(match: re.Match[str]) -> str:
        parameters.append(named[match["name"]] if match["name"] else listed)
        return "?" if match["name"] else match[0]

    numbered = _PARAMETERS.sub(put, text)
    if columns is None:
        return session.query(numbered, *parameters)
    return session.gather(columns, f"({numbered})", *parameters)


CLAIMABLE = (Phase.PENDING, *LEASED)
_CLAIMED, _DISPATCHING = Phase.CLAIMED, Phase.DISPATCHING

_LEASE = """
    UPDATE occurrences SET phase = 'claimed', fence = fence + 1, node = ?, started = NULL, lease_end = ?
    WHERE key IN EACH(bigint)
"""


_HELD = """
    SELECT id, key, fence, stop, lease_end FROM occurrences AS one WHERE id IN EACH(text) AND lease_end IS NOT NULL
"""
_RENEW = "UPDATE occurrences SET lease_end = ? WHERE key IN EACH(bigint)"
STRAYS = f"""
    SELECT key FROM occurrences
    WHERE phase = 'pending' AND held = 0 AND ready IS NOT NULL AND route IN EACH(text) AND ready <= ? AND {STRAY}
    UNION SELECT key FROM occurrences
    WHERE lease_end IS NOT NULL AND route IN EACH(text) AND lease_end <= ? AND {STRAY}
"""
_END_STRAYS = """
    UPDATE occurrences SET phase = 'delivery_failed', reason = 'unreadable', detail = ?, ended = ?, ready = NULL,
        lease_end = NULL, node = NULL, stop = NULL, deadline = NULL, waiting_for = NULL, holds_slot = 0, held = 0
    WHERE key IN EACH(bigint)
"""
_JUDGE = RowCheck("occurrences", [name for name in SELECTED if name != "version"])


def take(
    uow: UnitOfWork, rows: Sequence[Found], node: str, *, now: Micros, lease: Micros
) -> tuple[list[Claim], Faults]:
    """Lease rows; returns the claims, and what is wrong with damaged rows."""
    schedules = uow.schedule_cache.read(uow.session, {columns[4]: columns[5] for columns in rows})
    claims, plain, faults = [], [], {}
    until = uow.lease_end(now, lease)
    for columns in rows:
        key, schedule = columns[3], schedules[columns[4]]
        try:
            claim = _claim(columns, _readable(schedule), node, now, narrow=uow.session.is_narrow)
            if claim.found_in is _DISPATCHING:
                _take_over(uow, key, node, now=now, until=until)
        except Unreadable as error:
            faults[key] = str(error)
            continue
        if claim.found_in is not _DISPATCHING:
            plain.append(key)
        claims.append(claim)
    if plain:
        uow.session.execute(_LEASE, node, until, plain)
    return claims, faults


def _claim(columns: Found, schedule: Schedule, node: str, now: Micros, *, narrow: bool) -> Claim:
    """The claim of a row."""
    (_, nominal, one_id, _, _, _, phase, revision, origin, route, due, first_due) = columns[:12]
    (attempt, fence, reason, detail, missed_count, missed_first, missed_last, caught_up) = columns[12:20]
    (losses, waiting_for, holds_slot, stop, deadline, payload, own, behind, ended) = columns[20:]
    if problems := _JUDGE.problems((*columns[1:5], *columns[6:]), narrow=narrow):
        raise Unreadable(describe_problems(problems))
    if ended is not None or phase not in CLAIMABLE:
        raise Unreadable(f"it has ended as {phase}, or should have, and yet it can be claimed")
    try:
        found_in = PHASES[phase]
        kind_of(origin)
        lost = found_in is _DISPATCHING
        occurrence = make_occurrence(
            id=one_id,
            uid=schedule.uid,
            schedule_id=schedule.schedule_id,
            revision=revision,
            origin=origin,
            phase=_CLAIMED,
            route=route,
            nominal=nominal,
            due=due,
            first_due=first_due,
            attempt=attempt - lost,
            fence=fence + 1,
            reason=REASONS[reason],
            detail=detail,
            missed_count=missed_count,
            missed_first=missed_first,
            missed_last=missed_last,
            caught_up=caught_up,
            losses=losses + lost,
            waiting_for=REASONS[waiting_for],
            holds_slot=holds_slot == 1,
            node=node,
            stop=REASONS[stop],
            deadline=deadline,
            payload=None if payload is None else from_json(payload, "payload"),
            overrides=unpack_overrides(own, behind, from_json),
        )
    except KeyError as error:
        raise Unreadable(f"{error} is not a phase, reason or origin") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"a column has a value of the wrong kind ({error})") from None
    return make_claim(occurrence=occurrence, schedule=schedule, claimed=now, found_in=found_in)


def renew(uow: UnitOfWork, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
    """Extend the leases that are still held."""
    fences = {hold.occurrence_id: hold.fence for hold in holds}
    held = _still_held(uow, fences, list(fences), "/* quick: one */")
    if held:
        until = uow.lease_end(now, lease)
        uow.session.execute(_RENEW, until, [key for key, _ in held.values()])
    others = [one for one in fences if one not in held]
    if others:
        # A row that another transaction is changing now is not lost, and renewed the next time; unless its lease has
        # ended: then another node is taking it over.
        held |= _still_held(uow, fences, others, until=uow.now())
    stop = {one: reason for one, (_, asked) in held.items() if (reason := REASONS.get(asked)) is not None}
    return Renewal(lost=frozenset(fences) - held.keys(), stop=stop)


def _still_held(
    uow: UnitOfWork, fences: Mapping[str, int], ids: Sequence[str], how: str = "", *, until: Micros | None = None
) -> dict[str, tuple[int, str | None]]:
    """The keys of the rows whose leases are held with these fences, and their requests to stop."""
    rows = uow.session.gather("id, key, fence, stop, lease_end", f"({_HELD} {how})", list(ids))
    return {
        occurrence_id: (key, stop)
        for occurrence_id, key, fence, stop, lease_end in rows
        if fences[occurrence_id] == fence and (until is None or lease_end > until)
    }


def _readable(schedule: Schedule | Unreadable) -> Schedule:
    if isinstance(schedule, Unreadable):
        raise schedule
    return schedule


def _take_over(uow: UnitOfWork, key: int, node: str, *, now: Micros, until: Micros) -> None:
    """Lease a row whose delivery was lost with its node."""
    row = uow.row_of_key(key)
    if row is None or row.damage is not None:
        raise Unreadable("its row is missing" if row is None else str(row.damage))
    lease_row(uow, row, node, now=now, until=until)


def end_unreadable(uow: UnitOfWork, faults: Faults) -> None:
    """End damaged rows, so that they do not block others."""
    for row in uow.rows_of(list(faults)):
        uow.schedule_cache.damage.note("occurrences", row.key, faults[row.key])
        if row.phase in LIVE:
            completion.end_unreadable(uow, row, faults[row.key])
        else:  # it has ended, and only seems to be leased
            row.give_back()
            uow.changed(row)


def end_orphans(session: Session, routes: Collection[str], *, now: Micros, until: Micros) -> None:
    """End rows that are due and belong to no schedule: no claim takes them, and every node would look for them."""
    named = list(routes)
    end_orphan_rows(session, [key for (key,) in session.query(STRAYS, named, until, named, now)])


def end_orphan_rows(session: Session, keys: Sequence[int]) -> None:
    """End rows that belong to no schedule."""
    if keys:
        detail = to_detail({"problem": "its schedule does not exist"})
        session.execute(_END_STRAYS, detail, session.now(), list(keys))
