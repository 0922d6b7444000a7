"""Marks: occurrences on timelines, counts of them, and how far fires are stored.

Those that have ended are counted from the entries of an index, without reading their records; the others are few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.budgets.forecast import percentile
from noonmark.core.budgets.spend import Usage
from noonmark.core.ids import owner_number
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.outcomes import Mark, counted_as, mark_state
from noonmark.core.run import Outcome
from noonmark.core.system_events import LATE
from noonmark.ports.records import Horizons, MarkCount, ScheduleFilter, TrendPoint
from noonmark.stores.redis.reads.schedule_filter import matching
from noonmark.stores.redis.schema.schedules import RUNS, STATES
from noonmark.stores.rules.marks import NEAR, to_horizon, to_mark
from noonmark.stores.rules.records import PHASES, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import MarkState
    from noonmark.ports.records import MarkScope, Span
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

MAX_READ = 1_000
"""How many schedules one call reads at most to find how far their fires are stored."""
_TENANT, _IS_HIDDEN = STATES.columns.index("tenant"), STATES.columns.index("is_hidden")


class _Entry(NamedTuple):
    """What an index says of an occurrence, without its record."""

    nominal: Micros
    phase: str
    late: Micros | None
    schedule: int
    key: int
    waiting_for: str | None = None
    reason: str | None = None
    has_begun: bool = False

    @property
    def due(self) -> Micros:
        """When one that has not ended is to start, or earlier."""
        return self.nominal


def marks(uow: UnitOfWork, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
    """The marks of a span, by time."""
    found = _first(uow, scope, span, limit)
    uow.rows.read(((one.key,) for one in found), hint=True)
    rows = uow.rows_of(dict.fromkeys(one.key for one in found))
    first = nsmallest(limit, rows, key=lambda row: (row.nominal, row.id))
    return [mark for row in first if (mark := _mark(uow, row, span.now)) is not None]


def count(uow: UnitOfWork, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
    """The numbers of marks in buckets."""
    counts: Counter[tuple[int | None, int, MarkState, bool | None]] = Counter()
    for row in _rows(uow, scope, span):
        if (state := _state(row, span.now)) is not None:
            bucket = (max(row.nominal, span.since) - span.since) // width
            counts[None if scope.uids is None else row.schedule, bucket, state, _is_late(row)] += 1
    uids = {state.schedule: state.uid for state in uow.states_of({one for one, *_ in counts if one is not None})}
    return [
        MarkCount(
            uid=None if schedule is None else uids[schedule],
            bucket=bucket,
            state=state,
            is_late=is_late,
            count=number,
        )
        for (schedule, bucket, state, is_late), number in counts.items()
    ]


def last(uow: UnitOfWork, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
    """The last marks of each schedule."""
    states = {state.schedule: state for state in uow.load_states(uids).values() if state.uid in uids}
    schedules = list(states)
    newest: dict[str, Any] = {"until": (now,), "limit": limit, "newest_first": True}
    uow.transaction.preload(uow.rows.question("ended_of_schedule", (key,), **newest) for key in schedules)
    live = uow.rows.find_each("live", [(key,) for key in schedules], hint=True)
    keys = [one.key for key in schedules for one in _ended_of(uow, key, **newest)]
    keys += [key for of_one in live for (key,) in of_one]
    uow.rows.read(((key,) for key in keys), hint=True)
    rows: dict[int, list[Row]] = {key: [] for key in schedules}
    for row in uow.rows_of(keys):
        if row.nominal <= now:
            rows[row.schedule].append(row)
    marks_by_uid = {}
    for key, state in states.items():
        ordered = sorted(rows[key], key=lambda row: (row.nominal, row.id))
        of_one = [mark for row in ordered if (mark := _mark(uow, row, now)) is not None]
        marks_by_uid[state.uid] = of_one[-limit:] if limit else []
    return marks_by_uid


def trend(uow: UnitOfWork, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
    """What a schedule did between edges."""
    states, points = uow.load_states([uid]), len(edges) - 1
    if uid not in states or points < 1:
        return [TrendPoint() for _ in range(points)]
    state, begin, end = states[uid], edges[0], edges[-1]
    counts: list[Counter[str]] = [Counter() for _ in range(points)]
    ended = uow.rows.entries("ended_of_schedule", (state.schedule,), since=(begin,), before=(end,), hint=True)
    live = [row for row in uow.find_rows("live", state.schedule, hint=True) if begin <= row.nominal < end]
    rows: list[_Entry | Row] = [*(_of_schedule(state.schedule, one) for one in ended), *live]
    for row in rows:
        if (mark := _state(row, now)) is not None:
            counts[bisect_right(edges, row.nominal) - 1][counted_as(mark, is_late=bool(_is_late(row)))] += 1
    took: list[list[int]] = [[] for _ in range(points)]
    for started, length in _durations(uow, state.schedule, begin, end):
        took[bisect_right(edges, started) - 1].append(length)
    tenant = uow.tenants_of([state.schedule])[state.schedule]
    schedule_id = uow.schedule_ids([state.schedule])[state.schedule]
    spent = [Usage(cost=0)] * points
    unpriced = [0] * points
    for call in uow.budgets.settled_calls_of(tenant, schedule_id, begin, end):
        place = bisect_right(edges, call.at) - 1
        unpriced[place] += call.usage.cost is None
        spent[place] = spent[place].plus(Usage(
            input_tokens=call.usage.input_tokens, output_tokens=call.usage.output_tokens, cost=call.usage.cost or 0
        ))  # fmt: skip
    return [
        TrendPoint(
            counts=dict(counts[place]),
            duration_p50=percentile(sorted(took[place]), 50) if took[place] else None,
            duration_p95=percentile(sorted(took[place]), 95) if took[place] else None,
            cost=spent[place].cost or 0,
            unpriced_calls=unpriced[place],
            input_tokens=spent[place].input_tokens,
            output_tokens=spent[place].output_tokens,
        )
        for place in range(points)
    ]


def lateness(uow: UnitOfWork, scope: MarkScope, span: Span, percent: int) -> Micros | None:
    """The percentile of how late marks started."""
    late = sorted(max(0, row.late) for row in _rows(uow, scope, span) if type(row.late) is int)
    return percentile(late, percent) if late else None


def horizons(uow: UnitOfWork, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
    """How far the fires of schedules are stored."""
    complete_until: Micros | None = None
    if scope.uids is not None:
        states_by_uid = uow.load_states(scope.uids)
        states = [states_by_uid[uid] for uid in scope.uids if uid in states_by_uid]
    else:
        entries = uow.states.entries("to_plan", before=(until,), limit=MAX_READ + 1, hint=True)
        if len(entries) > MAX_READ:
            complete_until = entries.pop()[0]
        keys = [(key,) for *_, key in entries]
        uow.states.read(keys, hint=True)
        own = [
            key
            for (key,), values in uow.states.get_many(keys).items()
            if values[_TENANT] == scope.tenant and not values[_IS_HIDDEN]
        ]
        states = uow.states_of(matching(uow, own, scope.wanted))
    to_plan = sorted(
        ((state.plan_at, state.uid, state) for state in states if state.plan_at is not None and state.fault is None),
        key=lambda one: one[:2],
    )
    fitting = [
        (plan_at, state)
        for plan_at, _, state in to_plan
        if plan_at < until and state.phase in (SchedulePhase.ACTIVE, SchedulePhase.PAUSED)
    ]
    if len(fitting) > limit:
        complete_until = fitting[limit][0]
    schedules = uow.schedules_of([state for _, state in fitting[:limit]])
    horizons = []
    for _, state in fitting[:limit]:
        schedule = schedules[state.schedule]
        if not isinstance(schedule, Unreadable):
            horizons.append(to_horizon(state, schedule))
    return Horizons(horizons=horizons, complete_until=complete_until)


def count_phases(uow: UnitOfWork, tenant: str, user: str | None) -> dict[SchedulePhase, int]:
    """How many schedules are in each phase."""
    counts = {
        phase: uow.states.count(
            "by_phase", (tenant,), prefix=[str(phase), *([] if user is None else [user])], hint=True
        )
        for phase in SchedulePhase
        if phase is not SchedulePhase.DELETED
    }
    return {phase: number for phase, number in counts.items() if number}


def _first(uow: UnitOfWork, scope: MarkScope, span: Span, limit: int) -> list[_Entry]:
    """The first occurrences of a span, by time, and all others that have the time of the last one."""
    parts = (partial(_ended, uow, scope), partial(_live, uow, scope))
    found: list[_Entry] = []
    for read in parts:
        entries = nsmallest(limit, read(span, limit), key=lambda one: one.nominal)
        if entries and len(entries) == limit:
            entries = list(read(replace(span, until=entries[-1].nominal + 1), None))
        found += entries
    return found


def _rows(uow: UnitOfWork, scope: MarkScope, span: Span) -> list[_Entry | Row]:
    """The occurrences of a span, to be counted; records are read of live ones only, up to a time from now."""
    live = list(_live(uow, scope, span, None))
    ahead = [one for one in live if one.nominal >= span.now + NEAR] if scope.uids is None else []
    keys = [one.key for one in live if scope.uids is not None or one.nominal < span.now + NEAR]
    uow.rows.read(((key,) for key in keys), hint=True)
    rows = [row for row in uow.rows_of(keys) if row.ended is None]
    return [*_ended(uow, scope, span, None), *rows, *ahead]


def _ended(uow: UnitOfWork, scope: MarkScope, span: Span, limit: int | None) -> Iterator[_Entry]:
    """The occurrences of a span that have ended; of each schedule or tenant the first ones, if there is a limit."""
    since, before = (span.since,), (span.until,)
    if scope.uids is not None:
        keys = [state.schedule for state in uow.load_states(scope.uids).values()]
        which: dict[str, Any] = {"since": since, "before": before, "limit": limit}
        uow.transaction.preload(uow.rows.question("ended_of_schedule", (key,), **which) for key in keys)
        for key in keys:
            yield from _ended_of(uow, key, **which)
        return
    for nominal, phase, late, schedule, _, key in _of_tenant(
        uow, scope, "ended_of_tenant", since=since, before=before, limit=limit if _is_plain(scope) else None
    ):
        yield _Entry(nominal, phase, late, schedule, key)


def _live(uow: UnitOfWork, scope: MarkScope, span: Span, limit: int | None) -> Iterator[_Entry]:
    """The occurrences of a span that have not ended: those of its times, and if it is open, those from before."""
    since = None if span.is_open else (span.since,)
    if scope.uids is not None:
        schedules = [(state.schedule,) for state in uow.load_states(scope.uids).values()]
        keys = [key for of_one in uow.rows.find_each("live", schedules, hint=True) for (key,) in of_one]
        uow.rows.read(((key,) for key in keys), hint=True)
        for row in uow.rows_of(keys):
            if row.ended is None and row.nominal < span.until and (since is None or row.nominal >= span.since):
                yield _Entry(row.nominal, row.phase, None, row.schedule, row.key)
        return
    most = limit if _is_plain(scope) else None
    for nominal, schedule, _, key in _of_tenant(
        uow, scope, "live_by_time", since=since, before=(span.until,), limit=most
    ):
        yield _Entry(nominal, Phase.PENDING, None, schedule, key)


def _of_tenant(uow: UnitOfWork, scope: MarkScope, index: str, **span: Any) -> list[Values]:
    """The entries of an index of a tenant that a timeline shows; they end with schedule, owner and key."""
    entries = uow.rows.entries(index, (scope.tenant,), hint=True, **span)
    if _is_plain(scope) or scope.wanted is None:
        return entries
    user = scope.wanted.user
    if user is not None:
        owner = owner_number(scope.tenant, user)
        entries = [entry for entry in entries if entry[-2] == owner]
    if scope.wanted == ScheduleFilter(user=user):
        return entries
    wanted = set(matching(uow, {entry[-3] for entry in entries}, scope.wanted))
    return [entry for entry in entries if entry[-3] in wanted]


def _is_plain(scope: MarkScope) -> bool:
    return scope.wanted is None or scope.wanted == ScheduleFilter()


def _ended_of(uow: UnitOfWork, schedule: int, *, limit: int | None, **which: Any) -> list[_Entry]:
    """The occurrences of a schedule that have ended and are not superseded; those take no place on a page."""
    ended: list[_Entry] = []
    while True:
        page = uow.rows.entries("ended_of_schedule", (schedule,), limit=limit, hint=True, **which)
        ended += [_of_schedule(schedule, entry) for entry in page if entry[2] != Phase.SUPERSEDED]
        if limit is None or len(page) < limit or len(ended) >= limit:
            return ended[:limit]
        which |= {"before": page[-1], "until": None} if which.get("newest_first") else {"after": page[-1]}


def _of_schedule(schedule: int, entry: Values) -> _Entry:
    nominal, _, phase, late, key = entry
    return _Entry(nominal, phase, late, schedule, key)


def _state(row: _Entry | Row, now: Micros) -> MarkState | None:
    """The state of a mark; None if it has none, or is damaged."""
    return mark_state(row, now) if row.phase in PHASES else None


def _is_late(row: _Entry | Row) -> bool | None:
    return row.late > LATE if type(row.late) is int else None


def _mark(uow: UnitOfWork, row: Row, now: Micros) -> Mark | None:
    return to_mark(row, uow.state_of(row).uid, now)


def _durations(uow: UnitOfWork, schedule: int, begin: Micros, end: Micros) -> Iterator[tuple[Micros, Micros]]:
    """When each completed run of a schedule started in a stretch of time, and how long it took."""
    entries = uow.runs.entries("of_schedule", (schedule,), since=(begin,), before=(end,), hint=True)
    keys = [entry[-2:] for entry in entries]
    uow.runs.read(keys, hint=True)
    for values in uow.runs.get_many(keys).values():
        run = RUNS.named(values)
        if run["outcome"] == Outcome.COMPLETED and type(run["ended"]) is int and type(run["started"]) is int:
            yield run["started"], run["ended"] - run["started"]
