"""Whatever a function raises: it is recorded with its traceback, and the scheduler goes on."""

import asyncio
import os
import signal
import threading

import pytest

from noonmark import AsyncScheduler, IntervalTrigger, Scheduler
from tests.processes.fleet import CLOCK, PATIENCE

NEVER = IntervalTrigger(3_600)
ERRORS = [
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    StopIteration,
    StopAsyncIteration,
    MemoryError,
    RecursionError,
    BaseExceptionGroup,
    type("Unseen", (BaseException,), {}),
]
pytestmark = [
    pytest.mark.parametrize("store", ["memory://", "sqlite:///raising.db"]),
    pytest.mark.filterwarnings("error"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def jobs():
    """For each error a function that raises it, and one that does so on the event loop."""
    for error in ERRORS:
        arguments = ("of many", [KeyboardInterrupt()]) if error is BaseExceptionGroup else ("on purpose",)

        def raises(error=error, arguments=arguments):
            raise error(*arguments)

        async def raises_async(error=error, arguments=arguments):
            await asyncio.sleep(0)  # noqa: TID251 - it has suspended once
            raise error(*arguments)

        yield error, raises
        yield error, raises_async


def judge(error, run):
    """A coroutine may not raise StopIteration; Python makes another error of it."""
    assert run is not None
    assert str(run.outcome) == "failed"
    assert run.error.startswith(("Traceback", "  + Exception Group Traceback")), run.error
    assert error.__name__ in run.error
    assert "raise error(*arguments)" in run.error


def ended(scheduler, ids):
    runs = [scheduler.runs(one) for one in ids]
    return runs if all(one and one[0].outcome is not None for one in runs) else None


def wait_for(holds):
    deadline = CLOCK.monotonic() + PATIENCE * 1_000_000
    while not (answer := holds()):
        assert CLOCK.monotonic() < deadline
        threading.Event().wait(0.01)
    return answer


def test_in_a_scheduler(store):
    scheduler = Scheduler(store)
    made = list(jobs())
    with scheduler:
        ids = [scheduler.schedule(job, function_name=f"job-{n}") for n, (_, job) in enumerate(made)]
        runs = wait_for(lambda: ended(scheduler, ids))
        assert scheduler.run_now(scheduler.schedule(os.getpid, function_name="pid", trigger=NEVER)) == os.getpid()
    for (error, _), [run] in zip(made, runs, strict=True):
        judge(error, run)
    scheduler.close()


def test_on_the_event_loop_of_a_program(store):
    async def main():
        async with AsyncScheduler(store) as scheduler:
            made = list(jobs())
            ids = [await scheduler.schedule(job, function_name=f"job-{n}") for n, (_, job) in enumerate(made)]
            runs = await asyncio.to_thread(wait_for, lambda: ended(scheduler.blocking, ids))
            pid = await scheduler.schedule(os.getpid, function_name="pid", trigger=NEVER)
            assert await scheduler.run_now(pid) == os.getpid()
        await scheduler.close()
        return made, runs

    made, runs = asyncio.run(main())
    for (error, _), [run] in zip(made, runs, strict=True):
        judge(error, run)


def test_starting_and_stopping_again_and_again(store):
    ran = threading.Semaphore(0)
    scheduler = Scheduler(store)
    job = scheduler.schedule(ran.release, function_name="release")
    scheduler.start()
    assert ran.acquire(timeout=PATIENCE)
    scheduler.stop()
    before = threading.active_count()
    for n in range(30):
        scheduler.start()
        if n % 3 == 0:
            scheduler.run_now(job, wait=False)
            assert ran.acquire(timeout=PATIENCE)
        scheduler.stop(wait=n % 2 == 0)
    wait_for(lambda: threading.active_count() <= before)
    assert {str(run.outcome) for run in scheduler.runs(job)} <= {"completed", "lease_lost"}
    scheduler.close()


def test_no_signal_handler_is_touched(store):
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with Scheduler(store) as scheduler:
        scheduler.run_now(scheduler.schedule(os.getpid, function_name="pid", trigger=NEVER))
        assert {one: signal.getsignal(one) for one in handlers} == handlers
