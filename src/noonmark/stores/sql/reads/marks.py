"""Marks: occurrences on timelines, counts of them, and how far fires are stored.

The state of a mark is decided by `core.outcomes`; `_STATE` is the same rule in SQL, where marks are only counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.budgets.forecast import percentile
from noonmark.core.ids import owner_number
from noonmark.core.lifecycle import FAILURES, MarkState, SchedulePhase
from noonmark.core.occurrence import CONTINUED
from noonmark.core.outcomes import Mark, counted_as
from noonmark.core.system_events import LATE
from noonmark.ports.records import Horizons, MarkCount, ScheduleFilter, TrendPoint
from noonmark.stores.rules.marks import NEAR, to_horizon, to_mark
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.sql.reads.schedules import IS_VISIBLE, SHOWS_RUNS, conditions
from noonmark.stores.sql.row_checks import FURTHEST
from noonmark.stores.sql.session import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import MarkScope, Span
    from noonmark.stores.sql.session import Values
    from noonmark.stores.sql.unit_of_work import UnitOfWork

MAX_READ = 1_000
"""How many schedules one call reads at most to find how far their fires are stored."""
_KEYS = "SELECT schedule, uid FROM schedule_states WHERE uid IN EACH(text)"
_IS_LATE = f"CASE WHEN o.late IS NULL THEN NULL WHEN o.late > {LATE} THEN 1 ELSE 0 END"
# A value of one schedule, and not a join: a database could begin a join with all schedules.
_OF_TENANT = "(SELECT CASE WHEN {chosen} THEN 1 ELSE 0 END FROM schedules WHERE schedules.key = o.schedule) = 1"
_COLUMNS = """o.id, o.schedule, o.origin, o.phase, o.nominal, o.due, o.first_due, o.late, o.attempt, o.losses, o.reason,
    o.detail, o.missed_count, o.missed_last, o.waiting_for, o.ended"""
_ENDED_STATE = f"""
    CASE WHEN o.phase = 'completed' THEN 'completed' WHEN o.phase IN ({listed(sorted(FAILURES))}) THEN 'failed'
        ELSE 'skipped' END
"""
_LIVE_STATE = f"""
    CASE WHEN o.phase IN ('dispatching', 'awaiting_completion') OR o.reason = 'suspended' THEN 'running'
        WHEN o.due > CAST(? AS bigint) AND o.waiting_for IS NULL AND o.attempt = 0 AND o.losses = 0
            AND (o.reason IS NULL OR o.reason NOT IN ({listed(sorted(CONTINUED))})) THEN 'planned'
        ELSE 'queued' END
