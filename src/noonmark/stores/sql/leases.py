"""Claims: leasing what is due, keeping leases and giving them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Claim
from noonmark.core.frozen import construct
from noonmark.core.ids import kind_of
from noonmark.core.interruption import lost_error
from noonmark.core.lifecycle import LIVE, Phase
from noonmark.core.occurrence import Occurrence
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.ports.records import Renewal
from noonmark.stores.detail import to_detail
from noonmark.stores.sql import completion, slots
from noonmark.stores.sql.claim_queries import SELECTED, STRAY
from noonmark.stores.sql.records import PHASES, REASONS, Unreadable, from_json, own_terms
from noonmark.stores.sql.row_checks import RowCheck, told
from noonmark.stores.sql.session import lease_end

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import Lease
    from noonmark.stores.sql.claim_queries import Found
    from noonmark.stores.sql.records import Row
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

    Faults = dict[int, str]

LEASED = (Phase.CLAIMED, Phase.DISPATCHING)
CLAIMABLE = (Phase.PENDING, *LEASED)

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
"""  # noqa: S608 - our own text
_END_STRAYS = """
    UPDATE occurrences SET phase = 'delivery_failed', reason = 'unreadable', detail = ?, ended = ?, ready = NULL,
        lease_end = NULL, node = NULL, stop = NULL, deadline = NULL, waiting_for = NULL, holds_slot = 0, held = 0
    WHERE key IN EACH(bigint)
"""
_JUDGE = RowCheck("occurrences", [name for name in SELECTED if name != "version"])


def take(
    uow: UnitOfWork, found: Sequence[Found], node: str, *, now: Micros, lease: Micros
) -> tuple[list[Claim], Faults]:
    """Lease rows; of those whose record cannot be read, what is wrong with them."""
    schedules = uow.schedule_cache.read(uow.session, {columns[4]: columns[5] for columns in found})
    claims, plain, faults = [], [], {}
    until = lease_end(uow.session, now, lease)
    for columns in found:
        key, schedule = columns[3], schedules[columns[4]]
        try:
            claim = _claim(columns, _readable(schedule), node, now, narrow=uow.session.is_narrow)
            if claim.found_in is Phase.DISPATCHING:
                _take_over(uow, key, node, now=now, until=until)
        except Unreadable as error:
            faults[key] = str(error)
            continue
        if claim.found_in is not Phase.DISPATCHING:
            plain.append(key)
        claims.append(claim)
    if plain:
        uow.session.execute(_LEASE, node, until, plain)
    return claims, faults


def _claim(columns: Found, schedule: Schedule, node: str, now: Micros, *, narrow: bool) -> Claim:
    """What a claim makes of a row."""
    (_, nominal, one_id, _, _, _, phase, revision, origin, route, due, first_due) = columns[:12]
    (attempt, fence, reason, detail, missed_count, missed_first, missed_last, caught_up) = columns[12:20]
    (losses, waiting_for, holds_slot, stop, deadline, payload, own, behind, ended) = columns[20:]
    if problems := _JUDGE.problems((*columns[1:5], *columns[6:]), narrow=narrow):
        raise Unreadable(told(problems))
    if ended is not None or phase not in CLAIMABLE:
        raise Unreadable(f"it has ended as {phase}, or should have, and yet it can be claimed")
    try:
        found_in = PHASES[phase]
        kind_of(origin)
        lost = found_in is Phase.DISPATCHING
        occurrence = construct(
            Occurrence,
            id=one_id,
            uid=schedule.uid,
            schedule_id=schedule.schedule_id,
            revision=revision,
            origin=origin,
            phase=Phase.CLAIMED,
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
            overrides=own_terms(own, behind),
        )
    except KeyError as error:
        raise Unreadable(f"{error} is no phase, reason or origin") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"a column has a value of the wrong kind ({error})") from None
    return Claim(occurrence=occurrence, schedule=schedule, claimed=now, found_in=found_in)


