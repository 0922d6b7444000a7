"""Watching: one command, from the side of the thread that waits for its end.

A command that must end is asked to, with SIGTERM to its whole group, and after a grace period the group is killed. So
nothing is abandoned: its end is reported when it is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.interruption import interruption
from noonmark.core.policies.overlap import CancelRunning
from noonmark.core.policies.window import EndAction, spell_at
from noonmark.core.reasons import Reason
from noonmark.core.settlement import Underway, run_id
from noonmark.core.targets.command import CommandTarget, end_of_program
from noonmark.targets.endings import cut_off, not_begun, raised, stopped, succeeded, undeliverable
from noonmark.targets.keeper import RUN_MARK, end_bearers
from noonmark.targets.output import TOLD, last_lines
from noonmark.targets.ringing import Ringing

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.keeping import Kept

FOREVER: Micros = 2**63
TELL_EVERY: Micros = SECOND
"""Between two words about what it has written."""
STOP_GRACE: Micros = 5 * SECOND
"""How long a command has to end when it is asked to."""
LOST_GRACE: Micros = SECOND
"""How long one has that is another node's by now, or will be as soon as it has ended."""
START_LIMIT: Micros = 60 * SECOND
"""How long it may take until it is started."""
LONGEST_WAIT: Micros = 3_600 * SECOND
"""A selector takes no more than 24 days at a time."""
LAST_WAIT: Micros = 30 * SECOND
"""How long it may take to be gone when it is killed: not even that helps while it waits for a broken disk."""


