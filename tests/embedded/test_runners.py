"""A runner that ends during a call: the caller gets an error, and nothing is left behind."""

import asyncio
import gc
import threading

import pytest

from noonmark import Conflict, Scheduler
from noonmark.embedded.runners import LoopRunner, ThreadRunner
from tests.embedded.waiting import SOON, eventually

pytestmark = pytest.mark.usefixtures("no_noise")


class Calls:
    """Makes calls, and knows how many were made and how many began."""

    def __init__(self):
        self.made, self.begun = 0, 0

    def __call__(self, loop):
        self.made += 1
        return self._call()

    async def _call(self):
        self.begun += 1
        await asyncio.Event().wait()


@pytest.fixture
def events():
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def runtime():
    return Scheduler()._runtime


def refused(act):
    """Do something in a thread of its own, which has to be refused; gives how to wait for that."""
    errors = []

    def run():
        try:
            act()
        except Conflict as error:
            errors.append(error.message)

    thread = threading.Thread(target=run)
    thread.start()

    def wait():
        thread.join(SOON)
        assert not thread.is_alive()
        assert len(errors) == 1
        return errors[0]

    return wait


async def begin(runtime):
    return LoopRunner(runtime, asyncio.get_running_loop())


def test_a_call_that_its_event_loop_never_gets_to_is_not_even_made(runtime, events):
    guest, calls = events.run_until_complete(begin(runtime)), Calls()
    guest.stop(0)
    events.run_until_complete(guest._task)
    with pytest.raises(Conflict, match="the scheduler was stopped"):
        guest.call(calls)
    events.close()
    assert calls.made == 0


def test_a_call_that_was_given_up_is_not_made_when_its_event_loop_goes_on(runtime, events):
    guest, calls = events.run_until_complete(begin(runtime)), Calls()
    with pytest.raises(Conflict, match="the scheduler was stopped"):
        guest.call(calls)  # the event loop stands still
    guest.stop(0)
    events.run_until_complete(guest._task)
    assert calls.made == 0


def test_a_call_that_comes_while_its_loop_is_cleared_away_is_refused(runtime):
    calls, collected = Calls(), []

    class Leaving(ThreadRunner):
        def _close_event_loop(self):
            queued, queue = threading.Event(), self._event_loop.call_soon_threadsafe

            def note(*args):
                queue(*args)
                queued.set()

            self._event_loop.call_soon_threadsafe = note
            collected.append(refused(lambda: self.call(calls)))
            assert queued.wait(SOON)
            super()._close_event_loop()

    runner = Leaving(runtime, claims=False)
    runner.stop(0)
    runner.wait(SOON)
    [wait] = collected
    assert wait() == "the scheduler was stopped"
    assert (calls.made, calls.begun) == (0, 0)


def test_a_call_that_is_under_way_when_its_loop_ends_is_refused(runtime):
    runner, calls = ThreadRunner(runtime, claims=False), Calls()
    wait = refused(lambda: runner.call(calls))
    eventually(lambda: calls.begun)
    gc.collect()  # which must not find it
    runner.stop(0)
    assert wait() == "the scheduler was stopped"
    runner.wait(SOON)


@pytest.mark.parametrize("is_closed", [False, True], ids=["stands still", "closed"])
def test_nothing_begins_on_an_event_loop_that_has_ended(runtime, events, is_closed):
    if is_closed:
        events.close()
    with pytest.raises(Conflict, match="the event loop has ended"):
        LoopRunner(runtime, events)
    if not is_closed:
        events.run_until_complete(asyncio.sleep(0))  # noqa: TID251 - a turn for whatever was left there
        assert asyncio.all_tasks(events) == set()
