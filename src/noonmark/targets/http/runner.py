"""The HTTP runner: sends each request when it is due, from one thread with its own event loop.

The separate thread keeps slow receivers away from the loops of the program and of the driver. The number of requests in
flight is limited; what is due beyond that is queued without a task. The owners of the schedules take turns, and no
owner has more requests in flight than are free, so that one owner's slow requests do not block those of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.fair_queue import FairQueue, Places
from noonmark.core.instants import SECOND
from noonmark.core.targets.http import HttpTarget
from noonmark.targets.outcomes import not_started, stopped, undeliverable
from noonmark.targets.serialization import error_summary
from noonmark.targets.worker_pool import may_redeliver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.reasons import Reason
    from noonmark.core.schedule import Owner
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.http.delivery import HttpDelivery
    from noonmark.targets.http.settings import HttpTargetSettings
    from noonmark.targets.secrets import SecretResolver

MAX_REQUESTS = 256
"""How many requests are in flight at a time. One owner alone may have half of them."""
CLOSE_SECONDS = 1.0
"""Seconds that requests have to end when the runner is closed."""


class HttpRunner:
    """Sends requests, and reports the outcomes."""

    def __init__(
        self,
        settings: HttpTargetSettings | None = None,
        limit: int = MAX_REQUESTS,
        secrets: SecretResolver | None = None,
    ) -> None:
        """Without settings it serves no requests until a program has declared one, and then uses the strict defaults.

        The thread starts with the first request.
        """
        self._secrets, self._settings, self._places = secrets, settings, Places(limit)
        self._is_offered = settings is not None and settings.is_offered
        self._lock = threading.Lock()
        self._queue: FairQueue[Assignment] = FairQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._delivery: HttpDelivery | None = None
        self._wakeup = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def routes(self) -> tuple[str, ...]:
        """Return the one route of all requests."""
        return (HttpTarget.route,) if self._is_offered else ()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve requests once a schedule has one."""
        if self._is_offered or HttpTarget.route not in routes:
            return False
        self._is_offered = True
        return True

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Remember where to report."""
        self._report, self._now = report, now

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Send each request when it is due."""
        with self._lock:
            for assignment in assignments:
                self._queue.put(assignment.schedule.owner, assignment.begins, assignment)
            if self._loop is None and not self._is_closed:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run_loop, args=(self._loop,), name="noonmark-http", daemon=True
                )
                self._thread.start()
        self._wake()

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        with self._lock:
            return self._queue.remove(may_redeliver)

    def close(self) -> None:
        """Send nothing more, and cancel requests in flight."""
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
                task = asyncio.create_task(self._send(assignment))
                self._tasks.add(task)
                task.add_done_callback(partial(self._free, assignment.schedule.owner))
            wait = None if next_time is None else next_time - self._now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wakeup.wait(), None if wait is None else max(0, wait) / SECOND)
        if tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if self._delivery is not None:
            await self._delivery.close()

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

    def _make_delivery(self) -> HttpDelivery:
        """Create it with the first request: a program that sends none does not load the HTTP libraries."""
        from noonmark.targets.http.delivery import HttpDelivery  # noqa: PLC0415 - loads the libraries
        from noonmark.targets.http.settings import HttpTargetSettings  # noqa: PLC0415 - likewise

        return HttpDelivery(self._settings or HttpTargetSettings(), self._secrets, self._now)

    async def _send(self, assignment: Assignment) -> None:
        if assignment.is_closed:  # it was handed back before it started
            return
        assignment.started = self._now()
        assignment.signal = _CancelTask(asyncio.get_running_loop(), asyncio.current_task())
        if assignment.stop_reason is not None:
            self._end(assignment, not_started(assignment, assignment.stop_reason, now=self._now()))
            return
        delivered: Delivered | Accepted
        try:
            self._delivery = self._delivery or self._make_delivery()
        except Exception as error:  # noqa: BLE001 - for example, a certificate file is missing
            self._end(assignment, self._not_sent(error, f": {error_summary(error)}"))
            return
        try:
            delivered = await self._delivery.deliver(assignment)
        except asyncio.CancelledError:
            if (reason := _stop_reason(assignment)) is None:
                raise  # the node stops, and hands it back
            delivered = stopped(assignment, reason, None, now=self._now())
        except Exception as error:  # noqa: BLE001 - any response may have caused it
            delivered = self._not_sent(error)  # its message may repeat what was sent
        self._end(assignment, delivered)

    def _not_sent(self, error: Exception, detail: str = "") -> Delivered:
        what = f"the request failed: {type(error).__name__}"
        return replace(undeliverable(what + detail, now=self._now(), log_text=what), is_final=True)

    def _end(self, assignment: Assignment, delivered: Delivered | Accepted) -> None:
        if not assignment.is_closed:
            assignment.is_closed = True
            self._report(assignment, delivered)


def _stop_reason(assignment: Assignment) -> Reason | None:
    """Return the present stop reason, which another thread may have set."""
    return assignment.stop_reason


class _CancelTask:
    """The stop signal of a request: it cancels the task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
        self._loop, self._task = loop, task

    def set(self) -> None:
        """Ask the run to stop."""
        if self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                self._loop.call_soon_threadsafe(self._task.cancel)
