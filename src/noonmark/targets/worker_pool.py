"""A pool of threads that start assignments when they are due.

One timer thread wakes a worker when the next assignment is due, and cuts off what has passed its deadline. A free
worker takes the next assignment itself, so a burst does not need the timer thread. The pool grows only when something
is due and each worker took no more than one assignment for a moment: then the workers are busy, and perhaps hang. A
thread cannot be stopped. One that passes its deadline is abandoned: it is counted, and replaced.

When there are not enough threads for what is due, the owners of the schedules take turns.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from noonmark.core.fair_queue import FairQueue
from noonmark.core.instants import SECOND
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.overlap import Terminate
from noonmark.targets import MAX_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Accepted, Delivered, Suspended
    from noonmark.ports.target import Assignment, Report

FIRST_PATIENCE: Micros = 6 * SECOND // 1_000
"""How long something may stay due before a thread is added. A little longer than a worker may wait for the GIL, which
is not a reason to add one."""
NEXT_PATIENCE: Micros = SECOND // 1_000
"""The same when the last added thread was not enough."""
FULL_PATIENCE: Micros = SECOND // 100
"""Time between two checks when the pool is full and all threads are busy."""
DEADLINE_SLACK = 64
IDLE_SECONDS = 30.0
"""A worker that is idle for this long ends."""


def may_redeliver(assignment: Assignment) -> bool:
    """Whether a queued assignment may be handed back. Under at_most_once the store already counts it as started."""
    return assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE


class WorkerPool:
    """Calls `work` for each assignment, in a thread and not before it is due, and reports the result.

    What `work` has passed on to another target, it answers with None; that target reports it.

    When an assignment passes its deadline, `cut_off` is called, which reports it. Without `cut_off`, `work` has to keep
    the deadline itself. Every thread that ends calls `on_exit`.
    """

    def __init__(
        self,
        work: Callable[[Assignment], Delivered | Accepted | Suspended | None],
        report: Report,
        cut_off: Callable[[Assignment], None] | None,
        now: Callable[[], Micros],
        limit: int = MAX_THREADS,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        self._work, self._report, self._cut_off = work, report, cut_off
        self._now, self._limit, self._on_exit = now, limit, on_exit
        self._lock = threading.Lock()
        self._available = threading.Condition(self._lock)
        self._timer_wakeup = threading.Condition(self._lock)
        self._queue: FairQueue[Assignment] = FairQueue()
        self._deadlines: list[tuple[Micros, int, Assignment]] = []
        self._numbers = count()
        self._threads = self._idle = self._taken = 0
        self._abandoned: set[int] = set()
        self._timer: threading.Thread | None = None
        self._timer_polls = False
        """The timer thread waits to see whether the workers take what is due."""
        self._closed = False

    @property
    def abandoned(self) -> int:
        """How many threads still run work that was cut off."""
        return len(self._abandoned)

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Queue assignments; each starts when it is due."""
        with self._lock:
            for assignment in assignments:
                self._queue.put(assignment.schedule.owner, assignment.begins, assignment)
            if self._timer is None and not self._closed:
                self._timer = self._start_thread(self._run_timer, "noonmark-timer")
            self._timer_wakeup.notify()

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        with self._lock:
            return self._queue.remove(may_redeliver)

    def close(self) -> None:
        """Start nothing more. Idle threads end now, busy ones when they are done."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._available.notify_all()
            self._timer_wakeup.notify_all()

    def _run_timer(self) -> None:
        taken, called, wakes, check_at = 0, 0, 1, 0
        with self._lock:
            while not self._closed:
                now = self._now()
                self._expire(now)
                pause = self._pause(now)
                if pause != 0:
                    taken, called, wakes, check_at = self._taken, 0, 1, now
                elif now >= check_at:
                    # Workers that took one assignment each are busy with it; others will take the rest.
                    are_busy = self._taken - taken <= called
                    called = self._wake_workers(wakes) if are_busy else 0
                    taken, check_at = self._taken, now + self._patience(is_first=wakes == 1 or not are_busy)
                    wakes = min(2 * wakes, self._limit) if are_busy else 1
                self._timer_polls = pause == 0
                if self._timer_polls:
                    pause = check_at - now
                self._timer_wakeup.wait(None if pause is None else pause / SECOND)

    def _patience(self, *, is_first: bool) -> Micros:
        """How long to wait before checking the workers again."""
        if not self._idle and self._threads >= self._limit:
            return FULL_PATIENCE
        return FIRST_PATIENCE if is_first else NEXT_PATIENCE

    def _pause(self, now: Micros) -> Micros | None:
        """How long until something starts or is cut off; None when nothing is queued or running."""
        begins, ends = self._queue.next_time, self._deadlines[0][0] if self._deadlines else None
        times = [time for time in (begins, ends) if time is not None]
        return max(0, min(times) - now) if times else None

    def _wake_workers(self, count: int) -> int:
        """Wake this many workers, and add threads where too few are idle. Returns how many were woken or added."""
        count = min(count, len(self._queue))
        self._available.notify(min(count, self._idle))
        # Abandoned threads are replaced, up to twice the limit in all.
        room = min(self._limit - self._threads, 2 * self._limit - self._threads - len(self._abandoned))
        missing = max(0, min(count - self._idle, room))
        with suppress(RuntimeError):  # the system has no more threads; the existing ones must suffice
            for _ in range(missing):
                self._start_thread(self._run_worker, "noonmark-worker")
                self._threads += 1
        return count

    def _start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _run_worker(self) -> None:
        while (assignment := self._take()) is not None:
            delivered = self._work(assignment)
            if delivered is not None and self._finish(assignment):
                self._report(assignment, delivered)
        if self._on_exit is not None:
            self._on_exit()

    def _take(self) -> Assignment | None:
        """Wait for an assignment that is due; None when the worker should end."""
        with self._lock:
            while not self._closed:
                now = self._now()
                if (assignment := self._queue.take_one(now)) is not None:
                    if assignment.is_closed:  # it was handed back before it started
                        continue
                    self._taken += 1
                    self._start(assignment, now)
                    if self._timer_polls and ((time := self._queue.next_time) is None or time > now):
                        self._timer_wakeup.notify()  # nothing else is due: the timer thread can sleep until the next
                    return assignment
                self._idle += 1
                was_notified = self._available.wait(IDLE_SECONDS)
                self._idle -= 1
                if not was_notified:
                    break
            self._threads -= 1
            return None

    def _start(self, assignment: Assignment, now: Micros) -> None:
        assignment.started = now
        if self._cut_off is not None and isinstance(assignment.schedule.declaration.overlap_policy, Terminate):
            assignment.give_up = partial(self._give_up, assignment)
        deadline = None if self._cut_off is None else assignment.ends_by(now)
        if deadline is None:
            return
        if len(self._deadlines) > 2 * self._threads + DEADLINE_SLACK:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_closed]
            heapify(self._deadlines)
        heappush(self._deadlines, (deadline, next(self._numbers), assignment))
        if self._deadlines[0][2] is assignment:
            self._timer_wakeup.notify()

    def _finish(self, assignment: Assignment) -> bool:
        """Whether the end is still to be reported. An abandoned thread that gets here counts again."""
        with self._lock:
            is_open = not assignment.is_closed
            assignment.is_closed = True
            if id(assignment) in self._abandoned:
                self._abandoned.discard(id(assignment))
                self._threads += 1
            return is_open

    def _give_up(self, assignment: Assignment) -> None:
        """Cut off what another run replaces."""
        with self._lock:
            self._abandon(assignment)

    def _expire(self, now: Micros) -> None:
        """Cut off what has passed its deadline."""
        while self._deadlines and self._deadlines[0][0] <= now:
            self._abandon(heappop(self._deadlines)[2])

    def _abandon(self, assignment: Assignment) -> None:
        """Report the end of a run whose thread goes on; the thread no longer counts."""
        if not assignment.is_closed:
            assignment.is_closed = True
            self._threads -= 1
            self._abandoned.add(id(assignment))
            if self._cut_off is not None:
                self._cut_off(assignment)
