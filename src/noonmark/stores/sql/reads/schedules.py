"""Schedules as callers and planning read them.

The database picks the schedules of a page, and only those are read as schedules. To find one text within another it
takes that out, and sees whether anything has changed: unlike a pattern, it may hold any character and have any length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import StoreUnavailable
from noonmark.core.frozen import maker
from noonmark.core.ids import STEPS, TRUSTED_STEPS
from noonmark.core.json_values import storable
from noonmark.core.pipeline_ownership import BEYOND, PREFIX
from noonmark.ports.records import StoredSchedule, lowered
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.snapshots import counters, of_sound, readable
from noonmark.stores.sql.row_checks import FURTHEST
from noonmark.stores.sql.schedule_documents import label_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import ScheduleFilter
    from noonmark.stores.rules.records import ScheduleState
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

    Choice = tuple[str, tuple[Any, ...]]
    """A condition on schedules, and its parameters."""

IS_VISIBLE = "substr(schedule_id, 1, 1) <> '~'"
"""It is not hidden. Not as a range: SQLite would look for it in the index of ids, and sort all that it finds."""
SHOWS_RUNS = " AND ".join(f"substr(schedule_id, 1, {len(one)}) <> '{one}'" for one in (STEPS, TRUSTED_STEPS))
"""Its occurrences are listed: it does not carry steps."""
BY_ID = "SELECT key FROM schedules WHERE tenant = ? AND schedule_id = ? AND is_listed = 1"
DELETED_BY_ID = """
    SELECT key FROM schedules WHERE tenant = ? AND schedule_id = ? AND is_listed = 0
    ORDER BY deleted DESC, key DESC LIMIT 1
"""
BY_UID = "SELECT schedule FROM schedule_states WHERE uid = ?"
BY_NAME = """
    SELECT key FROM schedules CROSS JOIN schedule_states ON schedule = key
    WHERE tenant = ? AND username = ? AND name = ? AND is_listed = 1 ORDER BY created, uid LIMIT 1
"""
_NEXT_DUE = """
    SELECT schedule, min(due), min(CASE WHEN origin = 'trigger' OR substr(origin, 1, 6) = 'event:' THEN due END)
    FROM occurrences
    WHERE schedule IN EACH(bigint) AND ended IS NULL AND (phase = 'claimed' OR phase = 'pending' AND held = 0
    AND ready IS NOT NULL AND (ready <= ? OR waiting_for IS NULL)) GROUP BY schedule
"""
PLANNABLE = """
    SELECT * FROM schedule_states
    WHERE phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL AND plan_at <= ?
    ORDER BY plan_at, uid LIMIT ?
"""
_ROUTES = """
    WITH RECURSIVE found(route) AS (
        SELECT min(route) FROM schedules WHERE is_listed = 1 AND source = ?
        UNION ALL
        SELECT (SELECT min(route) FROM schedules WHERE is_listed = 1 AND source = ? AND route > found.route)
        FROM found WHERE found.route IS NOT NULL
    )
    SELECT route FROM found WHERE route IS NOT NULL
