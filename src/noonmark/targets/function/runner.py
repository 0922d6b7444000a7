"""Runners of functions.

`FunctionRunner` calls async functions on the driver's event loop, others in threads or, on request, in processes. The
threads that wait for processes are separate from those that call functions, so that neither waits for the other.
`InlineRunner` calls everything in the driver's thread, for tests that control the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND
from noonmark.core.reasons import Reason
from noonmark.core.targets import Executor, FunctionTarget
from noonmark.targets import MAX_THREADS
from noonmark.targets.function.call import prepare_call
from noonmark.targets.function.process_pool import ProcessPool
from noonmark.targets.function.process_worker import check_not_loading
from noonmark.targets.outcomes import cut_off, failed, not_started, stopped, succeeded, undeliverable
from noonmark.targets.process_control import is_killed
from noonmark.targets.progress import ProgressReporter, report_progress
from noonmark.targets.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment, Report, Signal
    from noonmark.targets.function.call import TakeProgress
    from noonmark.targets.function.registry import Function, FunctionRegistry

_PROCESS = Executor.PROCESS

_current: ContextVar[Assignment | None] = ContextVar("assignment", default=None)


def current_assignment() -> Assignment | None:
    """Return the assignment of the function that calls this, if a schedule runs it."""
    return _current.get()


class FunctionRunner:
    """Calls the functions of this process."""

    def __init__(
        self, functions: FunctionRegistry, max_threads: int = MAX_THREADS, max_processes: int | None = None
    ) -> None:
        self.functions = functions
        self._max_threads, self._max_processes = max_threads, max_processes or os.cpu_count() or 1
        self._threads: WorkerPool | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def abandoned(self) -> int:
        """How many threads still run work that was cut off."""
        return 0 if self._threads is None else self._threads.abandoned

    def routes(self) -> tuple[str, ...]:
        """Return one route per function."""
        return self.functions.routes()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve functions that other processes named by module, where they can be imported here."""
        return sum(self.functions.adopt(route) for route in routes) > 0

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Prepare the pools. Async functions will run on the current event loop."""
        check_not_loading()
        self._report, self._now = report, now
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._threads = WorkerPool(self._call_in_thread, report, self._abandon, now, self._max_threads)
        self._processes = ProcessPool(self.functions, now)
        self._process_waiters = WorkerPool(
            self._processes.call, report, None, now, self._max_processes, on_exit=self._processes.release_idle
        )

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Call each function when it is due. Steps of workflows come from another thread than that of the loop."""
        assert self._threads is not None, "open() comes first"  # noqa: S101 - a programming error
        in_threads, in_processes, on_loop = [], [], []
        find = self.functions.find
        for assignment in assignments:
            target = assignment.schedule.declaration.target
            if not isinstance(target, FunctionTarget):
                in_threads.append(assignment)
            elif target.executor is _PROCESS:
                assignment.progress = self._progress(assignment)
                in_processes.append(assignment)
            elif (function := find(target.function)) is not None and function.is_async:
                on_loop.append(assignment)
            else:
                in_threads.append(assignment)
        if in_threads:
            self._threads.submit(in_threads)
        if in_processes:
            self._process_waiters.submit(in_processes)
        if on_loop and threading.get_ident() == self._loop_thread:
            self._begin_on_loop(on_loop)
        elif on_loop:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and these were handed back
                self._loop.call_soon_threadsafe(self._begin_on_loop, on_loop)

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        return [] if self._threads is None else [*self._threads.withdraw(), *self._process_waiters.withdraw()]

    def close(self) -> None:
        """Start nothing more, and cancel what runs on the loop or in processes."""
        if self._threads is not None:
            self._threads.close()
            self._process_waiters.close()
            self._processes.close()
        for task in self._tasks:
            task.cancel()

    def _begin_on_loop(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            task = self._loop.create_task(self._call_on_loop(assignment))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _progress(self, assignment: Assignment) -> ProgressReporter:
        return ProgressReporter(assignment, self._report, self._loop)

    def _call_in_thread(self, assignment: Assignment) -> Delivered:
        """Call a function in this thread. Whatever it raises is an outcome, `SystemExit` too."""
        if assignment.stop_reason is not None:
            return not_started(assignment, assignment.stop_reason, now=self._now())
        token = _current.set(assignment)
        try:
            if assignment.traces is None:
                return _call(self.functions, assignment, asyncio.run, self._now, self._progress)
            with assignment.traced():
                return _call(self.functions, assignment, asyncio.run, self._now, self._progress)
        finally:
            _current.reset(token)

    def _abandon(self, assignment: Assignment) -> None:
        """Report a run whose thread passed its deadline or is replaced. It cannot be stopped; it is only asked to."""
        now = self._now()
        if is_killed(assignment):
            delivered = stopped(assignment, Reason.REPLACED, None, now=now)
        else:
            delivered = cut_off(assignment, now=now)
        assignment.abandoned = self.abandoned
        assignment.stop(Reason.TIMED_OUT)
        self._report(assignment, delivered)

    async def _call_on_loop(self, assignment: Assignment) -> None:
        """Await a function. Unlike a thread, it is cancelled when it passes its deadline or should stop."""
        await self._sleep_until(assignment.begins)
        assignment.started = self._now()
        if assignment.stop_reason is not None:
            self._end(assignment, not_started(assignment, assignment.stop_reason, now=self._now()))
            return
        try:
            function, args, kwargs = prepare_call(self.functions, assignment, self._progress)
        except LookupError as error:
            self._end(assignment, undeliverable(str(error.args[0]), now=self._now()))
            return
        deadline = assignment.ends_by(assignment.started)
        _current.set(assignment)  # in the context of this task, which the next one inherits
        with assignment.traced():  # the task inherits that, too
            task = asyncio.ensure_future(_result_or_error(function, args, kwargs))
        assignment.signal = _TaskCancel(self._loop, task, assignment.signal)
        timeout = None if deadline is None else max(0, deadline - assignment.started) / SECOND
        _, running = await asyncio.wait([task], timeout=timeout)
        if running:
            # The loop's clock says that the time is up; the node's, which follows the store's, may be a little behind.
            delivered = cut_off(assignment, now=max(self._now(), deadline or 0))
            assignment.stop(Reason.TIMED_OUT)
            self._end(assignment, delivered)
            with contextlib.suppress(BaseException):
                await task
            return
        self._end(assignment, self._outcome(assignment, task))

    def _outcome(self, assignment: Assignment, task: asyncio.Future[tuple[object, BaseException | None]]) -> Delivered:
        result, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        if error is None:
            return succeeded(assignment, result, now=self._now())
        return failed(assignment, error, now=self._now())

    def _end(self, assignment: Assignment, delivered: Delivered) -> None:
        if not assignment.is_closed:
            assignment.is_closed = True
            self._report(assignment, delivered)

    async def _sleep_until(self, begins: Micros) -> None:
        """Wait for an instant; a timer may fire a little early."""
        while (wait := begins - self._now()) > 0:
            timer = self._loop.create_future()
            self._loop.call_later(wait / SECOND, _resolve, timer)
            await timer


class InlineRunner:
    """Calls functions in the driver's thread, one after another, and returns when they have returned.

    A function that asks for a process is called here as well.
    """

    def __init__(self, functions: FunctionRegistry) -> None:
        self._functions = functions

    def routes(self) -> tuple[str, ...]:
        """Return one route per function."""
        return self._functions.routes()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve functions that other processes named by module, where they can be imported here."""
        return sum(self._functions.adopt(route) for route in routes) > 0

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Remember where to report."""
        self._report, self._now = report, now

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Call each function, in order. One that returns after its deadline counts as cut off."""
        for assignment in assignments:
            assignment.started = self._now()
            delivered = _call(self._functions, assignment, _run_in_thread, self._now, self._progress)
            deadline = assignment.ends_by(assignment.started)
            if deadline is not None and delivered.ended >= deadline:
                delivered = cut_off(assignment, now=delivered.ended)
            assignment.is_closed = True
            self._report(assignment, delivered)

    def _progress(self, assignment: Assignment) -> TakeProgress:
        return partial(report_progress, assignment, self._report)

    def withdraw(self) -> list[Assignment]:
        """Return nothing: no assignment is ever queued."""
        return []

    def close(self) -> None:
        """Do nothing: no call outlives `deliver`."""


def _call(
    functions: FunctionRegistry,
    assignment: Assignment,
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    now: Callable[[], Micros],
    progress: Callable[[Assignment], TakeProgress],
) -> Delivered:
    """Call a function in this thread; `run` runs the coroutine that an async function returns."""
    try:
        function, args, kwargs = prepare_call(functions, assignment, progress)
    except LookupError as error:
        return undeliverable(str(error.args[0]), now=now())
    try:
        result = function.call(*args, **kwargs)
        if inspect.iscoroutine(result):  # also an async function behind a lambda or a decorator
            result = run(result)
    except BaseException as error:  # noqa: BLE001 - a job must not end the scheduler
        return failed(assignment, error, now=now())
    return succeeded(assignment, result, now=now())


def _run_in_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in another thread, since this one may have a running event loop."""
    answer: dict[str, Any] = {}

    def run() -> None:
        try:
            answer["result"] = asyncio.run(coroutine)
        except BaseException as error:  # noqa: BLE001 - raised again below
            answer["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in answer:
        raise answer["error"]
    return answer["result"]


async def _result_or_error(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[object, BaseException | None]:
    """Return the result of a call, or what it raised: `SystemExit` in a task would end the whole loop."""
    try:
        return await function.call(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001 - a job must not end the scheduler
        return None, error


def _resolve(timer: asyncio.Future[None]) -> None:
    if not timer.done():
        timer.set_result(None)


class _TaskCancel:
    """The stop signal of an async run: it cancels the task, and sets the event of its context."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any], inner: Signal | None) -> None:
        self._loop, self._task, self._inner = loop, task, inner
        self.was_seen = False
        """Whether the run was cancelled before it ended; if it returned all the same, it had noticed."""

    def set(self) -> None:
        """Ask the run to stop."""
        if self._inner is not None:
            self._inner.set()
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self.was_seen = self._task.cancel() or self.was_seen
