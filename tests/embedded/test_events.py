"""Events: emitted by a program, matched and delivered, and passed to the function that they fire."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime

import pytest

from noonmark import AsyncScheduler, EventTrigger, InvalidSchedule, Scheduler
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import SOON, ended, eventually, phases


@pytest.fixture(params=["memory", "sqlite"])
def scheduler(request, tmp_path):
    made = Scheduler("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.stop(wait=False)
    made.close()


def listen(scheduler, func, trigger, **options):
    """Keep a job for any function, under a name of its own."""
    return scheduler.schedule(func, trigger=trigger, function_name=f"f{id(func)}", **options)


class TestDelivery:
    def test_an_event_does_not_wait_for_the_clock_of_the_node(self, scheduler):
        """That clock is behind the store's by some microseconds. Only looking once or twice finds an event at once."""
        started, looks, look = threading.Event(), [], scheduler._store.next_time

        def counted(*arguments, **options):
            looks.append(arguments)
            return look(*arguments, **options)

        listen(scheduler, started.set, EventTrigger("upload"))
        scheduler._store.next_time = counted
        with scheduler:
            for number in range(20):
                scheduler.emit("upload", number)
                assert started.wait(SOON)
                started.clear()
        assert len(looks) < 20 * 10

    def test_the_function_sees_the_event(self, scheduler):
        seen = []

        def note(context):
            seen.append(context)

        job = listen(scheduler, note, EventTrigger("upload"), payload={"of": "job"})
        with scheduler:
            event_id = scheduler.emit("upload", {"file": "a.txt"}, source="disk")
            assert ended(scheduler, job) == ["completed"]
        [context] = seen
        assert context.payload == {"file": "a.txt"}
        assert {**context.event, "emitted_at": None} == {
            "event_id": event_id,
            "event_type": "upload",
            "source": "disk",
            "payload": {"file": "a.txt"},
            "emitted_at": None,
        }
        assert context.event["emitted_at"] == context.nominal_at.isoformat().replace("+00:00", "Z")
        [occurrence] = scheduler.occurrences(job)
        assert occurrence.origin == f"event:{event_id}"

    def test_only_what_matches_is_triggered(self, scheduler):
        big = listen(scheduler, lambda: "big", EventTrigger("upload", {"size": {"gte": 10}}))
        any_ = listen(scheduler, lambda: "any", EventTrigger(["upload", "copy"]))
        other = listen(scheduler, lambda: "other", EventTrigger("copy"))
        with scheduler:
            scheduler.emit("upload", {"size": 3})
            scheduler.emit("upload", {"size": 30})
            assert ended(scheduler, any_, 2) == ["completed"] * 2
            assert ended(scheduler, big) == ["completed"]
        assert phases(scheduler, big) == ["completed"]
        assert phases(scheduler, other) == []

    def test_what_was_emitted_while_nothing_ran_is_delivered_after_the_start(self, scheduler):
        job = listen(scheduler, lambda context: context.payload, EventTrigger("upload"))
        scheduler.emit("upload", 1)
        assert phases(scheduler, job) == []
        with scheduler:
            assert ended(scheduler, job) == ["completed"]
        assert [run.result for run in scheduler.runs(job)] == [1]

    def test_a_burst_is_worked_off_in_order_one_at_a_time(self, scheduler):
        seen, running = [], threading.Lock()

        def work(context):
            assert running.acquire(blocking=False)
            seen.append(context.payload)
            running.release()

        job = listen(scheduler, work, EventTrigger("upload"))
        with scheduler:
            for number in range(50):
                scheduler.emit("upload", number)
            ended(scheduler, job, 50)
        assert seen == list(range(50))
        assert set(phases(scheduler, job)) == {"completed"}

    def test_an_event_emitted_again_under_its_id_is_one_event(self, scheduler):
        job = listen(scheduler, lambda: None, EventTrigger("upload"))
        with scheduler:
            assert [scheduler.emit("upload", event_id="e-1") for _ in range(3)] == ["e-1"] * 3
            last = listen(scheduler, lambda: None, EventTrigger("last"))
            scheduler.emit("last")
            ended(scheduler, last)
        assert phases(scheduler, job) == ["completed"]

    def test_a_job_gets_no_events_from_before_its_creation(self, scheduler):
        scheduler.emit("upload")
        job = listen(scheduler, lambda: None, EventTrigger("upload"))
        with scheduler:
            scheduler.emit("upload")
            ended(scheduler, job)
        assert phases(scheduler, job) == ["completed"]

    def test_what_a_paused_job_would_have_heard_is_recorded(self, scheduler):
        job = listen(scheduler, lambda: None, EventTrigger("upload"))
        scheduler.pause(job)
        with scheduler:
            scheduler.emit("upload")
            assert ended(scheduler, job) == ["skipped"]
            scheduler.resume(job)
            scheduler.emit("upload")
            assert ended(scheduler, job, 2) == ["skipped", "completed"]
        assert [str(one.reason) for one in reversed(scheduler.occurrences(job))] == ["paused", "succeeded"]

    def test_max_runs_ends_it_and_what_comes_later_is_nobodys(self, scheduler):
        job = listen(scheduler, lambda: None, EventTrigger("upload"), max_runs=2)
        with scheduler:
            for _ in range(2):
                scheduler.emit("upload")
            ended(scheduler, job, 2)
            assert eventually(lambda: str(scheduler.get_job(job).status) == "completed")
        assert scheduler.get_job(job).run_count == 2

    def test_a_job_may_emit_what_triggers_another(self, scheduler):
        first = listen(scheduler, lambda: scheduler.emit("second"), EventTrigger("first"))
        second = listen(scheduler, lambda: "done", EventTrigger("second"))
        with scheduler:
            scheduler.emit("first")
            assert ended(scheduler, second) == ["completed"]
        assert phases(scheduler, first) == ["completed"]

    def test_an_event_triggered_job_has_no_next_run(self, scheduler):
        job = listen(scheduler, lambda: None, EventTrigger("upload"))
        assert scheduler.get_job(job).next_run is None
        assert scheduler.preview(job) == []


