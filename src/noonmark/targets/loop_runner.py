"""The loop runner: a target whose deliveries are coroutines, in one thread with its own event loop.

The separate thread keeps slow receivers away from the loops of the program and of the driver. The number of deliveries
in flight is limited; what is due beyond that is queued without a task. The owners of the schedules take turns, and no
owner has more deliveries in flight than are free, so that one owner's slow ones do not block those of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.fair_queue import FairQueue, Places
from noonmark.core.instants import SECOND
from noonmark.targets.outcomes import not_started, stopped
from noonmark.targets.worker_pool import may_redeliver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.reasons import Reason
    from noonmark.core.schedule import Owner
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.target import Assignment, Report

CLOSE_SECONDS = 1.0
"""Seconds that deliveries have to end when the runner is closed."""


class LoopRunner:
    """Begins each delivery when it is due, and reports its end. A subclass carries it out."""

    thread_name: str

    def __init__(self, limit: int) -> None:
        """With at most `limit` deliveries in flight; one owner alone may have half of them.

        The thread starts with the first delivery.
        """
        self._places = Places(limit)
        self._lock = threading.Lock()
        self._queue: FairQueue[Assignment] = FairQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wakeup = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def _deliver(self, assignment: Assignment) -> Delivered | Accepted:
        """Carry out one delivery. If the task is cancelled, the assignment may have a reason to stop."""
        raise NotImplementedError

    async def _release(self) -> None:
        """Release what deliveries share, when the runner is closed."""

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Remember where to report."""
        self._report, self._now = report, now

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Begin each delivery when it is due."""
        with self._lock:
            for assignment in assignments:
                self._queue.put(assignment.schedule.owner, assignment.begins, assignment)
            self._start_thread()
        self._wake()

    def _start_thread(self) -> None:
        """Start the thread, unless it runs; with the lock held."""
        if self._loop is None and not self._is_closed:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run_loop, args=(self._loop,), name=self.thread_name, daemon=True
            )
            self._thread.start()

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        with self._lock:
            return self._queue.remove(may_redeliver)

    def close(self) -> None:
        """Begin nothing more, and cancel deliveries in flight."""
        with self._lock:
            self._is_closed = True
            self._queue.clear()
        self._wake()

    def _wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wakeup.set)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_until_complete(self._serve())
        finally:
            loop.close()

    async def _serve(self) -> None:
        while not self._is_closed:
            self._wakeup.clear()
            with self._lock:
                due = self._take_due()
                # What is due and was not taken waits for a free place; freeing one wakes this loop.
                next_time = self._queue.later_time if self._places.free else None
            for assignment in due:
                task = asyncio.create_task(self._carry_out(assignment))
                self._tasks.add(task)
                task.add_done_callback(partial(self._free, assignment.schedule.owner))
            wait = None if next_time is None else next_time - self._now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wakeup.wait(), None if wait is None else max(0, wait) / SECOND)
        if tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        await self._release()

    def _take_due(self) -> list[Assignment]:
        """Take what is due now from the queue, as far as there are free places."""
        now = self._now()
        due: list[Assignment] = []
        while (assignment := self._queue.take_one(now, self._places.may_have_one)) is not None:
            self._places.take(assignment.schedule.owner)
            due.append(assignment)
        return due

    def _free(self, owner: Owner, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.give_back(owner)
        self._wakeup.set()

    async def _carry_out(self, assignment: Assignment) -> None:
        if assignment.is_closed:  # it was handed back before it started
            return
        assignment.started = self._now()
        assignment.signal = _CancelTask(asyncio.get_running_loop(), asyncio.current_task())
        if assignment.stop_reason is not None:
            self._end(assignment, not_started(assignment, assignment.stop_reason, now=self._now()))
            return
        try:
            delivered = await self._deliver(assignment)
        except asyncio.CancelledError:
            if (reason := stop_reason(assignment)) is None:
                raise  # the node stops, and hands it back
            delivered = stopped(assignment, reason, None, now=self._now())
        self._end(assignment, delivered)

    def _end(self, assignment: Assignment, delivered: Delivered | Accepted) -> None:
        if not assignment.is_closed:
            assignment.is_closed = True
            self._report(assignment, delivered)


async def pause(length: Micros) -> None:
    """Let a delivery wait; a stop request interrupts it."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), length / SECOND)


def stop_reason(assignment: Assignment) -> Reason | None:
    """Return the present stop reason, which another thread may have set."""
    return assignment.stop_reason


class _CancelTask:
    """The stop signal of a delivery: it cancels the task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
        self._loop, self._task = loop, task

    def set(self) -> None:
        """Ask the run to stop."""
        if self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                self._loop.call_soon_threadsafe(self._task.cancel)
