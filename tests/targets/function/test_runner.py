"""The function runner: every kind of callable, and every outcome."""

import asyncio
import functools
import gc
import json
import logging
import threading
from datetime import UTC

import pytest

from noonmark.core.ids import event
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets import CommandTarget
from noonmark.ports.target import Assignment
from noonmark.targets.function.call import prepare_call
from noonmark.targets.function.registry import FunctionRegistry
from noonmark.targets.function.runner import FunctionRunner
from noonmark.targets.serialization import MAX_RESULT
from tests.targets.assignments import SOON, function_assignment, now
from tests.targets.function.harness import run_scenario


def add(one, two=0):
    return one + two


async def add_later(one, two=0):
    await asyncio.sleep(0)  # noqa: TID251 - it only lets others go on
    return one + two


class Adder:
    def __init__(self, one):
        self.one = one
        self.func = None  # not what functools.partial has under this name

    def add(self, two):
        return self.one + two

    async def add_later(self, two):
        return self.one + two

    @classmethod
    def make(cls, two):
        return cls(1).add(two)

    @staticmethod
    def plain(two):
        return 1 + two

    def __call__(self, two):
        return self.one + two


class AsyncAdder(Adder):
    async def __call__(self, two):
        return self.one + two


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


class TestCallables:
    @pytest.mark.parametrize(
        ("function", "args", "kwargs"),
        [
            (add, (1,), {"two": 2}),
            (add_later, (1,), {"two": 2}),
            (functools.partial(add, 1), (2,), {}),
            (functools.partial(add_later, 1), (2,), {}),
            (functools.partial(functools.partial(add_later), 1), (), {"two": 2}),
            (Adder(1).add, (2,), {}),
            (Adder(1).add_later, (2,), {}),
            (Adder.make, (2,), {}),
            (Adder.plain, (2,), {}),
            (Adder(1), (2,), {}),
            (AsyncAdder(1), (2,), {}),
            (lambda one, two: one + two, (1, 2), {}),
            (lambda one: add_later(one, 2), (1,), {}),
            (decorated(add_later), (1, 2), {}),
            (max, (1, 3), {}),
        ],
    )
    def test_every_kind_of_callable_is_called(self, function, args, kwargs):
        async def scenario(harness):
            return await harness.call(function, args=args, kwargs=kwargs)

        delivered = run_scenario(scenario)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, 3)

    def test_an_async_function_that_another_thread_delivers_runs_on_the_loop(self):
        async def where():
            return threading.get_ident()

        async def scenario(harness):
            # Then the loop refuses whatever other threads may not do, and does not merely start it late.
            asyncio.get_running_loop().set_debug(True)
            harness.functions.register("work", where)
            assignment = function_assignment()
            await asyncio.to_thread(harness.runner.deliver, [assignment])
            assert (await harness.end_of(assignment)).result == threading.get_ident()

        run_scenario(scenario)

    def test_sync_functions_run_in_threads_and_async_ones_on_the_loop(self):
        async def where():
            return threading.current_thread().name

        async def scenario(harness):
            return (
                (await harness.call(lambda: threading.current_thread().name)).result,
                (await harness.call(where)).result,
            )

        assert run_scenario(scenario) == ("noonmark-worker", threading.current_thread().name)

    @pytest.mark.parametrize("function", [add, add_later])
    def test_wrong_arguments_are_a_failure(self, function):
        async def scenario(harness):
            return await harness.call(function, kwargs={"three": 3})

        delivered = run_scenario(scenario)
        assert delivered.outcome is Outcome.FAILED
        assert "TypeError" in delivered.error

    def test_arguments_are_copied_for_each_run(self):
        async def scenario(harness):
            def grow(items, options):
                items.append(len(items))
                options["seen"] = True
                return items

            harness.functions.register("work", grow)
            args, kwargs = ([1],), {"options": {}}
            first, second = (
                function_assignment("1", args=args, kwargs=kwargs),
                function_assignment("2", args=args, kwargs=kwargs),
            )
            harness.runner.deliver([first])
            assert (await harness.end_of(first)).result == [1, 1]
            harness.runner.deliver([second])
            assert (await harness.end_of(second)).result == [1, 1]
            assert (args, kwargs) == (([1],), {"options": {}})

        run_scenario(scenario)


class TestTime:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_nothing_starts_early(self, is_async):
        def stamp():
            return now()

        async def stamp_later():
            return now()

        async def scenario(harness):
            assignment = await harness.deliver(stamp_later if is_async else stamp, after=30_000)
            delivered = await harness.end_of(assignment)
            return assignment, delivered

        assignment, delivered = run_scenario(scenario)
        assert delivered.result >= assignment.begins
        assert delivered.started >= assignment.begins
        assert delivered.ended >= delivered.started


