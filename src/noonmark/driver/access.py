"""Calls to the store from a loop: one that would keep the loop waiting is handed to a thread that drives it."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.driver.drive import drive

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from noonmark.ports.store import Store

    Question = tuple[Coroutine[Any, Any, Any], asyncio.Future[Any]]

T = TypeVar("T")

THREADS = 4
"""What a driver asks at the same time: to look for work, to start, twice, and to settle."""


class Access:
    """The way from a loop to a store; blocking calls are made in as many threads as the store has lines.

    A thread is not one of an executor: those end before a program that is about to exit can hand back what it holds.
    """

    def __init__(self, store: Store, threads: int = THREADS) -> None:
        """Threads are made when they are first needed."""
        self._blocks = store.traits.blocks
        self._most = min(store.traits.lines, threads)
        self._urgent: deque[Question] = deque()
        self._others: deque[Question] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        """One for each question, in whichever line it stands; False is the end."""
        self._threads: list[Thread] = []
        self._asking = 0

    async def ask(self, call: Coroutine[Any, Any, T], *, first: bool = False) -> T:
        """The answer of the store; what is asked `first` does not wait for what is not."""
        if not self._blocks:
            return await call
        self._asking += 1
        if len(self._threads) < min(self._asking, self._most):
            self._threads.append(Thread(target=self._serve, name="noonmark-store", daemon=True))
            self._threads[-1].start()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (self._urgent if first else self._others).append((call, answer))
        self._calls.put(True)  # noqa: FBT003 - there is a question
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            # The store does it all the same, and what it answers must be known, or nobody would give back what was
            # claimed. Whoever asked is cancelled where it next waits for something else.
            while not answer.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([answer])
            task = asyncio.current_task()
            if task is not None:
                task.cancel()
            return answer.result()
        finally:
            self._asking -= 1

    def close(self) -> None:
        """Let the threads go when they are done."""
        for _ in self._threads:
            self._calls.put(False)  # noqa: FBT003 - there is none
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _serve(self) -> None:
        while self._calls.get():
            call, answer = self._take()
            result: Any = None
            error: BaseException | None = None
            try:
                result = drive(call)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the answer is awaited
                error = raised
            hand(answer, result, error)

    def _take(self) -> Question:
        # Not by looking whether there is an urgent one: another thread may take it between the look and the grasp.
        try:
            return self._urgent.popleft()
        except IndexError:
            return self._others.popleft()


def hand(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    """Give an answer to whoever awaits it on a loop, from another thread."""
    if isinstance(error, StopIteration):  # no future takes one
        error = RuntimeError(f"StopIteration: {error}")
    with suppress(RuntimeError):  # the loop has ended, and nobody waits
        answer.get_loop().call_soon_threadsafe(_tell, answer, result, error)


def _tell(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():  # whoever asked was cancelled
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
