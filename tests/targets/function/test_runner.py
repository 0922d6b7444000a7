"""The function target: every kind of callable, every way to end, at the right time and in the right place."""

import asyncio
import functools
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
from noonmark.targets.function.call import prepare_call
from noonmark.targets.function.registry import FunctionRegistry
from noonmark.targets.function.runner import FunctionRunner
from noonmark.targets.serialization import MAX_RESULT
from tests.targets.assignments import SOON, assigned, now
from tests.targets.function.harness import play


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
    def test_all_of_them_are_called(self, function, args, kwargs):
        async def story(stage):
            return await stage.call(function, args=args, kwargs=kwargs)

        delivered = play(story)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, 3)

    def test_sync_functions_run_in_threads_and_async_ones_on_the_loop(self):
        async def where():
            return threading.current_thread().name

        async def story(stage):
            return (
                (await stage.call(lambda: threading.current_thread().name)).result,
                (await stage.call(where)).result,
            )

        assert play(story) == ("noonmark-worker", threading.current_thread().name)

    @pytest.mark.parametrize("function", [add, add_later])
    def test_wrong_arguments_are_a_failure(self, function):
        async def story(stage):
            return await stage.call(function, kwargs={"three": 3})

        delivered = play(story)
        assert delivered.outcome is Outcome.FAILED
        assert "TypeError" in delivered.error

    def test_one_run_cannot_change_the_arguments_of_the_next(self):
        async def story(stage):
            def grow(items, options):
                items.append(len(items))
                options["seen"] = True
                return items

            stage.functions.register("work", grow)
            args, kwargs = ([1],), {"options": {}}
            first, second = assigned("1", args=args, kwargs=kwargs), assigned("2", args=args, kwargs=kwargs)
            stage.runner.deliver([first])
            assert (await stage.end_of(first)).result == [1, 1]
            stage.runner.deliver([second])
            assert (await stage.end_of(second)).result == [1, 1]
            assert (args, kwargs) == (([1],), {"options": {}})

        play(story)


class TestTime:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_nothing_begins_before_its_time(self, is_async):
        def stamp():
            return now()

        async def stamp_later():
            return now()

        async def story(stage):
            assignment = await stage.deliver(stamp_later if is_async else stamp, after=30_000)
            delivered = await stage.end_of(assignment)
            return assignment, delivered

        assignment, delivered = play(story)
        assert delivered.result >= assignment.begins
        assert delivered.started >= assignment.begins
        assert delivered.ended >= delivered.started


class TestContext:
    def test_it_tells_a_function_that_it_was_asked_to_stop_before_there_was_a_context(self):
        functions, one = FunctionRegistry(), assigned()
        functions.register("work", lambda context: context.cancelled.is_set())
        one.stop(Reason.CANCELLED)
        function, args, kwargs = prepare_call(functions, one)
        assert function.call(*args, **kwargs) is True

    @pytest.mark.parametrize("is_async", [False, True])
    def test_it_has_everything_that_is_promised(self, is_async, caplog):
        seen = []

        def look(context):
            seen.append(context)
            context.logger.warning("hello from a job")

        async def look_later(context):
            look(context)

        async def story(stage):
            assignment = await stage.deliver(look_later if is_async else look, payload={"a": [1]})
            await stage.end_of(assignment)
            return assignment.occurrence

        one = play(story)
        [context] = seen
        assert context.occurrence_id == one.id
        assert context.schedule_id == one.schedule_id
        assert context.nominal_at == from_micros(one.nominal)
        assert context.due_at == from_micros(one.due)
        assert context.nominal_at.tzinfo is UTC
        assert context.attempt == 1
        assert context.payload == {"a": [1]}
        assert context.payload is not one.payload
        assert context.event is None
        assert isinstance(context.cancelled, threading.Event)
        assert not context.cancelled.is_set()
        assert isinstance(context.logger, logging.LoggerAdapter)
        [record] = [record for record in caplog.records if record.message == "hello from a job"]
        assert (record.name, record.occurrence_id, record.schedule_id) == ("noonmark.jobs", one.id, one.schedule_id)

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
    def test_the_payload_is_the_nearest_one(self, origin, brought, seen):
        async def story(stage):
            given = {"payload": brought, "origin": origin, "given": {"of": "the schedule"}}
            assert (await stage.call(lambda context: [context.payload, context.event], **given)).result == list(seen)

        play(story)

    def test_an_argument_of_that_name_is_the_callers(self):
        async def story(stage):
            assert (await stage.call(lambda context: context, kwargs={"context": 7})).result == 7

        play(story)

    def test_other_functions_are_called_without(self):
        async def story(stage):
            assert (await stage.call(lambda **others: sorted(others), kwargs={"a": 1})).result == ["a"]

        play(story)