"""


def find(uow: UnitOfWork, query: str, *parameters: str) -> StoredSchedule | None:
    """The schedule that a query finds, as callers read it."""
    rows = uow.session.query(query, *parameters)
    states = uow.states_of(rows[0]) if rows else []
    if rows and not states:
        raise StoreUnavailable(f"the stored state of schedule {parameters[-1]} is not there; noonmark doctor says more")
    if not states:
        return None
    [state] = states
    return to_stored(uow, [(state, readable(uow, state))])[0]


def find_uids(uow: UnitOfWork, uids: Collection[str]) -> dict[str, StoredSchedule]:
    """The schedules with these uids that can be read."""
    states = [state for uid, state in uow.load_states(uids).items() if uid in uids]
    schedules = uow.schedules_of(states)
    sound = [(state, schedule) for state in states if not isinstance(schedule := schedules[state.schedule], Unreadable)]
    return {stored.schedule.uid: stored for stored in to_stored(uow, sound)}


_make_stored = maker(StoredSchedule)


def to_stored(uow: UnitOfWork, pairs: Sequence[tuple[ScheduleState, Schedule]]) -> list[StoredSchedule]:
    """Schedules as callers read them."""
    keys = [state.schedule for state, _ in pairs]
    due_rows = uow.session.query(_NEXT_DUE, keys, uow.now())
    next_due = {key: (_time(due), _time(own)) for key, due, own in due_rows}
    times = [next_due.get(key, (None, None)) for key in keys]
    return [
        _make_stored(schedule=schedule, counters=counters(state), next_due=due, next_own=own)
        for (state, schedule), (due, own) in zip(pairs, times, strict=True)
    ]


def _time(value: object) -> Micros | None:
    """A time, unless it is damaged."""
    return value if type(value) is int and abs(value) <= FURTHEST else None


def plannable(uow: UnitOfWork, now: Micros, limit: int) -> tuple[list[Snapshot], dict[int, str]]:
    """Schedules whose time to plan has come, and what is wrong with those that cannot be read."""
    return of_sound(uow, uow.states_in(PLANNABLE, now, limit))


def routes(session: Session, source: str) -> list[str]:
    """The routes of the schedules from a source, each once."""
    return [route for (route,) in session.query(_ROUTES, source, source)]


_OF_PIPELINES = """
    SELECT key FROM schedules
    WHERE tenant = ? AND schedule_id >= ? AND schedule_id < ? AND is_listed = 1 ORDER BY schedule_id LIMIT ?
"""


def of_pipelines(uow: UnitOfWork, tenant: str, limit: int) -> list[Schedule]:
    """The schedules of pipelines, by id."""
    rows = uow.session.query(_OF_PIPELINES, tenant, PREFIX, BEYOND, limit)
    states = uow.states_of([key for (key,) in rows])
    read = uow.schedule_cache.read(uow.session, {state.schedule: state.version for state in states})
    sound = [one for one in read.values() if not isinstance(one, Unreadable)]
    return sorted(sound, key=lambda schedule: schedule.schedule_id)


_POSITION = """
    SELECT created, schedule_id FROM schedule_states CROSS JOIN schedules ON key = schedule WHERE uid = ? AND tenant = ?
"""
_IN_PHASE = "(SELECT phase FROM schedule_states WHERE schedule = schedules.key) IN EACH(text)"
_LAST_PHASE = "(SELECT last_phase FROM schedule_states WHERE schedule = schedules.key) IN EACH(text)"
# Of rows that wait, it is not known when they start.
_IS_NEXT = """coalesce((
    SELECT min(due) FROM occurrences WHERE occurrences.schedule = schedules.key AND ended IS NULL
    AND (origin = 'trigger' OR substr(origin, 1, 6) = 'event:')
    AND (phase = 'claimed' OR phase = 'pending' AND held = 0 AND ready IS NOT NULL AND waiting_for IS NULL)
) BETWEEN ? AND CAST(? AS bigint) - 1, FALSE)"""
_HAS_LABELS = "NOT EXISTS (SELECT 1 FROM EACH(text) AS j WHERE coalesce(replace(labels, j.value, '') = labels, TRUE))"
_HEARS = "key IN (SELECT schedule FROM event_listeners WHERE tenant = ? AND event_type = ?)"
_HAS_TEXT = " OR ".join(
    f"replace(lower({column}), ?, '') <> lower({column})" for column in ("schedule_id", "name", "description")
)


def page(
    uow: UnitOfWork, choice: Choice, tenant: str, *, after: str | None, limit: int, newest_first: bool
) -> list[StoredSchedule]:
    """A page of a tenant's schedules; damaged ones are skipped, and others fill the page."""
    place: tuple[Any, ...] = ()
    if after is not None:
        rows = uow.session.query(_POSITION, after, tenant)
        if not rows:
            return []
        [place] = rows
    chosen, values = choice
    sign, way = ("<", " DESC") if newest_first else (">", "")
    pairs: list[tuple[ScheduleState, Schedule]] = []
    while len(pairs) < limit:
        more = f" AND (created, schedule_id) {sign} (?, ?)" if place else ""
        room = limit - len(pairs)
        rows = uow.session.query(
            f"SELECT key, created, schedule_id FROM schedules WHERE {chosen}{more}"
            f" ORDER BY created{way}, schedule_id{way} LIMIT ?",
            *values,
            *place,
            room,
        )
        states = uow.states_of([key for key, *_ in rows])
        schedules = uow.schedule_cache.read(uow.session, {state.schedule: state.version for state in states})
        pairs += [
            (state, schedule) for state in states if not isinstance(schedule := schedules[state.schedule], Unreadable)
        ]
        if len(rows) < room:
            break
        place = rows[-1][1:]
    return to_stored(uow, pairs)


