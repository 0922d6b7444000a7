"""Metrics: a sink that counts what a node does, in the format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    UnknownMetricFamily,
)

from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FAILURES, Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.ports.events import (
    Claimed,
    Ended,
    LeaseLost,
    Matched,
    Planned,
    Pruned,
    RanAway,
    RateExceeded,
    Settled,
    Started,
    StoreFailed,
)
from noonmark.ports.records import Backlog, ScheduleFilter
from noonmark.telemetry.health import WorkerSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan
    from noonmark.ports.events import DriverEvent
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store
    from noonmark.telemetry.health import Worker


METRICS_LABEL = ("metrics", "true")
"""The label of schedules that have metrics of their own. Others have none: each series costs memory in Prometheus."""
MAX_SCHEDULES = 500
"""At most this many have metrics of their own: those of the first tenants by name, and of each those created first."""
MAX_TENANTS = 1_000


@frozen
class ScheduleTimes:
    """When a schedule last succeeded and failed, and when it fires next; None if it never did, or will not."""

    tenant: str
    schedule_id: str
    name: str
    last_success: Micros | None = None
    """When the newest of its occurrences that completed ended."""
    last_failure: Micros | None = None
    """The same of those that failed, timed out, could not be delivered or were missed."""
    next_fire: Micros | None = None


@frozen
class LabelledSchedules:
    """The times of the schedules with the label, and how many more have it."""

    times: tuple[ScheduleTimes, ...] = ()
    left_out: int = 0


@frozen
class _LastEnd:
    """The last end of a kind, and how many of that kind had been counted when it was read."""

    count: int = 0
    ended: Micros | None = None


_NONE = (_LastEnd(), _LastEnd())


class ScheduleTimesReader:
    """Reads the times from a store. The history of a schedule is read only if its counters have changed."""

    def __init__(self, store: Store, next_fire: Callable[[StoredSchedule, Micros], Micros | None]) -> None:
        """`next_fire` computes when a schedule is next due after a time."""
        self._store, self._next_fire = store, next_fire
        self._ends: dict[str, tuple[_LastEnd, _LastEnd]] = {}
        """The last success and failure, by uid."""

    def read(self) -> LabelledSchedules:
        """Return the times of all schedules with the label, up to the limit."""
        labelled = ScheduleFilter(labels=dict([METRICS_LABEL]))
        page: list[StoredSchedule] = []
        total = 0
        for tenant in self._store.tenants(MAX_TENANTS):
            room = MAX_SCHEDULES - len(page)
            schedules = self._store.schedules(tenant, limit=room, wanted=labelled) if room else []
            page += schedules
            total += self._store.count_schedules(tenant, labelled) if len(schedules) == room else len(schedules)
        last_ends, now = self._ends, self._store.clock()
        ends = {one.schedule.uid: self._last_ends(one, last_ends.get(one.schedule.uid, _NONE)) for one in page}
        self._ends = ends
        return LabelledSchedules(
            tuple(self._times(one, ends[one.schedule.uid], now) for one in page), total - len(page)
        )

    def _times(self, stored: StoredSchedule, ends: tuple[_LastEnd, _LastEnd], now: Micros) -> ScheduleTimes:
        schedule, (success, failure) = stored.schedule, ends
        name = schedule.declaration.name or ""
        next_fire = self._next_fire(stored, now)
        return ScheduleTimes(schedule.owner.tenant, schedule.schedule_id, name, success.ended, failure.ended, next_fire)

    def _last_ends(self, stored: StoredSchedule, last_ends: tuple[_LastEnd, _LastEnd]) -> tuple[_LastEnd, _LastEnd]:
        uid, counters, (success, failure) = stored.schedule.uid, stored.counters, last_ends
        return (
            self._last_end(uid, {Phase.COMPLETED}, counters.successful, success),
            self._last_end(uid, FAILURES, counters.failed + counters.missed, failure),
        )

    def _last_end(self, uid: str, phases: Collection[Phase], count: int, last_end: _LastEnd) -> _LastEnd:
        if count == last_end.count:
            return last_end
        newest = self._store.occurrences(uid, 1, phases=phases)
        # None are left if all of them have been pruned: the last known time remains true.
        return _LastEnd(count, newest[0].ended if newest else last_end.ended)


CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
LATENESS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600)
DURATIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 14_400)
OVERLAPS = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL, Reason.REPLACED})
"""The reasons for which the overlap policy prevents a run."""
# These are the names that dashboards of other cron services use. The library appends a suffix to the names of counters,
# so these are exported without a type.
EMITTED, OVERLAPPED, NOT_LAUNCHED = "runs_emitted", "runs_skipped_overlap", "runs_failed_launch"
UNTYPED = {
    EMITTED: "Deliveries started by this node, including retries.",
    OVERLAPPED: "Occurrences that the overlap policy prevented.",
    NOT_LAUNCHED: "Occurrences that could not be delivered, or that no node could serve.",
}

SCHEDULE_TIMES = {
    "last_success": "End of the newest occurrence that completed, for schedules with the label metrics=true.",
    "last_failure": "End of the newest occurrence that failed or was missed, for schedules with the label.",
    "next_fire": "The next due time, for schedules with the label.",
}


class CounterFamily:
    """A counter per combination of labels. Adding is cheap; the library's objects are made on collection.

    Without labels, the counter exists from the start.
    """

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        self._name, self._help, self._labels = f"noonmark_{name}", help_text, labels
        self._values: defaultdict[tuple[str, ...], int] = defaultdict(int)
        if not labels:
            self._values[()] = 0

    def add(self, number: int, *labels: str) -> None:
        """Increase a counter."""
        self._values[labels] += number

    def collect(self) -> Metric:
        """Return the family for the library, which appends `_total` to the name."""
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, number in sorted(self._values.items()):
            family.add_metric(labels, number)
        return family


class HistogramFamily:
    """A histogram of seconds per combination of labels, by the upper bounds of its buckets."""

    def __init__(self, name: str, help_text: str, *labels: str, bounds: Sequence[float]) -> None:
        self._name, self._help, self._labels = f"noonmark_{name}", help_text, labels
        self._bounds = bounds
        self._counts: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        if not labels:
            self._counts[()] = self._counts[()]  # it exists from the start

    def add(self, seconds: float, *labels: str) -> None:
        """Add a duration."""
        self._counts[labels][bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def collect(self) -> Metric:
        """Return the family for the library, with cumulative buckets."""
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        names = [*(f"{float(bound)}" for bound in self._bounds), "+Inf"]
        for labels, counts in sorted(self._counts.items()):
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        return family


class Connections(Protocol):
    """The connections of a server, as far as they are counted."""

    dropped: int
    refused: int

    @property
    def open(self) -> int:
        """How many are open."""

    @property
    def unsent(self) -> int:
        """Bytes of responses that wait to be read."""


class NoConnections:
    """The connections of a process without a server."""

    open = unsent = dropped = refused = 0


class EngineCounts(Protocol):
    """What a node or a worker has seen of its engine."""

    starts: Counter[str]
    orphans: dict[str, int]
    problem: str | None
    cancelled: int
    unserved: frozenset[str]


class Metrics:
    """Counts in its own registry, so that two instances in one process do not mix."""

    def __init__(
        self,
        version: str = "",
        backlog: Callable[[], Backlog | None] | None = None,
        damage: Callable[[], Mapping[str, int]] | None = None,
        schedules: Callable[[], LabelledSchedules | None] | None = None,
    ) -> None:
        """`backlog` returns what is due in the store, if known; `damage` the number of damaged rows found per table.

        `schedules` returns the times of the schedules that have metrics of their own, if known.
        """
        self._version, self._backlog, self._damage, self._schedules = version, backlog, damage, schedules
        self._worker: Worker | None = None
        self._connections: Connections = NoConnections()
        self._engine: EngineCounts | None = None
        self._lock = Lock()
        self._untyped: Counter[str] = Counter()
        self._lateness = HistogramFamily(
            "start_lateness_seconds", "Time from the due time of a run to its start.", bounds=LATENESS
        )
        self._durations = HistogramFamily(
            "run_duration_seconds", "Duration of runs, by target kind.", "target", bounds=DURATIONS
        )
        self._runs = CounterFamily("runs", "Ended runs, by target and outcome.", "target", "outcome")
        self._phases = CounterFamily("occurrences", "Ended occurrences, by phase; a gap counts all its fires.", "phase")
        self._claims = CounterFamily("claims", "Occurrences claimed by this node.")
        self._lost = CounterFamily("lease_losses", "Occurrences lost to another node, an edit or a callback.")
        self._misfires = CounterFamily("misfires", "Fires that were missed and did not run.")
        self._events = CounterFamily("events_matched", "Events matched against their listeners.")
        self._pruned = CounterFamily("pruned", "Occurrences and events pruned by age or number.")
        self._failures = CounterFamily("store_failures", "Failed store calls, by step of the driver.", "duty")
        self._rate_alerts = CounterFamily(
            "rate_alerts", "Windows in which a schedule missed its expected rate, by problem.", "problem"
        )
        self._runaways = CounterFamily("runaways", "Schedules that the runaway guard has paused, by rule.", "rule")
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def watch(self, worker: Worker) -> None:
        """Include the state of a worker."""
        self._worker = worker

    def watch_connections(self, connections: Connections) -> None:
        """Include the connections of a server."""
        self._connections = connections

    def watch_engine(self, counts: EngineCounts) -> None:
        """Include the counts of an engine."""
        self._engine = counts

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Count events of the driver."""
        kinds = Counter(type(one) for one in events)
        with self._lock:
            self._untyped[EMITTED] += kinds[Started]
            self._claims.add(kinds[Claimed])
            self._lost.add(kinds[LeaseLost])
            self._events.add(kinds[Matched])
            for event in events:
                match event:
                    case Settled():
                        self._count_settled(event)
                    case Ended(occurrence):
                        self._count_undelivered(occurrence)
                    case RateExceeded(_, alert):
                        self._rate_alerts.add(1, alert.problem)
                    case RanAway(_, rule):
                        self._runaways.add(1, rule)
                    case Planned(plan):
                        self._count_planned(plan)
                    case Pruned(occurrences, pruned_events):
                        self._pruned.add(occurrences + pruned_events)
                    case StoreFailed(step, _, _):
                        self._failures.add(1, step.lstrip("_"))

    def _count_planned(self, plan: Plan) -> None:
        if plan.rate_alert is not None:
            self._rate_alerts.add(1, plan.rate_alert.problem)
        for occurrence in plan.closed:
            self._count_undelivered(occurrence)

    def _count_settled(self, settled: Settled) -> None:
        run, occurrence = settled.run, settled.occurrence
        if run.ended is not None and run.outcome is not None:
            target = occurrence.route.partition(":")[0]
            self._runs.add(1, target, run.outcome)
            self._durations.add((run.ended - run.started) / SECOND, target)
            if run.outcome is not Outcome.LEASE_LOST:  # what is handed back may never have started
                self._lateness.add(max(0, run.started - occurrence.due) / SECOND)
        if run.outcome is Outcome.DELIVERY_FAILED:
            self._untyped[NOT_LAUNCHED] += 1
        if settled.phase not in (Phase.PENDING, Phase.AWAITING_COMPLETION):
            self._phases.add(1, settled.phase)

    def _count_undelivered(self, occurrence: Occurrence) -> None:
        """Count an occurrence that ended undelivered. It may stand for a gap of many fires."""
        fires = occurrence.missed_count or 1
        self._phases.add(fires, occurrence.phase)
        if occurrence.phase is Phase.MISFIRED:
            self._misfires.add(fires)
        if occurrence.phase is Phase.SKIPPED and occurrence.reason in OVERLAPS:
            self._untyped[OVERLAPPED] += fires
        if occurrence.phase is Phase.DELIVERY_FAILED or occurrence.reason is Reason.TARGET_MISSING:
            self._untyped[NOT_LAUNCHED] += fires

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; called by the library."""
        with self._lock:
            counted = [
                *(
                    UnknownMetricFamily(f"noonmark_{name}", UNTYPED[name], value=self._untyped[name])
                    for name in UNTYPED
                ),
                *(one.collect() for one in (self._lateness, self._durations, self._runs, self._phases, self._claims)),
                *(one.collect() for one in (self._lost, self._misfires, self._events, self._pruned)),
                *(one.collect() for one in (self._failures, self._rate_alerts, self._runaways)),
            ]
        yield from counted
        yield from self._collect_gauges()
        if self._engine is not None:
            yield from _collect_engine(self._engine)
        yield from self._collect_schedules()

    def _collect_gauges(self) -> Iterator[Metric]:
        """Yield the present state of the store, of the worker and of the server."""
        worker = WorkerSnapshot() if self._worker is None else self._worker.snapshot()
        backlog = Backlog() if self._backlog is None else self._backlog()
        log = GaugeMetricFamily("noonmark_store_log_bytes", "Size of the write-ahead log of a SQLite store.")
        due = GaugeMetricFamily("noonmark_schedules_due", "Schedules with due occurrences that no node has claimed.")
        depth = GaugeMetricFamily(
            "noonmark_queue_depth",
            "Occurrences that are due or waiting, in the whole store, and those that this node holds.",
            labels=["state"],
        )
        depth.add_metric(["claimed"], worker.claimed)
        depth.add_metric(["delivering"], worker.delivering)
        if backlog is not None:  # else it is unknown, not zero
            due.add_metric([], backlog.schedules)
            depth.add_metric(["due"], backlog.due)
            depth.add_metric(["waiting"], backlog.waiting)
            if backlog.log_bytes is not None:
                log.add_metric([], backlog.log_bytes)
        yield log
        yield due
        yield depth
        yield self._damaged_rows()
        yield _gauge("abandoned_threads", "Threads that still run work that has timed out.", worker.abandoned)
        yield _gauge("worker_running", "Whether the worker of this node runs.", worker.is_running)
        yield _gauge("leader", "Whether this node is the leader, which does the housekeeping.", worker.leads)
        yield _gauge("leader_term", "How often the leader has changed, as far as this node knows.", worker.term)
        connections = self._connections
        yield _gauge("http_connections", "Open connections.", connections.open)
        yield _gauge("http_unsent_bytes", "Bytes of responses that wait to be read.", connections.unsent)
        yield _counter("http_dropped", "Connections that were closed after waiting too long.", connections.dropped)
        yield _counter(
            "http_refused", "Requests that were answered with 503, for too many connections.", connections.refused
        )
        ahead = 0 if worker.clock_ahead is None else worker.clock_ahead / SECOND
        yield _gauge("clock_ahead_seconds", "How far the store's time leapt ahead, while unconfirmed.", ahead)
        yield _gauge("duties_failing", "Duties of this node that fail repeatedly.", len(worker.failing))
        names = {"node": worker.node, "version": self._version}
        yield InfoMetricFamily("noonmark_node", "This node.", value=names)

    def _collect_schedules(self) -> Iterator[Metric]:
        """Yield the times of the schedules that have metrics of their own; none while the store does not answer."""
        schedules = LabelledSchedules() if self._schedules is None else self._schedules()
        success, failure, next_fire = (
            GaugeMetricFamily(
                f"noonmark_schedule_{name}_timestamp_seconds", help_text, labels=["tenant", "schedule_id", "name"]
            )
            for name, help_text in SCHEDULE_TIMES.items()
        )
        left_out = GaugeMetricFamily(
            "noonmark_schedules_without_metrics", "Schedules with the label for metrics that are beyond the limit."
        )
        if schedules is not None:
            left_out.add_metric([], schedules.left_out)
            for schedule in schedules.times:
                labels = [schedule.tenant, schedule.schedule_id, schedule.name]
                times = (
                    (success, schedule.last_success),
                    (failure, schedule.last_failure),
                    (next_fire, schedule.next_fire),
                )
                for family, time in times:
                    if time is not None:
                        family.add_metric(labels, time / SECOND)
        yield from (success, failure, next_fire, left_out)

    def _damaged_rows(self) -> Metric:
        damaged = GaugeMetricFamily(
            "noonmark_damaged_rows",
            "Rows of the store that this process has found damaged since it started, by table.",
            labels=["table"],
        )
        for table, count in ({} if self._damage is None else self._damage()).items():
            damaged.add_metric([table], count)
        return damaged


def _collect_engine(counts: EngineCounts) -> Iterator[Metric]:
    """Yield the counts of the engine; orphans are counted by the leader."""
    yield _gauge("engine_up", "Whether the engine answered the last call of this process.", counts.problem is None)
    unserved = "Routes of the engine that no worker delivers, as the leader has seen."
    yield _gauge("engine_unserved_routes", unserved, len(counts.unserved))
    starts = CounterMetricFamily(
        "noonmark_engine_starts",
        "Starts of workflows, by what became of them: started, attached to a running one, or failed.",
        labels=["result"],
    )
    for result in ("started", "attached", "failed"):
        starts.add_metric([result], counts.starts[result])
    yield starts
    yield _counter("engine_cancelled", "Workflows that were asked to end with their occurrences.", counts.cancelled)
    orphans = GaugeMetricFamily(
        "noonmark_engine_orphans",
        "Workflows without an occurrence, and occurrences without a workflow, by the last comparison of the leader.",
        labels=["kind"],
    )
    for kind, number in counts.orphans.items():
        orphans.add_metric([kind], number)
    yield orphans


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"noonmark_{name}", help_text, value=value)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"noonmark_{name}", help_text, value=value)
