"""The scheduler in a Python program: declare, start, stop and read, in real threads."""

import asyncio
import functools
import threading
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import (
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidSchedule,
    InvalidTrigger,
    NotFound,
    OnceTrigger,
    Scheduler,
    TriggerNeverFires,
)
from noonmark.clocks import SystemClock
from noonmark.core.errors import Conflict
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.delivery import Delivery
from noonmark.ports.events import Abandoned, Settled
from noonmark.testing import FakeClock
from tests.embedded.waiting import NEVER, SOON, ended, eventually, phases, together


@pytest.fixture
def scheduler():
    made = Scheduler()
    yield made
    made.stop(wait=False)


def nothing():
    pass


def stored(scheduler, job_id):
    return scheduler._find(job_id).schedule


class TestDeclaring:
    def test_without_a_name_it_is_always_new(self, scheduler):
        assert scheduler.schedule(nothing, trigger=NEVER) != scheduler.schedule(nothing, trigger=NEVER)

    def test_the_same_declaration_again_changes_nothing(self, scheduler):
        first = scheduler.schedule(nothing, name="report", trigger=NEVER, labels={"team": "a"})
        before = stored(scheduler, first)
        assert scheduler.schedule(nothing, name="report", trigger=NEVER, labels={"team": "a"}) == first
        assert stored(scheduler, first) == before

    def test_another_trigger_is_a_new_revision(self, scheduler):
        first = scheduler.schedule(nothing, name="report", trigger=NEVER)
        assert scheduler.schedule(nothing, name="report", trigger=CronTrigger("0 0 2 1 *")) == first
        assert stored(scheduler, first).revision == 2

    def test_what_people_read_keeps_the_revision(self, scheduler):
        first = scheduler.schedule(nothing, name="report", trigger=NEVER)
        scheduler.schedule(nothing, name="report", trigger=NEVER, labels={"team": "b"})
        assert (stored(scheduler, first).revision, stored(scheduler, first).declaration.labels) == (1, {"team": "b"})

    def test_an_interval_keeps_its_beat_when_it_is_declared_again(self, scheduler):
        first = scheduler.schedule(nothing, name="beat", trigger=IntervalTrigger(10))
        scheduler.schedule(nothing, name="beat", trigger=IntervalTrigger(20))
        changed = stored(scheduler, first)
        scheduler.schedule(nothing, name="beat", trigger=IntervalTrigger(20))
        assert stored(scheduler, first) == changed
        assert changed.revision == 2

    def test_many_threads_that_declare_one_name_declare_one_schedule(self, scheduler):
        ids = together(12, lambda _: scheduler.schedule(nothing, name="same", trigger=NEVER))
        assert len(set(ids)) == 1

    def test_a_deleted_name_is_free_again(self, scheduler):
        first = scheduler.schedule(nothing, name="report", trigger=NEVER)
        scheduler.delete(first)
        with pytest.raises(NotFound):
            scheduler.pause(first)
        assert [str(one.phase) for one in scheduler.occurrences(first)] == ["cancelled"]
        again = scheduler.schedule(nothing, name="report", trigger=NEVER)
        assert stored(scheduler, again).revision == 1

    def test_every_option_reaches_the_schedule(self, scheduler):
        job = scheduler.schedule(
            max,
            name="all",
            trigger=NEVER,
            args=[1],
            kwargs={"default": 2},
            max_runs=3,
            overlap={"type": "queue", "queue_limit": 7},
            misfire={"type": "catch_up_all", "limit": 4, "grace_seconds": 5},
            retries=3,
            timeout=1.5,
            jitter=2,
            labels={"team": "a"},
            delivery="at_most_once",
        )
        declared = stored(scheduler, job).declaration
        assert (declared.name, declared.labels, declared.max_runs, declared.timeout) == (
            "all",
            {"team": "a"},
            3,
            1_500_000,
        )
        assert (declared.target.args, declared.target.kwargs) == ((1,), {"default": 2})
        assert declared.overlap_policy == overlap.Queue(queue_limit=7)
        assert declared.misfire_policy == misfire.CatchUpAll(limit=4, grace=5_000_000)
        assert declared.retry_policy.max_attempts == 4
        assert declared.trigger.jitter_seconds == 2
        assert declared.delivery is Delivery.AT_MOST_ONCE

    def test_policies_by_name(self, scheduler):
        job = scheduler.schedule(nothing, trigger=NEVER, overlap="allow_concurrent", misfire="catchup_one")
        declared = stored(scheduler, job).declaration
        assert declared.overlap_policy == overlap.Allow()
        assert declared.misfire_policy == misfire.CatchUpOne()

    def test_an_event_trigger_can_be_declared(self, scheduler):
        job = scheduler.schedule(nothing, trigger=EventTrigger("file_uploaded"))
        assert scheduler.occurrences(job) == []

    @pytest.mark.parametrize(
        ("options", "kind", "field"),
        [
            ({"args": 5}, InvalidSchedule, "args"),
            ({"args": "text"}, InvalidSchedule, "args"),
            ({"args": [object()]}, InvalidSchedule, "args"),
            ({"kwargs": 5}, InvalidSchedule, "kwargs"),
            ({"kwargs": {1: 2}}, InvalidSchedule, "kwargs"),
            ({"name": 5}, InvalidSchedule, "name"),
            ({"name": ["x"]}, InvalidSchedule, "name"),
            ({"name": ""}, InvalidSchedule, "name"),
            ({"name": "a\nb"}, InvalidSchedule, "name"),
            ({"name": "\ud800"}, InvalidSchedule, "name"),
            ({"labels": 5}, InvalidSchedule, "labels"),
            ({"jitter": -1}, InvalidTrigger, "jitter"),
            ({"retries": -1}, InvalidSchedule, "retries"),
            ({"retries": 1.5}, InvalidSchedule, "retries"),
            ({"retries": True}, InvalidSchedule, "retries"),
            ({"timeout": 0}, InvalidSchedule, "timeout"),
            ({"overlap": "sometimes"}, InvalidSchedule, "overlap"),
            ({"overlap": 5}, InvalidSchedule, "overlap"),
            ({"misfire": {"type": "skip", "limit": 3}}, InvalidSchedule, "misfire.limit"),
            ({"trigger": "0 9 * * *"}, InvalidTrigger, "trigger"),
            ({"trigger": CronTrigger}, InvalidTrigger, "trigger"),
            ({"delivery": "twice"}, InvalidSchedule, "delivery"),
            ({"max_runs": 0}, InvalidSchedule, "max_runs"),
            ({"function_name": 5}, InvalidSchedule, "function_name"),
            ({"function_name": ""}, InvalidSchedule, "function_name"),
        ],
    )
    def test_bad_input_is_refused_with_its_field(self, scheduler, options, kind, field):
        with pytest.raises(kind) as refused:
            scheduler.schedule(nothing, **{"trigger": NEVER} | options)
        assert refused.value.field == field

    def test_an_argument_that_is_not_json_is_named_by_its_type(self, scheduler):
        with pytest.raises(InvalidSchedule, match=r"args: is not JSON: it holds a datetime \(allowed: objects with"):
            scheduler.schedule(print, args=[[datetime(2030, 1, 1, tzinfo=UTC)]])

    def test_what_is_not_callable_is_refused(self, scheduler):
        with pytest.raises(InvalidSchedule, match="must be callable, not int") as refused:
            scheduler.schedule(5)
        assert refused.value.field == "func"
        with pytest.raises(InvalidSchedule, match="must be callable"):
            scheduler.register_function("five", 5)
        with pytest.raises(InvalidSchedule, match="name"):
            scheduler.register_function("", nothing)

    def test_what_is_known_of_a_function_ends_when_a_notebook_reloads_it(self, scheduler):
        def func():
            yield

        with pytest.raises(InvalidSchedule, match="is a generator"):
            scheduler.schedule(func, args=[1], trigger=NEVER)
        func.__code__ = (lambda: None).__code__
        with pytest.raises(InvalidSchedule, match="do not fit"):
            scheduler.schedule(func, args=[1], trigger=NEVER)
        func.__code__ = (lambda first: None).__code__
        assert scheduler.schedule(func, args=[1], trigger=NEVER)

    def test_a_time_that_is_past_is_refused(self, scheduler):
        past = OnceTrigger(datetime(2020, 1, 1, tzinfo=UTC))
        with pytest.raises(TriggerNeverFires):
            scheduler.schedule(nothing, trigger=past)


