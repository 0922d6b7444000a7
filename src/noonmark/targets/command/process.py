"""One command, from the side of the thread that waits for its end.

A command that must end gets SIGTERM in its whole process group, and SIGKILL after a grace period. So no command is
abandoned: its end is reported when it is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import HOUR, SECOND, micros_to_seconds
from noonmark.core.interruption import interruption, log_name
from noonmark.core.policies.window import EndAction, window_period_at
from noonmark.core.reasons import Reason
from noonmark.core.run import progress_result
from noonmark.core.settlement import RunInProgress, run_id
from noonmark.core.targets.command import end_of_program
from noonmark.targets.command.output import MAX_LIVE_OUTPUT, last_lines, mask_lines
from noonmark.targets.command.supervisor import RUN_VARIABLE, kill_all
from noonmark.targets.outcomes import cut_off, failed, not_started, stopped, succeeded, undeliverable
from noonmark.targets.process_control import StopSignal, is_killed, stop_grace

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.command.client import CommandChannel, CommandRequest

logger = logging.getLogger("noonmark.jobs")

FOREVER: Micros = 2**63
OUTPUT_INTERVAL: Micros = SECOND
"""Time between two reports of its output."""
START_LIMIT: Micros = 60 * SECOND
"""How long it may take to start."""
MAX_WAIT: Micros = HOUR
"""A selector waits at most 24 days at a time."""
KILL_LIMIT: Micros = 30 * SECOND
"""How long it may take to end after SIGKILL, which waits for a broken disk, for example."""


class CommandProcess:
    """One command in the supervisor."""

    def __init__(
        self,
        channel: CommandChannel,
        assignment: Assignment,
        request: CommandRequest,
        report: Report,
        now: Callable[[], Micros],
    ) -> None:
        self._channel, self._assignment, self._report, self._now = channel, assignment, report, now
        self._argv, self._redactor = request.argv, request.redactor
        self._reported_bytes = self._reported_lines = 0
        self._report_at: Micros = FOREVER
        """When new output may next be reported."""
        self._stop_signal = assignment.signal = StopSignal(channel.wake)
        self._has_begun = False
        """The supervisor was told to start it. Before that nothing has started; after it, the command may have."""
        self._begun_at: Micros = FOREVER
        """When the supervisor was told. It reports the start of a short command together with its end."""
        self._pid: int | None = None
        self._is_abandoned = False
        self._start_by = now() + START_LIMIT
        self._terminated_at: Micros | None = None
        """When it got SIGTERM."""
        self._killed_at: Micros | None = None
        """When it got SIGKILL."""
        self._is_cut_off = False
        window = assignment.schedule.declaration.window
        pauses = window is not None and window.end_action is EndAction.PAUSE
        self._pause_or_resume_at = window.closes_at(assignment.occurrence.first_due) if window and pauses else None

    def abandon(self) -> None:
        """Stop waiting, because this node stops. Safe to call from any thread."""
        self._is_abandoned = True
        self._channel.wake()

    def wait(self) -> Delivered | None:
        """Wait for its end; None when the supervisor was lost before the start, so that the caller retries."""
        while not self._is_abandoned:
            if self._assignment.stop_reason is not None and self._pid is not None:
                self._terminate()
            at, act = min(self._timers(), key=itemgetter(0))
            if (left := at - self._now()) <= 0:
                if (delivered := act()) is not None:
                    return delivered
                continue
            try:
                messages = self._channel.receive(None if at == FOREVER else min(left, MAX_WAIT) / SECOND)
            except EOFError:
                return self._supervisor_lost() if self._has_begun else None
            for message in messages:
                if (delivered := self._handle(message)) is not None:
                    return delivered
        return stopped(self._assignment, self._assignment.stop_reason or Reason.LEASE_LOST, None, now=self._now())

    def _timers(self) -> list[tuple[Micros, Callable[[], Delivered | None]]]:
        """What to do next, and when."""
        timers: list[tuple[Micros, Callable[[], Delivered | None]]] = [(FOREVER, self._cut_off)]
        if self._killed_at is not None:
            return [*timers, (self._killed_at + KILL_LIMIT, self._kill_failed)]
        if self._terminated_at is not None:
            return [*timers, (self._terminated_at + stop_grace(self._assignment), self._kill)]
        if self._pid is None or self._assignment.started is None:
            return [*timers, (self._start_by, self._start_timed_out)]
        if (ends := self._assignment.ends_by(self._assignment.started)) is not None:
            timers.append((ends, self._cut_off))
        if self._channel.output.total > self._reported_bytes or self._channel.progress.count > self._reported_lines:
            timers.append((self._report_at, self._report_output))
        if self._pause_or_resume_at is not None:
            timers.append((self._pause_or_resume_at, self._pause_or_resume))
        return timers

    def _report_output(self) -> None:
        """Report the output so far. A short command only reports its end."""
        self._reported_bytes, self._report_at = self._channel.output.total, self._now() + OUTPUT_INTERVAL
        self._reported_lines = self._channel.progress.count
        if not self._assignment.is_closed and self._assignment.started is not None:
            output = mask_lines(self._channel.output.to_document(MAX_LIVE_OUTPUT) | self._progress(), self._redactor)
            self._report(self._assignment, RunInProgress(started=self._assignment.started, result=output))

    def _progress(self) -> dict[str, Any]:
        latest = self._channel.progress.latest
        return {} if latest is None else progress_result(latest)

    def _cut_off(self) -> None:
        self._is_cut_off = True
        self._terminate()

    def _terminate(self) -> None:
        if self._terminated_at is None:
            self._stop_signal.was_seen = True
            self._terminated_at = self._now()
            if is_killed(self._assignment):
                self._kill()
                return
            self._channel.send_signal(signal.SIGTERM)
            self._channel.send_signal(signal.SIGCONT)  # a suspended process would not get it

    def _kill(self) -> None:
        self._killed_at = self._now()
        self._channel.send_signal(signal.SIGKILL)

    def _start_timed_out(self) -> Delivered:
        why = f"{self._argv[0]!r} was not started within {micros_to_seconds(START_LIMIT)} s"
        return replace(undeliverable(why, now=self._now()), is_unknown=self._has_begun)

    def _supervisor_lost(self) -> Delivered:
        """The supervisor is gone, and the program with it; kill what is left of its processes."""
        if self._pid is not None:
            with suppress(OSError):  # the group is empty
                os.killpg(self._pid, signal.SIGKILL)
        kill_all(f"{RUN_VARIABLE}={run_id(self._assignment.occurrence)}".encode())
        text = "the supervisor process of this node was lost, and the command with it"
        delivered = failed(self._assignment, RuntimeError(text), now=self._now(), text=text)
        return replace(delivered, is_unknown=True)

    def _kill_failed(self) -> Delivered:
        text = f"it was killed {micros_to_seconds(KILL_LIMIT)} s ago, and still runs"
        return self._made_to_end(text, now=self._now())

    def _pause_or_resume(self) -> None:
        """Suspend it when its window closes, and resume it when the next one opens; without a next one, end it."""
        declared, first_due = self._assignment.schedule.declaration, self._assignment.occurrence.first_due
        self._pause_or_resume_at = None
        if declared.window is not None:
            spell = window_period_at(declared.window, declared.trigger, first_due=first_due, now=self._now())
            if not spell.is_open and spell.until is None:
                self._cut_off()
                return
            self._channel.send_signal(signal.SIGCONT if spell.is_open else signal.SIGSTOP)
            self._pause_or_resume_at = spell.until

    def _handle(self, message: dict[str, Any]) -> Delivered | None:
        """Handle a message of the supervisor; None unless it is the end."""
        if "ready" in message:
            return self._begin()
        if "pid" in message:
            self._pid, self._assignment.started = message["pid"], self._begun_at
            self._report_at = self._now() + OUTPUT_INTERVAL
            return None
        if "error" in message:
            return undeliverable(f"{self._argv[0]!r} could not be started: {message['error']}", now=self._now())
        self._channel.drain()
        return self._exited(message["exit"])

    def _begin(self) -> Delivered | None:
        """Tell the supervisor to start it, unless it was asked to stop."""
        if (reason := self._assignment.stop_reason) is not None:
            return not_started(self._assignment, reason, now=self._now())
        self._begun_at = self._now()
        self._has_begun = self._assignment.ends_soon = self._channel.go()
        return None

    def _exited(self, code: int) -> Delivered:
        if rejected := self._channel.progress.rejected:
            # Not the lines themselves: what a command writes may be secret.
            occurrence = self._assignment.occurrence
            logger.warning(
                "%s: lines about progress were ignored (%d); write a number from 0 to 1 and a text, such as '0.4 rows'",
                log_name(self._assignment.schedule),
                rejected,
                extra={"occurrence_id": occurrence.id, "schedule_id": occurrence.schedule_id},
            )
        now, result = self._now(), dict[str, Any](exit_code=code)
        result |= mask_lines(self._channel.output.to_document(), self._redactor)
        if self._terminated_at is None and code == 0:
            return succeeded(self._assignment, result, now=now)
        text = "\n".join(part for part in (last_lines(result["output"]), end_of_program(code)) if part)
        if self._terminated_at is not None:
            return replace(
                self._made_to_end(text, now=now), result=result | mask_lines(self._progress(), self._redactor)
            )
        error = subprocess.CalledProcessError(code, list(self._argv), result["output"])
        # An exit code is the program's own answer; a program that was killed from elsewhere gave none.
        return replace(failed(self._assignment, error, now=now, text=text), result=result, is_unknown=code < 0)

    def _made_to_end(self, text: str, *, now: Micros) -> Delivered:
        """It got SIGTERM or SIGKILL. Why does not depend on which of them ended it."""
        reason = self._assignment.stop_reason or Reason.CANCELLED
        delivered = (
            cut_off(self._assignment, now=now) if self._is_cut_off else stopped(self._assignment, reason, None, now=now)
        )
        declared, occurrence = self._assignment.schedule.declaration, self._assignment.occurrence
        why = interruption(delivered.outcome, delivered.reason, occurrence, declared, node="")
        return replace(delivered, error=f"{text}: {why}")