"""
_STATE = f"CASE WHEN o.ended IS NOT NULL THEN {_ENDED_STATE} ELSE {_LIVE_STATE} END"


class _Part(NamedTuple):
    """A source of occurrences."""

    text: str
    values: tuple[Any, ...]
    state: str = _STATE
    is_late: str = _IS_LATE


class _Row(NamedTuple):
    """The columns of an occurrence that its mark is made of."""

    id: str
    schedule: int
    origin: str
    phase: str
    nominal: Micros
    due: Micros
    first_due: Micros
    late: Micros | None
    attempt: int
    losses: int
    reason: str | None
    detail: str
    missed_count: int
    missed_last: Micros | None
    waiting_for: str | None
    ended: Micros | None

    @property
    def has_begun(self) -> bool:
        return self.attempt > 0 or self.losses > 0 or self.reason in CONTINUED


def marks(uow: UnitOfWork, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
    """The marks of a span, by time."""
    rows: list[Values] = []
    for part in _parts(uow, scope, span):
        text = f"SELECT {_COLUMNS} FROM {part.text} ORDER BY o.nominal, o.id LIMIT ?"
        rows += uow.session.query(text, *part.values, limit)
    uids = {state.schedule: state.uid for state in uow.states_of({row[1] for row in rows})}
    ordered = sorted((_Row(*values) for values in rows), key=lambda row: (row.nominal, row.id))
    marks = (to_mark(row, uids[row.schedule], span.now) for row in ordered if row.schedule in uids)
    return [mark for mark in marks if mark is not None][:limit]


def count(uow: UnitOfWork, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
    """The numbers of marks in buckets."""
    partition = "NULL" if scope.uids is None else "schedule"
    counts: list[Values] = []
    for part in _parts(uow, scope, span):
        text = f"""
            SELECT {partition}, bucket, state, is_late, count(*) FROM (
                SELECT o.schedule AS schedule,
                    (CASE WHEN o.nominal < CAST(? AS bigint) THEN CAST(? AS bigint) ELSE o.nominal END
                        - CAST(? AS bigint)) / CAST(? AS bigint) AS bucket,
                    {part.state} AS state, {part.is_late} AS is_late
                FROM {part.text}
            ) AS counted GROUP BY {"" if scope.uids is None else "schedule, "}bucket, state, is_late
        """
        now = [span.now] * part.state.count("?")
        counts += uow.session.query(text, span.since, span.since, span.since, width, *now, *part.values)
    uids = {state.schedule: state.uid for state in uow.states_of({row[0] for row in counts if row[0] is not None})}
    sums: Counter[tuple[Any, ...]] = Counter()
    for *kind, number in counts:
        sums[tuple(kind)] += number
    return [
        MarkCount(
            uid=None if scope.uids is None else uids[schedule],
            bucket=bucket,
            state=MarkState(state),
            is_late=None if is_late is None else bool(is_late),
            count=number,
        )
        for (schedule, bucket, state, is_late), number in sums.items()
    ]


# Up to the time of the last one that is wanted; others may have the same time.
_LAST = f"""
    SELECT {_COLUMNS} FROM EACH(bigint) AS j
    CROSS JOIN occurrences AS o ON o.schedule = j.value AND o.phase <> 'superseded' AND o.nominal <= ?
    AND o.nominal >= coalesce((
        SELECT l.nominal FROM occurrences AS l
        WHERE l.schedule = j.value AND l.phase <> 'superseded' AND l.nominal <= ?
        ORDER BY l.nominal DESC LIMIT 1 OFFSET ?
    ), -{FURTHEST})
"""


def last(uow: UnitOfWork, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
    """The last marks of each schedule."""
    keys: dict[int, str] = dict(uow.session.query(_KEYS, list(uids)))
    marks_by_uid: dict[str, list[Mark]] = {uid: [] for uid in keys.values()}
    if limit:
        rows = [_Row(*values) for values in uow.session.query(_LAST, list(keys), now, now, limit - 1)]
        for row in sorted(rows, key=lambda row: (row.nominal, row.id)):
            if (mark := to_mark(row, keys[row.schedule], now)) is not None:
                marks_by_uid[keys[row.schedule]].append(mark)
    return {uid: marks[-limit:] for uid, marks in marks_by_uid.items()}


_TREND = f"""
    SELECT step, state, is_late, count(*) FROM (
        SELECT (o.nominal - CAST(? AS bigint)) / CAST(? AS bigint) AS step, {_STATE} AS state, {_IS_LATE} AS is_late
        FROM occurrences AS o
        WHERE o.schedule = ? AND o.nominal >= ? AND o.nominal < ? AND o.phase <> 'superseded'
    ) AS counted GROUP BY step, state, is_late
"""
_DURATIONS = """
    SELECT started, ended - started FROM runs
    WHERE schedule = ? AND started >= ? AND started < ? AND ended IS NOT NULL AND outcome = 'completed'
"""
_SPENT = """
    SELECT (called - CAST(? AS bigint)) / CAST(? AS bigint), CAST(coalesce(sum(cost), 0) AS bigint),
        count(*) - count(cost), CAST(coalesce(sum(input_tokens), 0) AS bigint),
        CAST(coalesce(sum(output_tokens), 0) AS bigint)
    FROM model_calls
    WHERE tenant = ? AND schedule_id = ? AND called >= ? AND called < ? AND is_settled = 1 GROUP BY 1
"""
_IDENTITY = """
    SELECT schedules.key, tenant, schedule_id FROM schedule_states
    CROSS JOIN schedules ON schedules.key = schedule WHERE uid = ?
