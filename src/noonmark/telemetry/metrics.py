"""Metrics: a sink that counts what a node does, and shows it as Prometheus reads it."""

from __future__ import annotations

from collections import Counter as Tally
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, UnknownMetricFamily

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.ports.events import Claimed, Ended, LeaseLost, Matched, Planned, Pruned, Settled, Started, StoreFailed
from noonmark.ports.records import Backlog
from noonmark.telemetry.counting import Count, Distribution
from noonmark.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.events import DriverEvent
    from noonmark.telemetry.vitals import Watched

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
LATENESS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600)
DURATIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 14_400)
OVERLAPS = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL, Reason.REPLACED})
"""Why the overlap policy lets something not run."""
# The plain names are those under which dashboards of other cron services know them. The library adds an ending to the
# names of what it takes for counters, so these have no type.
EMITTED, OVERLAPPED, NOT_LAUNCHED = "runs_emitted", "runs_skipped_overlap", "runs_failed_launch"
PLAIN = {
    EMITTED: "Deliveries that this node has begun, retries included.",
    OVERLAPPED: "Occurrences that the overlap policy did not let run.",
    NOT_LAUNCHED: "Occurrences that could not be delivered, or that no node could serve.",
}


class Metrics:
    """Counts in a registry of its own, so that two of them in one process do not mix."""

    def __init__(
        self,
        version: str = "",
        backlog: Callable[[], Backlog | None] | None = None,
        damage: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """Nothing has happened yet, and nobody is watched. `backlog` tells what is to be done, if that is known.

        `damage` tells how many rows of each table of the store were found damaged.
        """
        self._version, self._backlog, self._damage = version, backlog, damage
        self._worker: Watched | None = None
        self._connections: Connections = Nobody()
        self._lock = Lock()
        self._plain: Tally[str] = Tally()
        self._lateness = Distribution(
            "start_lateness_seconds", "How long after its due time a run began.", bounds=LATENESS
        )
        self._durations = Distribution(
            "run_duration_seconds", "How long runs took, by the kind of their target.", "target", bounds=DURATIONS
        )
        self._runs = Count("runs", "Runs that ended, by target and outcome.", "target", "outcome")
        self._phases = Count("occurrences", "Occurrences that ended, by phase; a gap counts all its fires.", "phase")
        self._claims = Count("claims", "Occurrences that this node has claimed.")
        self._lost = Count("lease_losses", "Occurrences that another node, an edit, or a callback took away.")
        self._misfires = Count("misfires", "Fires that were missed and did not run.")
        self._events = Count("events_matched", "Events whose listeners were asked.")
        self._pruned = Count("pruned", "Occurrences and events that were forgotten by age or number.")
        self._failures = Count("store_failures", "Calls to the store that failed, by duty.", "duty")
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def watch(self, worker: Watched) -> None:
        """Show what this worker holds, too."""
        self._worker = worker

    def watch_connections(self, connections: Connections) -> None:
        """Show how many callers there are, too."""
        self._connections = connections

    def render(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        return generate_latest(self._registry)

    def tell(self, happenings: Sequence[DriverEvent]) -> None:
        """Count it; many of a kind together."""
        kinds = Tally(type(one) for one in happenings)
        with self._lock:
            self._plain[EMITTED] += kinds[Started]
            self._claims.add(kinds[Claimed])
            self._lost.add(kinds[LeaseLost])
            self._events.add(kinds[Matched])
            for one in happenings:
                if isinstance(one, Settled):
                    self._settled(one)
                elif isinstance(one, Ended):
                    self._ended(one.occurrence)
                elif isinstance(one, Planned):
                    for row in one.plan.closed:
                        self._ended(row)
                else:
                    self._other(one)

    def _other(self, one: DriverEvent) -> None:
        match one:
            case Pruned(count, events):
                self._pruned.add(count + events)
            case StoreFailed(duty, _, _):
                self._failures.add(1, duty.lstrip("_"))

    def _settled(self, one: Settled) -> None:
        run, occurrence = one.run, one.occurrence
        if run.ended is not None and run.outcome is not None:
            target = occurrence.route.partition(":")[0]
            self._runs.add(1, target, run.outcome)
            self._durations.add((run.ended - run.started) / SECOND, target)
            if run.outcome is not Outcome.LEASE_LOST:  # what is handed back may never have begun
                self._lateness.add(max(0, run.started - occurrence.due) / SECOND)
        if run.outcome is Outcome.DELIVERY_FAILED:
            self._plain[NOT_LAUNCHED] += 1
        if one.phase not in (Phase.PENDING, Phase.AWAITING_COMPLETION):
            self._phases.add(1, one.phase)

    def _ended(self, row: Occurrence) -> None:
        """It was not delivered. A row may stand for a gap of many fires."""
        fires = row.missed_count or 1
        self._phases.add(fires, row.phase)
        if row.phase is Phase.MISFIRED:
            self._misfires.add(fires)
        if row.phase is Phase.SKIPPED and row.reason in OVERLAPS:
            self._plain[OVERLAPPED] += fires
        if row.phase is Phase.DELIVERY_FAILED or row.reason is Reason.TARGET_MISSING:
            self._plain[NOT_LAUNCHED] += fires

    def collect(self) -> Iterator[Metric]:
        """Everything, as the library wants it."""
        with self._lock:
            counted = [
                *(UnknownMetricFamily(f"noonmark_{name}", PLAIN[name], value=self._plain[name]) for name in PLAIN),
                *(one.collect() for one in (self._lateness, self._durations, self._runs, self._phases, self._claims)),
                *(one.collect() for one in (self._lost, self._misfires, self._events, self._pruned, self._failures)),
            ]
        yield from counted
        yield from self._now()

    def _now(self) -> Iterator[Metric]:
        """What is to be done, and what the worker holds, at this moment."""
        worker = Vitals() if self._worker is None else self._worker.vitals()
        backlog = Backlog() if self._backlog is None else self._backlog()
        log = GaugeMetricFamily("noonmark_store_log_bytes", "Size of the write-ahead log of a SQLite store.")
        due = GaugeMetricFamily("noonmark_schedules_due", "Schedules of which something is due, and nobody has it.")
        depth = GaugeMetricFamily(
            "noonmark_queue_depth",
            "Occurrences that are due or wait, in the whole store, and those that this node holds.",
            labels=["state"],
        )
        depth.add_metric(["claimed"], worker.claimed)
        depth.add_metric(["delivering"], worker.delivering)
        if backlog is not None:  # else it is unknown, and not zero
            due.add_metric([], backlog.schedules)
            depth.add_metric(["due"], backlog.due)
            depth.add_metric(["waiting"], backlog.waiting)
            if backlog.log_bytes is not None:
                log.add_metric([], backlog.log_bytes)
        yield log
        yield due
        yield depth
        yield self._damaged()
        yield _gauge("abandoned_threads", "Threads that still run what has timed out.", worker.abandoned)
        yield _gauge("worker_running", "Whether the worker of this node runs.", worker.is_running)
        yield _gauge("leader", "Whether this node does the housekeeping for all of them.", worker.leads)
        yield _gauge("leader_term", "How often the leader has changed, as far as this node knows.", worker.term)
        callers = self._connections
        yield _gauge("http_connections", "Connections that are open.", callers.open)
        yield _gauge("http_unsent_bytes", "Bytes of answers that wait to be read.", callers.unsent)
        yield _counter("http_dropped", "Connections that were closed because they waited too long.", callers.dropped)
        yield _counter(
            "http_refused", "Requests that were answered with 503, for too many connections.", callers.refused
        )
        ahead = 0 if worker.clock_ahead is None else worker.clock_ahead / SECOND
        yield _gauge("clock_ahead_seconds", "By how much the store's time leapt ahead, while that is in doubt.", ahead)
        yield _gauge("duties_failing", "Duties of this node that fail over and over.", len(worker.failing))
        names = {"node": worker.node, "version": self._version}
        yield InfoMetricFamily("noonmark_node", "This node.", value=names)

    def _damaged(self) -> Metric:
        damaged = GaugeMetricFamily(
            "noonmark_damaged_rows",
            "Rows of the store that this process has found damaged since it began, by table.",
            labels=["table"],
        )
        for table, count in ({} if self._damage is None else self._damage()).items():
            damaged.add_metric([table], count)
        return damaged


class Connections(Protocol):
    """What is told of the connections of a server."""

    dropped: int
    refused: int

    @property
    def open(self) -> int:
        """How many there are."""

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait to be read."""


class Nobody:
    """No connections at all."""

    open = unsent = dropped = refused = 0


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(f"noonmark_{name}", meaning, value=value)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"noonmark_{name}", meaning, value=value)
