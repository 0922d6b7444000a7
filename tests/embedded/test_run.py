"""A script that runs until a signal: `run` blocks, and stops what it has started."""

import asyncio
import os
import signal
import threading

import pytest

from noonmark import AsyncScheduler, Conflict, Scheduler
from tests.embedded.waiting import SOON, Gate, status


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request):
    return request.param


@pytest.fixture(autouse=True)
def handlers():
    """Nobody else's handlers are left changed."""
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_ends_it_when_the_runs_have_ended(number):
    scheduler, gate = Scheduler(), Gate()
    job = scheduler.schedule(gate)

    def interrupt():
        gate.wait()
        os.kill(os.getpid(), number)
        gate.opened.set()

    helper = threading.Thread(target=interrupt)
    helper.start()
    scheduler.run()
    helper.join(SOON)
    assert (gate.runs, gate.stops, status(scheduler, job)) == (1, 0, "completed")
    assert scheduler._runners.running is None


def test_a_second_signal_hands_back_what_still_runs(number, caplog):
    scheduler, gate = Scheduler(), Gate()
    job = scheduler.schedule(gate)

    def interrupt():
        gate.wait()
        os.kill(os.getpid(), number)
        while scheduler._runners.current is not None:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), number)

    helper = threading.Thread(target=interrupt)
    helper.start()
    scheduler.run()
    helper.join(SOON)
    assert (gate.runs, status(scheduler, job)) == (1, "pending")
    assert "stopping: waiting for 1 run to end; a second signal hands it back" in caplog.messages
    gate.opened.set()


def test_a_stop_ends_it_too():
    scheduler = Scheduler()
    scheduler.schedule(scheduler.stop)
    scheduler.run()
    assert scheduler._runners.running is None


def test_it_needs_the_main_thread():
    scheduler, errors = Scheduler(), []

    def run():
        try:
            scheduler.run()
        except Conflict as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SOON)
    assert "main thread" in str(errors[0])
    assert scheduler._runners.running is None


def test_an_async_program_does_the_same(caplog):
    ran = []

    async def main():
        scheduler = AsyncScheduler()

        passed = asyncio.Event()

        async def work():
            asyncio.get_running_loop().call_later(0.01, passed.set)
            os.kill(os.getpid(), signal.SIGTERM)
            await passed.wait()
            ran.append("done")

        await scheduler.schedule(work)
        await asyncio.wait_for(scheduler.run(), SOON)

    asyncio.run(main())
    assert ran == ["done"]
    assert "stopping: waiting for 1 run to end; a second signal hands it back" in caplog.messages
