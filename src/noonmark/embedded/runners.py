"""Runners: a driver's loop in a separate thread or on the program's event loop, and the pool of a scheduler."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import weakref
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from noonmark.core.errors import Conflict
from noonmark.embedded.arguments import POLL_SECONDS
from noonmark.targets.function.runner import current_assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from noonmark.core.instants import Micros
    from noonmark.driver.loop import Loop
    from noonmark.ports.runtime import Runtime

    T = TypeVar("T")

logger = logging.getLogger("noonmark.driver")


class _Runner(Protocol):
    def stop_at_exit(self) -> None: ...


class _Forkable(Protocol):
    def _after_fork(self) -> None: ...


_finalizers: dict[_Runner, Any] = {}
_forkable: weakref.WeakSet[_Forkable] = weakref.WeakSet()


def register_exit(runner: _Runner) -> None:
    """Stop a runner when the program exits, even if its scheduler is gone."""
    atexit.register(runner.stop_at_exit)
    if "multiprocessing.process" in sys.modules:
        # A process forked by multiprocessing exits without running the atexit callbacks.
        from multiprocessing import parent_process, util  # noqa: PLC0415 - only where it is used anyway

        if parent_process() is not None:
            _finalizers[runner] = util.Finalize(None, runner.stop_at_exit, exitpriority=0)


def unregister_exit(runner: _Runner) -> None:
    """Undo `register_exit` for a runner that has stopped."""
    atexit.unregister(runner.stop_at_exit)
    finalizer = _finalizers.pop(runner, None)
    if finalizer is not None:
        finalizer.cancel()


def register_fork(scheduler: _Forkable) -> None:
    """Call `_after_fork` of a scheduler in each forked process. A fork copies its state, but none of its threads."""
    _forkable.add(scheduler)


def _after_fork() -> None:
    for scheduler in list(_forkable):
        scheduler._after_fork()  # noqa: SLF001 - a part of the scheduler


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


CANCEL_SECONDS = 1.0
"""How long cancelled async functions have to end when a runner stops; one that goes on is abandoned."""
INTERRUPT_SECONDS = 5.0
"""How long a runner has to hand back its runs when `stop` is interrupted."""


class Runner:
    """A driver's loop that runs until it is stopped."""

    loop: Loop
    _event_loop: asyncio.AbstractEventLoop
    _thread: threading.Thread

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._accepts_calls = True
        """Whether its event loop completes new calls; later ones are refused."""
        self._calls: set[asyncio.Task[Any]] = set()
        """Strong references: an event loop alone would let a waiting task be collected."""
        self._pid = os.getpid()

    def wake(self, at: Micros | None = None) -> None:
        """Look for work at that time, or at once."""
        self.loop.wake(at)

    def stop(self, grace: Micros | None) -> None:
        """Start nothing more, and hand back what has not ended after the grace period. Returns at once."""
        self.loop.stop(grace)

    def stop_at_exit(self) -> None:
        """Hand back everything when the program exits, so that other nodes need not wait for its leases.

        A process that was forked meanwhile has this runner too, but not its threads.
        """
        if self._pid == os.getpid():
            self.stop(0)
            self.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or for so long.

        It does not join a thread: after an interrupted join, Python takes the thread for ended, and never waits again.
        """
        self._ended.wait(seconds)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return not self._ended.is_set()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is on the thread of its loop, which must not wait for it."""
        return threading.current_thread() is self._thread

    @property
    def is_caller(self) -> bool:
        """Whether the caller is one of its own runs, which would wait for itself."""
        assignment = current_assignment()
        if assignment is None:
            return self.is_own_thread
        return self.loop.driver.node.deliveries.get(assignment.occurrence.id) is assignment

    def call(self, make: Callable[[Loop], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on its event loop and wait for the result; Conflict when the runner stops meanwhile."""
        result: Future[T] = Future()
        try:
            # The coroutine is made over there: if the loop has stopped, it would never be awaited.
            self._event_loop.call_soon_threadsafe(self._start_call, make, result)
        except RuntimeError:  # the event loop is closed
            raise Conflict("the scheduler was stopped") from None
        while not wait([result], POLL_SECONDS).done and self.is_alive:
            pass
        if not result.done():
            result.cancel()  # the event loop may still get to it, and must not start it then
            raise Conflict("the scheduler was stopped")
        return result.result()

    def _start_call(self, make: Callable[[Loop], Coroutine[Any, Any, T]], result: Future[T]) -> None:
        if not result.set_running_or_notify_cancel():
            return
        if not self._accepts_calls:  # the event loop is closing, and would drop a new task
            result.set_exception(Conflict("the scheduler was stopped"))
            return
        task = self._event_loop.create_task(make(self.loop))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(partial(_copy_result, result))


def _copy_result(result: Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        result.set_exception(Conflict("the scheduler was stopped"))
    elif (error := task.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())


class ThreadRunner(Runner):
    """Runs in a thread of its own. With `claims=False` it only runs what it is asked to fetch."""

    def __init__(self, runtime: Runtime, *, claims: bool = True) -> None:
        """Start the thread; the loop is running when this returns."""
        super().__init__()
        self._runtime, self._claims = runtime, claims
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name="noonmark", daemon=True)
        self._thread.start()
        try:
            self._started.wait()
        except BaseException:  # Ctrl-C: the caller never gets this runner, so nothing else can stop it
            self._is_abandoned = True
            if self._started.is_set() and self._failure is None:
                self.stop(0)
            raise
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        self._event_loop = asyncio.new_event_loop()
        try:
            self._event_loop.run_until_complete(self._main())
        except BaseException as error:
            self._failure = error
            self._started.set()
            raise
        finally:
            self._close_event_loop()
            self._ended.set()

    async def _main(self) -> None:
        self.loop = _new_loop(self._runtime, claims=self._claims)
        await self.loop.run(self._on_start)

    def _on_start(self) -> None:
        self._started.set()
        if self._is_abandoned:
            self.stop(0)

    def _close_event_loop(self) -> None:
        """Cancel what is left. Unlike `asyncio.run`, this does not wait for an async function that never ends."""
        self._accepts_calls = False
        if left := asyncio.all_tasks(self._event_loop):
            for task in left:
                task.cancel()
            self._event_loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_SECONDS))
        self._event_loop.run_until_complete(self._event_loop.shutdown_asyncgens())
        self._event_loop.close()


class LoopRunner(Runner):
    """Runs on the event loop of the program, where its async functions run too."""

    def __init__(self, runtime: Runtime, event_loop: asyncio.AbstractEventLoop, *, claims: bool = True) -> None:
        """Start it from any thread while the event loop runs; it has started when this returns."""
        super().__init__()
        self._event_loop = event_loop
        if asyncio._get_running_loop() is event_loop:  # noqa: SLF001 - get_running_loop raises where there is none
            self._start(runtime, claims=claims)
            return
        started: Future[None] = Future()
        try:
            event_loop.call_soon_threadsafe(self._start_there, runtime, claims, started)
        except RuntimeError:  # the event loop is closed
            raise Conflict("the event loop has ended") from None
        while not wait([started], POLL_SECONDS).done and event_loop.is_running():
            pass
        if not started.done():
            started.cancel()  # the event loop may still get to it, and nothing would stop it then
            raise Conflict("the event loop has ended")
        started.result()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or for so long; an event loop that no longer runs will not end it."""
        poll = POLL_SECONDS if seconds is None else seconds
        while not self._ended.wait(poll) and seconds is None and self._event_loop.is_running():
            pass

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; without its event loop it does not, even if it was never stopped."""
        return super().is_alive and self._event_loop.is_running()

    def _start_there(self, runtime: Runtime, claims: bool, started: Future[None]) -> None:  # noqa: FBT001 - of a callback
        if started.set_running_or_notify_cancel():
            try:
                self._start(runtime, claims=claims)
            except BaseException as error:  # noqa: BLE001 - it is raised where the start is awaited
                started.set_exception(error)
            else:
                started.set_result(None)

    def _start(self, runtime: Runtime, *, claims: bool) -> None:
        self._thread = threading.current_thread()
        self.loop = _new_loop(runtime, claims=claims)
        self._task = self._event_loop.create_task(self.loop.run())
        self._task.add_done_callback(self._end)

    def _end(self, _: asyncio.Task[int]) -> None:
        self._accepts_calls = False
        self._ended.set()


def _new_loop(runtime: Runtime, *, claims: bool) -> Loop:
    from noonmark.driver.loop import Loop  # noqa: PLC0415 - the driver is loaded when there is something to run

    return Loop(runtime, claims=claims)


class RunnerPool:
    """The runners of a scheduler: the one between `start` and `stop`, and those made for one call. Thread-safe."""

    def __init__(self, make: Callable[[bool], Runner]) -> None:
        """`make` starts a runner; its argument says whether that looks for work by itself."""
        self._make = make
        self.after_fork()

    def after_fork(self) -> None:
        """Reset in a forked process, which has no threads and may have locks that are never released."""
        self.current: Runner | None = None
        self._stopping: Runner | None = None
        """The last one that was stopped; it may not have ended yet."""
        self._all: weakref.WeakSet[Runner] = weakref.WeakSet()
        """All that may still run something, also those that are stopping, or were made for one call."""
        self._lock = threading.RLock()

    @property
    def running(self) -> Runner | None:
        """The runner between start and stop, unless its event loop has ended."""
        runner = self.current
        return runner if runner is not None and runner.is_alive else None

    @property
    def alive(self) -> list[Runner]:
        """All that may still run something."""
        with self._lock:
            return [runner for runner in self._all if runner.is_alive]

    def start(self) -> None:
        """Start the one that looks for work, unless it runs. A concurrent `stop` waits until it has started."""
        with self._lock:
            if self.running is None:
                self.current = self.new(claims=True)
                register_exit(self.current)

    def new(self, *, claims: bool = False) -> Runner:
        """Start one more."""
        runner = self._make(claims)
        with self._lock:
            self._all.add(runner)
        return runner

    def stop(self, grace: Micros | None) -> None:
        """Stop the one that looks for work, and wait for its end, unless the caller is one of its own runs."""
        with self._lock:
            runner = self.current or self._stopping
            self.current, self._stopping = None, runner
        if runner is None:
            return
        try:
            runner.stop(grace)
            if runner.is_caller:
                return
            runner.wait()
        except BaseException:  # Ctrl-C: the caller no longer waits, so what still runs is handed back
            runner.stop(0)
            runner.wait(INTERRUPT_SECONDS)
            raise
        unregister_exit(runner)

    def log_waiting(self) -> None:
        """Log what a stop by a signal waits for, and what ends the wait; nothing if nothing runs."""
        count = sum(len(runner.loop.driver.node.deliveries) for runner in self.alive)
        if count:
            runs, them = ("1 run", "it") if count == 1 else (f"{count:,} runs", "them")
            logger.warning("stopping: waiting for %s to end; a second signal hands %s back", runs, them)

    def drain(self) -> Runner | None:
        """Drain the current runner: it starts nothing more, and ends when its runs have ended. Returns at once.

        The caller has to wait for the runner that is returned, if there was one.
        """
        with self._lock:
            runner, self.current = self.current, None
        if runner is not None:
            runner.stop(None)
        return runner

    def hand_back(self) -> None:
        """Make the stopping runner hand back its runs now instead of waiting for them. Returns at once."""
        runner = self._stopping
        if runner is not None:
            runner.stop(0)

    def wake(self) -> None:
        """Look for work now."""
        runner = self.current
        if runner is not None:
            runner.wake()

    def adopt(self, routes: Collection[str]) -> None:
        """Serve these routes from now on. The store has them too, but is asked only now and then."""
        runner = self.current
        if runner is not None:
            runner.loop.driver.node.runtime.target.adopt(routes)

    def check_stop_requests(self) -> None:
        """Check whether a run was asked to stop."""
        for runner in self.alive:
            runner.loop.check_stop_requests()
