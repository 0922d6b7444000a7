"""The HTTP target: requests sent at their time, from one thread with an event loop of its own.

It has a thread to itself so that a program's own loop, and the driver's, have nothing to do with how slow the other
side is. There are never more calls than there are places; what is due beyond that waits without a task. The owners of
the schedules take turns, and nobody has more places than are free, so that no owner's slow calls shut out the others.
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
from noonmark.core.policies.delivery import Delivery
from noonmark.core.targets.http import HttpTarget
from noonmark.targets.answers import brief
from noonmark.targets.endings import not_begun, stopped, undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.reasons import Reason
    from noonmark.core.schedule import Owner
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.exchanges import Exchanges
    from noonmark.targets.outbound import Outbound
    from noonmark.targets.unsealing import Unsealer

MAX_CALLS = 256
"""So many calls at a time; of one owner alone, half as many."""
LAST_WORD = 1.0
"""Seconds that calls have to hang up at the end."""


class HttpCaller:
    """Sends requests, and reports what came back."""

    def __init__(
        self, outbound: Outbound | None = None, limit: int = MAX_CALLS, unsealer: Unsealer | None = None
    ) -> None:
        """There is no thread until something is to be sent.

        Without rules it offers nothing, until a program has declared a request; the strict ones hold for others then.
        """
        self._unsealer, self._outbound, self._places = unsealer, outbound, Places(limit)
        self._is_offered = outbound is not None and outbound.is_offered
        self._lock = threading.Lock()
        self._waiting: FairQueue[Assignment] = FairQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._exchanges: Exchanges | None = None
        self._news = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def routes(self) -> tuple[str, ...]:
        """There is one for all requests."""
        return (HttpTarget.route,) if self._is_offered else ()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve requests if a program has declared one."""
        if self._is_offered or HttpTarget.route not in routes:
            return False
        self._is_offered = True
        return True

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready."""
        self._report, self._now = report, now

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Send each at its time."""
        with self._lock:
            for assignment in assignments:
                self._waiting.put(assignment.schedule.owner, assignment.begins, assignment)
            if self._loop is None and not self._is_closed:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="noonmark-http", daemon=True
                )
                self._thread.start()
        self._wake()

    def withdraw(self) -> list[Assignment]:
        """Take back what waits for its turn; but what must not begin twice has begun as far as the store knows."""
        with self._lock:
            return self._waiting.remove(_may_begin_twice)

    def close(self) -> None:
        """Send nothing more, and hang up on what is under way."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
        self._wake()

    def _wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._news.set)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_until_complete(self._keep_time())
        finally:
            loop.close()

    async def _keep_time(self) -> None:
        while not self._is_closed:
            self._news.clear()
            with self._lock:
                due = self._take_due()
                # What is due and was not taken waits for a place, and whoever frees one tells.
                next_time = self._waiting.later_time if self._places.free else None
            for assignment in due:
                call = asyncio.create_task(self._call(assignment))
                self._calls.add(call)
                call.add_done_callback(partial(self._free, assignment.schedule.owner))
            wait = None if next_time is None else next_time - self._now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), None if wait is None else max(0, wait) / SECOND)
        if left := list(self._calls):
            for call in left:
                call.cancel()
            await asyncio.wait(left, timeout=LAST_WORD)
        if self._exchanges is not None:
            await self._exchanges.close()

    def _take_due(self) -> list[Assignment]:
        """What is due now, as far as there are places for it."""
        now = self._now()
        due: list[Assignment] = []
        while (one := self._waiting.take_one(now, self._places.may_have_one)) is not None:
            self._places.take(one.schedule.owner)
            due.append(one)
        return due

    def _free(self, owner: Owner, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._places.give_back(owner)
        self._news.set()

    def _make_exchanges(self) -> Exchanges:
        """Only with the first request: a program that sends none should not wait for what it takes to send one."""
        from noonmark.targets.exchanges import Exchanges  # noqa: PLC0415 - loads the libraries
        from noonmark.targets.outbound import Outbound  # noqa: PLC0415 - likewise

        return Exchanges(self._outbound or Outbound(), self._unsealer, self._now)

    async def _call(self, assignment: Assignment) -> None:
        if assignment.is_closed:  # it was handed back before it had begun
            return
        assignment.started = self._now()
        assignment.signal = _Hang(asyncio.get_running_loop(), asyncio.current_task())
        if assignment.stop_reason is not None:
            self._end(assignment, not_begun(assignment, assignment.stop_reason, now=self._now()))
            return
        delivered: Delivered | Accepted
        try:
            self._exchanges = self._exchanges or self._make_exchanges()
        except Exception as error:  # noqa: BLE001 - a file that it needs is not there, for instance
            self._end(assignment, self._not_made(error, f": {brief(error)}"))
            return
        try:
            delivered = await self._exchanges.carry_out(assignment)
        except asyncio.CancelledError:
            if (reason := _stop_reason(assignment)) is None:
                raise  # the node ends, and hands it back
            delivered = stopped(assignment, reason, None, now=self._now())
        except Exception as error:  # noqa: BLE001 - whatever the other side made of it
            delivered = self._not_made(error)  # what it says may repeat what was sent
        self._end(assignment, delivered)

    def _not_made(self, error: Exception, detail: str = "") -> Delivered:
        what = f"the request could not be made: {type(error).__name__}"
        return replace(undeliverable(what + detail, now=self._now(), in_log=what), is_final=True)

    def _end(self, assignment: Assignment, delivered: Delivered | Accepted) -> None:
        if not assignment.is_closed:
            assignment.is_closed = True
            self._report(assignment, delivered)


def _may_begin_twice(assignment: Assignment) -> bool:
    return assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE


def _stop_reason(assignment: Assignment) -> Reason | None:
    """Why it was asked to stop, by now."""
    return assignment.stop_reason


class _Hang:
    """The stop signal of a call: it hangs up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: asyncio.Task[Any] | None) -> None:
        self._loop, self._call = loop, call

    def set(self) -> None:
        """From now on it should end."""
        if self._call is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the call with it
                self._loop.call_soon_threadsafe(self._call.cancel)
