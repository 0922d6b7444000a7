"""Metrics: a sink that counts what a node does, and shows it as Prometheus reads it."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, UnknownMetricFamily

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.ports.sink import Abandoned, Claimed, Ended, LeaseLost, Matched, Planned, Pruned, Settled, Started
from noonmark.ports.sink import StoreFailed as Failed
from noonmark.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.ports.sink import Happening
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

disable_created_metrics()  # type: ignore[no-untyped-call] # theirs


class Metrics:
    """Counts in a registry of its own, so that two of them in one process do not mix."""

    def __init__(self, version: str = "") -> None:
        """Nothing has happened yet, and nobody is watched."""
        self._registry = registry = CollectorRegistry()
        self._version = version
        self._worker: Watched | None = None
        self._plain: Tally[str] = Tally()
        self._lateness = Histogram(
            "noonmark_start_lateness_seconds",
            "How long after its due time a run began.",
            buckets=LATENESS,
            registry=registry,
        )
        self._durations = Histogram(
            "noonmark_run_duration_seconds",
            "How long runs took, by the kind of their target.",
            ["target"],
            buckets=DURATIONS,
            registry=registry,
        )
        self._runs = _counter(registry, "runs", "Runs that ended, by target and outcome.", "target", "outcome")
        self._phases = _counter(registry, "occurrences", "Occurrences that ended, by phase; a gap counts all.", "phase")
        self._claims = _counter(registry, "claims", "Occurrences that this node has claimed.")
        self._lost = _counter(registry, "lease_losses", "Occurrences that another node, or an edit, took away.")
        self._misfires = _counter(registry, "misfires", "Fires that were missed and did not run.")
        self._events = _counter(registry, "events_matched", "Events whose listeners were asked.")
        self._pruned = _counter(registry, "pruned", "Occurrences and events that were forgotten by age or number.")
        self._failures = _counter(registry, "store_failures", "Calls to the store that failed, by duty.", "duty")
        self._abandoned = Gauge(
            "noonmark_abandoned_threads", "Threads that outlived the timeout of their run.", registry=registry
        )
        registry.register(_Now(self))

    def watch(self, worker: Watched) -> None:
        """Show what this worker holds, too."""
        self._worker = worker

    def render(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        return generate_latest(self._registry)

    def tell(self, happenings: Sequence[Happening]) -> None:
        """Count it; many of a kind together."""
        kinds = Tally(type(one) for one in happenings)
        self._plain[EMITTED] += kinds[Started]
        for kind, counter in ((Claimed, self._claims), (LeaseLost, self._lost), (Matched, self._events)):
            if kinds[kind]:
                counter.inc(kinds[kind])
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

    def _other(self, one: Happening) -> None:
        match one:
            case Pruned(count, events):
                self._pruned.inc(count + events)
            case Failed(duty, _, _):
                self._failures.labels(duty.lstrip("_")).inc()
            case Abandoned(_, threads):
                self._abandoned.set(threads)

    def _settled(self, one: Settled) -> None:
        self._ran(one.occurrence, one.run)
        if one.run.outcome is Outcome.DELIVERY_FAILED:
            self._plain[NOT_LAUNCHED] += 1
        if one.retry_at is None and one.phase not in (Phase.PENDING, Phase.AWAITING_COMPLETION):
            self._phases.labels(one.phase).inc()

    def _ran(self, occurrence: Occurrence, run: Run) -> None:
        if run.ended is None or run.outcome is None:
            return
        target = occurrence.route.partition(":")[0]
        self._runs.labels(target, run.outcome).inc()
        self._durations.labels(target).observe((run.ended - run.started) / SECOND)
        if run.outcome is not Outcome.LEASE_LOST:  # what is handed back may never have begun
            self._lateness.observe(max(0, run.started - occurrence.due) / SECOND)

    def _ended(self, row: Occurrence) -> None:
        """It was not delivered. A row may stand for a gap of many fires."""
        fires = row.missed_count or 1
        self._phases.labels(row.phase).inc(fires)
        if row.phase is Phase.MISFIRED:
            self._misfires.inc(fires)
        if row.phase is Phase.SKIPPED and row.reason in OVERLAPS:
            self._plain[OVERLAPPED] += fires
        if row.phase is Phase.DELIVERY_FAILED or row.reason is Reason.TARGET_MISSING:
            self._plain[NOT_LAUNCHED] += fires

    def plain(self) -> Iterator[Metric]:
        """What has a name without an ending."""
        for name, meaning in PLAIN.items():
            yield UnknownMetricFamily(f"noonmark_{name}", meaning, value=self._plain[name])

    def now(self) -> Iterator[Metric]:
        """What the worker holds at this moment."""
        worker = Vitals() if self._worker is None else self._worker.vitals()
        yield _gauge("schedules_due", "Schedules of which this node has something to start now.", worker.due)
        depth = GaugeMetricFamily("noonmark_queue_depth", "Occurrences that this node holds.", labels=["state"])
        depth.add_metric(["claimed"], worker.claimed)
        depth.add_metric(["delivering"], worker.delivering)
        yield depth
        yield _gauge("worker_running", "Whether the worker of this node runs.", worker.is_running)
        yield _gauge("leader", "Whether this node does the housekeeping for all of them.", worker.leads)
        yield _gauge("leader_term", "How often the leader has changed, as far as this node knows.", worker.term)
        names = {"node": worker.node, "version": self._version}
        yield InfoMetricFamily("noonmark_node", "This node.", value=names)


class _Now:
    """What is read when it is asked for, instead of being counted."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.plain()
        yield from self._metrics.now()


def _counter(registry: CollectorRegistry, name: str, meaning: str, *labels: str) -> Counter:
    return Counter(f"noonmark_{name}", meaning, labels, registry=registry)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"noonmark_{name}", meaning, value=value)
