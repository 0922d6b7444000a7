"""Timelines: what schedules did, do and will do, on one axis."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import to_dollars
from noonmark.core.errors import InvalidRequest
from noonmark.core.ids import is_hidden, shown_name, visible_id
from noonmark.core.instants import DAY, HOUR, MAX_INSTANT, MIN_INSTANT, SECOND, micros_to_seconds, to_text
from noonmark.core.lifecycle import FAILURES, SchedulePhase
from noonmark.core.local_spans import LocalUnit, span_edges, span_name
from noonmark.core.outcomes import COUNTED, counted_as, future_counts, future_marks
from noonmark.core.reasons import reason_sentence
from noonmark.core.triggers.zones import load_zone
from noonmark.operations import schedule_edits
from noonmark.operations.models.arguments import TimelineBy
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.schedules import fits, schedule_filter, trigger_types
from noonmark.operations.serializers import text
from noonmark.ports.records import MarkScope, OccurrenceFilter, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.outcomes import Mark
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import TimelineQuery, TrendQuery
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import Horizons, ScheduleFilter, StoredSchedule
    from noonmark.ports.store import Store

AROUND: Micros = 6 * HOUR
"""How far a timeline reaches to both sides, unless something else is asked for."""
LONGEST: Micros = 400 * DAY
LATELY: Micros = DAY
"""How long ago a failure may be to come first."""
ACTIVE_LISTED = 50
"""How many occurrences of each kind decide which rows come first."""
MAX_IN_ALL = 10_000
"""How many marks the rows of an answer have together; the rows after that have buckets."""
MAX_PROJECTED = 4_000
"""How many fires that are not stored, or buckets of them, one request computes."""
MAX_HORIZONS = 300
"""For how many schedules it does so."""
USUAL_UNITS, MAX_TREND = 30, 1_000
UNITS: Mapping[LocalUnit, Micros] = {
    LocalUnit.HOUR: HOUR,
    LocalUnit.DAY: DAY,
    LocalUnit.WEEK: 7 * DAY,
    LocalUnit.MONTH: 30 * DAY,
}
"""How long each is, about."""


def get_timeline(service: Service, caller: Caller, arguments: TimelineQuery) -> dict[str, Any]:
    """Get what schedules did, do and will do between two instants: marks, or counts in buckets where there are many.

    Future fires are computed from the triggers as far as the answer says.
    """
    now = service.store.clock()
    span = _span(arguments, now)
    width = max(SECOND, -(-(span.until - span.since) // arguments.buckets // SECOND) * SECOND)
    pages = _all if arguments.by is TimelineBy.ALL else _by_schedule
    rows, planned_until, cursor = pages(service, caller, arguments, span, width)
    return {
        "from_utc": to_text(span.since),
        "to_utc": to_text(span.until),
        "now_utc": to_text(now),
        "bucket_seconds": width // SECOND,
        "planned_until_utc": text(planned_until),
        "rows": rows,
        "next_cursor": cursor,
    }


def get_trends(service: Service, caller: Caller, arguments: TrendQuery) -> dict[str, Any]:
    """Get what a schedule did in each local hour, day, week or month: outcomes, durations, cost and tokens."""
    store, now = service.store, service.store.clock()
    stored = schedule_edits.find_for(caller, store, arguments.schedule_id, deleted=True)
    uid, unit = stored.schedule.uid, arguments.unit
    zone = load_zone(arguments.timezone or _row(stored.schedule)["timezone"] or "UTC")
    until = now + 1 if arguments.to is None else arguments.to
    since = until - USUAL_UNITS * UNITS[unit] if arguments.from_ is None else arguments.from_
    if until <= since:
        raise InvalidRequest(f"must be later than {text(since)}, where the trends begin", field="to")
    edges = span_edges(zone, unit, max(since, MIN_INSTANT), min(until, MAX_INSTANT), MAX_TREND)
    if edges is None:
        raise InvalidRequest(f"is too short: there are more than {MAX_TREND:,} of them", field="unit")
    points = store.trend(uid, edges, now=now)
    ahead: Counter[tuple[int, str]] = Counter()
    if edges[-1] > now:
        scope = MarkScope(tenant=caller.owner.tenant, uids=(uid,))
        for horizon in store.horizons(scope, until=edges[-1], limit=1).horizons:
            ahead.update({(n, str(state)): k for (n, state), k in future_counts(horizon, edges, now=now).items()})
    return {
        "schedule_id": stored.schedule.schedule_id,
        "unit": str(unit),
        "timezone": zone.name,
        "from_utc": to_text(edges[0]),
        "to_utc": to_text(edges[-1]),
        "now_utc": to_text(now),
        "buckets": [
            {
                "from_utc": to_text(edges[number]),
                "local_date": span_name(zone, unit, edges[number]),
                **{name: point.counts.get(name, 0) + ahead[number, name] for name in COUNTED},
                "duration_p50_seconds": _seconds(point.duration_p50),
                "duration_p95_seconds": _seconds(point.duration_p95),
                "cost_usd": None if point.unpriced_calls and not point.cost else to_dollars(point.cost),
                "input_tokens": point.input_tokens,
                "output_tokens": point.output_tokens,
            }
            for number, point in enumerate(points)
        ],
    }


def _seconds(micros: Micros | None) -> float | None:
    return None if micros is None else micros_to_seconds(micros)


def _span(arguments: TimelineQuery, now: Micros) -> Span:
    since = now - AROUND if arguments.from_ is None else arguments.from_
    until = min(max(now, since) + AROUND, MAX_INSTANT) if arguments.to is None else arguments.to
    if until <= since:
        raise InvalidRequest(f"must be later than {text(since)}, where the timeline begins", field="to")
    if until - since > LONGEST:
        raise InvalidRequest("must be at most 400 days after from", field="to")
    return Span(since=since, until=until, now=now)


def _by_schedule(
    service: Service, caller: Caller, arguments: TimelineQuery, span: Span, width: Micros
) -> tuple[list[dict[str, Any]], Micros | None, str | None]:
    """The rows of a page of schedules, how far their fires are complete, and the cursor of the next page."""
    store = service.store
    page, cursor = _page(service, caller, arguments, span.now)
    uids = tuple(stored.schedule.uid for stored in page)
    scope = MarkScope(tenant=caller.owner.tenant, uids=uids)
    counts: defaultdict[str | None, Counter[tuple[int, str]]] = defaultdict(Counter)
    for one in store.count_marks(scope, span, width) if uids else ():
        counts[one.uid][one.bucket, counted_as(one.state, is_late=one.is_late)] += one.count
    projection = _Projection(_horizons(store, scope, span) if uids else None, span, width)
    few, remaining = [], MAX_IN_ALL
    for uid in uids:
        number = counts[uid].total() + projection.count([uid])
        if number <= min(arguments.max_marks, remaining):
            few.append(uid)
            remaining -= number
    shown: dict[str, list[Mark]] = {uid: projection.marks([uid]) for uid in few}
    if any(counts[uid] for uid in few):
        listed = MarkScope(tenant=scope.tenant, uids=tuple(few))
        for mark in store.marks(listed, span, MAX_IN_ALL):
            shown[mark.uid].append(mark)
    schedules = {stored.schedule.uid: stored.schedule for stored in page}
    rows = []
    for uid, schedule in schedules.items():
        marks = buckets = None
        if uid in shown:
            marks = _mark_documents(shown[uid], schedules)
        else:
            buckets = _bucket_documents(counts[uid] + projection.counts([uid]), span, width)
        rows.append(_row(schedule) | {"marks": marks, "buckets": buckets})
    return rows, projection.complete_until, cursor


def _all(
    service: Service, caller: Caller, arguments: TimelineQuery, span: Span, width: Micros
) -> tuple[list[dict[str, Any]], Micros | None, str | None]:
    """The row of all schedules."""
    store, tenant, most = service.store, caller.owner.tenant, arguments.max_marks
    if arguments.schedule_id is None:
        selection, _ = schedule_filter(caller, arguments)
        scope = MarkScope(tenant=tenant, wanted=replace(selection, kinds=trigger_types(arguments)))
    else:
        stored_schedule = schedule_edits.find_for(caller, store, arguments.schedule_id, deleted=True)
        scope = MarkScope(tenant=tenant, uids=(stored_schedule.schedule.uid,))
    counts: Counter[tuple[int, str]] = Counter()
    for one in store.count_marks(scope, span, width):
        counts[one.bucket, counted_as(one.state, is_late=one.is_late)] += one.count
    projection = _Projection(_horizons(store, scope, span), span, width)
    marks = buckets = None
    if counts.total() + projection.count() <= most:
        listed = [*store.marks(scope, span, most), *projection.marks()]
        schedules = store.find_uids({mark.uid for mark in listed})
        marks = _mark_documents(listed, {uid: stored.schedule for uid, stored in schedules.items()})
    else:
        buckets = _bucket_documents(counts + projection.counts(), span, width)
    row = {"schedule_id": None, "name": None, "timezone": None, "phase": None, "marks": marks, "buckets": buckets}
    return [row], projection.complete_until, None


def _horizons(store: Store, scope: MarkScope, span: Span) -> Horizons | None:
    """How far fires are stored, if the span reaches beyond now."""
    return store.horizons(scope, until=span.until, limit=MAX_HORIZONS) if span.until > span.now else None


class _Projection:
    """The fires that are not stored. They end at one time for all schedules where there are too many to compute."""

    def __init__(self, horizons: Horizons | None, span: Span, width: Micros) -> None:
        self._horizons = {} if horizons is None else {one.schedule.uid: one for one in horizons.horizons}
        self._span, self._width = span, width
        self.complete_until = None if horizons is None else horizons.complete_until
        if self.complete_until is not None:
            self._end_at(max(self.complete_until, span.now))
        buckets = max(0, span.until - max(span.since, span.now)) // width + 1
        steps = sum(min(self.count([uid]), buckets) for uid in self._horizons)
        if steps > MAX_PROJECTED:
            start = max(span.since, span.now)
            self._end_at(start + (self._span.until - start) * MAX_PROJECTED // steps)

    def _end_at(self, time: Micros) -> None:
        self.complete_until = time
        self._span = replace(self._span, until=max(time, self._span.since))

    def count(self, uids: Iterable[str] | None = None) -> int:
        """How many fires schedules have, by default all of them."""
        edges = (self._span.since, self._span.until)
        return sum(sum(self._counts_of(uid, edges).values()) for uid in uids or self._horizons)

    def marks(self, uids: Iterable[str] | None = None) -> list[Mark]:
        """The fires of schedules, by default of all of them."""
        span, by_uid = self._span, self._horizons
        horizons = [by_uid[uid] for uid in uids or by_uid if uid in by_uid]
        return [
            mark
            for one in horizons
            for mark in future_marks(one, since=span.since, until=span.until, now=span.now, limit=MAX_PROJECTED)
        ]

    def counts(self, uids: Iterable[str] | None = None) -> Counter[tuple[int, str]]:
        """The numbers of fires in buckets."""
        span = self._span
        edges = (*range(span.since, span.until, self._width), span.until)
        counts: Counter[tuple[int, str]] = Counter()
        for uid in uids or self._horizons:
            counts.update(self._counts_of(uid, edges))
        return counts

    def _counts_of(self, uid: str, edges: Sequence[Micros]) -> dict[tuple[int, str], int]:
        if (horizon := self._horizons.get(uid)) is None:
            return {}
        counts = future_counts(horizon, edges, now=self._span.now)
        return {(bucket, str(state)): count for (bucket, state), count in counts.items()}


def _row(schedule: Schedule) -> dict[str, Any]:
    trigger = schedule.declaration.trigger
    return {
        "schedule_id": schedule.schedule_id,
        "name": schedule_name(schedule),
        "timezone": None if trigger is None else trigger.to_document().get("timezone"),
        "phase": str(schedule.phase),
    }


def schedule_name(schedule: Schedule) -> str:
    """The name that timelines and the overview show."""
    return schedule.declaration.name or shown_name(schedule.schedule_id)


def _mark_documents(marks: Sequence[Mark], schedules: Mapping[str, Schedule]) -> list[dict[str, Any]]:
    ordered = sorted(marks, key=lambda mark: (mark.at, mark.occurrence_id or ""))
    return [mark_document(mark, schedules.get(mark.uid)) for mark in ordered]


def mark_document(mark: Mark, schedule: Schedule | None) -> dict[str, Any]:
    """A mark as answers have it."""
    return {
        "occurrence_id": mark.occurrence_id,
        "schedule_id": None if schedule is None else visible_id(schedule.schedule_id),
        "schedule_name": "" if schedule is None else schedule_name(schedule),
        "at_utc": to_text(mark.at),
        "due_at_utc": to_text(mark.due),
        "started_at_utc": text(mark.began),
        "ended_at_utc": text(mark.ended),
        "state": str(mark.state),
        "late_seconds": _seconds(mark.late),
        "reason": None if mark.reason is None else str(mark.reason),
        "why": None if mark.reason is None else reason_sentence(mark.reason, mark.detail),
        "origin": mark.origin,
        "missed_count": mark.missed_count,
        "missed_to_utc": text(mark.missed_last),
    }


def _bucket_documents(counts: Mapping[tuple[int, str], int], span: Span, width: Micros) -> list[dict[str, Any]]:
    buckets: defaultdict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0))
    for (bucket, column), count in counts.items():
        buckets[bucket][column] += count
    return [{"from_utc": to_text(span.since + bucket * width), **buckets[bucket]} for bucket in sorted(buckets)]


def _page(
    service: Service, caller: Caller, arguments: TimelineQuery, now: Micros
) -> tuple[list[StoredSchedule], str | None]:
    """A page of schedules: first those with something to look at, then the others in the order of their creation."""
    store, tenant, limit = service.store, caller.owner.tenant, arguments.limit
    if arguments.schedule_id is not None:
        return [schedule_edits.find_for(caller, store, arguments.schedule_id, deleted=True)], None
    selection, deleted = schedule_filter(caller, arguments)
    selection = replace(selection, kinds=trigger_types(arguments))
    first = [] if deleted else _first(service, caller, selection, now)
    skip, after = (0, None) if arguments.cursor is None else (arguments.cursor[0], arguments.cursor[1] or None)
    page = [] if after is not None or skip < 0 else first[skip : skip + limit]
    if after is None and len(first) > skip + limit:
        return page, write_cursor(skip + limit, "")
    shown = {stored.schedule.uid for stored in first}
    while True:
        room = limit - len(page)
        rows = store.schedules(tenant, after=after, limit=limit + 1, deleted=deleted, wanted=selection)
        fresh = [stored for stored in rows if stored.schedule.uid not in shown]
        page += fresh[:room]
        if len(fresh) > room:
            end = page[-1].schedule.uid if room else after or ""
            return page, write_cursor(len(first), end)
        if len(rows) <= limit:
            return page, None
        after = rows[-1].schedule.uid


def _first(service: Service, caller: Caller, selection: ScheduleFilter, now: Micros) -> list[StoredSchedule]:
    """The schedules that come first: overdue, failed within the last day, running, due or waiting, and next."""
    store, tenant = service.store, caller.owner.tenant
    workload = store.workload(now=now, limit=ACTIVE_LISTED, tenant=tenant)
    failures = OccurrenceFilter(phases=FAILURES, user=selection.user, since=now - LATELY)
    failed = store.search(tenant, failures, ACTIVE_LISTED).occurrences
    groups = (workload.overdue, workload.running, workload.due, workload.waiting, workload.upcoming)
    overdue, *others = ([row.uid for row in group.occurrences] for group in groups)
    uids = dict.fromkeys([*overdue, *(row.uid for row in failed), *(uid for group in others for uid in group)])
    schedules = store.find_uids(uids)
    listed = [schedules[uid] for uid in uids if uid in schedules]
    return [stored for stored in listed if _is_listed(stored.schedule) and fits(stored, selection)]


def _is_listed(schedule: Schedule) -> bool:
    return schedule.phase is not SchedulePhase.DELETED and not is_hidden(schedule.schedule_id)
