"""Threads in which an event loop calls handlers that may wait for the store.

Handing a call to a thread and its answer back costs about as much as a small handler, so both are kept cheap: a call is
one entry in a queue, and the loop wakes once for all answers that are there. Calls that write alike share a thread and
one write: threads that run Python at the same time take the interpreter from each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextvars import Context

    Call = tuple["_Answers", asyncio.Future[Any], Context, Callable[..., Any], tuple[Any, ...]]
    GroupKey = tuple[asyncio.AbstractEventLoop, str]
    Write = Callable[[Sequence[Any]], Sequence[Any]]

T = TypeVar("T")
IDLE_SECONDS = 10.0
"""A thread that has nothing to do for this long ends."""
MAX_GROUP = 32
"""How many calls share a write: the first of them waits for the last."""
_TURNS_TO_SEND = 2
"""After so many turns of the loop, it has sent answers that it was handed: one wakes their tasks, one is theirs."""


class HandlerThreads:
    """At most `limit` threads, started when they are needed; further calls wait for one of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: SimpleQueue[Call | _Group] = SimpleQueue()
        self._groups: dict[GroupKey, _Group] = {}
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
        answers = self._answers()
        future: asyncio.Future[T] = answers.loop.create_future()
        self._put((answers, future, copy_context(), function, args), answers.expected)
        return await self._answer(answers, future)

    async def call_in_group(
        self, name: str, write: Write, function: Callable[..., Generator[Any, Any, T]], *args: Any
    ) -> T:
        """Call a generator function, and pass what it yields to `write` with what others of its group yield.

        `write` returns the answer of each, or its error. A call that comes while others of the group are served waits
        for the next turn, which serves all that wait.
        """
        answers = self._answers()
        future: asyncio.Future[T] = answers.loop.create_future()
        call = _GroupedCall(answers, future, copy_context(), function(*args))
        key = (answers.loop, name)
        if (group := self._groups.get(key)) is not None:
            group.calls.append(call)
        else:
            group = self._groups[key] = _Group(key, write, call)
            self._put(group, answers.expected)
        return await self._answer(answers, future)

    def _answers(self) -> _Answers:
        """The answers that the running loop expects: one more."""
        loop = asyncio.get_running_loop()
        answers = self._loops.get(loop)
        if answers is None:
            answers = self._loops[loop] = _Answers(loop)
        answers.expected += 1
        return answers

    def _put(self, call: Call | _Group, expected: int) -> None:
        with self._lock:
            self._calls.put(call)
            starts = self._threads < min(self._limit, expected)
            self._threads += starts
        if starts:
            Thread(target=self._run, name="noonmark-api", daemon=True).start()

    async def _answer(self, answers: _Answers, future: asyncio.Future[T]) -> T:
        try:
            return await future
        finally:
            answers.expected -= 1
            answers.wake_next()
            if not answers.expected and not answers.waiting:
                self._loops.pop(answers.loop, None)

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._calls.empty():
                        self._threads -= 1
                        return
                continue
            if isinstance(call, _Group):
                self._serve_group(call)
                del call
                continue
            answers, future, context, function, args = call
            answer: Any = None
            error: BaseException | None = None
            try:
                answer = context.run(function, *args)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the call is awaited
                error = raised
            answers.add(future, answer, error)
            # What a thread still names is not freed.
            del call, answers, future, context, function, args, answer, error

    def _serve_group(self, group: _Group) -> None:
        """Serve the calls of a group that wait. The loop has its next turn begin when it has sent their answers."""
        group.serve()
        try:
            group.loop.call_soon_threadsafe(self._continue, group, _TURNS_TO_SEND)
        except RuntimeError:  # the loop has ended
            del self._groups[group.key]

    def _continue(self, group: _Group, turns: int) -> None:
        if turns:
            group.loop.call_soon(self._continue, group, turns - 1)
        elif group.calls:
            self._put(group, max(1, group.calls[0].answers.expected))
        else:
            del self._groups[group.key]


class _Group:
    """Calls that share a thread and a write."""

    def __init__(self, key: GroupKey, write: Write, first: _GroupedCall) -> None:
        self.key, self.loop, self._write = key, key[0], write
        self.calls = deque([first])
        """Those that wait: the loop adds them, and the thread takes them."""

    def serve(self) -> None:
        """Answer the calls that wait, writing what they yield at once."""
        calls = [self.calls.popleft() for _ in range(min(MAX_GROUP, len(self.calls)))]
        steps = [(call, call.go_on(None)) for call in calls]
        while steps := [(call, step) for call, step in steps if step is not None]:
            waiting = [call for call, _ in steps]
            try:
                answered = list(zip(waiting, self._write([step for _, step in steps]), strict=True))
            except BaseException as error:  # noqa: BLE001 - it is raised in each of them
                answered = [(call, error) for call in waiting]
            steps = [(call, call.go_on(answer)) for call, answer in answered]


class _GroupedCall:
    """One of them."""

    __slots__ = ("_context", "_future", "_steps", "answers")

    def __init__(
        self, answers: _Answers, future: asyncio.Future[Any], context: Context, steps: Generator[Any, Any, Any]
    ) -> None:
        self.answers, self._future, self._context, self._steps = answers, future, context, steps

    def go_on(self, answer: Any) -> Any:
        """Go on with the answer to the last write, or raise it; returns what is to be written next, None at the end."""
        go_on = self._steps.throw if isinstance(answer, BaseException) else self._steps.send
        try:
            return self._context.run(go_on, answer)
        except StopIteration as end:
            self.answers.add(self._future, end.value, None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            self.answers.add(self._future, None, error)
        return None


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
        """Hand over an answer; from any thread."""
        self._ready.append((future, answer, error))
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._deliver)

    def wake_next(self) -> None:
        """Let the next call go on that waits."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _deliver(self) -> None:
        self._is_scheduled = False  # first: an answer that is added from here on is delivered now, or wakes the loop
        while self._ready:
            future, answer, error = self._ready.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)
