"""Calls to the store, from a loop and from a thread without one.

A store that blocks does its work in the thread that awaits a verb, and never suspends. So a thread without a loop can
drive a verb to its end by itself, and a loop hands it to a thread that does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from noonmark.ports.store import Store

    Question = tuple[Coroutine[Any, Any, Any], asyncio.Future[Any]]

T = TypeVar("T")


def drive(call: Coroutine[Any, Any, T]) -> T:
    """Run a call that never suspends to its end, in this thread."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("the store suspended in a call that has no event loop")


class Access:
    """The way from a loop to a store; blocking calls are made one after another, in one thread.

    The thread is not one of an executor: those end before a program that is about to exit can hand back what it holds.
    """

    def __init__(self, store: Store) -> None:
        """The thread is made when it is first needed."""
        self._blocks = store.traits.blocks
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._writer: Thread | None = None

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """The answer of the store."""
        if not self._blocks:
            return await call
        if self._writer is None:
            self._writer = Thread(target=self._serve, name="noonmark-store", daemon=True)
            self._writer.start()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._questions.put((call, answer))
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

    def close(self) -> None:
        """Let the thread go when it is done."""
        if self._writer is not None:
            self._questions.put(None)
            self._writer.join()
            self._writer = None

    def _serve(self) -> None:
        while (question := self._questions.get()) is not None:
            call, answer = question
            result: Any = None
            error: BaseException | None = None
            try:
                result = drive(call)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the answer is awaited
                error = raised
            hand(answer, result, error)


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
