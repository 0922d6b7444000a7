"""Traces: what a scheduler records of its occurrences, and what its functions add."""

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from noonmark import EventTrigger, IntervalTrigger, Scheduler
from noonmark.core.trace_context import event_key, span_id, trace_id
from noonmark.telemetry.otlp import ComputedIds
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import ended
from tests.workflow_store import put_workflow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Recorded:
    """A tracer provider whose spans stay in memory, and a scheduler that uses it."""

    def __init__(self, monkeypatch, **options):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(id_generator=ComputedIds(), **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: self.provider)

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def of(self, occurrence):
        """The spans of an occurrence, by name."""
        return {one.name: one for one in self.spans if f"{one.context.trace_id:032x}" == trace_id(occurrence.id)}


@pytest.fixture
def recorded(monkeypatch):
    return Recorded(monkeypatch)


def ids(context):
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def manual(**options):
    scheduler = Scheduler(clock=FakeClock(NOON), traces=True, **options)
    return scheduler, ManualDriver(scheduler)


def test_an_occurrence_is_one_trace_with_its_steps_below_it(recorded):
    scheduler, driver = manual()
    job = scheduler.schedule(len, "count", IntervalTrigger(60), args=["abc"])
    driver.run_until(NOON + timedelta(seconds=120))
    occurrence, _ = [one for one in scheduler.occurrences(job) if one.phase == "completed"]
    spans = recorded.of(occurrence)
    assert set(spans) == {"occurrence", "plan", "claim", "start", "call function", "settle"}
    root = spans.pop("occurrence")
    assert ids(root.context) == (trace_id(occurrence.id), span_id(occurrence.id))
    assert root.parent is None
    assert {ids(one.parent) for one in spans.values()} == {ids(root.context)}
    assert root.attributes["noonmark.schedule.id"] == job
    assert root.attributes["noonmark.phase"] == "completed"
    assert root.start_time == occurrence.first_due * 1_000
    assert root.status.status_code is StatusCode.UNSET
    assert ids(spans["call function"].context)[1] == span_id(f"{occurrence.id}-1")


def test_each_attempt_links_to_the_one_before_it(recorded):
    scheduler, driver = manual()
    job = scheduler.schedule(int, "fail", args=["x"], retries=1)
    driver.run_until(NOON + timedelta(hours=1))
    (occurrence,) = scheduler.occurrences(job)
    calls = [one for one in recorded.spans if one.name == "call function"]
    assert [one.attributes["noonmark.outcome"] for one in calls] == ["failed", "failed"]
    assert {one.status.status_code for one in calls} == {StatusCode.ERROR}
    assert [ids(link.context) for link in calls[1].links] == [ids(calls[0].context)]
    assert len([one for one in recorded.spans if one.name == "occurrence"]) == 1
    assert recorded.of(occurrence)["occurrence"].status.status_code is StatusCode.ERROR


def test_an_event_and_what_it_triggers_link_to_each_other(recorded):
    scheduler, driver = manual()
    job = scheduler.schedule(print, "listen", EventTrigger("order.paid"), args=["x"])
    event = scheduler.emit("order.paid", {"id": 1}, event_id="one")
    assert event is not None
    driver.run_due()
    (occurrence,) = scheduler.occurrences(job)
    (match,) = [one for one in recorded.spans if one.name == "match event"]
    assert ids(match.context)[0] == trace_id(event_key("one"))
    root = recorded.of(occurrence)["occurrence"]
    assert [ids(link.context) for link in match.links] == [ids(root.context)]
    assert [ids(link.context) for link in root.links] == [ids(match.context)]


def test_missed_fires_are_recorded_as_errors(recorded):
    scheduler, driver = manual()
    job = scheduler.schedule(len, "count", IntervalTrigger(60), args=["abc"], misfire="skip")
    driver.run_due()
    scheduler._runtime.clock.move_to(NOON + timedelta(hours=1, seconds=30))
    driver.run_due()
    (missed,) = [one for one in scheduler.occurrences(job) if one.phase == "misfired"]
    root = recorded.of(missed)["occurrence"]
    assert root.status.status_code is StatusCode.ERROR
    assert root.attributes["noonmark.phase"] == "misfired"


def test_spans_of_a_function_are_children_of_its_call(recorded):
    def work():
        with recorded.provider.get_tracer("mine").start_as_current_span("inside"):
            pass

    async def work_async():
        work()

    with Scheduler(traces=True) as scheduler:
        for function in (work, work_async):
            recorded.exporter.clear()
            job = scheduler.schedule(function, function.__name__, function_name=function.__name__)
            ended(scheduler, job)
            (run,) = scheduler.runs(job)
            (inside,) = [one for one in recorded.spans if one.name == "inside"]
            assert ids(inside.parent) == (trace_id(run.occurrence_id), span_id(run.id))


def test_a_trace_that_is_not_sampled_is_not_recorded_and_says_so(monkeypatch):
    recorded = Recorded(monkeypatch, sampler=ALWAYS_OFF)
    scheduler, driver = manual()
    scheduler.schedule(len, "count", args=["abc"])
    driver.run_due()
    assert recorded.spans == ()
    assert not scheduler._runtime.traces.is_recorded("any")


def test_nothing_is_recorded_unless_asked_for(recorded):
    scheduler = Scheduler(clock=FakeClock(NOON))
    scheduler.schedule(len, "count", args=["abc"])
    ManualDriver(scheduler).run_due()
    assert recorded.spans == ()


def test_steps_of_a_workflow_are_recorded_below_its_run(recorded):
    scheduler, seen = Scheduler(traces=True), []
    scheduler._open()

    def fail_once(*, context):
        seen.append(trace.get_current_span().get_span_context())
        if context.attempt == 1:
            raise ValueError("once")

    scheduler.register_function("work", fail_once)
    step = {"id": "a", "target": {"target_kind": "function", "function": "work"}}
    step["retry"] = {"max_attempts": 2, "backoff_seconds": 0}
    put_workflow(scheduler._store, {"workflow_id": "w", "steps": [step]})
    job = scheduler.schedule({"target_kind": "workflow", "workflow_id": "w"})
    with scheduler:
        ended(scheduler, job)
    [occurrence] = scheduler.occurrences(job)
    steps = [one for one in recorded.spans if one.name == "step a"]
    call = recorded.of(occurrence)["call workflow"]
    assert {ids(one.parent) for one in steps} == {ids(call.context)}
    assert [ids(one) for one in seen] == [ids(one.context) for one in steps]
    assert [one.attributes["noonmark.outcome"] for one in steps] == ["failed", "completed"]
    assert [one.status.status_code for one in steps] == [StatusCode.ERROR, StatusCode.UNSET]
