"""Threads in which an event loop calls handlers that may wait for the store.

Handing a call to a thread and its answer back costs about as much as a small handler, so both are kept cheap: a call is
one entry in a queue, and the loop wakes once for all answers that are there.
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
    from collections.abc import Callable
    from contextvars import Context

    Call = tuple["_Answers", asyncio.Future[Any], Context, Callable[..., Any], tuple[Any, ...]]

T = TypeVar("T")
IDLE_SECONDS = 10.0
"""A thread that has nothing to do for this long ends."""


class HandlerThreads:
    """At most `limit` threads, started when they are needed; further calls wait for one of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: SimpleQueue[Call] = SimpleQueue()
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
        loop = asyncio.get_running_loop()
        answers = self._loops.get(loop)
        if answers is None:
            answers = self._loops[loop] = _Answers(loop)
        future: asyncio.Future[T] = loop.create_future()
        answers.expected += 1
        with self._lock:
            self._calls.put((answers, future, copy_context(), function, args))
            starts = self._threads < min(self._limit, answers.expected)
            self._threads += starts
        if starts:
            Thread(target=self._run, name="noonmark-api", daemon=True).start()
        try:
            return await future
        finally:
            answers.expected -= 1
            answers.wake_next()
            if not answers.expected and not answers.waiting:
                self._loops.pop(loop, None)

    def _run(self) -> None:
        while True:
            try:
                answers, future, context, function, args = self._calls.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._calls.empty():
                        self._threads -= 1
                        return
                continue
            answer: Any = None
            error: BaseException | None = None
            try:
                answer = context.run(function, *args)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the call is awaited
                error = raised
            answers.add(future, answer, error)
            del answers, future, context, function, args, answer, error  # what a thread still names is not freed


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