class TestContext:
    def test_earlier_stop_request_is_set_in_a_new_context(self):
        functions, one = FunctionRegistry(), function_assignment()
        functions.register("work", lambda context: context.cancelled.is_set())
        one.stop(Reason.CANCELLED)
        function, args, kwargs = prepare_call(functions, one, lambda _: print)
        assert function.call(*args, **kwargs) is True

    @pytest.mark.parametrize("is_async", [False, True])
    def test_context_is_complete(self, is_async, caplog):
        seen = []

        def look(context):
            seen.append(context)
            context.logger.warning("hello from a job")

        async def look_later(context):
            look(context)

        async def scenario(harness):
            assignment = await harness.deliver(look_later if is_async else look, payload={"a": [1]})
            await harness.end_of(assignment)
            return assignment.occurrence

        result = run_scenario(scenario)
        [context] = seen
        assert context.occurrence_id == result.id
        assert context.schedule_id == result.schedule_id
        assert context.nominal_at == from_micros(result.nominal)
        assert context.due_at == from_micros(result.due)
        assert context.nominal_at.tzinfo is UTC
        assert context.attempt == 1
        assert context.payload == {"a": [1]}
        assert context.payload is not result.payload
        assert context.event is None
        assert isinstance(context.cancelled, threading.Event)
        assert not context.cancelled.is_set()
        assert isinstance(context.logger, logging.LoggerAdapter)
        [record] = [record for record in caplog.records if record.message == "hello from a job"]
        assert (record.name, record.occurrence_id, record.schedule_id) == (
            "noonmark.jobs",
            result.id,
            result.schedule_id,
        )

    @pytest.mark.parametrize(
        ("origin", "brought", "seen"),
        [
            (None, None, ({"of": "the schedule"}, None)),
            (None, {"of": "the call"}, ({"of": "the call"}, None)),
            (
                event("e1"),
                {"event_type": "a", "payload": {"of": 1}},
                ({"of": 1}, {"event_type": "a", "payload": {"of": 1}}),
            ),
        ],
        ids=["of the schedule", "of the call", "of the event"],
    )
    def test_payload_of_the_caller_wins(self, origin, brought, seen):
        async def scenario(harness):
            given = {"payload": brought, "origin": origin, "given": {"of": "the schedule"}}
            assert (await harness.call(lambda context: [context.payload, context.event], **given)).result == list(seen)

        run_scenario(scenario)

    def test_declared_context_argument_wins(self):
        async def scenario(harness):
            assert (await harness.call(lambda context: context, kwargs={"context": 7})).result == 7

        run_scenario(scenario)

    def test_context_is_passed_only_on_request(self):
        async def scenario(harness):
            assert (await harness.call(lambda **others: sorted(others), kwargs={"a": 1})).result == ["a"]

        run_scenario(scenario)


class TestErrors:
    @pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_errors_are_recorded_and_stop_nothing(self, kind, is_async):
        def fail():
            raise kind("on purpose")

        async def fail_later():
            raise kind("on purpose")

        async def scenario(harness):
            assignment = await harness.deliver(fail_later if is_async else fail)
            delivered = await harness.end_of(assignment)
            again = await harness.call(add, args=(1,))
            return assignment, delivered, again

        assignment, delivered, again = run_scenario(scenario)
        assert delivered.outcome is Outcome.FAILED
        assert kind.__name__ in delivered.error
        assert type(assignment.error) is kind
        assert again.result == 1

    @pytest.mark.parametrize("is_async", [False, True])
    def test_traceback_starts_in_the_function(self, is_async):
        def fail():
            raise ValueError("on purpose")

        async def fail_later():
            fail()

        async def scenario(harness):
            error = (await harness.call(fail_later if is_async else fail)).error
            assert error.startswith("Traceback (most recent call last):")
            assert error.count('File "') == 1 + is_async
            assert "runner.py" not in error.replace("test_runner.py", "")

        run_scenario(scenario)

    def test_end_of_a_long_traceback_is_stored(self):
        async def scenario(harness):
            def fail():
                raise ValueError("x" * 2 * MAX_RESULT + " the end")

            error = (await harness.call(fail)).error
            assert len(error) <= MAX_RESULT
            assert error.rstrip().endswith("the end")

        run_scenario(scenario)

    def test_every_error_can_be_stored(self):
        async def scenario(harness):
            def fail():
                raise ValueError("a file named \udcff, and a \0")

            error = (await harness.call(fail)).error
            assert error.encode()
            assert "\0" not in error
            assert "\\udcff" in error

        run_scenario(scenario)

    def test_missing_function_is_undeliverable(self):
        async def scenario(harness):
            assignment = function_assignment(function="nobody")
            harness.runner.deliver([assignment])
            delivered = await harness.end_of(assignment)
            assert delivered.outcome is Outcome.DELIVERY_FAILED
            assert delivered.error == "no function is registered as 'nobody' in this process"

        run_scenario(scenario)

    def test_other_target_kind_is_undeliverable(self):
        async def scenario(harness):
            assignment = function_assignment()
            object.__setattr__(assignment.schedule.declaration, "target", CommandTarget(argv=("ls",)))
            harness.runner.deliver([assignment])
            assert (await harness.end_of(assignment)).outcome is Outcome.DELIVERY_FAILED

        run_scenario(scenario)


