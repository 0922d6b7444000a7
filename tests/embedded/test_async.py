"""The scheduler for a program with an event loop: the same methods, awaited, without blocking the loop."""

import asyncio
import contextlib
import inspect
import sqlite3
import threading
from datetime import timedelta

import pytest

from noonmark import AsyncScheduler, Conflict, IntervalTrigger, JobStatus, NotFound, Scheduler
from noonmark.embedded.documents import FurtherOptions, Options
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START
from tests.embedded.waiting import FINAL, NEVER, SOON


def nothing():
    pass


def answer():
    return 42


async def later(value=None):
    await soon(0.001)
    return value


async def soon(seconds):
    """Let time pass on the loop."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def on_loop(test):
    """Run a test on an event loop of its own, with a limit; whatever the loop complains about fails it."""

    def run(self, url, **fixtures):
        complaints = []

        async def main():
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            scheduler = AsyncScheduler(url, lease=600)
            try:
                await asyncio.wait_for(test(self, scheduler, **fixtures), 2 * SOON)
            finally:
                await scheduler.stop(wait=False)
                await scheduler.close()

        asyncio.run(main())
        assert complaints == []

    wanted = [one for name, one in inspect.signature(test).parameters.items() if name not in {"self", "scheduler"}]
    of_self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    url = inspect.Parameter("url", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([of_self, url, *wanted])
    return run


async def keep(scheduler, func, **options):
    return await scheduler.schedule(func, **{"function_name": repr(func), **options})


async def eventually(is_so):
    for _ in range(int(SOON / 0.005)):
        if found := await is_so():
            return found
        await soon(0.005)
    raise AssertionError("it did not happen")


async def ended(scheduler, job_id, count=1):
    async def look():
        done = [str(one.phase) for one in await scheduler.occurrences(job_id) if str(one.phase) in FINAL]
        return len(done) >= count and done

    return await eventually(look)


NAMES = sorted(name for name in vars(Scheduler) if not name.startswith("_"))


DECORATORS = {"cron", "every", "once", "daily", "on_event", "workflow", "agent_tool"}


class TestTheSameMethods:
    def test_there_is_each_of_them(self):
        ours = {name for name in dir(AsyncScheduler) if not name.startswith("_")}
        theirs = {name for name in dir(Scheduler) if not name.startswith("_")}
        assert theirs == ours

    @pytest.mark.parametrize("name", NAMES)
    def test_it_takes_the_same_and_is_awaited(self, name):
        of_sync = inspect.getattr_static(Scheduler, name)
        if not inspect.isfunction(of_sync):
            return
        of_async = inspect.getattr_static(AsyncScheduler, name)
        assert inspect.iscoroutinefunction(of_async) == (name not in DECORATORS)
        ours, theirs = inspect.signature(of_async).parameters, inspect.signature(of_sync).parameters
        if name == "schedule":
            options = set(theirs) - {"self", "func", "further"}
            assert options | FurtherOptions.__optional_keys__ == Options.__optional_keys__
        assert [(one.name, one.kind, one.default) for one in ours.values()] == [
            (one.name, one.kind, one.default) for one in theirs.values()
        ]


class TestWhereThingsRun:
    @on_loop
    async def test_async_functions_run_on_the_loop_and_others_in_threads(self, scheduler):
        here, places = asyncio.get_running_loop(), {}

        async def on_the_loop():
            places["async"] = (asyncio.get_running_loop(), threading.current_thread())

        def in_a_thread():
            places["sync"] = threading.current_thread()

        for is_started in (False, True):
            places.clear()
            if is_started:
                await scheduler.start()
            for function in (on_the_loop, in_a_thread):
                await scheduler.run_now(await keep(scheduler, function, trigger=NEVER))
            assert places["async"] == (here, threading.current_thread())
            assert places["sync"] is not threading.current_thread()

    @on_loop
    async def test_what_is_due_runs_between_start_and_stop(self, scheduler):
        ran = asyncio.Event()

        async def work():
            ran.set()

        job_id = await keep(scheduler, work, trigger=IntervalTrigger(0.05))
        async with scheduler:
            await asyncio.wait_for(ran.wait(), SOON)
            await ended(scheduler, job_id, 2)
        ran.clear()
        count = len(await scheduler.runs(job_id))
        await soon(0.2)
        assert (ran.is_set(), len(await scheduler.runs(job_id))) == (False, count)

    @on_loop
    async def test_it_can_be_started_again_and_twice(self, scheduler):
        for number in range(3):
            await scheduler.start()
            await scheduler.start()
            job_id = await keep(scheduler, later, args=[number])
            assert await ended(scheduler, job_id) == ["completed"]
            await scheduler.stop()
            await scheduler.stop()

    @on_loop
    async def test_every_method_answers(self, scheduler):
        head = await keep(scheduler, answer, trigger=NEVER, name="head")
        tail = await scheduler.schedule_with_deps(later, [head], function_name="later")
        await scheduler.add_dependency(tail, [{"schedule_id": head, "require_success": False}])
        [many] = await scheduler.create_many([{"func": nothing, "trigger": NEVER}])
        assert (await scheduler.update(head, labels={"team": "a"})).labels == {"team": "a"}
        await scheduler.pause(head)
        assert (await scheduler.get_job(head)).status is JobStatus.PAUSED
        await scheduler.resume(head)
        assert len(await scheduler.preview(head)) == 5
        assert (await scheduler.explain(head))["summary"].startswith("It has not run yet")
        assert [job.id for job in await scheduler.list_jobs("pending")] == [head, tail, many]
        await scheduler.register_function("work", nothing)
        assert await scheduler.run_now(head) == 42
        assert len(await scheduler.runs(head)) == 1
        assert len(await scheduler.occurrences(head)) == 2
        assert await scheduler.cancel(many) is True
        await scheduler.delete(tail)
        with pytest.raises(NotFound):
            await scheduler.run_now(tail)
        halt = await scheduler.halt(lineage="nobody")
        [known] = await scheduler.halts()
        assert (known.halt_id, known.lineage, halt.stopped) == (halt.halt_id, "nobody", 0)
        assert await scheduler.unhalt(lineage="nobody") == [known]

    @on_loop
    async def test_decorators_are_not_awaited(self, scheduler):
        ran = asyncio.Event()

        @scheduler.every(0.05, function_name="work")
        async def work():
            ran.set()

        async with scheduler:
            await asyncio.wait_for(ran.wait(), SOON)
        assert (await scheduler.get_job(work.job_id)).run_count >= 1


class TestTheLoopIsNeverKeptWaiting:
    def test_not_even_while_another_connection_holds_the_file(self, tmp_path):
        path = tmp_path / "jobs.db"

        def hold(held, let_go):
            connection = sqlite3.connect(path, isolation_level=None, timeout=SOON)
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            was_told = let_go.wait(SOON / 2)  # not as long as the others wait for the file
            connection.execute("ROLLBACK")
            connection.close()
            return was_told

        async def main():
            scheduler = AsyncScheduler(f"sqlite:///{path}")
            await scheduler.start()
            held, let_go = threading.Event(), threading.Event()
            job_id = await scheduler.schedule(answer, trigger=IntervalTrigger(0.05))
            holding = asyncio.ensure_future(asyncio.to_thread(hold, held, let_go))
            while not held.is_set():
                await soon(0.005)
            calls = [
                scheduler.schedule(answer, name="later", trigger=NEVER),
                scheduler.run_now(job_id, overlap="allow"),
                scheduler.update(job_id, labels={"team": "a"}),
                scheduler.get_job(job_id),
            ]
            tasks = asyncio.gather(*calls)
            for _ in range(100):  # turns of the loop, while both the calls and what is due wait for the file
                await soon(0.01)
            has_answered = tasks.done()
            let_go.set()
            was_told = await holding
            await asyncio.wait_for(tasks, SOON)
            await scheduler.stop()
            await scheduler.close()
            return has_answered, was_told

        has_answered, was_told = asyncio.run(main())
        assert not has_answered
        assert was_told, "the loop stood still until nobody held the file any more"


class TestFromInsideAJob:
    @on_loop
    async def test_an_async_job_may_run_another_and_wait_for_it(self, scheduler):
        inner = await keep(scheduler, later, args=[5], trigger=NEVER)

        async def outer():
            return await scheduler.run_now(inner) + 1

        outer_id = await keep(scheduler, outer, trigger=NEVER)
        assert await scheduler.run_now(outer_id) == 6
        await scheduler.start()
        assert await scheduler.run_now(outer_id) == 6

    @on_loop
    async def test_a_sync_job_may_use_the_blocking_scheduler(self, scheduler):
        inner = await keep(scheduler, later, args=[5], trigger=NEVER)
        outer = await keep(scheduler, lambda: scheduler.blocking.run_now(inner) + 1, trigger=NEVER)
        assert await scheduler.run_now(outer) == 6
        await scheduler.start()
        assert await scheduler.run_now(outer) == 6

    @on_loop
    async def test_the_blocking_scheduler_refuses_to_block_the_loop(self, scheduler):
        job_id = await keep(scheduler, later, trigger=NEVER)
        await scheduler.run_now(job_id)
        for is_started in (False, True):
            if is_started:
                await scheduler.start()
            with pytest.raises(Conflict, match="cannot wait"):
                scheduler.blocking.run_now(job_id)

    @on_loop
    async def test_an_async_job_may_stop_the_scheduler(self, scheduler):
        stopped = asyncio.Event()

        async def work():
            await scheduler.stop()
            stopped.set()

        await scheduler.start()
        job_id = await keep(scheduler, work)
        await asyncio.wait_for(stopped.wait(), SOON)
        await scheduler.stop()
        assert [str(one.phase) for one in await scheduler.occurrences(job_id)] == ["completed"]

    @on_loop
    async def test_a_sync_job_may_stop_the_scheduler(self, scheduler):
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()

        def work():
            asyncio.run_coroutine_threadsafe(scheduler.stop(), loop).result(SOON)
            loop.call_soon_threadsafe(stopped.set)

        await scheduler.start()
        job_id = await keep(scheduler, work)
        await asyncio.wait_for(stopped.wait(), SOON)
        await scheduler.stop()
        assert [str(one.phase) for one in await scheduler.occurrences(job_id)] == ["completed"]

    @on_loop
    async def test_a_job_may_cancel_itself(self, scheduler):
        noticed = asyncio.Event()

        async def work(context):
            try:
                await scheduler.cancel(context.schedule_id)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                noticed.set()
                raise

        async with scheduler:
            job_id = await keep(scheduler, work, retries=3)
            await asyncio.wait_for(noticed.wait(), SOON)
            assert await ended(scheduler, job_id) == ["cancelled"]


class TestAnswers:
    @on_loop
    async def test_hundreds_at_once_each_get_their_own(self, scheduler):
        await scheduler.start()
        job_id = await keep(
            scheduler, lambda context: context.payload * 2, trigger=NEVER, overlap="allow", function_name="double"
        )
        answers = await asyncio.gather(*(scheduler.run_now(job_id, number) for number in range(200)))
        assert answers == [2 * number for number in range(200)]

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("error", [KeyError("a"), StopIteration(1), ZeroDivisionError(), StopAsyncIteration()])
    @on_loop
    async def test_what_a_function_raises_is_raised(self, scheduler, is_async, error):
        def fail():
            raise error

        async def fail_later():
            raise error

        function = fail_later if is_async else fail
        job_id = await keep(scheduler, function, trigger=NEVER)
        expected = RuntimeError if isinstance(error, StopIteration | StopAsyncIteration) else type(error)
        for is_started in (False, True):
            if is_started:
                await scheduler.start()
            with pytest.raises((expected, type(error))):
                await scheduler.run_now(job_id)
        [run, _] = await scheduler.runs(job_id)
        assert (str(run.outcome), type(error).__name__ in run.error) == ("failed", True)

    @on_loop
    async def test_a_caller_that_gives_up_waiting_does_not_stop_the_run(self, scheduler):
        begun, let_go = asyncio.Event(), asyncio.Event()

        async def work():
            begun.set()
            await let_go.wait()
            return "done"

        await scheduler.start()
        job_id = await keep(scheduler, work, trigger=NEVER)
        waiting = asyncio.ensure_future(scheduler.run_now(job_id))
        await asyncio.wait_for(begun.wait(), SOON)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await scheduler.get_job(job_id)).status is JobStatus.RUNNING
        let_go.set()
        assert await ended(scheduler, job_id) == ["completed"]

    @on_loop
    async def test_stopping_without_waiting_hands_back_what_runs(self, scheduler):
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def work():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        await scheduler.start()
        job_id = await keep(scheduler, work)
        await asyncio.wait_for(begun.wait(), SOON)
        await scheduler.stop(wait=False)
        await asyncio.wait_for(cancelled.wait(), SOON)
        [occurrence] = await scheduler.occurrences(job_id)
        assert (str(occurrence.phase), occurrence.attempt) == ("pending", 0)

    @on_loop
    async def test_a_stop_with_a_timeout_waits_that_long(self, scheduler):
        begun = asyncio.Event()

        async def work():
            begun.set()
            await asyncio.Event().wait()

        await scheduler.start()
        job_id = await keep(scheduler, work)
        await asyncio.wait_for(begun.wait(), SOON)
        await asyncio.wait_for(scheduler.stop(timeout=0.1), SOON)
        assert [str(one.phase) for one in await scheduler.occurrences(job_id)] == ["pending"]


def test_time_may_pass_by_hand():
    clock = FakeClock(START)
    scheduler = AsyncScheduler(clock=clock)
    driver = ManualDriver(scheduler)
    scheduler.every(60, args=[7])(later)
    [run] = driver.run_until(START + timedelta(seconds=60))
    assert run.result == 7


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_cannot_close_the_scheduler_that_runs_it(keeper, is_async):
    def close():
        keeper.close()

    async def close_later():
        keeper.close()

    keeper.register_function("close", close_later if is_async else close)
    job_id = keeper.schedule(keeper._functions.find("close").call, trigger=NEVER)
    for is_started in (False, True):
        if is_started:
            keeper.start()
        with pytest.raises(Conflict, match="neither a run nor the loop"):
            keeper.run_now(job_id)