class TestFunctions:
    def test_in_memory_anything_callable_will_do(self, scheduler):
        def inner(context):
            return "inner"

        class Callable:
            def __call__(self):
                return "called"

            def method(self):
                return "method"

        one = Callable()
        for function, result in [
            (lambda: "lambda", "lambda"),
            (inner, "inner"),
            (one, "called"),
            (one.method, "method"),
            (functools.partial(str, 5), "5"),
            (functools.partial(one.method), "method"),
        ]:
            assert scheduler.run_now(scheduler.schedule(function, trigger=NEVER)) == result

    def test_two_lambdas_are_two_functions(self, scheduler):
        jobs = [scheduler.schedule(lambda number=number: number, trigger=NEVER) for number in range(5)]
        assert [scheduler.run_now(job) for job in jobs] == list(range(5))

    def test_a_module_level_function_is_named_by_its_module(self, scheduler):
        job = scheduler.schedule(nothing, trigger=NEVER)
        assert stored(scheduler, job).declaration.target.function.endswith(":nothing")

    def test_a_registered_name_is_used_when_the_function_is_passed_later(self, scheduler):
        scheduler.register_function("billing.close_day", nothing)
        job = scheduler.schedule(nothing, trigger=NEVER)
        assert stored(scheduler, job).declaration.target.function == "billing.close_day"

    def test_a_name_can_be_given_with_the_schedule(self, scheduler):
        job = scheduler.schedule(lambda: 7, trigger=NEVER, function_name="seven")
        assert stored(scheduler, job).declaration.target.function == "seven"
        assert scheduler.run_now(job) == 7

    def test_a_function_that_is_registered_again_is_replaced(self, scheduler):
        job = scheduler.schedule(lambda: "old", trigger=NEVER, function_name="work")
        scheduler.register_function("work", lambda: "new")
        assert scheduler.run_now(job) == "new"


