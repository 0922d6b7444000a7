"""The way to a store that blocks: from a loop through one thread, from a thread without a loop directly."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.driver.access import Access
from noonmark.ports.records import StoreTraits

BLOCKING = SimpleNamespace(traits=StoreTraits(is_durable=True, blocks=True))
DIRECT = SimpleNamespace(traits=StoreTraits(is_durable=False, blocks=False))


async def thread_name():
    return threading.current_thread().name


async def refuse():
    raise StoreUnavailable("not now")


def test_a_blocking_call_is_made_in_one_other_thread():
    async def story():
        access = Access(BLOCKING)
        names = {await access.ask(thread_name()) for _ in range(5)}
        access.close()
        return names

    assert asyncio.run(story()) == {"noonmark-store"}


def test_any_other_call_is_awaited_where_it_is():
    async def story():
        access = Access(DIRECT)
        name = await access.ask(thread_name())
        access.close()
        return name

    assert asyncio.run(story()) == threading.current_thread().name


@pytest.mark.parametrize("store", [BLOCKING, DIRECT])
def test_an_error_is_raised_where_the_answer_is_awaited(store):
    async def story():
        access = Access(store)
        try:
            with pytest.raises(StoreUnavailable):
                await access.ask(refuse())
        finally:
            access.close()

    asyncio.run(story())


def test_whoever_gives_up_waiting_does_not_stop_the_others():
    async def story():
        access, may_go_on, has_begun = Access(BLOCKING), threading.Event(), asyncio.Event()
        events = asyncio.get_running_loop()

        async def slow():
            events.call_soon_threadsafe(has_begun.set)
            may_go_on.wait()

        impatient = asyncio.create_task(access.ask(slow()))
        patient = asyncio.create_task(access.ask(thread_name()))
        await has_begun.wait()
        impatient.cancel()
        may_go_on.set()
        name = await patient
        access.close()
        return impatient.cancelled(), name

    assert asyncio.run(story()) == (True, "noonmark-store")


def test_what_is_asked_first_does_not_wait_for_the_rest():
    async def story():
        access, may_go_on, has_begun, answered = Access(BLOCKING), threading.Event(), asyncio.Event(), []
        events = asyncio.get_running_loop()

        async def slow():
            events.call_soon_threadsafe(has_begun.set)
            may_go_on.wait()

        async def note(name):
            answered.append(name)

        calls = [access.ask(slow()), access.ask(note("later")), access.ask(note("soon"), first=True)]
        waiting = [asyncio.create_task(one) for one in calls]
        await has_begun.wait()
        may_go_on.set()
        await asyncio.gather(*waiting)
        access.close()
        return answered

    assert asyncio.run(story()) == ["soon", "later"]


def test_the_thread_goes_when_the_access_is_closed():
    async def story():
        access = Access(BLOCKING)
        await access.ask(thread_name())
        [thread] = access._threads
        access.close()
        access.close()
        return thread

    assert not asyncio.run(story()).is_alive()


def test_a_call_that_suspends_cannot_be_driven_by_hand():
    class Suspends:
        def __await__(self):
            yield

    async def suspends():
        await Suspends()

    with pytest.raises(RuntimeError, match="suspended"):
        suspends()