"""


def trend(uow: UnitOfWork, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
    """What a schedule did between edges.

    The database counts in even steps, of which every stretch has a whole number: a join with stretches would read the
    occurrences once for each of them.
    """
    points = len(edges) - 1
    named = uow.session.query(_IDENTITY, uid)
    if not named or points < 1:
        return [TrendPoint() for _ in range(points)]
    [(key, tenant, schedule_id)] = named
    begin, end = edges[0], edges[-1]
    step = gcd(*(edge - begin for edge in edges))

    def place(number: int) -> int:
        return bisect_right(edges, begin + number * step) - 1

    counts: list[Counter[str]] = [Counter() for _ in range(points)]
    for number, state, is_late, count in uow.session.query(_TREND, begin, step, now, key, begin, end):
        counts[place(number)][counted_as(MarkState(state), is_late=bool(is_late))] += count
    took: list[list[int]] = [[] for _ in range(points)]
    for started, length in uow.session.query(_DURATIONS, key, begin, end):
        took[bisect_right(edges, started) - 1].append(length)
    spent = [[0, 0, 0, 0] for _ in range(points)]
    for number, *sums in uow.session.query(_SPENT, begin, step, tenant, schedule_id, begin, end):
        spent[place(number)] = [one + more for one, more in zip(spent[place(number)], sums, strict=True)]
    return [
        TrendPoint(
            counts=dict(counted),
            duration_p50=percentile(sorted(lengths), 50) if lengths else None,
            duration_p95=percentile(sorted(lengths), 95) if lengths else None,
            cost=cost,
            unpriced_calls=unpriced,
            input_tokens=read,
            output_tokens=written,
        )
        for counted, lengths, (cost, unpriced, read, written) in zip(counts, took, spent, strict=True)
    ]


def lateness(uow: UnitOfWork, scope: MarkScope, span: Span, percent: int) -> Micros | None:
    """The percentile of how late marks started."""
    late: list[int] = []
    for part in _parts(uow, scope, span):
        rows = uow.session.query(f"SELECT o.late FROM {part.text}", *part.values)
        late += [max(0, one) for (one,) in rows if type(one) is int]
    late.sort()
    return percentile(late, percent) if late else None


def _parts(uow: UnitOfWork, scope: MarkScope, span: Span) -> list[_Part]:
    """The occurrences of a span: those of its times, and those that have not ended and were due before."""
    since, until = span.since, span.until
    if scope.uids is not None:
        keys = [key for key, _ in uow.session.query(_KEYS, list(scope.uids))]
        of_span = _Part(_OF_SCHEDULES, (keys, since, until))
        return [of_span, _Part(_OPEN_OF_SCHEDULES, (keys, since))] if span.is_open else [of_span]
    more = conditions(scope.tenant, scope.wanted)
    if more is None:
        return []
    user = None if scope.wanted is None else scope.wanted.user
    owners = owners_of(uow, scope.tenant, user)
    chosen: list[tuple[str, tuple[Any, ...]]] = []
    if hidden := [key for (key,) in uow.session.query(_CARRYING_STEPS, scope.tenant, scope.tenant)]:
        chosen.append(("NOT (o.schedule IN EACH(bigint))", (hidden,)))
    if scope.wanted is not None and scope.wanted != ScheduleFilter(user=user):
        wanted = _OF_TENANT.format(chosen=" AND ".join(one for one, _ in more))
        chosen.append((wanted, tuple(value for _, values in more for value in values)))
    condition = "".join(f" AND {one}" for one, _ in chosen)
    values = tuple(value for _, several in chosen for value in several)
    near = max(since, min(until, span.now + NEAR))
    parts = [
        _Part(f"{_ENDED_OF_OWNERS}{condition}", (owners, since, until, *values), _ENDED_STATE),
        _Part(f"{_LIVE_OF_OWNERS}{condition}", (owners, -FURTHEST if span.is_open else since, near, *values)),
    ]
    if near < until:
        ahead = (owners, near, until, *values)
        parts.append(_Part(f"{_LIVE_OF_OWNERS}{condition}", ahead, "'planned'", "CAST(NULL AS integer)"))
    return parts


def owners_of(uow: UnitOfWork, tenant: str, user: str | None) -> list[int]:
    """The numbers of the owners of a tenant, or that of one of its users.

    They are hashes of 63 bits, so that no two tenants can be made to share one.
    """
    names = {user}
    if user is None:
        names = {name for query in (_OWNERS, _FORMER_OWNERS) for (name,) in uow.session.query(query, tenant, tenant)}
    return [owner_number(tenant, name) for name in names if name is not None]


_OF_SCHEDULES = """
    occurrences AS o
    WHERE o.schedule IN EACH(bigint) AND o.nominal >= ? AND o.nominal < ? AND o.phase <> 'superseded'
