"""Metrics of a real scheduler, in the text format of Prometheus."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from noonmark import IntervalTrigger, Scheduler
from noonmark.core.errors import OverlapConflict
from noonmark.core.instants import SECOND
from noonmark.ports.events import Pruned, StoreFailed
from noonmark.ports.records import Backlog
from noonmark.targets.temporal.settings import EngineCounts
from noonmark.telemetry.health import CachedProbe, WorkerSnapshot
from noonmark.telemetry.logs import CompositeSink, LogSink
from noonmark.telemetry.metrics import UNTYPED, HistogramFamily, Metrics
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import NEVER, Gate, ended

START = datetime(2027, 3, 1, 12, tzinfo=UTC)


def samples(metrics):
    """Return every sample by name and labels."""
    collected = {}
    for line in metrics.render().decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            collected[name] = float(value)
    assert list(text_string_to_metric_families(metrics.render().decode()))
    return collected


def fails():
    raise RuntimeError("no")


@pytest.fixture
def metrics():
    return Metrics("0.0")


def test_all_metrics_exist_from_the_start(metrics):
    series = samples(metrics)
    for name in ("schedules_due", *UNTYPED, "claims_total", "lease_losses_total", "misfires_total", "leader"):
        assert series[f"noonmark_{name}"] == 0, name
    assert series['noonmark_queue_depth{state="claimed"}'] == 0
    assert series["noonmark_start_lateness_seconds_count"] == 0
    assert series['noonmark_node_info{node="",version="0.0"}'] == 1
    assert not [name for name in series if "_created" in name]


def test_runs_are_counted_by_phase_and_target(metrics):
    scheduler = Scheduler(clock=FakeClock(START), sink=metrics)
    driver = ManualDriver(scheduler)
    scheduler.schedule(lambda: 1, trigger=IntervalTrigger(every_seconds=60))
    scheduler.schedule(fails, trigger=IntervalTrigger(every_seconds=60), retries=1)
    driver.run_until(START + timedelta(seconds=150))
    scheduler.close()
    series = samples(metrics)
    assert series["noonmark_runs_emitted"] == series["noonmark_start_lateness_seconds_count"] == 6
    assert series['noonmark_occurrences_total{phase="completed"}'] == 2
    assert series['noonmark_occurrences_total{phase="failed"}'] == 2
    assert series['noonmark_runs_total{outcome="failed",target="function"}'] == 4
    assert series['noonmark_run_duration_seconds_count{target="function"}'] == 6
    assert series["noonmark_claims_total"] >= 6
    assert series["noonmark_runs_failed_launch"] == series["noonmark_misfires_total"] == 0


def test_a_gap_counts_all_its_fires(metrics):
    clock = FakeClock(START)
    scheduler = Scheduler(clock=clock, sink=metrics)
    scheduler.schedule(lambda: 1, trigger=IntervalTrigger(every_seconds=60), misfire="skip")
    clock.advance(3_600)
    ManualDriver(scheduler).run_due()
    scheduler.close()
    series = samples(metrics)
    assert series["noonmark_misfires_total"] == series['noonmark_occurrences_total{phase="misfired"}'] > 50


def test_windows_that_miss_their_expected_rate_are_counted(metrics):
    scheduler = Scheduler(clock=FakeClock(START), sink=metrics)
    for expected in ({"at_least": 1, "at_most": 2, "per_seconds": 60}, {"at_least": 8, "per_seconds": 60}):
        scheduler.schedule(
            lambda: None, trigger=IntervalTrigger(10, START + timedelta(seconds=5)), expected_rate=expected
        )
    ManualDriver(scheduler).run_until(START + timedelta(seconds=70))
    series = samples(metrics)
    assert series['noonmark_rate_alerts_total{problem="too_often"}'] == 1
    assert series['noonmark_rate_alerts_total{problem="too_rare"}'] == 1


def test_schedules_that_run_away_are_counted(metrics):
    scheduler = Scheduler(clock=FakeClock(START), sink=metrics)
    driver = ManualDriver(scheduler)
    for rules in ({"max_fires_per_hour": 1}, {"max_identical_results": 1}):
        job = scheduler.schedule(lambda: "same", trigger=NEVER, runaway=rules)
        for _ in range(2):
            scheduler.run_now(job, wait=False)
            driver.run_due()
    scheduler.close()
    series = samples(metrics)
    assert series['noonmark_runaways_total{rule="fires_per_hour"}'] == 1
    assert series['noonmark_runaways_total{rule="identical_results"}'] == 1


def test_runs_prevented_by_overlap_are_counted(metrics):
    gate = Gate()
    with Scheduler(sink=CompositeSink(metrics, LogSink())) as scheduler:
        job = scheduler.schedule(gate, trigger=NEVER, overlap="skip")
        scheduler.run_now(job, wait=False)
        gate.wait()
        with pytest.raises(OverlapConflict):
            scheduler.run_now(job)
        gate.opened.set()
        ended(scheduler, job, 2)
    series = samples(metrics)
    assert (series["noonmark_runs_emitted"], series["noonmark_runs_skipped_overlap"]) == (1, 1)
    assert series['noonmark_occurrences_total{phase="skipped"}'] == 1


def test_other_events_are_counted(metrics):
    metrics.report([StoreFailed("_claim_due", "down", 1), StoreFailed("lead_once", "down", 1), Pruned(3, 4)])
    series = samples(metrics)
    assert series['noonmark_store_failures_total{duty="claim_due"}'] == 1
    assert series['noonmark_store_failures_total{duty="lead_once"}'] == 1
    assert series["noonmark_pruned_total"] == 7


def test_worker_gauges(metrics):
    class Worker:
        def snapshot(self):
            return WorkerSnapshot(
                node='a"b\n', is_running=True, claimed=3, delivering=4, abandoned=6, leads=True, term=5
            )

    metrics.watch(Worker())
    series = samples(metrics)
    assert series["noonmark_abandoned_threads"] == 6
    assert series['noonmark_queue_depth{state="claimed"}'] == 3
    assert series['noonmark_queue_depth{state="delivering"}'] == 4
    assert (series["noonmark_worker_running"], series["noonmark_leader"], series["noonmark_leader_term"]) == (1, 1, 5)
    assert series['noonmark_node_info{node="a\\"b\\n",version="0.0"}'] == 1


def test_backlog_is_shown_without_a_worker_and_omitted_while_unknown():
    known = []
    metrics = Metrics("0.0", lambda: known[-1])
    known.append(Backlog(schedules=2, due=7, waiting=3))
    assert "noonmark_store_log_bytes" not in samples(metrics)
    known.append(Backlog(schedules=2, due=7, waiting=3, log_bytes=4_096))
    series = samples(metrics)
    assert series["noonmark_store_log_bytes"] == 4_096
    assert series["noonmark_schedules_due"] == 2
    assert series['noonmark_queue_depth{state="due"}'] == 7
    assert series['noonmark_queue_depth{state="waiting"}'] == 3
    known.append(None)
    assert "noonmark_schedules_due" not in samples(metrics)


def test_backlog_is_cached_and_may_fail():
    collected, clock = [], FakeClock(START)

    def ask():
        collected.append(clock.micros())
        if len(collected) == 2:
            raise RuntimeError("away")
        return len(collected)

    recent = CachedProbe(ask, monotonic=clock.monotonic, lifetime=SECOND)
    assert [recent.read() for _ in range(3)] == [1, 1, 1]
    clock.advance(1)
    assert [recent.read() for _ in range(3)] == [None, None, None]
    clock.advance(1)
    assert recent.read() == 3
    assert len(collected) == 3


def test_two_instances_do_not_mix(metrics):
    metrics.report([Pruned(3)])
    assert samples(Metrics())["noonmark_pruned_total"] == 0


def test_failing_sink_does_not_affect_others(metrics):
    class Broken:
        def report(self, events):
            raise RuntimeError("no")

    CompositeSink(Broken(), metrics).report([Pruned(1)])
    assert samples(metrics)["noonmark_pruned_total"] == 1


def test_histogram_buckets_are_cumulative():
    lateness = HistogramFamily("late", "How late.", bounds=(0.1, 1))
    for seconds in (0.05, 0.1, 0.5, 7):
        lateness.add(seconds)
    found = {(one.name, one.labels.get("le")): one.value for one in lateness.collect().samples}
    assert found[("noonmark_late_sum", None)] == pytest.approx(7.65)
    assert {le: value for (name, le), value in found.items() if name == "noonmark_late_bucket"} == {
        "0.1": 2,
        "1.0": 3,
        "+Inf": 4,
    }


def test_damaged_rows_are_counted_by_table():
    series = samples(Metrics(damage=lambda: {"schedules": 2, "events": 1}))
    assert series['noonmark_damaged_rows{table="schedules"}'] == 2
    assert series['noonmark_damaged_rows{table="events"}'] == 1


def test_a_node_with_an_engine_tells_what_it_has_seen_of_it():
    counts, metrics = EngineCounts(), Metrics()
    assert b"engine" not in metrics.render()
    metrics.watch_engine(counts)
    for how in ("started", "started", "attached", "failed"):
        counts.count_start(how)
    counts.orphans, counts.cancelled = {"workflows": 1, "occurrences": 2}, 3
    counts.unserved = frozenset({"http", "task"})
    lines = metrics.render().decode().splitlines()
    for line in (
        "noonmark_engine_up 1.0",
        'noonmark_engine_starts_total{result="started"} 2.0',
        'noonmark_engine_starts_total{result="attached"} 1.0',
        'noonmark_engine_starts_total{result="failed"} 1.0',
        "noonmark_engine_cancelled_total 3.0",
        "noonmark_engine_unserved_routes 2.0",
        'noonmark_engine_orphans{kind="workflows"} 1.0',
        'noonmark_engine_orphans{kind="occurrences"} 2.0',
    ):
        assert line in lines
    counts.problem = "away"
    assert "noonmark_engine_up 0.0" in metrics.render().decode().splitlines()
