"""Threads in which an event loop calls handlers that may wait for the store.

Handing a call to a thread and its answer back costs about as much as a small handler, so both are kept cheap: a call is
one entry in a queue, and the loop wakes once for all answers that are there. Calls of a group take turns in one thread,
and those that write alike share one write: threads that run Python at the same time take the interpreter from each
other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Sequence

    GroupKey = tuple[asyncio.AbstractEventLoop, str]
    Write = Callable[[Sequence[Any]], Sequence[Any]]

T = TypeVar("T")
C = TypeVar("C", bound="_Call[Any]")
IDLE_SECONDS = 10.0
"""A thread that has nothing to do for this long ends."""
MAX_GROUP = 32
"""How many calls share a turn: the first of them waits for the last."""
_TURNS_TO_SEND = 2
"""After so many turns of the loop, it has sent answers that it was handed: one wakes their tasks, one is theirs."""


class HandlerThreads:
    """At most `limit` threads, started when they are needed; further calls wait for one of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: SimpleQueue[_Call[Any] | _Group[Any]] = SimpleQueue()
        self._groups: dict[GroupKey, _Group[Any]] = {}
        """Those that have a turn, or will have one."""
        self._lock = Lock()
        self._threads = 0
        self._loops: dict[asyncio.AbstractEventLoop, _Answers] = {}
        """Of each loop that has calls in progress."""

    async def wait_for_room(self) -> bool:
        """Wait while all threads are busy, in the order of the calls; whether it had to wait."""
        answers = self._loops.get(asyncio.get_running_loop())
        if answers is None or answers.expected < self._limit:
            return False
        turn = answers.loop.create_future()
        answers.waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                answers.wake_next()
            raise
        return True

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread, in the context of this task. It runs to its end, even if the task does not."""
        call: _Call[T] = _Call(self._answers(), function, args)
        self._put(call, call.answers.expected)
        return await self._answer(call)

    async def call_in_turn(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """The same in a thread that it shares with other calls of its group, which should all be short.

        A call that comes while others of the group are served waits for the next turn, which serves all that wait.
        """
        call: _Call[T] = _Call(self._answers(), function, args)
        self._join(_Group, name, call)
        return await self._answer(call)

    async def call_in_group(
        self, name: str, write: Write, function: Callable[..., Generator[Any, Any, T]], *args: Any
    ) -> T:
        """Likewise for a generator function; what it yields is passed to `write` with what others of its group yield.

        `write` returns the answer of each, or its error.
        """
        call: _WritingCall[T] = _WritingCall(self._answers(), function, args)
        self._join(partial(_WritingGroup, write), name, call)
        return await self._answer(call)

    def _answers(self) -> _Answers:
        """The answers that the running loop expects: one more."""
        loop = asyncio.get_running_loop()
        answers = self._loops.get(loop)
        if answers is None:
            answers = self._loops[loop] = _Answers(loop)
        answers.expected += 1
        return answers

    def _join(self, make: Callable[[GroupKey, C], _Group[C]], name: str, call: C) -> None:
        """Add a call to its group, which gets a thread if it has none."""
        key = (call.answers.loop, name)
        if (group := self._groups.get(key)) is not None:
            group.calls.append(call)
        else:
            group = self._groups[key] = make(key, call)
            self._put(group, call.answers.expected)

    def _put(self, work: _Call[Any] | _Group[Any], expected: int) -> None:
        with self._lock:
            self._queue.put(work)
            starts = self._threads < min(self._limit, expected)
            self._threads += starts
        if starts:
            Thread(target=self._run, name="noonmark-api", daemon=True).start()

    async def _answer(self, call: _Call[T]) -> T:
        answers = call.answers
        try:
            return await call.future
        finally:
            answers.expected -= 1
            answers.wake_next()
            if not answers.expected and not answers.waiting:
                self._loops.pop(answers.loop, None)

    def _run(self) -> None:
        while True:
            try:
                work = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._threads -= 1
                        return
                continue
            if isinstance(work, _Group):
                self._serve(work)
            else:
                work.run()
                work.answers.send()
            del work  # what a thread still names is not freed

    def _serve(self, group: _Group[Any]) -> None:
        """Serve the calls of a group that wait. The loop has its next turn begin when it has sent their answers."""
        served = group.serve()
        try:
            group.loop.call_soon_threadsafe(self._end_turn, group, served)
        except RuntimeError:  # the loop has ended
            del self._groups[group.key]

    def _end_turn(self, group: _Group[Any], served: Collection[_Answers]) -> None:
        for answers in served:
            answers.deliver()
        self._continue(group, _TURNS_TO_SEND)

    def _continue(self, group: _Group[Any], turns: int) -> None:
        if turns:
            group.loop.call_soon(self._continue, group, turns - 1)
        elif group.calls:
            self._put(group, max(1, group.calls[0].answers.expected))
        else:
            del self._groups[group.key]


class _Call(Generic[T]):
    """A function to call in a thread, and where its answer goes."""

    __slots__ = ("_args", "_context", "_function", "answers", "future")

    def __init__(self, answers: _Answers, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.answers = answers
        self.future: asyncio.Future[T] = answers.loop.create_future()
        self._context, self._function, self._args = copy_context(), function, args

    def run(self) -> None:
        """Call the function; its answer is delivered later."""
        try:
            answer = self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            self.answers.add(self.future, None, error)
        else:
            self.answers.add(self.future, answer, None)


class _WritingCall(_Call[T]):
    """A generator function, which yields what it writes."""

    __slots__ = ("_steps",)

    def __init__(self, answers: _Answers, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        super().__init__(answers, function, args)
        self._steps = function(*args)

    def go_on(self, answer: Any) -> Any:
        """Go on with the answer to the last write, or raise it; returns what is to be written next, None at the end."""
        go_on = self._steps.throw if isinstance(answer, BaseException) else self._steps.send
        try:
            return self._context.run(go_on, answer)
        except StopIteration as end:
            self.answers.add(self.future, end.value, None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            self.answers.add(self.future, None, error)
        return None


class _Group(Generic[C]):
    """Calls that share a thread."""

    def __init__(self, key: GroupKey, first: C) -> None:
        self.key, self.loop = key, key[0]
        self.calls = deque([first])
        """Those that wait: the loop adds them, and the thread takes them."""

    def serve(self) -> Collection[_Answers]:
        """Answer the calls that wait; returns what has their answers.

        These are delivered when all are there, so that the loop does not compete for the interpreter meanwhile.
        """
        calls = [self.calls.popleft() for _ in range(min(MAX_GROUP, len(self.calls)))]
        self._run(calls)
        return {call.answers for call in calls}

    def _run(self, calls: Sequence[C]) -> None:
        for call in calls:
            call.run()


class _WritingGroup(_Group[_WritingCall[Any]]):
    """Calls that share a thread and a write."""

    def __init__(self, write: Write, key: GroupKey, first: _WritingCall[Any]) -> None:
        super().__init__(key, first)
        self._write = write

    def _run(self, calls: Sequence[_WritingCall[Any]]) -> None:
        """Go on with all calls, and write what they yield at once, until none yields any more."""
        steps = [(call, call.go_on(None)) for call in calls]
        while steps := [(call, step) for call, step in steps if step is not None]:
            waiting = [call for call, _ in steps]
            try:
                answered = list(zip(waiting, self._write([step for _, step in steps]), strict=True))
            except BaseException as error:  # noqa: BLE001 - it is raised in each of them
                answered = [(call, error) for call in waiting]
            steps = [(call, call.go_on(answer)) for call, answer in answered]


class _Answers:
    """What threads have answered, on the way to the loop that asked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.expected = 0
        """Calls in progress. Only the loop counts them."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Calls that wait for a thread to be free."""
        self.loop = loop
        self._ready: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_scheduled = False

    def add(self, future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
        """Hand over an answer; from any thread. It is delivered later."""
        self._ready.append((future, answer, error))

    def send(self) -> None:
        """Have the loop deliver what was added; from any thread."""
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self.deliver)

    def wake_next(self) -> None:
        """Let the next call go on that waits."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def deliver(self) -> None:
        """Give the answers to those who wait for them; in the loop."""
        self._is_scheduled = False  # first: an answer that is added from here on is delivered now, or wakes the loop
        while self._ready:
            future, answer, error = self._ready.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)
