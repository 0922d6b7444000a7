"""The engine: a driver's loop, in a thread of its own or on the event loop of the program."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.core.errors import Conflict
from noonmark.driver.loop import Loop
from noonmark.embedded.settings import LOOK_EVERY
from noonmark.targets.function.runner import current_assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from noonmark.core.instants import Micros
    from noonmark.ports.runtime import Runtime

    T = TypeVar("T")

LAST_WORD = 1.0
"""Seconds that async functions have to end when they are cancelled at the end; one that goes on is left behind."""


class AnyEngine:
    """A loop that runs until it is stopped, wherever that is."""

    loop: Loop
    _events: asyncio.AbstractEventLoop
    _thread: threading.Thread

    def __init__(self) -> None:
        """It has not ended."""
        self._ended = threading.Event()
        self._takes_calls = True
        self._calls: set[asyncio.Task[Any]] = set()
        """A loop alone would let a task be forgotten while it waits."""
        """Whether its loop will see a call through; what is asked for later is refused."""
        self._pid = os.getpid()

    def wake(self, at: Micros | None = None) -> None:
        """There is something new to be done, at that time or at once."""
        self.loop.wake(at)

    def stop(self, grace: Micros | None) -> None:
        """Begin nothing more, and hand back what has not ended after the grace period. Returns at once."""
        self.loop.stop(grace)

    def leave(self) -> None:
        """The program ends: hand back what it holds, so that nobody has to wait for its leases.

        A process that was forked meanwhile has this engine too, but not its threads.
        """
        if self._pid == os.getpid():
            self.stop(0)
            self.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end, or so long.

        Not by joining a thread: a join that is interrupted takes the thread for ended, and then nobody waits for it.
        """
        self._ended.wait(seconds)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return not self._ended.is_set()

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread of its loop, which must not wait for it."""
        return threading.current_thread() is self._thread

    @property
    def is_caller(self) -> bool:
        """Whether it is one of its own runs that asks; it would wait for itself."""
        mine = current_assignment()
        if mine is None:
            return self.is_own_thread
        return self.loop.driver.node.deliveries.get(mine.occurrence.id) is mine

    def call(self, make: Callable[[Loop], Coroutine[Any, Any, T]]) -> T:
        """Do something on the engine's own loop, and wait for it; a Conflict when it has stopped meanwhile."""
        answer: Future[T] = Future()
        try:
            # The call is made over there: a loop that has stopped meanwhile would leave it behind, never awaited.
            self._events.call_soon_threadsafe(self._answer, make, answer)
        except RuntimeError:  # the loop is closed
            raise Conflict("the scheduler was stopped") from None
        while not wait([answer], LOOK_EVERY).done and self.is_alive:
            pass
        if not answer.done():
            answer.cancel()  # should its loop get to it after all, nobody waits any more
            raise Conflict("the scheduler was stopped")
        return answer.result()

    def _answer(self, make: Callable[[Loop], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        if not self._takes_calls:  # the loop is being cleared away, and would leave a new task behind
            answer.set_exception(Conflict("the scheduler was stopped"))
            return
        task = self._events.create_task(make(self.loop))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(partial(_tell, answer))


def _tell(answer: Future[T], task: asyncio.Task[T]) -> None:
    """Hand over what became of a call to whoever waits for it in another thread."""
    if task.cancelled():
        answer.set_exception(Conflict("the scheduler was stopped"))
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


class Engine(AnyEngine):
    """In a thread of its own. With `looks=False` it does nothing but what it is asked to fetch."""

    def __init__(self, runtime: Runtime, *, looks: bool = True) -> None:
        """The thread is made, and the loop is running when this returns."""
        super().__init__()
        self._runtime, self._looks = runtime, looks
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._is_wanted = True
        self._thread = threading.Thread(target=self._run, name="noonmark", daemon=True)
        self._thread.start()
        try:
            self._ready.wait()
        except BaseException:  # Ctrl-C: nobody will have it, so nobody else could stop it
            self._is_wanted = False
            if self._ready.is_set() and self._failure is None:
                self.stop(0)
            raise
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        self._events = asyncio.new_event_loop()
        try:
            self._events.run_until_complete(self._main())
        except BaseException as error:
            self._failure = error
            self._ready.set()
            raise
        finally:
            self._let_go()
            self._ended.set()

    async def _main(self) -> None:
        self.loop = Loop(self._runtime, looks=self._looks)
        await self.loop.run(self._begun)

    def _begun(self) -> None:
        self._ready.set()
        if not self._is_wanted:
            self.stop(0)

    def _let_go(self) -> None:
        """Cancel what is left. Unlike `asyncio.run`, this does not wait for an async function that will not end."""
        self._takes_calls = False
        if left := asyncio.all_tasks(self._events):
            for task in left:
                task.cancel()
            self._events.run_until_complete(asyncio.wait(left, timeout=LAST_WORD))
        self._events.run_until_complete(self._events.shutdown_asyncgens())
        self._events.close()


class Guest(AnyEngine):
    """On the event loop of the program, where its async functions run too."""

    def __init__(self, runtime: Runtime, events: asyncio.AbstractEventLoop, *, looks: bool = True) -> None:
        """Made from any thread while the event loop runs; it has begun when this returns."""
        super().__init__()
        self._events = events
        if asyncio._get_running_loop() is events:  # noqa: SLF001 - get_running_loop raises where there is none
            self._begin(runtime, looks=looks)
            return
        begun: Future[None] = Future()
        try:
            events.call_soon_threadsafe(self._begin_there, runtime, looks, begun)
        except RuntimeError:  # the loop is closed
            raise Conflict("the event loop has ended") from None
        while not wait([begun], LOOK_EVERY).done and events.is_running():
            pass
        if not begun.done():
            begun.cancel()  # should the loop get to it after all, nobody would stop what it begins
            raise Conflict("the event loop has ended")
        begun.result()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end, or so long; but an event loop that does not run any more will not bring it about."""
        wait_for = LOOK_EVERY if seconds is None else seconds
        while not self._ended.wait(wait_for) and seconds is None and self._events.is_running():
            pass

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; without its event loop it does not, though nobody has told it."""
        return super().is_alive and self._events.is_running()

    def _begin_there(self, runtime: Runtime, looks: bool, begun: Future[None]) -> None:  # noqa: FBT001 - of a callback
        if begun.set_running_or_notify_cancel():
            try:
                self._begin(runtime, looks=looks)
            except BaseException as error:  # noqa: BLE001 - it is raised where the beginning is awaited
                begun.set_exception(error)
            else:
                begun.set_result(None)

    def _begin(self, runtime: Runtime, *, looks: bool) -> None:
        self._thread = threading.current_thread()
        self.loop = Loop(runtime, looks=looks)
        self._task = self._events.create_task(self.loop.run())
        self._task.add_done_callback(self._end)

    def _end(self, _: asyncio.Task[int]) -> None:
        self._takes_calls = False
        self._ended.set()