class TestErrors:
    @pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_whatever_is_raised_is_recorded_and_stops_nothing(self, kind, is_async):
        def fail():
            raise kind("on purpose")

        async def fail_later():
            raise kind("on purpose")

        async def story(stage):
            assignment = await stage.deliver(fail_later if is_async else fail)
            delivered = await stage.end_of(assignment)
            again = await stage.call(add, args=(1,))
            return assignment, delivered, again

        assignment, delivered, again = play(story)
        assert delivered.outcome is Outcome.FAILED
        assert kind.__name__ in delivered.error
        assert type(assignment.error) is kind
        assert again.result == 1

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_traceback_begins_where_the_function_does(self, is_async):
        def fail():
            raise ValueError("on purpose")

        async def fail_later():
            fail()

        async def story(stage):
            error = (await stage.call(fail_later if is_async else fail)).error
            assert error.startswith("Traceback (most recent call last):")
            assert error.count('File "') == 1 + is_async
            assert "runner.py" not in error.replace("test_runner.py", "")

        play(story)

    def test_a_long_traceback_keeps_its_end(self):
        async def story(stage):
            def fail():
                raise ValueError("x" * 2 * MAX_RESULT + " the end")

            error = (await stage.call(fail)).error
            assert len(error) <= MAX_RESULT
            assert error.rstrip().endswith("the end")

        play(story)

    def test_the_text_of_an_error_can_always_be_stored(self):
        async def story(stage):
            def fail():
                raise ValueError("a file named \udcff, and a \0")

            error = (await stage.call(fail)).error
            assert error.encode()
            assert "\0" not in error
            assert "\\udcff" in error

        play(story)

    def test_a_function_that_is_gone_is_a_delivery_that_failed(self):
        async def story(stage):
            assignment = assigned(function="nobody")
            stage.runner.deliver([assignment])
            delivered = await stage.end_of(assignment)
            assert delivered.outcome is Outcome.DELIVERY_FAILED
            assert delivered.error == "no function is registered as 'nobody' in this process"

        play(story)

    def test_another_kind_of_target_is_a_delivery_that_failed(self):
        async def story(stage):
            assignment = assigned()
            object.__setattr__(assignment.schedule.declaration, "target", CommandTarget(argv=("ls",)))
            stage.runner.deliver([assignment])
            assert (await stage.end_of(assignment)).outcome is Outcome.DELIVERY_FAILED

        play(story)


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
    def test_json_is_kept(self, result, kept):
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
    def test_what_is_not_is_no_failure_but_not_kept(self, result, why):
        delivered = self.returned(result)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, None)
        assert delivered.error.startswith("the result was not stored: it")
        assert why in delivered.error
        assert json.dumps(delivered.error)

    def returned(self, result):
        async def story(stage):
            return await stage.call(lambda: result)

        return play(story)


class TestStopping:
    def story(self, function, reason=Reason.CANCELLED):
        """Deliver, ask it to stop when it has begun, and give how it ended."""

        async def told(stage):
            begun = asyncio.Event()
            events = asyncio.get_running_loop()
            self.begun = lambda: events.call_soon_threadsafe(begun.set)
            self.may_end = threading.Event()
            assignment = await stage.deliver(function)
            async with asyncio.timeout(SOON):
                await begun.wait()
            assignment.stop(reason)
            self.may_end.set()
            return await stage.end_of(assignment)

        return play(told)

    @pytest.mark.parametrize("looks", ["is_set", "wait"])
    def test_a_function_that_saw_the_signal_was_cancelled(self, looks):
        def work(context):
            self.begun()
            if looks == "wait":
                assert context.cancelled.wait(SOON)
            else:
                self.may_end.wait(SOON)
                assert context.cancelled.is_set()
            return "half"

        delivered = self.story(work)
        assert (delivered.outcome, delivered.reason, delivered.result) == (Outcome.CANCELLED, Reason.CANCELLED, None)

    def test_a_function_that_did_not_look_has_completed(self):
        def work(context):
            assert not context.cancelled.is_set()
            self.begun()
            self.may_end.wait(SOON)
            return "all"

        delivered = self.story(work)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, "all")

    def test_a_function_that_cannot_look_has_completed(self):
        def work():
            self.begun()
            self.may_end.wait(SOON)
            return "all"

        assert self.story(work).outcome is Outcome.COMPLETED

    def test_raising_is_an_answer_too(self):
        def work(context):
            self.begun()
            context.cancelled.wait(SOON)
            raise InterruptedError("as you wish")

        delivered = self.story(work, Reason.REPLACED)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert "as you wish" in delivered.error

    def test_an_async_function_is_cancelled(self):
        async def work():
            self.begun()
            await asyncio.Event().wait()

        delivered = self.story(work)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.CANCELLED)

    def test_an_async_function_that_returns_on_being_cancelled_was_cancelled_too(self):
        async def work(context):
            self.begun()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return context.cancelled.is_set()

        delivered = self.story(work)
        assert (delivered.outcome, delivered.result) == (Outcome.CANCELLED, None)

    def test_what_was_lost_is_no_attempt(self):
        def work(context):
            self.begun()
            context.cancelled.wait(SOON)

        assert self.story(work, Reason.LEASE_LOST).outcome is Outcome.LEASE_LOST

    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_is_stopped_before_its_time_never_begins(self, is_async):
        called = []

        async def later():
            called.append(True)

        async def story(stage):
            function = later if is_async else lambda: called.append(True)
            stage.clock.halt()
            assignment = await stage.deliver(function, after=30_000)
            assignment.stop(Reason.REPLACED)
            stage.clock.go_on()
            return await stage.end_of(assignment)

        delivered = play(story)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert called == []


