"""Handlers run in few threads; the loop that asked gets each answer, and calls beyond the limit wait in their order."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from noonmark.server import handler_threads
from noonmark.server.handler_threads import HandlerThreads
from tests.embedded.waiting import SOON, eventually

NAME = ContextVar("NAME", default="")


class Gate:
    """A function that counts who is in it, and lets nobody out before it is opened."""

    def __init__(self):
        self.inside, self.most, self.opened, self._lock = 0, 0, threading.Event(), threading.Lock()

    def __call__(self, answer):
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.opened.wait(SOON)
        with self._lock:
            self.inside -= 1
        return answer


async def until(is_so):
    """Wait in another thread, so that the loop goes on."""
    await asyncio.to_thread(eventually, is_so)


async def step():
    """Let other tasks go on to where they wait."""
    await asyncio.sleep(0)  # noqa: TID251 - only yields


def test_a_call_has_the_context_of_its_task_and_raises_where_it_is_awaited():
    async def ask():
        threads = HandlerThreads(2)
        NAME.set("ada")
        found = await threads.call(lambda one: (one, NAME.get(), threading.current_thread().name), 1)
        with pytest.raises(ZeroDivisionError):
            await threads.call(lambda: 1 / 0)
        return found

    assert asyncio.run(ask()) == (1, "ada", "noonmark-api")


def test_there_are_as_many_threads_as_calls_and_no_more_than_the_limit():
    async def ask():
        gate, threads = Gate(), HandlerThreads(3)
        calls = [asyncio.create_task(threads.call(gate, number)) for number in range(10)]
        await until(lambda: gate.inside == 3)
        assert threads._threads == 3
        gate.opened.set()
        assert await asyncio.gather(*calls) == list(range(10))
        assert gate.most == 3

    asyncio.run(ask())


def test_calls_wait_for_room_in_their_order():
    async def ask():
        gate, threads, order = Gate(), HandlerThreads(2), []

        async def call(number):
            has_waited = await threads.wait_for_room()
            order.append((number, has_waited))
            return await threads.call(gate, number)

        calls = [asyncio.create_task(call(number)) for number in range(2)]
        await until(lambda: gate.inside == 2)
        calls += [asyncio.create_task(call(number)) for number in range(2, 6)]
        await step()
        calls[2].cancel()
        gate.opened.set()
        assert await asyncio.gather(*calls[:2], *calls[3:]) == [0, 1, 3, 4, 5]
        assert order == [(0, False), (1, False), (3, True), (4, True), (5, True)]
        assert threads._loops == {}

    asyncio.run(ask())


def test_one_that_is_cancelled_when_its_turn_has_come_passes_it_on():
    async def ask():
        gate, threads = Gate(), HandlerThreads(1)
        busy = asyncio.create_task(threads.call(gate, 0))
        await until(lambda: gate.inside == 1)
        waiting = [asyncio.create_task(threads.wait_for_room()) for _ in range(2)]
        await step()
        [answers] = threads._loops.values()
        answers.wake_next()  # the first knows it after the next step of the loop
        waiting[0].cancel()
        assert await waiting[1] is True
        gate.opened.set()
        assert await busy == 0

    asyncio.run(ask())


def test_a_call_whose_task_is_cancelled_runs_to_its_end():
    ended = threading.Event()

    async def ask():
        gate, threads = Gate(), HandlerThreads(1)

        def work():
            gate(None)
            ended.set()

        task = asyncio.create_task(threads.call(work))
        await until(lambda: gate.inside == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.opened.set()
        assert await threads.call(lambda: "next") == "next"

    asyncio.run(ask())
    assert ended.wait(SOON)


def test_idle_threads_end_and_others_begin(monkeypatch):
    monkeypatch.setattr(handler_threads, "IDLE_SECONDS", 0.01)
    threads = HandlerThreads(4)
    assert asyncio.run(threads.call(lambda: 1)) == 1
    eventually(lambda: threads._threads == 0)
    assert asyncio.run(threads.call(lambda: 2)) == 2


def test_an_answer_for_a_loop_that_has_ended_is_dropped():
    gate, threads = Gate(), HandlerThreads(1)

    async def leave():
        task = asyncio.create_task(threads.call(gate, 1))
        await until(lambda: gate.inside == 1)
        task.cancel()

    asyncio.run(leave())
    gate.opened.set()
    assert asyncio.run(threads.call(lambda: 2)) == 2