def renew(uow: UnitOfWork, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
    """Extend the leases that are still held."""
    fences = {hold.occurrence_id: hold.fence for hold in holds}
    held = _still_held(uow, fences, list(fences), "/* quick: one */")
    if held:
        until = lease_end(uow.session, now, lease)
        uow.session.execute(_RENEW, until, [key for key, _ in held.values()])
    others = [one for one in fences if one not in held]
    if others:
        # What somebody else is changing at this moment is not lost yet, and renewed the next time; unless its lease has
        # ended, since then it is being taken over.
        held |= _still_held(uow, fences, others, until=uow.now())
    stop = {one: reason for one, (_, asked) in held.items() if (reason := REASONS.get(asked)) is not None}
    return Renewal(lost=frozenset(fences) - held.keys(), stop=stop)


def _still_held(
    uow: UnitOfWork, fences: Mapping[str, int], ids: Sequence[str], how: str = "", *, until: Micros | None = None
) -> dict[str, tuple[int, str | None]]:
    """The keys of the rows whose leases are held with these fences, and whether they are asked to stop."""
    found = uow.session.gather("id, key, fence, stop, lease_end", f"({_HELD} {how})", list(ids))
    return {
        one: (key, stop)
        for one, key, fence, stop, lease_end in found
        if fences[one] == fence and (until is None or lease_end > until)
    }


def release(uow: UnitOfWork, holds: Sequence[Lease]) -> None:
    """Give claimed rows back untouched."""
    for row in _held(uow, holds).values():
        if row.phase == Phase.CLAIMED:
            row.phase = Phase.PENDING
            row.lease_end = row.node = None
            uow.changed(row)
            slots.free_key_if_held(uow, row)


def request_stop(uow: UnitOfWork, occurrence_id: str) -> bool:
    """Ask whoever delivers a row to stop; False when nobody does."""
    row = uow.row(occurrence_id)
    if row is None or row.phase != Phase.DISPATCHING:
        return False
    row.stop = Reason.CANCELLED
    uow.changed(row)
    return True


def _held(uow: UnitOfWork, holds: Iterable[Lease]) -> dict[str, Row]:
    """The rows whose leases are still held with these fences; of several holds of a row, the last counts."""
    fences = {hold.occurrence_id: hold.fence for hold in holds}
    uow.read_rows(fences)
    rows = ((one, uow.known(one), fence) for one, fence in fences.items())
    return {one: row for one, row, fence in rows if row is not None and row.fence == fence and row.phase in LEASED}


def _readable(found: Schedule | Unreadable) -> Schedule:
    if isinstance(found, Unreadable):
        raise found
    return found


def _take_over(uow: UnitOfWork, key: int, node: str, *, now: Micros, until: Micros) -> None:
    """Lease a row whose delivery was lost with its node."""
    [row] = uow.rows_of([key])
    if row.damage is not None:
        raise Unreadable(row.damage)
    uow.add_run(row, _lost_run(row, now), None)
    row.losses += 1
    row.attempt -= 1
    row.fence += 1
    row.phase, row.node, row.started, row.lease_end = Phase.CLAIMED, node, None, until
    uow.changed(row)


def _lost_run(row: Row, now: Micros) -> Run:
    return Run(
        id=f"{row.id}-{row.fence}",
        occurrence_id=row.id,
        attempt=row.attempt,
        node=row.node or "",
        started=now if row.started is None else max(row.started, row.due),
        ended=now,
        outcome=Outcome.LEASE_LOST,
        error=lost_error(row.node),
    )


def end_unreadable(uow: UnitOfWork, faults: Faults) -> None:
    """End rows that cannot be read, so that they keep nobody from the others."""
    for row in uow.rows_of(list(faults)):
        uow.schedule_cache.damage.note("occurrences", row.key, faults[row.key])
        if row.phase in LIVE:
            completion.end_unreadable(uow, row, faults[row.key])
        else:  # it has ended, and only seems to be held by somebody
            completion.give_back(row)
            uow.changed(row)


def end_strays(session: Session, routes: Collection[str], *, now: Micros, until: Micros) -> None:
    """End what is due and belongs to no schedule: no claim takes it, and everybody would look for it for ever."""
    named = list(routes)
    end_nobodys(session, [key for (key,) in session.query(STRAYS, named, until, named, now)])


def end_nobodys(session: Session, keys: Sequence[int]) -> None:
    """End rows that belong to no schedule."""
    if keys:
        detail = to_detail({"problem": "schedule is that of no schedule"})
        session.execute(_END_STRAYS, detail, session.now(), list(keys))
