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


def test_calls_take_turns_in_one_thread_and_each_has_its_own_context_and_answer():
    async def ask():
        async def call(number):
            NAME.set(f"caller {number}")
            return await threads.call_in_turn("read", read, number)

        def read(number):
            if number == 7:
                raise LookupError(NAME.get())
            return number, NAME.get(), threading.current_thread()

        gate, threads = Gate(), HandlerThreads(40)
        first = asyncio.create_task(threads.call_in_turn("read", gate, None))
        await until(lambda: gate.inside == 1)
        calls = [asyncio.create_task(call(number)) for number in range(16)]
        await step()
        gate.opened.set()
        await first
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = answers.pop(7)
        assert (type(failed), str(failed)) == (LookupError, "caller 7")
        assert [answer[:2] for answer in answers] == [(n, f"caller {n}") for n in range(16) if n != 7]
        assert len({thread for *_, thread in answers}) == 1

    asyncio.run(ask())


def test_a_turn_serves_as_many_as_it_has_room_for_and_the_next_begins_when_they_are_answered(monkeypatch):
    monkeypatch.setattr(handler_threads, "MAX_GROUP", 2)
    order = []

    async def ask():
        async def call(number):
            await threads.call_in_turn("read", order.append, ("served", number))
            order.append(("answered", number))

        gate, threads = Gate(), HandlerThreads(8)
        first = asyncio.create_task(threads.call_in_turn("read", gate, None))
        await until(lambda: gate.inside == 1)
        calls = [asyncio.create_task(call(number)) for number in range(5)]
        await step()
        gate.opened.set()
        await asyncio.gather(first, *calls)

    asyncio.run(ask())
    assert order == [(what, n) for turn in ([0, 1], [2, 3], [4]) for what in ("served", "answered") for n in turn]


def test_calls_that_take_turns_do_not_wait_for_others():
    async def ask():
        slow, threads = Gate(), HandlerThreads(4)
        calls = [
            asyncio.create_task(threads.call(slow, "alone")),
            asyncio.create_task(threads.call_in_turn("page", slow, "in turn")),
        ]
        await until(lambda: slow.inside == 2)
        assert await asyncio.gather(*(threads.call_in_turn("read", str, number) for number in range(2))) == ["0", "1"]
        assert slow.inside == 2
        slow.opened.set()
        assert await asyncio.gather(*calls) == ["alone", "in turn"]

    asyncio.run(ask())


def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_does_not_fail_the_others():
    async def ask():
        gate, threads, served = Gate(), HandlerThreads(1), []

        def read(number):
            served.append(number)
            return number

        first = asyncio.create_task(threads.call_in_turn("read", gate, 0))
        await until(lambda: gate.inside == 1)
        calls = [asyncio.create_task(threads.call_in_turn("read", read, number)) for number in range(3)]
        await step()
        calls[1].cancel()
        gate.opened.set()
        answers = await asyncio.gather(first, *calls, return_exceptions=True)
        assert (answers[0], answers[1], type(answers[2]), answers[3]) == (0, 0, asyncio.CancelledError, 2)
        assert served == [0, 1, 2]
        assert threads._loops == {}

    asyncio.run(ask())


def test_calls_that_wait_for_their_turn_take_room():
    async def ask():
        gate, threads = Gate(), HandlerThreads(3)
        calls = [asyncio.create_task(threads.call_in_turn("read", gate, number)) for number in range(3)]
        await until(lambda: gate.inside == 1)
        waits = asyncio.create_task(threads.wait_for_room())
        await step()
        assert not waits.done()
        gate.opened.set()
        assert await waits is True
        assert await asyncio.gather(*calls) == [0, 1, 2]

    asyncio.run(ask())


class Writes:
    """What groups write, one list for each write; the first waits for `opened`."""

    def __init__(self, answer=lambda value: value * 10):
        self.written, self.begun, self.opened, self._answer = [], threading.Event(), threading.Event(), answer

    def __call__(self, values):
        self.begun.set()
        assert self.opened.wait(SOON)
        self.written.append(list(values))
        return [self._answer(value) for value in values]


def steps(*values):
    """Write values one after another; returns the context's name, the thread and what was answered."""
    answers = []
    for value in values:
        answer = yield value
        answers.append(answer)
    return NAME.get(), threading.current_thread(), answers


async def in_group(threads, write, name, *values, function=steps):
    """A call with a context of its own."""
    NAME.set(name)
    return await threads.call_in_group("group", write, function, *values)