def count(uow: UnitOfWork, choice: Choice) -> int:
    """How many there are."""
    chosen, values = choice
    number: int
    [(number,)] = uow.session.query(f"SELECT count(*) FROM schedules WHERE {chosen}", *values)
    return number


_NEXT_TENANT = f"""
    SELECT tenant FROM schedules WHERE tenant > ? AND is_listed = 1 AND {IS_VISIBLE} ORDER BY tenant LIMIT 1
"""


def tenants(uow: UnitOfWork, limit: int) -> list[str]:
    """The tenants with schedules, each by one step in an index: there may be many schedules, and few tenants."""
    tenants: list[str] = []
    while len(tenants) < limit and (rows := uow.session.query(_NEXT_TENANT, tenants[-1] if tenants else "")):
        tenants.append(rows[0][0])
    return tenants


def choice(tenant: str, wanted: ScheduleFilter | None, *, deleted: bool) -> Choice | None:
    """The condition of a filter; None if no schedule can meet it."""
    more = conditions(tenant, wanted)
    if more is None:
        return None
    chosen = [(f"tenant = ? AND is_listed = {int(not deleted)} AND {IS_VISIBLE}", (tenant,)), *more]
    return " AND ".join(one for one, _ in chosen), tuple(value for _, values in chosen for value in values)


def conditions(tenant: str, wanted: ScheduleFilter | None) -> list[Choice] | None:
    """What a filter asks of a schedule; None if no schedule can meet it."""
    if wanted is None:
        return []
    named = {
        "username": wanted.user,
        "route": wanted.target,
        "name": wanted.name,
        "fingerprint": wanted.fingerprint,
    }
    lines = [label_line(name, value) for name, value in wanted.labels.items()]
    given = [one for one in (*named.values(), *wanted.kinds, wanted.text, wanted.event_type) if one is not None]
    if any(storable(one) != one for one in given):
        return None
    chosen: list[Choice] = [(f"{column} = ?", (value,)) for column, value in named.items() if value is not None]
    if wanted.kinds:
        chosen.append(("trigger_type IN EACH(text)", (sorted(wanted.kinds),)))
    if wanted.phases:
        chosen.append((_IN_PHASE, (sorted(wanted.phases),)))
    if wanted.event_type is not None:
        chosen.append((_HEARS, (tenant, wanted.event_type)))
    if lines:
        chosen.append((_HAS_LABELS, (lines,)))
    if wanted.last_phases:
        chosen.append((_LAST_PHASE, (sorted(wanted.last_phases),)))
    if wanted.asks_next:
        since = -FURTHEST if wanted.next_since is None else wanted.next_since
        until = FURTHEST if wanted.next_until is None else wanted.next_until
        chosen.append((_IS_NEXT, (since, until)))
    if wanted.text:
        chosen.append((f"({_HAS_TEXT})", (lowered(wanted.text),) * 3))
    return chosen