class TestRunning:
    def test_without_a_trigger_it_runs_once_at_once(self, scheduler):
        ran = threading.Event()
        job = scheduler.schedule(ran.set)
        with scheduler:
            assert ran.wait(SOON)
            assert ended(scheduler, job) == ["completed"]
        assert len(scheduler.occurrences(job)) == len(scheduler.runs(job)) == 1

    def test_declared_again_it_runs_again_but_only_when_it_has_completed(self, scheduler):
        entered, gate, calls = threading.Semaphore(0), threading.Event(), []

        def work():
            calls.append(1)
            entered.release()
            gate.wait(SOON)

        job = scheduler.schedule(work, name="once")
        assert scheduler.schedule(work, name="once") == job
        assert phases(scheduler, job) == ["pending"]
        with scheduler:
            assert entered.acquire(timeout=SOON)
            scheduler.schedule(work, name="once")
            gate.set()
            ended(scheduler, job)
            eventually(lambda: stored(scheduler, job).phase == "completed")
            assert scheduler.schedule(work, name="once") == job
            ended(scheduler, job, 2)
        assert len(calls) == 2

    def test_a_schedule_that_was_recurring_becomes_one_that_runs_at_once(self, scheduler):
        ran = threading.Event()
        scheduler.schedule(ran.set, name="x", trigger=NEVER)
        scheduler.schedule(ran.set, name="x")
        with scheduler:
            assert ran.wait(SOON)

    def test_an_interval_runs_again_and_again_never_early(self, scheduler):
        clock, times = SystemClock(), []
        job = scheduler.schedule(lambda: times.append(clock.now()), trigger=IntervalTrigger(0.05), max_runs=5)
        with scheduler:
            ended(scheduler, job, 5)
            eventually(lambda: stored(scheduler, job).phase == "completed")
        nominal = [one.nominal_at for one in reversed(scheduler.occurrences(job)) if str(one.phase) == "completed"]
        assert len(times) == len(nominal) == 5
        assert all(at >= time for at, time in zip(times, nominal, strict=True))

    def test_what_is_declared_while_it_runs_is_noticed(self, scheduler):
        scheduler.schedule(nothing, trigger=NEVER)
        ran = threading.Event()
        with scheduler:
            scheduler.schedule(ran.set, trigger=OnceTrigger(SystemClock().now() + timedelta(milliseconds=50)))
            assert ran.wait(SOON)

    def test_a_failure_is_retried_as_often_as_asked(self, scheduler):
        calls = []

        def work():
            calls.append(1)
            if len(calls) < 3:
                raise ValueError("not yet")
            return "done"

        job = scheduler.schedule(work, retries=2)
        with scheduler:
            assert ended(scheduler, job) == ["completed"]
        runs = scheduler.runs(job)
        assert [(run.attempt, str(run.outcome)) for run in runs] == [(3, "completed"), (2, "failed"), (1, "failed")]
        assert runs[0].result == "done"
        assert "not yet" in runs[-1].error
        assert runs[0].started_at <= runs[0].ended_at

    def test_a_function_that_times_out_is_left_to_itself(self, scheduler):
        noticed = threading.Event()

        def work(context):
            if context.cancelled.wait(SOON):
                noticed.set()

        job = scheduler.schedule(work, timeout=2)  # long enough for it to begin
        with scheduler:
            assert ended(scheduler, job) == ["timed_out"]
            assert noticed.wait(SOON)

    def test_threads_that_had_to_be_given_up_are_replaced_but_not_without_end(self):
        gone, others = threading.Event(), set(threading.enumerate())
        scheduler = Scheduler(max_threads=2)
        job = scheduler.schedule(lambda: gone.wait(SOON), trigger=IntervalTrigger(0.05), timeout=0.02)
        with scheduler:
            ended(scheduler, job, 4)
            workers = [one for one in set(threading.enumerate()) - others if one.name == "noonmark-worker"]
            gone.set()
        assert len(workers) <= 4

    def test_a_stop_begins_nothing_that_still_waits_for_a_thread(self):
        begun, gone, numbers = threading.Event(), threading.Event(), []

        def work(number):
            numbers.append(number)
            begun.set()
            gone.wait(SOON)

        scheduler = Scheduler(max_threads=1)
        jobs = [scheduler.schedule(work, args=[number], function_name="work") for number in range(5)]
        scheduler.start()
        assert begun.wait(SOON)
        eventually(lambda: [phases(scheduler, job) for job in jobs] == [["dispatching"]] * 5)
        stopping = threading.Thread(target=scheduler.stop)
        stopping.start()
        eventually(lambda: phases(scheduler, jobs[-1]) == ["pending"])
        gone.set()
        stopping.join(SOON)
        assert len(numbers) == 1
        assert sorted(phases(scheduler, job)[0] for job in jobs) == ["completed", *["pending"] * 4]

    @pytest.mark.parametrize("timeout", [-1, "x", float("nan"), True])
    def test_a_stop_with_a_timeout_that_makes_no_sense_stops_nothing(self, scheduler, timeout):
        job = scheduler.schedule(lambda: 1, trigger=NEVER)
        with scheduler:
            with pytest.raises(InvalidSchedule, match="timeout"):
                scheduler.stop(timeout=timeout)
            assert scheduler.run_now(job) == 1

    @pytest.mark.parametrize("job_id", [[], 10**30, "\ud800", None, "", object()])
    def test_a_job_id_that_makes_no_sense_is_refused(self, tmp_path, job_id):
        scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
        for call in (scheduler.pause, scheduler.resume, scheduler.delete, scheduler.runs, scheduler.run_now):
            with pytest.raises(InvalidSchedule, match="job_id"):
                call(job_id)

    def test_a_failure_is_logged_with_what_was_raised(self, scheduler, caplog):
        def burn():
            raise ValueError("the toast")

        job = scheduler.schedule(burn, name="breakfast")
        with scheduler:
            assert ended(scheduler, job) == ["failed"]
        [record] = [one for one in caplog.records if one.name == "noonmark.jobs"]
        assert record.levelname == "ERROR"
        assert record.getMessage().startswith("breakfast: the run of ")
        assert " failed, attempt 1 of 1; `scheduler.explain(" in record.getMessage()
        assert "ValueError: the toast" in record.getMessage()

    def test_arguments_that_the_function_cannot_take_are_refused_at_once(self, scheduler):
        def needs_two(one, two, context):
            return one, two

        scheduler.schedule(needs_two, trigger=NEVER, args=[1], kwargs={"two": 2})
        with pytest.raises(InvalidSchedule, match="missing a required argument: 'two'"):
            scheduler.schedule(needs_two, trigger=NEVER, args=[1])

    def test_a_scheduler_that_was_closed_says_so(self, tmp_path):
        scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
        job = scheduler.schedule(print, trigger=NEVER, function_name="print")
        scheduler.close()
        scheduler.close()
        for call in (scheduler.start, lambda: scheduler.runs(job), lambda: scheduler.create_many([])):
            with pytest.raises(Conflict, match="the scheduler was closed"):
                call()

    @pytest.mark.parametrize("limit", [-1, "a", 1.5, True])
    def test_a_limit_is_a_number_of_rows(self, scheduler, limit):
        job = scheduler.schedule(print, trigger=NEVER)
        with pytest.raises(InvalidSchedule, match="must be an integer from 0 on, or None for all"):
            scheduler.occurrences(job, limit=limit)

    def test_a_thread_that_had_to_be_given_up_is_reported(self):
        collected, gone = [], threading.Event()

        class Sink:
            def report(self, happenings):
                collected.extend(happenings)

        scheduler = Scheduler(sink=Sink())
        job = scheduler.schedule(lambda: gone.wait(SOON), timeout=0.05)
        with scheduler:
            assert ended(scheduler, job) == ["timed_out"]
            gone.set()
        [abandoned] = [one for one in collected if isinstance(one, Abandoned)]
        assert (abandoned.occurrence.schedule_id, abandoned.threads) == (job, 1)

    def test_an_exit_in_a_function_ends_nothing_else(self, scheduler):
        def leave():
            raise SystemExit(3)

        async def leave_later():
            raise KeyboardInterrupt

        ran = threading.Event()
        with scheduler:
            jobs = [scheduler.schedule(leave), scheduler.schedule(leave_later)]
            assert [ended(scheduler, job) for job in jobs] == [["failed"], ["failed"]]
            scheduler.schedule(ran.set)
            assert ran.wait(SOON)

    def test_a_sink_gets_all_driver_events(self):
        class Sink:
            def __init__(self):
                self.told = []

            def report(self, happenings):
                self.told += happenings

        sink = Sink()
        scheduler = Scheduler(sink=sink)
        job = scheduler.schedule(nothing)
        with scheduler:
            ended(scheduler, job)
        kinds = [type(one).__name__ for one in sink.told]
        assert (kinds[0], kinds[-1]) == ("NodeStarted", "NodeStopped")
        assert [str(one.phase) for one in sink.told if isinstance(one, Settled)] == ["completed"]