def in_groups(write, *calls, threads=None, function=steps):
    """What calls of a group answer, of which all but the first come while that writes."""

    async def ask():
        made = threads or HandlerThreads(8)
        first, *others = (in_group(made, write, str(number), *call, function=function) for number, call in calls)
        first = asyncio.create_task(first)
        await until(write.begun.is_set)
        others = [asyncio.create_task(one) for one in others]
        await step()
        write.opened.set()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        await until(lambda: not made._groups)
        return answers

    calls = list(enumerate(calls))
    return asyncio.run(ask())


def test_calls_that_come_while_their_group_is_served_share_the_next_thread_and_write():
    write = Writes()
    answers = in_groups(write, [1], [2], [3, 4], [], [5])
    assert write.written == [[1], [2, 3, 5], [4]]
    assert [(name, answered) for name, _, answered in answers] == [
        ("0", [10]),
        ("1", [20]),
        ("2", [30, 40]),
        ("3", []),
        ("4", [50]),
    ]
    assert len({thread for _, thread, _ in answers[1:]}) == 1


def test_a_group_has_as_many_calls_as_it_has_room_for(monkeypatch):
    monkeypatch.setattr(handler_threads, "MAX_GROUP", 2)
    write = Writes()
    in_groups(write, [1], [2], [3], [4])
    assert write.written == [[1], [2, 3], [4]]


def test_a_call_of_a_group_that_fails_fails_alone():
    def fail(value):
        if value < 0:
            raise ZeroDivisionError
        return (yield value)

    write = Writes(lambda value: LookupError(value) if value > 5 else value)
    first, refused, fails, last = in_groups(write, [1], [6], [-1], [2], function=fail)
    assert (first, last) == (1, 2)
    assert (type(refused), type(fails)) == (LookupError, ZeroDivisionError)
    assert write.written == [[1], [6, 2]]


def test_a_write_that_fails_is_raised_in_each_call_which_may_go_on():
    def forgive(value):
        try:
            yield value
        except ConnectionError:
            if value == 3:
                raise
            return "forgiven"

    def lose(value):
        raise ConnectionError

    answers = in_groups(Writes(lose), [1], [2], [3], function=forgive)
    assert answers[:2] == ["forgiven"] * 2
    assert type(answers[2]) is ConnectionError


@pytest.mark.parametrize(
    ("answer", "error"), [(lambda _: SystemExit, SystemExit), (lambda values: values[1:], ValueError)]
)
def test_a_write_that_answers_wrongly_is_raised_in_each_call_and_blocks_no_later_one(answer, error):
    def write(values):
        answered = answer(values)
        if isinstance(answered, type):
            raise answered
        return answered

    def expect(value):
        with pytest.raises(error):
            yield value
        return value

    async def ask():
        threads = HandlerThreads(2)
        first = await asyncio.wait_for(threads.call_in_group("group", write, expect, 1), SOON)
        second = await asyncio.wait_for(threads.call_in_group("group", write, expect, 2), SOON)
        return first, second

    assert asyncio.run(ask()) == (1, 2)


def test_groups_of_other_names_do_not_wait_for_each_other():
    async def ask():
        threads, write = HandlerThreads(2), Writes()
        busy = asyncio.create_task(in_group(threads, write, "busy", 1))
        await until(write.begun.is_set)
        other = Writes()
        other.opened.set()
        assert (await threads.call_in_group("other", other, steps, 2))[2] == [20]
        write.opened.set()
        assert (await busy)[2] == [10]

    asyncio.run(ask())


def test_a_call_of_a_group_that_is_cancelled_while_it_waits_runs_to_its_end():
    async def ask():
        threads, write = HandlerThreads(1), Writes()
        first = asyncio.create_task(in_group(threads, write, "first", 1))
        await until(write.begun.is_set)
        second = asyncio.create_task(in_group(threads, write, "second", 2))
        await step()
        second.cancel()
        write.opened.set()
        assert (await first)[2] == [10]
        await until(lambda: write.written == [[1], [2]])
        await until(lambda: not threads._groups)

    asyncio.run(ask())


def test_a_group_of_a_loop_that_has_ended_is_forgotten():
    threads, write = HandlerThreads(1), Writes()

    async def leave():
        task = asyncio.create_task(in_group(threads, write, "left", 1))
        await until(write.begun.is_set)
        task.cancel()

    asyncio.run(leave())
    write.opened.set()
    eventually(lambda: not threads._groups)
    assert asyncio.run(in_group(threads, write, "next", 2))[2] == [20]
