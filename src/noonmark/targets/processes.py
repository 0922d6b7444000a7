"""Functions in processes: each call is handed to a child, and watched until it has ended, or must.

Unlike a thread, a process can be made to end. So nothing is abandoned: when a run has timed out, or does not stop when
it is asked to, its end is reported when its process is gone, and the next call gets another one.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.policies.overlap import CancelRunning
from noonmark.core.reasons import Reason
from noonmark.targets.answers import same_error
from noonmark.targets.calls import prepare_elsewhere
from noonmark.targets.children import Child
from noonmark.targets.endings import cut_off, not_begun, raised, stopped, succeeded, undeliverable
from noonmark.targets.functions import logger
from noonmark.targets.ringing import Ringing

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment
    from noonmark.targets.functions import Functions

FOREVER: Micros = 2**63
STOP_GRACE: Micros = 5 * SECOND
"""How long a function has to end when it is asked to."""
LOST_GRACE: Micros = SECOND
"""How long one has that is another node's by now, or will be as soon as it has ended."""
LOAD_LIMIT: Micros = 300 * SECOND
"""How long a process may take to start and to import the function. That does not count for the timeout of the run."""


class Processes:
    """Calls functions in children, which it keeps for the next call. Each worker thread needs one at most."""

    def __init__(self, functions: Functions, now: Callable[[], Micros]) -> None:
        """There are no children until there is a call."""
        self._functions, self._now = functions, now
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._lock = Lock()
        self._is_closed = False

    def work(self, assignment: Assignment) -> Delivered:
        """Have a function called, and wait for its end."""
        delivered = None
        while delivered is None:
            if assignment.stop_reason is not None:
                return not_begun(assignment, assignment.stop_reason, now=self._now())
            try:
                call = prepare_elsewhere(self._functions, assignment)
                child = self._take()
            except LookupError as error:
                return undeliverable(str(error.args[0]), now=self._now())
            except OSError as error:
                return undeliverable(f"no process could be started: {error}", now=self._now())
            watch = _Watch(child, assignment, self._now)
            try:
                delivered = watch.see_through(call, lambda: self._is_closed)
            finally:
                self._give_back(child, is_usable=watch.is_usable)
        return delivered

    def leave(self) -> None:
        """A worker goes, so that there is a child too many."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        if child is not None:
            child.end()

    def close(self) -> None:
        """End what still runs; the idle ones go with their workers."""
        with self._lock:
            self._is_closed = True
            for child in self._busy:
                child.ring()

    def _take(self) -> Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                child = Child()
            elif not child.is_quiet:  # it was killed while nobody looked
                child.end()
                continue
            with self._lock:
                self._busy.add(child)
            return child

    def _give_back(self, child: Child, *, is_usable: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if is_usable:
                child.is_new = False
                self._idle.append(child)
        if not is_usable:
            child.end()


class _Watch:
    """One call, from the side of the thread that waits for its end."""

    def __init__(self, child: Child, assignment: Assignment, now: Callable[[], Micros]) -> None:
        self._child, self._assignment, self._now = child, assignment, now
        self._stop = assignment.signal = Ringing(child.ring)
        self._load_by = now() + LOAD_LIMIT
        self._has_begun = False
        """It was told to call the function. Until then nothing has begun; from then on the function may have."""
        self._asked: Micros | None = None
        """When it was asked to stop."""
        self.is_usable = False
        """Whether the child can make another call."""

    def see_through(self, call: dict[str, Any], is_closing: Callable[[], bool]) -> Delivered | None:
        """Say what to call, and wait for the answer; without one in time, the child is made to end.

        None when an old child was gone before it began: it may have died long before, so that another one should try.
        """
        root = logging.getLogger()
        levels = {root.name: root.level, logger.name: logger.getEffectiveLevel()}
        self._child.say({"call": {**call, "levels": levels}})
        while not is_closing():
            self._pass_on_stop()
            ends, how = min(self._limits(), key=itemgetter(0))
            if (left := ends - self._now()) <= 0:
                self._child.end()
                return how()
            try:
                said = self._child.hear(left / SECOND)
            except EOFError:
                return self._gone()
            if said is not None and (delivered := self._take_in(said)) is not None:
                return delivered
        self._child.end()
        return stopped(self._assignment, self._assignment.stop_reason or Reason.LEASE_LOST, None, now=self._now())

    def _pass_on_stop(self) -> None:
        if self._assignment.stop_reason is not None and self._asked is None:
            self._asked = self._now()
            self._child.say({"cancel": True})

    def _limits(self) -> list[tuple[Micros, Callable[[], Delivered]]]:
        """When it is made to end, as things are, and what is recorded then."""
        one = self._assignment
        limits: list[tuple[Micros, Callable[[], Delivered]]] = [(FOREVER, self._cut_off)]
        begins = one.started if self._has_begun else None
        if begins is None:
            limits.append((self._load_by, self._never_begun))
        # While it is being loaded only its window can close: its timeout counts from its beginning.
        if (ends := one.ends_by(self._load_by if begins is None else begins)) is not None:
            limits.append((ends, self._cut_off))
        if self._asked is not None:
            limits.append((self._asked + self._grace, self._unheeded))
        return limits

    @property
    def _grace(self) -> Micros:
        """How long it has to stop. One that has to make room for the next has as long as that one waits for it."""
        policy = self._assignment.schedule.declaration.overlap_policy
        if self._assignment.stop_reason is Reason.REPLACED and isinstance(policy, CancelRunning):
            return policy.cancel_grace
        return min(STOP_GRACE, LOST_GRACE) if self._assignment.stop_reason is Reason.LEASE_LOST else STOP_GRACE

    def _take_in(self, said: dict[str, Any]) -> Delivered | None:
        """What the child says; None unless it is its answer."""
        if "log" in said:
            _log(said["log"])
            return None
        if "loaded" in said:
            return self._begin()
        self._stop.was_seen = said["seen"]
        if "unloadable" in said:  # and who knows what half of a module has done
            return self._unloadable(f"the function could not be loaded in a process\n{said['unloadable']}")
        self.is_usable = True
        if "error" in said:
            error = said["error"]
            return raised(self._assignment, same_error(error), now=self._now(), text=error["trace"])
        return succeeded(self._assignment, json.loads(said["result"]), now=self._now(), note=said["note"])

    def _begin(self) -> Delivered | None:
        """Let it call the function, unless it has to stop already."""
        if (reason := self._assignment.stop_reason) is not None:
            return not_begun(self._assignment, reason, now=self._now())
        self._has_begun, self._assignment.started = True, self._now()
        self._assignment.ends_soon = True
        self._child.say({"go": True})
        return None

    def _gone(self) -> Delivered | None:
        """It has ended without an answer; how far the function came, if it was called, nobody knows."""
        if not self._has_begun and not self._child.is_new:
            return None
        text = f"the process ended with exit code {self._child.end()} before it answered"
        failed = raised(self._assignment, RuntimeError(text), now=self._now(), text=text)
        return replace(failed, is_unknown=self._has_begun)

    def _cut_off(self) -> Delivered:
        if not self._has_begun:
            self._assignment.started = self._now()
        return cut_off(self._assignment, now=self._now())

    def _never_begun(self) -> Delivered:
        seconds = micros_to_seconds(LOAD_LIMIT)
        return self._unloadable(f"a process did not come as far as the function within {seconds} s")

    def _unloadable(self, text: str) -> Delivered:
        reason = self._assignment.stop_reason
        if reason is not None:
            return stopped(self._assignment, reason, text, now=self._now())
        return undeliverable(text, now=self._now())

    def _unheeded(self) -> Delivered:
        reason = self._assignment.stop_reason or Reason.CANCELLED
        text = f"its process was killed: it did not end within {micros_to_seconds(self._grace)} s of being asked to"
        return stopped(self._assignment, reason, text, now=self._now())


def _log(fields: dict[str, Any]) -> None:
    """Log what was logged in a child, as if it had been here."""
    record = logging.makeLogRecord(fields)
    one = logging.getLogger(record.name)
    if one.isEnabledFor(record.levelno):
        with suppress(Exception):  # a handler that fails must not fail the run
            one.handle(record)