class Unprintable(dict):
    def items(self):
        raise OSError("no")


class TestResults:
    @pytest.mark.parametrize(
        ("result", "kept"),
        [
            (None, None),
            (True, True),
            ({"a": [1, 2.5, None, "ä"]}, {"a": [1, 2.5, None, "ä"]}),
            ((1, 2), [1, 2]),
            ({1: "one"}, {"1": "one"}),
        ],
    )
    def test_json_results_are_stored(self, result, kept):
        delivered = self.returned(result)
        assert (delivered.outcome, delivered.result, delivered.error) == (Outcome.COMPLETED, kept, None)

    @pytest.mark.parametrize(
        ("result", "why"),
        [
            (object(), "not JSON"),
            ({1, 2}, "not JSON"),
            (float("nan"), "not JSON"),
            (b"bytes", "not JSON"),
            (Unprintable(a=1), "not JSON"),
            ("x" * MAX_RESULT, "65,538 bytes"),
            (2**64, "beyond 64 bits"),
            ("\ud800", "surrogate"),
            ("\0", "NUL"),
            (functools.reduce(lambda inner, _: [inner], range(70), 1), "64 levels"),
        ],
    )
    def test_other_results_are_not_stored(self, result, why):
        delivered = self.returned(result)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, None)
        assert delivered.error.startswith("the result was not stored: it")
        assert why in delivered.error
        assert json.dumps(delivered.error)

    def returned(self, result):
        async def scenario(harness):
            return await harness.call(lambda: result)

        return run_scenario(scenario)


class TestStopping:
    def scenario(self, function, reason=Reason.CANCELLED):
        """Deliver, request a stop after the start, and return the outcome."""

        async def told(harness):
            begun = asyncio.Event()
            events = asyncio.get_running_loop()
            self.begun = lambda: events.call_soon_threadsafe(begun.set)
            self.may_end = threading.Event()
            assignment = await harness.deliver(function)
            async with asyncio.timeout(SOON):
                await begun.wait()
            assignment.stop(reason)
            self.may_end.set()
            return await harness.end_of(assignment)

        return run_scenario(told)

    @pytest.mark.parametrize("looks", ["is_set", "wait"])
    def test_function_that_saw_the_signal_is_cancelled(self, looks):
        def work(context):
            self.begun()
            if looks == "wait":
                assert context.cancelled.wait(SOON)
            else:
                self.may_end.wait(SOON)
                assert context.cancelled.is_set()
            return "half"

        delivered = self.scenario(work)
        assert (delivered.outcome, delivered.reason, delivered.result) == (Outcome.CANCELLED, Reason.CANCELLED, None)

    def test_function_that_ignored_the_signal_completes(self):
        def work(context):
            assert not context.cancelled.is_set()
            self.begun()
            self.may_end.wait(SOON)
            return "all"

        delivered = self.scenario(work)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, "all")

    def test_function_without_context_completes(self):
        def work():
            self.begun()
            self.may_end.wait(SOON)
            return "all"

        assert self.scenario(work).outcome is Outcome.COMPLETED

    def test_raising_after_a_stop_request_is_a_cancellation(self):
        def work(context):
            self.begun()
            context.cancelled.wait(SOON)
            raise InterruptedError("as you wish")

        delivered = self.scenario(work, Reason.REPLACED)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert "as you wish" in delivered.error

    def test_async_function_is_cancelled(self):
        async def work():
            self.begun()
            await asyncio.Event().wait()

        delivered = self.scenario(work)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.CANCELLED)

    def test_async_function_that_returns_after_cancellation_is_cancelled(self):
        async def work(context):
            self.begun()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return context.cancelled.is_set()

        delivered = self.scenario(work)
        assert (delivered.outcome, delivered.result) == (Outcome.CANCELLED, None)

    def test_lost_lease_is_recorded(self):
        def work(context):
            self.begun()
            context.cancelled.wait(SOON)

        assert self.scenario(work, Reason.LEASE_LOST).outcome is Outcome.LEASE_LOST

    @pytest.mark.parametrize("is_async", [False, True])
    def test_stopped_before_its_start_never_starts(self, is_async):
        called = []

        async def later():
            called.append(True)

        async def scenario(harness):
            function = later if is_async else lambda: called.append(True)
            harness.clock.halt()
            assignment = await harness.deliver(function, after=30_000)
            assignment.stop(Reason.REPLACED)
            harness.clock.go_on()
            return await harness.end_of(assignment)

        delivered = run_scenario(scenario)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert called == []


