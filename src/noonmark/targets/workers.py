"""Workers: threads that call functions at their time, made when they are needed.

One thread, the foreman, keeps the time: it wakes a worker when the next assignment is due, and cuts off what has
outlived its deadline. A worker that is free takes the next one itself, so a burst needs no foreman. More threads are
made only when something is due and the workers took no more than one each for a moment: then they are busy with it, and
perhaps hang. A thread cannot be stopped. One that outlives its deadline is abandoned: it is counted, and replaced.

When there are not enough threads for what is due, the owners of the schedules take turns.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from noonmark.core.fair_queue import FairQueue
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment

MAX_THREADS = 256
PATIENCE: Micros = 6 * SECOND // 1_000
"""So long something may be due without being taken before there is another thread: a little longer than a worker may
have to wait for its turn in the interpreter, which is no reason for one."""
IMPATIENCE: Micros = SECOND // 1_000
"""So long when the last one was not enough."""
NO_HURRY: Micros = SECOND // 100
"""Between two looks when there are as many threads as there may be, and all of them are busy."""
SLACK = 64
IDLE_SECONDS = 30.0
"""A worker with nothing to do goes after this time."""


class Workers:
    """Calls `work` for each assignment, in a thread and not before its time, and reports what it gives.

    For one whose time is up, `cut_off` is called instead; it says so itself. Without it, nothing is cut off here: the
    work has to keep its own time. Whenever a thread goes, it calls `leave`.
    """

    def __init__(
        self,
        work: Callable[[Assignment], Delivered],
        report: Callable[[Assignment, Delivered], None],
        cut_off: Callable[[Assignment], None] | None,
        now: Callable[[], Micros],
        limit: int = MAX_THREADS,
        leave: Callable[[], None] | None = None,
    ) -> None:
        """There are no threads until something is submitted."""
        self._work, self._report, self._cut_off = work, report, cut_off
        self._now, self._limit, self._leave = now, limit, leave
        self._lock = threading.Lock()
        self._available = threading.Condition(self._lock)
        self._timer = threading.Condition(self._lock)
        self._waiting: FairQueue[Assignment] = FairQueue()
        self._deadlines: list[tuple[Micros, int, Assignment]] = []
        self._numbers = count()
        self._threads = self._idle = self._taken = 0
        self._given_up: set[int] = set()
        self._foreman: threading.Thread | None = None
        self._looks_on = False
        """The foreman waits to see whether the workers take what is due."""
        self._closed = False

    @property
    def abandoned(self) -> int:
        """How many threads still run what was cut off."""
        return len(self._given_up)

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Take on assignments; each is begun at its time."""
        with self._lock:
            for assignment in assignments:
                self._waiting.put(assignment.schedule.owner, assignment.begins, assignment)
            if self._foreman is None and not self._closed:
                self._foreman = self._thread(self._keep_time, "noonmark-foreman")
            self._timer.notify()

    def withdraw(self, may: Callable[[Assignment], bool]) -> list[Assignment]:
        """Take back what has not begun, where that may be."""
        with self._lock:
            return self._waiting.remove(may)

    def close(self) -> None:
        """Begin nothing more; idle threads end, busy ones when they are done."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._available.notify_all()
            self._timer.notify_all()

    def _keep_time(self) -> None:
        """The foreman."""
        taken, called, wanted, look_at = 0, 0, 1, 0
        with self._lock:
            while not self._closed:
                now = self._now()
                self._expire(now)
                pause = self._pause(now)
                if pause != 0:
                    taken, called, wanted, look_at = self._taken, 0, 1, now
                elif now >= look_at:
                    # Workers that took one each are busy with it; ones that took more will see to the rest.
                    are_busy = self._taken - taken <= called
                    called = self._call(wanted) if are_busy else 0
                    taken, look_at = self._taken, now + self._patience(is_first=wanted == 1 or not are_busy)
                    wanted = min(2 * wanted, self._limit) if are_busy else 1
                self._looks_on = pause == 0
                if self._looks_on:
                    pause = look_at - now
                self._timer.wait(None if pause is None else pause / SECOND)

    def _patience(self, *, is_first: bool) -> Micros:
        """How long to leave the workers to themselves."""
        if not self._idle and self._threads >= self._limit:
            return NO_HURRY
        return PATIENCE if is_first else IMPATIENCE

    def _pause(self, now: Micros) -> Micros | None:
        """How long until something has to be begun or cut off; None when nothing has."""
        begins, ends = self._waiting.next_time, self._deadlines[0][0] if self._deadlines else None
        times = [time for time in (begins, ends) if time is not None]
        return max(0, min(times) - now) if times else None

    def _call(self, wanted: int) -> int:
        """Wake so many workers, and make new ones where there are not enough."""
        wanted = min(wanted, len(self._waiting))
        self._available.notify(min(wanted, self._idle))
        # Threads that were given up are replaced, but not without end: there are never more than twice as many in all.
        room = min(self._limit - self._threads, 2 * self._limit - self._threads - len(self._given_up))
        hired = max(0, min(wanted - self._idle, room))
        with suppress(RuntimeError):  # the system has no more threads: the ones there are have to do
            for _ in range(hired):
                self._thread(self._serve, "noonmark-worker")
                self._threads += 1
        return wanted

    def _thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _serve(self) -> None:
        """A worker."""
        while (assignment := self._take()) is not None:
            delivered = self._work(assignment)
            if self._close(assignment):
                self._report(assignment, delivered)
        if self._leave is not None:
            self._leave()

    def _take(self) -> Assignment | None:
        """Wait for something that is due; None when the worker should go."""
        with self._lock:
            while not self._closed:
                now = self._now()
                if (assignment := self._waiting.take_one(now)) is not None:
                    if assignment.is_closed:  # it was handed back before it had begun
                        continue
                    self._taken += 1
                    self._begin(assignment, now)
                    if self._looks_on and ((time := self._waiting.next_time) is None or time > now):
                        self._timer.notify()  # that was all: the foreman may keep time for what is next
                    return assignment
                self._idle += 1
                was_called = self._available.wait(IDLE_SECONDS)
                self._idle -= 1
                if not was_called:
                    break
            self._threads -= 1
            return None

    def _begin(self, assignment: Assignment, now: Micros) -> None:
        assignment.started = now
        deadline = None if self._cut_off is None else assignment.ends_by(now)
        if deadline is None:
            return
        if len(self._deadlines) > 2 * self._threads + SLACK:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_closed]
            heapify(self._deadlines)
        heappush(self._deadlines, (deadline, next(self._numbers), assignment))
        if self._deadlines[0][2] is assignment:
            self._timer.notify()

    def _close(self, assignment: Assignment) -> bool:
        """Whether its end is still to be reported. A thread that was given up is free after all."""
        with self._lock:
            is_open = not assignment.is_closed
            assignment.is_closed = True
            if id(assignment) in self._given_up:
                self._given_up.discard(id(assignment))
                self._threads += 1
            return is_open

    def _expire(self, now: Micros) -> None:
        """Cut off what has outlived its deadline; its thread no longer counts."""
        while self._deadlines and self._deadlines[0][0] <= now:
            assignment = heappop(self._deadlines)[2]
            if not assignment.is_closed:
                assignment.is_closed = True
                self._threads -= 1
                self._given_up.add(id(assignment))
                if self._cut_off is not None:
                    self._cut_off(assignment)
