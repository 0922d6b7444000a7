"""Lists of schedules: those of a tenant that a caller wants to see, page by page.

The database picks them, and only what is on the page is read as a schedule. That one text is part of another is told by
taking it out: unlike a pattern, what is looked for means nothing but itself, and may be of any length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import storable
from noonmark.stores.sql import snapshots
from noonmark.stores.sql.records import Unreadable
from noonmark.stores.sql.schedule_documents import label_line
from noonmark.stores.text_case import lowered

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import ScheduleFilter, StoredSchedule
    from noonmark.stores.sql.records import ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork

    Choice = tuple[str, tuple[Any, ...]]
    """A condition on schedules, and its parameters."""

_POSITION = """
    SELECT created, schedule_id FROM schedule_states CROSS JOIN schedules ON key = schedule WHERE uid = ? AND tenant = ?
"""
_IN_PHASE = "(SELECT phase FROM schedule_states WHERE schedule = schedules.key) IN EACH(text)"
_HAS_LABELS = "NOT EXISTS (SELECT 1 FROM EACH(text) AS j WHERE coalesce(replace(labels, j.value, '') = labels, TRUE))"
_HEARS = "key IN (SELECT schedule FROM event_listeners WHERE tenant = ? AND event_type = ?)"
_HAS_TEXT = " OR ".join(
    f"replace(lower({column}), ?, '') <> lower({column})" for column in ("schedule_id", "name", "description")
)


def page(
    uow: UnitOfWork, choice: Choice, tenant: str, *, after: str | None, limit: int, newest_first: bool
) -> list[StoredSchedule]:
    """A page of a tenant's schedules; what cannot be read is passed over, and others fill the page."""
    place: tuple[Any, ...] = ()
    if after is not None:
        found = uow.session.query(_POSITION, after, tenant)
        if not found:
            return []
        [place] = found
    chosen, values = choice
    sign, way = ("<", " DESC") if newest_first else (">", "")
    known: list[tuple[ScheduleState, Schedule]] = []
    while len(known) < limit:
        more = f" AND (created, schedule_id) {sign} (?, ?)" if place else ""
        room = limit - len(known)
        found = uow.session.query(
            f"SELECT key, created, schedule_id FROM schedules WHERE {chosen}{more}"  # noqa: S608 - our own text
            f" ORDER BY created{way}, schedule_id{way} LIMIT ?",
            *values,
            *place,
            room,
        )
        states = uow.states_of([key for key, *_ in found])
        read = uow.schedule_cache.read(uow.session, {state.schedule: state.version for state in states})
        known += [(state, one) for state in states if not isinstance(one := read[state.schedule], Unreadable)]
        if len(found) < room:
            break
        place = found[-1][1:]
    return snapshots.told(uow, known)


def count(uow: UnitOfWork, choice: Choice) -> int:
    """How many there are."""
    chosen, values = choice
    number: int
    [(number,)] = uow.session.query(f"SELECT count(*) FROM schedules WHERE {chosen}", *values)  # noqa: S608 - our own text
    return number


def choice(tenant: str, wanted: ScheduleFilter | None, *, deleted: bool) -> Choice | None:
    """Those of a tenant that somebody wants; None where no schedule can be like that."""
    chosen: list[tuple[str, tuple[Any, ...]]] = [(f"tenant = ? AND is_listed = {int(not deleted)}", (tenant,))]
    if wanted is not None:
        named = {"username": wanted.user, "route": wanted.target, "name": wanted.name}
        lines = [label_line(name, value) for name, value in wanted.labels.items()]
        given = [one for one in (*named.values(), *wanted.kinds, wanted.text, wanted.event_type) if one is not None]
        if any(storable(one) != one for one in given):
            return None
        chosen += [(f"{column} = ?", (value,)) for column, value in named.items() if value is not None]
        if wanted.kinds:
            chosen.append(("trigger_type IN EACH(text)", (sorted(wanted.kinds),)))
        if wanted.phases:
            chosen.append((_IN_PHASE, (sorted(wanted.phases),)))
        if wanted.event_type is not None:
            chosen.append((_HEARS, (tenant, wanted.event_type)))
        if lines:
            chosen.append((_HAS_LABELS, (lines,)))
        if wanted.text:
            chosen.append((f"({_HAS_TEXT})", (lowered(wanted.text),) * 3))
    return " AND ".join(one for one, _ in chosen), tuple(value for _, values in chosen for value in values)
