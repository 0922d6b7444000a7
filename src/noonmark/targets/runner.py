"""The function target: each function begun at its time, in its place.

Async functions are called on the loop of the driver, others in threads, or on request in processes. The threads that
wait for processes are others than those that call functions, so that neither have to wait for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND
from noonmark.core.policies.delivery import Delivery
from noonmark.core.reasons import Reason
from noonmark.core.targets import Executor, FunctionTarget
from noonmark.targets.calls import prepare
from noonmark.targets.child import check_not_loading
from noonmark.targets.endings import cut_off, not_begun, raised, succeeded, undeliverable
from noonmark.targets.processes import Processes
from noonmark.targets.workers import MAX_THREADS, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment, Report, Signal
    from noonmark.targets.functions import Function, Functions


_mine: ContextVar[Assignment | None] = ContextVar("assignment", default=None)


def current_assignment() -> Assignment | None:
    """What the function that asks was called for, if it is one that a schedule runs."""
    return _mine.get()


class FunctionRunner:
    """Delivers to the functions of this process."""

    def __init__(self, functions: Functions, max_threads: int = MAX_THREADS, max_processes: int | None = None) -> None:
        """Nothing runs until it is opened. There are at most as many processes as processors, unless it is said."""
        self.functions = functions
        self._max_threads, self._max_processes = max_threads, max_processes or os.cpu_count() or 1
        self._workers: Workers | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def abandoned(self) -> int:
        """How many threads still run what was cut off."""
        return 0 if self._workers is None else self._workers.abandoned

    def routes(self) -> tuple[str, ...]:
        """One for each function."""
        return self.functions.routes()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve the functions that other processes named by module, where they can be imported here."""
        return sum(self.functions.adopt(route) for route in routes) > 0

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready, on the loop that async functions will run on."""
        check_not_loading()
        self._report, self._now = report, now
        self._loop = asyncio.get_running_loop()
        self._workers = Workers(self._work, report, self._cut_off, now, self._max_threads)
        self._processes = Processes(self.functions, now)
        self._waiters = Workers(
            self._processes.work, report, None, now, self._max_processes, leave=self._processes.leave
        )

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Begin each at its time."""
        assert self._workers is not None, "open() comes first"  # noqa: S101 - a mistake of the programmer
        in_threads, in_processes = [], []
        for assignment in assignments:
            if _wants_process(assignment):
                in_processes.append(assignment)
            elif self._is_async(assignment):
                task = self._loop.create_task(self._run(assignment))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                in_threads.append(assignment)
        if in_threads:
            self._workers.submit(in_threads)
        if in_processes:
            self._waiters.submit(in_processes)

    def withdraw(self) -> list[Assignment]:
        """Take back what waits for its turn; but what must not begin twice has begun as far as the store knows."""
        if self._workers is None:
            return []
        return [*self._workers.withdraw(_may_begin_twice), *self._waiters.withdraw(_may_begin_twice)]

    def close(self) -> None:
        """Begin nothing more."""
        if self._workers is not None:
            self._workers.close()
            self._waiters.close()
            self._processes.close()
        for task in self._tasks:
            task.cancel()

    def _is_async(self, assignment: Assignment) -> bool:
        target = assignment.schedule.declaration.target
        function = self.functions.find(target.function) if isinstance(target, FunctionTarget) else None
        return function is not None and function.is_async

    def _work(self, assignment: Assignment) -> Delivered:
        """Call a function in this thread; whatever it raises is an answer, `SystemExit` too."""
        if assignment.stop_reason is not None:
            return not_begun(assignment, assignment.stop_reason, now=self._now())
        try:
            function, args, kwargs = prepare(self.functions, assignment)
        except LookupError as error:
            return undeliverable(str(error.args[0]), now=self._now())
        mine = _mine.set(assignment)
        try:
            result = function.call(*args, **kwargs)
            if inspect.iscoroutine(result):  # an async function in disguise: behind a lambda, or a decorator
                result = asyncio.run(result)
        except BaseException as error:  # noqa: BLE001 - a job must not end the scheduler
            return raised(assignment, error, now=self._now())
        finally:
            _mine.reset(mine)
        return succeeded(assignment, result, now=self._now())

    def _cut_off(self, assignment: Assignment) -> None:
        """The time of a thread is up: it cannot be stopped, but it is told, and no longer counts."""
        delivered = cut_off(assignment, now=self._now())
        assignment.abandoned = self.abandoned
        assignment.stop(Reason.TIMED_OUT)
        self._report(assignment, delivered)

    async def _run(self, assignment: Assignment) -> None:
        """Await a function on the loop; unlike a thread, it is cancelled when its time is up or it should stop."""
        await self._until(assignment.begins)
        assignment.started = self._now()
        if assignment.stop_reason is not None:
            self._end(assignment, not_begun(assignment, assignment.stop_reason, now=self._now()))
            return
        try:
            function, args, kwargs = prepare(self.functions, assignment)
        except LookupError as error:
            self._end(assignment, undeliverable(str(error.args[0]), now=self._now()))
            return
        deadline = assignment.ends_by(assignment.started)
        _mine.set(assignment)  # of this task; the next one has it too
        task = asyncio.ensure_future(_caught(function, args, kwargs))
        assignment.signal = _Cancel(self._loop, task, assignment.signal)
        timeout = None if deadline is None else max(0, deadline - assignment.started) / SECOND
        _, running = await asyncio.wait([task], timeout=timeout)
        if running:
            # By the time of the loop it is over; that of the node, which is set by the store's, may be a little behind.
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
        return raised(assignment, error, now=self._now())

    def _end(self, assignment: Assignment, delivered: Delivered) -> None:
        if not assignment.is_closed:
            assignment.is_closed = True
            self._report(assignment, delivered)

    async def _until(self, begins: Micros) -> None:
        """Wait for its time; a timer may be a little early."""
        while (wait := begins - self._now()) > 0:
            timer = self._loop.create_future()
            self._loop.call_later(wait / SECOND, _ring, timer)
            await timer


def _wants_process(assignment: Assignment) -> bool:
    target = assignment.schedule.declaration.target
    return isinstance(target, FunctionTarget) and target.executor is Executor.PROCESS


def _may_begin_twice(assignment: Assignment) -> bool:
    return assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE


async def _caught(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[object, BaseException | None]:
    """The result of a call, or what it raised: `SystemExit` in a task would end the whole loop."""
    try:
        return await function.call(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001 - a job must not end the scheduler
        return None, error


def _ring(timer: asyncio.Future[None]) -> None:
    if not timer.done():
        timer.set_result(None)


class _Cancel:
    """The stop signal of an async run: it cancels the task, beside setting what the function may look at."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any], inner: Signal | None) -> None:
        self._loop, self._task, self._inner = loop, task, inner
        self.was_seen = False
        """Whether the run was cancelled before it had ended; if it returned all the same, it had noticed."""

    def set(self) -> None:
        """From now on it should end."""
        if self._inner is not None:
            self._inner.set()
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self.was_seen = self._task.cancel() or self.was_seen