class TestDeadlines:
    def test_a_thread_that_times_out_is_told_and_abandoned(self):
        async def story(stage):
            begun, seen, gone = threading.Event(), threading.Event(), threading.Event()

            def work(context):
                begun.set()
                context.cancelled.wait(SOON)
                seen.set()
                gone.wait(SOON)

            stage.clock.halt()
            assignment = await stage.deliver(work, after=-60 * SECOND, timeout=30_000)
            assert await asyncio.to_thread(begun.wait, SOON)
            stage.clock.go_on()
            delivered = await stage.end_of(assignment)
            assert delivered.outcome is Outcome.TIMED_OUT
            assert delivered.ended - delivered.started >= 30_000
            assert stage.runner.abandoned == 1
            assert await asyncio.to_thread(seen.wait, SOON)
            gone.set()

        play(story)

    def test_an_async_function_that_times_out_is_cancelled(self):
        async def story(stage):
            ended = asyncio.Event()

            async def work():
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            delivered = await stage.call(work, timeout=30_000)
            assert delivered.outcome is Outcome.TIMED_OUT
            async with asyncio.timeout(SOON):
                await ended.wait()
            assert stage.runner.abandoned == 0

        play(story)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_window_that_closes_cuts_off_what_runs(self, is_async):
        gone = threading.Event()

        def work():
            gone.wait(SOON)

        async def work_later():
            await asyncio.Event().wait()

        async def story(stage):
            window = Window(duration=30_000)
            delivered = await stage.call(work_later if is_async else work, window=window, timeout=3_600 * SECOND)
            gone.set()
            return delivered

        delivered = play(story)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.WINDOW_CLOSED)

    def test_a_window_with_no_end_action_cuts_nothing_off(self):
        async def story(stage):
            window = Window(duration=1, end_action=EndAction.NONE)
            assert (await stage.call(add, args=(1,), window=window)).outcome is Outcome.COMPLETED

        play(story)


class TestClosing:
    def test_it_must_be_open_to_deliver(self):
        with pytest.raises(AssertionError):
            FunctionRunner(FunctionRegistry()).deliver([assigned()])

    def test_what_waits_for_its_time_never_begins(self):
        called = []

        async def later():
            called.append(True)

        async def story(stage):
            stage.functions.register("sync", lambda: called.append(True))
            stage.functions.register("async", later)
            stage.clock.halt()
            waiting = [assigned(name, function=name, after=50_000) for name in ("sync", "async")]
            stage.runner.deliver(waiting)
            stage.runner.close()
            stage.clock.go_on()
            while stage.runner._tasks:
                await asyncio.wait(stage.runner._tasks)
            await asyncio.to_thread(stage.runner._threads._timer.join, SOON)
            assert stage.runner._threads._threads == 0

        play(story)
        assert called == []


def test_an_async_one_has_timed_out_even_where_the_clock_of_the_node_is_a_little_behind():
    async def story(stage):
        stage.clock.halt()

        async def work():
            await asyncio.Event().wait()

        delivered = await stage.call(work, after=-SECOND, timeout=30_000)
        assert (delivered.outcome, delivered.reason) == (Outcome.TIMED_OUT, None)

    play(story)