class TestStartAndStop:
    def test_every_method_works_before_start_and_after_stop(self, scheduler):
        job = scheduler.schedule(lambda: 5, trigger=NEVER)
        for _ in range(2):
            scheduler.pause(job)
            scheduler.resume(job)
            assert scheduler.run_now(job) == 5
            assert scheduler.occurrences(job)
            assert scheduler.runs(job)
            scheduler.start()
            scheduler.stop()
        scheduler.delete(job)

    def test_start_and_stop_may_be_called_twice(self, scheduler):
        scheduler.stop()
        scheduler.start()
        runner = scheduler._runners.current
        scheduler.start()
        assert scheduler._runners.current is runner
        scheduler.stop()
        scheduler.stop()
        runner._thread.join(SOON)  # it says that it has ended a moment before it has
        assert not runner._thread.is_alive()

    def test_it_can_be_started_again(self, scheduler):
        for _ in range(3):
            ran = threading.Event()
            with scheduler:
                scheduler.schedule(ran.set)
                assert ran.wait(SOON)

    def test_stopping_waits_for_what_runs(self, scheduler):
        entered, gate = threading.Event(), threading.Event()

        def work():
            entered.set()
            gate.wait(SOON)
            return "done"

        job = scheduler.schedule(work)
        scheduler.start()
        assert entered.wait(SOON)
        stopper = threading.Thread(target=scheduler.stop)
        stopper.start()
        gate.set()
        stopper.join(SOON)
        assert phases(scheduler, job) == ["completed"]

    def test_what_has_not_ended_is_handed_back_and_runs_again(self, scheduler):
        entered, gate = threading.Semaphore(0), threading.Event()

        def work(context):
            entered.release()
            gate.wait(SOON)

        job = scheduler.schedule(work)
        scheduler.start()
        assert entered.acquire(timeout=SOON)
        scheduler.stop(timeout=0.01)
        assert phases(scheduler, job) == ["pending"]
        assert [str(run.outcome) for run in scheduler.runs(job)] == ["lease_lost"]
        gate.set()
        scheduler.start()
        assert entered.acquire(timeout=SOON)
        assert ended(scheduler, job) == ["completed"]
        [occurrence] = scheduler.occurrences(job)
        assert occurrence.attempt == 1

    def test_at_most_once_is_not_run_again(self, scheduler):
        entered, gate = threading.Event(), threading.Event()

        def work():
            entered.set()
            gate.wait(SOON)

        job = scheduler.schedule(work, delivery="at_most_once")
        scheduler.start()
        assert entered.wait(SOON)
        scheduler.stop(wait=False)
        gate.set()
        [occurrence] = scheduler.occurrences(job)
        assert (str(occurrence.phase), str(occurrence.reason)) == ("delivery_failed", "outcome_unknown")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_function_may_stop_the_scheduler_that_runs_it(self, scheduler, is_async):
        stopped = threading.Event()

        def work():
            scheduler.stop()
            stopped.set()

        async def work_later():
            work()

        job = scheduler.schedule(work_later if is_async else work)
        scheduler.start()
        thread = scheduler._runners.current._thread
        assert stopped.wait(SOON)
        thread.join(SOON)
        assert not thread.is_alive()
        assert phases(scheduler, job) == ["completed"]

    def test_an_async_function_that_will_not_end_does_not_hold_up_stop(self, scheduler):
        entered = threading.Event()

        async def stubborn():
            tries = 0
            while tries < 3:
                try:
                    entered.set()
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    tries += 1

        scheduler.schedule(stubborn)
        scheduler.start()
        assert entered.wait(SOON)
        scheduler.stop(wait=False)

    def test_a_clock_of_its_own_cannot_be_started(self):
        with pytest.raises(Conflict, match="ManualDriver"):
            Scheduler(clock=FakeClock(datetime(2030, 1, 1, tzinfo=UTC))).start()