class TestInput:
    @pytest.mark.parametrize(
        ("field", "arguments"),
        [
            ("event_type", {"event_type": ""}),
            ("event_type", {"event_type": "with blanks"}),
            ("event_type", {"event_type": None}),
            ("payload", {"payload": object()}),
            ("payload", {"payload": {"a": float("nan")}}),
            ("payload", {"payload": "x" * 300_000}),
            ("source", {"source": "a\nb"}),
            ("source", {"source": 7}),
            ("event_id", {"event_id": "with blanks"}),
            ("event_id", {"event_id": "x" * 200}),
        ],
    )
    def test_a_bad_event_is_refused_by_name(self, scheduler, field, arguments):
        with pytest.raises(InvalidSchedule) as refused:
            scheduler.emit(**{"event_type": "upload", **arguments})
        assert refused.value.field == field

    def test_a_filter_that_makes_no_sense_is_refused(self, scheduler):
        with pytest.raises(InvalidSchedule, match="unknown operator"):
            EventTrigger("upload", {"size": {"bigger": 3}})


class TestOverProcesses:
    def test_events_outlive_the_process_that_emitted_them(self, tmp_path):
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        job = Scheduler(url).schedule(print, trigger=EventTrigger("upload"), function_name="print")
        program = f"""
            from noonmark import Scheduler
            Scheduler({url!r}).emit("upload", {{"n": 1}})
            import os
            os._exit(0)
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=SOON, check=True)
        later = Scheduler(url)
        later.register_function("print", print)
        with later:
            assert ended(later, job) == ["completed"]

    def test_an_event_of_another_scheduler_is_heard_by_one_of_those_that_run(self, tmp_path):
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        seen = []
        nodes = [Scheduler(url) for _ in range(3)]
        for node in nodes:
            node.register_function("note", lambda context: seen.append(context.payload))
        job = nodes[0].schedule(
            lambda context: seen.append(context.payload), trigger=EventTrigger("upload"), function_name="note"
        )
        for node in nodes[1:]:
            node.start()
        for number in range(20):
            nodes[0].emit("upload", number)
        ended(nodes[0], job, 20)
        for node in nodes:
            node.stop()
        assert seen == list(range(20))


def test_a_decorated_function_listens():
    scheduler, seen = Scheduler(), []

    @scheduler.on_event("upload", {"size": {"gt": 1}})
    def uploaded(context):
        seen.append(context.payload["size"])

    with scheduler:
        for size in (1, 2, 3):
            scheduler.emit("upload", {"size": size})
        ended(scheduler, uploaded.job_id, 2)
    assert seen == [2, 3]


def test_the_async_scheduler_emits_too():
    async def story():
        heard = asyncio.Event()

        async with AsyncScheduler() as scheduler:

            async def uploaded(context):
                heard.set()
                return context.payload

            job = await scheduler.schedule(uploaded, trigger=EventTrigger("upload"))
            await scheduler.emit("upload", 7)
            await asyncio.wait_for(heard.wait(), SOON)
        return [run.result for run in await scheduler.runs(job)]

    assert asyncio.run(story()) == [7]


def test_events_can_be_tried_with_a_clock_that_stands_still():
    scheduler = Scheduler(clock=FakeClock(datetime(2026, 3, 1, tzinfo=UTC)))
    driver = ManualDriver(scheduler)
    job = scheduler.schedule(lambda context: context.payload, trigger=EventTrigger("upload", jitter_seconds=60))
    scheduler.emit("upload", "a")
    assert driver.run_due() == []
    [run] = driver.run_until(datetime(2026, 3, 1, 0, 1, tzinfo=UTC))
    assert run.result == "a"
    [occurrence] = scheduler.occurrences(job)
    assert occurrence.nominal_at == datetime(2026, 3, 1, tzinfo=UTC)
    assert occurrence.due_at > occurrence.nominal_at
