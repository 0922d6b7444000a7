"""Store calls from an event loop. A call that blocks runs in a thread, so the loop never waits for the store."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from enum import IntEnum
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.ports.store import Store

    Call = tuple[Callable[[], Any], asyncio.Future[Any]]

T = TypeVar("T")

MAX_THREADS = 5
"""What a driver calls at the same time: look for work, start (two tasks), settle (two tasks)."""


class Priority(IntEnum):
    """An urgent call overtakes every normal call that has not begun."""

    URGENT = 0
    NORMAL = 1


class Executor(Protocol):
    """Calls a plain function of the store and awaits its answer."""

    async def call(
        self,
        fn: Callable[..., T],
        *args: Any,
        priority: Priority = Priority.NORMAL,
        **kwargs: Any,
    ) -> T:
        """The answer of `fn(*args, **kwargs)`."""


class InlineExecutor:
    """Calls in the thread of the caller. What awaits it never suspends."""

    async def call(
        self,
        fn: Callable[..., T],
        *args: Any,
        priority: Priority = Priority.NORMAL,  # noqa: ARG002 - nothing waits here
        **kwargs: Any,
    ) -> T:
        """The answer of `fn(*args, **kwargs)`."""
        return fn(*args, **kwargs)


class StoreExecutor:
    """Runs blocking calls in threads, at most as many as the store has connections.

    A store that does not block is called inline. The threads are not those of `concurrent.futures`: those end before
    an exiting program can release its leases.
    """

    def __init__(self, store: Store, max_threads: int = MAX_THREADS) -> None:
        """Threads start when they are first needed."""
        self._blocks = store.traits.blocks
        self._max_threads = min(store.traits.max_concurrency, max_threads)
        self._queues: dict[Priority, deque[Call]] = {priority: deque() for priority in Priority}
        self._tickets: SimpleQueue[bool] = SimpleQueue()
        """True for each queued call, of any priority. False ends a thread."""
        self._threads: list[Thread] = []
        self._pending = 0

    async def call(
        self,
        fn: Callable[..., T],
        *args: Any,
        priority: Priority = Priority.NORMAL,
        **kwargs: Any,
    ) -> T:
        """The answer of `fn(*args, **kwargs)`.

        A call that was made is never given up: if the caller is cancelled, it still gets the answer, and is cancelled
        at its next await. Otherwise what the call has claimed would be lost until its lease ends.
        """
        if not self._blocks:
            return fn(*args, **kwargs)
        self._pending += 1
        if len(self._threads) < min(self._pending, self._max_threads):
            self._threads.append(Thread(target=self._serve, name="noonmark-store", daemon=True))
            self._threads[-1].start()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queues[priority].append((partial(fn, *args, **kwargs), answer))
        self._tickets.put(True)  # noqa: FBT003 - a call is queued
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            while not answer.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([answer])
            task = asyncio.current_task()
            if task is not None:
                task.cancel()
            return answer.result()
        finally:
            self._pending -= 1

    def close(self) -> None:
        """End the threads when they have made every queued call."""
        for _ in self._threads:
            self._tickets.put(False)  # noqa: FBT003 - the end
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _serve(self) -> None:
        while self._tickets.get():
            call, answer = self._take()
            result: Any = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - it is raised where the answer is awaited
                error = raised
            resolve_threadsafe(answer, result, error)

    def _take(self) -> Call:
        # There is a call for each ticket. Looking before popping would race with the other threads.
        try:
            return self._queues[Priority.URGENT].popleft()
        except IndexError:
            return self._queues[Priority.NORMAL].popleft()


def resolve_threadsafe(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    """Set the result or the error of a future of another thread's event loop."""
    if isinstance(error, StopIteration):  # a future does not accept it
        error = RuntimeError(f"StopIteration: {error}")
    with suppress(RuntimeError):  # the loop has ended
        answer.get_loop().call_soon_threadsafe(_resolve, answer, result, error)


def _resolve(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():  # the caller was cancelled
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