class TestPausing:
    def test_nothing_starts_until_it_is_resumed(self, scheduler):
        ran = threading.Event()
        job = scheduler.schedule(ran.set, trigger=IntervalTrigger(0.05))
        scheduler.pause(job)
        scheduler.pause(job)
        assert phases(scheduler, job) == []
        with scheduler:
            other = scheduler.schedule(nothing, trigger=IntervalTrigger(0.05), max_runs=3)
            ended(scheduler, other, 3)
            assert not ran.is_set()
            scheduler.resume(job)
            scheduler.resume(job)
            assert ran.wait(SOON)
        skipped = [one for one in scheduler.occurrences(job) if str(one.reason) == "paused"]
        assert len(skipped) == 1
        assert skipped[0].missed_count >= 1
        assert skipped[0].missed_from <= skipped[0].missed_to

    def test_a_paused_schedule_can_be_run_by_hand(self, scheduler):
        job = scheduler.schedule(lambda: 5, trigger=NEVER)
        scheduler.pause(job)
        assert scheduler.run_now(job) == 5


class TestReading:
    def test_newest_first_all_unless_there_is_a_limit(self, scheduler):
        job = scheduler.schedule(lambda: 5, trigger=NEVER)
        for _ in range(3):
            scheduler.run_now(job)
        occurrences, runs = scheduler.occurrences(job), scheduler.runs(job)
        assert [one.nominal_at for one in occurrences] == sorted((one.nominal_at for one in occurrences), reverse=True)
        assert [run.started_at for run in runs] == sorted((run.started_at for run in runs), reverse=True)
        assert len(runs) == 3
        assert scheduler.occurrences(job, limit=2) == occurrences[:2]
        assert scheduler.runs(job, limit=1) == runs[:1]

    def test_an_occurrence_has_what_is_promised(self, scheduler):
        job = scheduler.schedule(nothing, trigger=NEVER)
        [occurrence] = scheduler.occurrences(job)
        assert occurrence.id.startswith("occ_")
        assert (occurrence.schedule_id, str(occurrence.phase), occurrence.origin, occurrence.attempt) == (
            job,
            "pending",
            "trigger",
            0,
        )
        assert occurrence.nominal_at == occurrence.due_at
        assert (occurrence.reason, occurrence.missed_count, occurrence.missed_from, occurrence.missed_to) == (
            None,
            0,
            None,
            None,
        )

    def test_a_run_has_what_is_promised(self, scheduler):
        job = scheduler.schedule(lambda: {"rows": 3}, trigger=NEVER)
        scheduler.run_now(job)
        [run] = scheduler.runs(job)
        assert run.occurrence_id in {one.id for one in scheduler.occurrences(job)}
        assert (run.attempt, str(run.outcome), run.result, run.error) == (1, "completed", {"rows": 3}, None)
        assert run.id
        assert run.node == scheduler._runtime.node

    @pytest.mark.parametrize(
        "method", ["pause", "resume", "delete", "run_now", "occurrences", "runs", "update", "preview"]
    )
    def test_an_unknown_job_is_not_found(self, scheduler, method):
        with pytest.raises(NotFound, match="unknown schedule 'job_nobody'"):
            getattr(scheduler, method)("job_nobody")


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "field"),
        [
            ({"lease": 0}, "lease"),
            ({"lease": "15"}, "lease"),
            ({"lease": float("nan")}, "lease"),
            ({"keep_days": -1}, "keep_days"),
            ({"keep_days": None}, "keep_days"),
            ({"keep_occurrences": 0}, "keep_occurrences"),
            ({"keep_occurrences": 1.5}, "keep_occurrences"),
            ({"max_threads": 0}, "max_threads"),
            ({"max_threads": True}, "max_threads"),
            ({"store": "sqlite://"}, "store"),
            ({"store": "sqlite:///"}, "store"),
            ({"store": "mysql://localhost"}, "store"),
            ({"store": None}, "store"),
        ],
    )
    def test_bad_ones_are_refused(self, settings, field):
        with pytest.raises(InvalidSchedule) as refused:
            Scheduler(**settings)
        assert refused.value.field == field

    def test_as_many_threads_as_allowed(self):
        scheduler = Scheduler(max_threads=1)
        entered, gate = threading.Event(), threading.Event()

        def first():
            entered.set()
            gate.wait(SOON)
            return second_ran.is_set()

        second_ran = threading.Event()
        with scheduler:
            job = scheduler.schedule(first)
            assert entered.wait(SOON)
            other = scheduler.schedule(second_ran.set)
            eventually(lambda: phases(scheduler, other) == ["dispatching"])
            gate.set()
            ended(scheduler, job)
            ended(scheduler, other)
        assert scheduler.runs(job)[0].result is False

    def test_history_is_cut_down(self):
        scheduler = Scheduler(keep_occurrences=2)
        job = scheduler.schedule(nothing, trigger=NEVER)
        for _ in range(5):
            scheduler.run_now(job)
        with scheduler:
            eventually(lambda: len(scheduler.runs(job)) == 2)