class Watch:
    """One command that was given to the keeper."""

    def __init__(self, kept: Kept, assignment: Assignment, report: Report, now: Callable[[], Micros]) -> None:
        """It may be asked to stop from now on."""
        self._kept, self._assignment, self._report, self._now = kept, assignment, report, now
        self._told = 0
        """So many bytes of its output were told of."""
        self._tell_at: Micros = FOREVER
        """When there may next be told of it, if there is more."""
        self._stop = assignment.signal = Ringing(kept.ring)
        self._has_begun = False
        """The keeper was told to start it. Until then nothing has begun; from then on it may have."""
        self._pid: int | None = None
        self._is_given_up = False
        self._start_by = now() + START_LIMIT
        self._ask_at: Micros | None = None
        """When it was asked to end."""
        self._kill_at: Micros | None = None
        """When it was killed."""
        self._is_cut_off = False
        window = assignment.schedule.declaration.window
        pauses = window is not None and window.end_action is EndAction.PAUSE
        self._turn_at = window.closes_at(assignment.occurrence.first_due) if window and pauses else None
        """When it is next suspended, or goes on."""

    def give_up(self) -> None:
        """This node stops: the command is of no account any more. From any thread."""
        self._is_given_up = True
        self._kept.ring()

    def see_through(self) -> Delivered | None:
        """Wait for its end; None when the keeper was gone before it began: another one should try."""
        while not self._is_given_up:
            if self._assignment.stop_reason is not None and self._pid is not None:
                self._put_down()
            at, act = min(self._plans(), key=itemgetter(0))
            if (left := at - self._now()) <= 0:
                if (ended := act()) is not None:
                    return ended
                continue
            try:
                said = self._kept.hear(None if at == FOREVER else min(left, LONGEST_WAIT) / SECOND)
            except EOFError:
                return self._lost() if self._has_begun else None
            for one in said:
                if (delivered := self._take_in(one)) is not None:
                    return delivered
        return stopped(self._assignment, self._assignment.stop_reason or Reason.LEASE_LOST, None, now=self._now())

    def _plans(self) -> list[tuple[Micros, Callable[[], Delivered | None]]]:
        """What is done next, as things are, and when."""
        plans: list[tuple[Micros, Callable[[], Delivered | None]]] = [(FOREVER, self._cut_off)]
        if self._kill_at is not None:
            return [*plans, (self._kill_at + LAST_WAIT, self._undead)]
        if self._ask_at is not None:
            return [*plans, (self._ask_at + self._grace, self._kill)]
        if self._pid is None or self._assignment.started is None:
            return [*plans, (self._start_by, self._never_begun)]
        if (ends := self._assignment.ends_by(self._assignment.started)) is not None:
            plans.append((ends, self._cut_off))
        if self._kept.tail.total > self._told:
            plans.append((self._tell_at, self._tell))
        if self._turn_at is not None:
            plans.append((self._turn_at, self._turn))
        return plans

    @property
    def _grace(self) -> Micros:
        """How long it has to stop. One that has to make room for the next has as long as that one waits for it."""
        policy = self._assignment.schedule.declaration.overlap_policy
        if self._assignment.stop_reason is Reason.REPLACED and isinstance(policy, CancelRunning):
            return policy.cancel_grace
        return min(STOP_GRACE, LOST_GRACE) if self._assignment.stop_reason is Reason.LEASE_LOST else STOP_GRACE

    def _tell(self) -> None:
        """Let it be known what it has written so far. One that is over in no time has its end for that."""
        self._told, self._tell_at = self._kept.tail.total, self._now() + TELL_EVERY
        if not self._assignment.is_closed and self._assignment.started is not None:
            said = Underway(started=self._assignment.started, result=self._kept.tail.to_document(TOLD))
            self._report(self._assignment, said)

    def _cut_off(self) -> None:
        """Its time is up."""
        self._is_cut_off = True
        self._put_down()

    def _put_down(self) -> None:
        """Ask it to end."""
        if self._ask_at is None:
            self._stop.was_seen = True
            self._ask_at = self._now()
            self._kept.send(signal.SIGTERM)
            self._kept.send(signal.SIGCONT)  # one that is suspended would not hear it

    def _kill(self) -> None:
        self._kill_at = self._now()
        self._kept.send(signal.SIGKILL)

    def _never_begun(self) -> Delivered:
        why = f"{self._argv[0]!r} was not started within {micros_to_seconds(START_LIMIT)} s"
        failed = undeliverable(why, now=self._now())
        return replace(failed, is_unknown=self._has_begun)

    def _lost(self) -> Delivered:
        """The keeper is gone, and with it the program; whatever is left of its family goes here."""
        if self._pid is not None:
            with suppress(OSError):  # there is nobody left
                os.killpg(self._pid, signal.SIGKILL)
        end_bearers(f"{RUN_MARK}={run_id(self._assignment.occurrence)}".encode())
        text = "the process that starts the commands of this node was lost, and this one with it"
        failed = raised(self._assignment, RuntimeError(text), now=self._now(), text=text)
        return replace(failed, is_unknown=True)

    def _undead(self) -> Delivered:
        text = f"it was killed {micros_to_seconds(LAST_WAIT)} s ago, and is still there"
        return self._made_to_end(text, now=self._now())

    def _turn(self) -> None:
        """A window closes, or opens: it stands still until the next one, if there is one, and goes on in that."""
        declared, first_due = self._assignment.schedule.declaration, self._assignment.occurrence.first_due
        self._turn_at = None
        if declared.window is not None:
            spell = spell_at(declared.window, declared.trigger, first_due=first_due, now=self._now())
            self._kept.send(signal.SIGCONT if spell.is_open else signal.SIGSTOP)
            self._turn_at = spell.until

    def _take_in(self, said: dict[str, Any]) -> Delivered | None:
        """What the keeper says; None unless it is the end."""
        if "ready" in said:
            return self._begin()
        if "pid" in said:
            self._pid, self._assignment.started = said["pid"], self._now()
            self._tell_at = self._assignment.started + TELL_EVERY
            return None
        if "error" in said:
            return undeliverable(f"{self._argv[0]!r} could not be started: {said['error']}", now=self._now())
        self._kept.drain()
        return self._ended(said["exit"])

    def _begin(self) -> Delivered | None:
        """Have it started, unless it has to stop already."""
        if (reason := self._assignment.stop_reason) is not None:
            return not_begun(self._assignment, reason, now=self._now())
        self._has_begun = self._assignment.ends_soon = self._kept.go()
        return None

    def _ended(self, code: int) -> Delivered:
        now, result = self._now(), self._result(code)
        if self._ask_at is None and code == 0:
            return succeeded(self._assignment, result, now=now)
        text = "\n".join(one for one in (last_lines(result["output"]), end_of_program(code)) if one)
        if self._ask_at is not None:
            return replace(self._made_to_end(text, now=now), result=result)
        error = subprocess.CalledProcessError(code, list(self._argv), result["output"])
        # An exit code is the program's own word; one that was killed from elsewhere had none.
        return replace(raised(self._assignment, error, now=now, text=text), result=result, is_unknown=code < 0)

    def _made_to_end(self, text: str, *, now: Micros) -> Delivered:
        """It was asked to end, or killed; which signal that took does not tell why."""
        reason = self._assignment.stop_reason or Reason.CANCELLED
        ended = (
            cut_off(self._assignment, now=now) if self._is_cut_off else stopped(self._assignment, reason, None, now=now)
        )
        declared, occurrence = self._assignment.schedule.declaration, self._assignment.occurrence
        why = interruption(ended.outcome, ended.reason, occurrence, declared, node="")
        return replace(ended, error=f"{text}: {why}")

    def _result(self, code: int) -> dict[str, Any]:
        """What is kept of it."""
        return {"exit_code": code, **self._kept.tail.to_document()}

    @property
    def _argv(self) -> tuple[str, ...]:
        target = self._assignment.schedule.declaration.target
        return target.argv if isinstance(target, CommandTarget) else ("",)
