"""Store calls from an event loop: a store that blocks is called in threads, any other inline."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.driver.store_executor import InlineExecutor, Priority, StoreExecutor
from noonmark.ports.records import StoreTraits

BLOCKING = SimpleNamespace(traits=StoreTraits(is_durable=True, blocks=True))
DIRECT = SimpleNamespace(traits=StoreTraits(is_durable=False, blocks=False))


def thread_name():
    return threading.current_thread().name


def refuse():
    raise StoreUnavailable("not now")


def test_a_blocking_call_runs_in_another_thread():
    async def story():
        executor = StoreExecutor(BLOCKING)
        names = {await executor.call(thread_name) for _ in range(5)}
        executor.close()
        return names

    assert asyncio.run(story()) == {"noonmark-store"}


def test_a_call_that_does_not_block_runs_inline():
    async def story():
        executor = StoreExecutor(DIRECT)
        names = {await executor.call(thread_name), await InlineExecutor().call(thread_name, priority=Priority.URGENT)}
        executor.close()
        return names

    assert asyncio.run(story()) == {threading.current_thread().name}


@pytest.mark.parametrize("executor", [StoreExecutor(BLOCKING), StoreExecutor(DIRECT), InlineExecutor()])
def test_arguments_are_passed_on(executor):
    async def story():
        return await executor.call(dict, [("a", 1)], b=2)

    assert asyncio.run(story()) == {"a": 1, "b": 2}


@pytest.mark.parametrize("store", [BLOCKING, DIRECT])
def test_an_error_is_raised_where_the_answer_is_awaited(store):
    async def story():
        executor = StoreExecutor(store)
        try:
            with pytest.raises(StoreUnavailable):
                await executor.call(refuse)
        finally:
            executor.close()

    asyncio.run(story())


class Slow:
    """A call that begins, and ends when it is told to."""

    def __init__(self):
        self._events, self.has_begun = asyncio.get_running_loop(), asyncio.Event()
        self.may_go_on = threading.Event()

    def __call__(self):
        self._events.call_soon_threadsafe(self.has_begun.set)
        self.may_go_on.wait()
        return "answer"


def test_a_cancelled_caller_does_not_stop_the_others():
    async def story():
        executor, slow = StoreExecutor(BLOCKING), Slow()
        impatient = asyncio.create_task(executor.call(slow))
        patient = asyncio.create_task(executor.call(thread_name))
        await slow.has_begun.wait()
        impatient.cancel()
        slow.may_go_on.set()
        name = await patient
        executor.close()
        return impatient.cancelled(), name

    assert asyncio.run(story()) == (True, "noonmark-store")


def test_a_cancelled_caller_still_gets_the_answer():
    async def story():
        executor, slow, answers = StoreExecutor(BLOCKING), Slow(), []

        async def ask():
            answers.append(await executor.call(slow))
            await asyncio.Event().wait()

        asking = asyncio.create_task(ask())
        await slow.has_begun.wait()
        asking.cancel()
        slow.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        executor.close()
        return answers

    assert asyncio.run(story()) == ["answer"]


def test_an_urgent_call_overtakes_the_others():
    async def story():
        executor, slow, answered = StoreExecutor(BLOCKING), Slow(), []
        calls = [
            executor.call(slow),
            executor.call(answered.append, "later"),
            executor.call(answered.append, "soon", priority=Priority.URGENT),
        ]
        waiting = [asyncio.create_task(one) for one in calls]
        await slow.has_begun.wait()
        slow.may_go_on.set()
        await asyncio.gather(*waiting)
        executor.close()
        return answered

    assert asyncio.run(story()) == ["soon", "later"]


def test_threads_end_when_the_executor_is_closed():
    async def story():
        executor = StoreExecutor(BLOCKING)
        await executor.call(thread_name)
        [thread] = executor._threads
        executor.close()
        executor.close()
        return thread

    assert not asyncio.run(story()).is_alive()