"""
_OPEN_OF_SCHEDULES = "occurrences AS o WHERE o.schedule IN EACH(bigint) AND o.ended IS NULL AND o.nominal + 0 < ?"
"""The sum keeps the query on the index of live rows, which are few."""
_ENDED_OF_OWNERS = """
    occurrences AS o WHERE o.owner IN EACH(bigint) AND o.nominal >= ? AND o.nominal < ?
    AND o.ended IS NOT NULL AND o.phase <> 'superseded'
"""
_LIVE_OF_OWNERS = """
    occurrences AS o WHERE o.owner IN EACH(bigint) AND o.nominal >= ? AND o.nominal < ? AND o.ended IS NULL
"""
_USERS = """
    WITH RECURSIVE found(name) AS (
        SELECT min(username) FROM schedules WHERE tenant = ? AND is_listed = {is_listed}
        UNION ALL
        SELECT (
            SELECT min(username) FROM schedules
            WHERE tenant = ? AND username > found.name AND is_listed = {is_listed}
        ) FROM found WHERE found.name IS NOT NULL
    )
    SELECT name FROM found WHERE name IS NOT NULL
"""
"""Each by one step in an index."""
_OWNERS, _FORMER_OWNERS = _USERS.format(is_listed=1), _USERS.format(is_listed=0)
_HIDDEN = f"SELECT key FROM schedules WHERE tenant = ? AND schedule_id >= '~' AND NOT ({SHOWS_RUNS})"
_CARRYING_STEPS = f"{_HIDDEN} AND is_listed = 1 UNION ALL {_HIDDEN} AND is_listed = 0"


_TO_PLAN = "phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL AND plan_at < ?"
_HORIZONS = f"SELECT schedule, plan_at, {{fits}} FROM schedule_states AS s WHERE {_TO_PLAN}"


def horizons(uow: UnitOfWork, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
    """How far the fires of schedules are stored."""
    if scope.uids is not None:
        text = _HORIZONS.format(fits="1")
        rows = uow.session.query(f"{text} AND uid IN EACH(text) ORDER BY plan_at, uid", until, list(scope.uids))
    else:
        more = conditions(scope.tenant, scope.wanted)
        if more is None:
            return Horizons(horizons=[])
        chosen = [(f"tenant = ? AND is_listed = 1 AND {IS_VISIBLE}", (scope.tenant,)), *more]
        fits = _OF_TENANT.format(chosen=" AND ".join(one for one, _ in chosen)).replace("o.schedule", "s.schedule")
        values = [value for _, several in chosen for value in several]
        text = f"{_HORIZONS.format(fits=f'CASE WHEN {fits} THEN 1 ELSE 0 END')} ORDER BY plan_at, uid LIMIT ?"
        rows = uow.session.query(text, *values, until, MAX_READ + 1)
    complete_until = None
    if scope.uids is None and len(rows) > MAX_READ:
        complete_until = rows.pop()[1]
    fitting = [(key, plan_at) for key, plan_at, fits in rows if fits]
    if len(fitting) > limit:
        complete_until = fitting[limit][1]
    states = uow.states_of([key for key, _ in fitting[:limit]])
    schedules = uow.schedules_of(states)
    horizons = []
    for state in states:
        schedule = schedules[state.schedule]
        if not isinstance(schedule, Unreadable):
            horizons.append(to_horizon(state, schedule))
    return Horizons(horizons=horizons, complete_until=complete_until)


_PHASES = "SELECT phase, count(*) FROM schedule_states WHERE owner IN EACH(bigint) GROUP BY phase"
_HIDDEN_PHASES = """
    SELECT s.phase, count(*) FROM schedules CROSS JOIN schedule_states AS s ON s.schedule = schedules.key
    WHERE tenant = ? AND is_listed = 1 AND schedule_id >= '~' AND username = coalesce(?, username) GROUP BY s.phase
"""


def count_phases(uow: UnitOfWork, tenant: str, user: str | None) -> dict[SchedulePhase, int]:
    """How many schedules are in each phase."""
    counts: Counter[str] = Counter(dict(uow.session.query(_PHASES, owners_of(uow, tenant, user))))
    counts.subtract(dict(uow.session.query(_HIDDEN_PHASES, tenant, user)))
    phases = (phase for phase in SchedulePhase if phase is not SchedulePhase.DELETED)
    return {phase: counts[phase] for phase in phases if counts[phase] > 0}