class TestDeadlines:
    def test_timed_out_thread_is_signalled_and_abandoned(self):
        async def scenario(harness):
            begun, seen, gone = threading.Event(), threading.Event(), threading.Event()

            def work(context):
                begun.set()
                context.cancelled.wait(SOON)
                seen.set()
                gone.wait(SOON)

            harness.clock.halt()
            assignment = await harness.deliver(work, after=-60 * SECOND, timeout=30_000)
            assert await asyncio.to_thread(begun.wait, SOON)
            harness.clock.go_on()
            delivered = await harness.end_of(assignment)
            assert delivered.outcome is Outcome.TIMED_OUT
            assert delivered.ended - delivered.started >= 30_000
            assert harness.runner.abandoned == 1
            assert await asyncio.to_thread(seen.wait, SOON)
            gone.set()

        run_scenario(scenario)

    def test_timed_out_async_function_is_cancelled(self):
        async def scenario(harness):
            ended = asyncio.Event()

            async def work():
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            delivered = await harness.call(work, timeout=30_000)
            assert delivered.outcome is Outcome.TIMED_OUT
            async with asyncio.timeout(SOON):
                await ended.wait()
            assert harness.runner.abandoned == 0

        run_scenario(scenario)

    @pytest.mark.parametrize("timeout", [None, 3_600 * SECOND])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_closing_window_cuts_off_running_functions(self, is_async, timeout):
        gone = threading.Event()

        def work():
            gone.wait(SOON)

        async def work_later():
            await asyncio.Event().wait()

        async def scenario(harness):
            window = Window(duration=30_000)
            delivered = await harness.call(work_later if is_async else work, window=window, timeout=timeout)
            gone.set()
            return delivered

        delivered = run_scenario(scenario)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.WINDOW_CLOSED)

    def test_window_without_end_action_cuts_nothing_off(self):
        async def scenario(harness):
            window = Window(duration=1, end_action=EndAction.NONE)
            assert (await harness.call(add, args=(1,), window=window)).outcome is Outcome.COMPLETED

        run_scenario(scenario)


class TestClosing:
    def test_deliver_requires_open(self):
        with pytest.raises(AssertionError):
            FunctionRunner(FunctionRegistry()).deliver([function_assignment()])

    def test_queued_functions_never_start_after_close(self):
        called = []

        async def later():
            called.append(True)

        async def scenario(harness):
            harness.functions.register("sync", lambda: called.append(True))
            harness.functions.register("async", later)
            harness.clock.halt()
            waiting = [function_assignment(name, function=name, after=50_000) for name in ("sync", "async")]
            harness.runner.deliver(waiting)
            harness.runner.close()
            harness.clock.go_on()
            while harness.runner._tasks:
                await asyncio.wait(harness.runner._tasks)
            await asyncio.to_thread(harness.runner._threads._timer.join, SOON)
            assert harness.runner._threads._threads == 0

        run_scenario(scenario)
        assert called == []


def test_async_timeout_with_a_node_clock_behind():
    async def scenario(harness):
        harness.clock.halt()

        async def work():
            await asyncio.Event().wait()

        delivered = await harness.call(work, after=-SECOND, timeout=30_000)
        assert (delivered.outcome, delivered.reason) == (Outcome.TIMED_OUT, None)

    run_scenario(scenario)


@pytest.mark.parametrize("work", [lambda: None, lambda context: context.attempt], ids=["plain", "context"])
def test_what_has_run_is_freed_without_the_collector(work):
    async def scenario(harness):
        for _ in range(3):
            await harness.call(work)
        harness.reported.clear()

    def left():
        return sum(type(one) is Assignment for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        run_scenario(scenario)
        for thread in threading.enumerate():
            if thread.name == "noonmark-worker":
                thread.join(SOON)
        assert left() <= before
    finally:
        gc.enable()