def test_all_methods_from_many_threads_at_once(scheduler):
    ran = []

    def story(number):
        job = scheduler.schedule(ran.append, name=f"job {number}", args=[number], trigger=NEVER)
        scheduler.run_now(job)
        scheduler.pause(job)
        scheduler.schedule(ran.append, name=f"job {number}", args=[number], trigger=CronTrigger("0 0 2 1 *"))
        scheduler.resume(job)
        scheduler.run_now(job, wait=False)
        ended(scheduler, job, 2)
        scheduler.runs(job)
        scheduler.delete(job)
        return job

    with scheduler:
        jobs = together(8, story)
    assert len(set(jobs)) == 8
    assert sorted(ran) == sorted([*range(8), *range(8)])


class TestManyAtOnce:
    def test_every_one_is_kept_and_runs(self, tmp_path):
        scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
        numbers = []
        scheduler.register_function("count", numbers.append)
        jobs = scheduler.create_many({"func": numbers.append, "args": [number]} for number in range(1_200))
        assert len(set(jobs)) == 1_200
        with scheduler:
            eventually(lambda: len(numbers) >= 1_200)
            assert ended(scheduler, jobs[1_023]) == ["completed"]
        assert sorted(numbers) == list(range(1_200))
        scheduler.close()

    def test_one_that_is_refused_names_its_field(self, scheduler):
        good = {"func": print, "trigger": IntervalTrigger(60)}
        for bad, field in (
            ({"func": print, "timeout": -1}, "declarations[1].timeout"),
            ({"func": print, "name": "mine"}, "declarations[1].name"),
            ({"func": print, "colour": "red"}, "declarations[1].colour"),
            ({"func": print, "retries": 100}, "declarations[1].retries"),
            ({"trigger": IntervalTrigger(60)}, "declarations[1]"),
            (5, "declarations[1]"),
        ):
            with pytest.raises(InvalidSchedule) as refused:
                scheduler.create_many([good, bad])
            assert refused.value.field == field


def test_an_interval_that_starts_now_fires_at_once_however_many_processes_declare_it(by_hand):
    ran = []

    def declare():
        trigger = IntervalTrigger(300, start_at=by_hand.clock.now())
        by_hand.clock.advance(0.001)  # a process reads its clock before the store does
        return by_hand.scheduler.schedule(
            lambda: ran.append("polled"), name="poll", trigger=trigger, function_name="poll"
        )

    workers = {declare() for _ in range(4)}
    assert len(workers) == 1
    by_hand.pass_time(1)
    assert ran == ["polled"]
    declare()
    by_hand.pass_time(200)
    assert ran == ["polled"]
    by_hand.pass_time(100)
    assert ran == ["polled", "polled"]


@pytest.mark.parametrize("change", ["declare", "update"])
def test_an_edit_to_another_interval_that_starts_now_fires_at_once_too(by_hand, change):
    ran = []
    declare = lambda trigger: by_hand.scheduler.schedule(  # noqa: E731
        lambda: ran.append("polled"), name="poll", trigger=trigger, function_name="poll"
    )
    job = declare(IntervalTrigger(300))
    by_hand.pass_time(10)
    trigger = IntervalTrigger(60, start_at=by_hand.clock.now() - timedelta(seconds=5))
    if change == "declare":
        assert declare(trigger) == job
    else:
        by_hand.scheduler.update(job, trigger=trigger)
    by_hand.pass_time(1)
    assert ran == ["polled"]
    by_hand.pass_time(55)
    assert ran == ["polled", "polled"]
