"""Pings: what the calls of a job that runs elsewhere mean for the occurrence that expects them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import NotFound
from noonmark.core.frozen import frozen
from noonmark.core.instants import to_text
from noonmark.core.interruption import BY_START
from noonmark.core.json_values import storable
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Explained
from noonmark.core.run import Outcome
from noonmark.core.settlement import COMPLETION_LIMIT, Accepted, Delivered
from noonmark.core.targets.ping import PingTarget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule

MAX_KEPT = 16_384
"""Bytes of a body that are stored: the last ones, where programs report errors."""
MAX_EXIT_STATUS = 255
_STATUS = re.compile(r"[0-9]{1,3}", re.ASCII)


class Signal(StrEnum):
    """What a ping says."""

    START = "start"
    SUCCESS = "success"
    FAIL = "fail"


@frozen(kw_only=True)
class Ping:
    """One call of the URL."""

    signal: Signal
    exit_status: int | None = None
    body: str = ""

    @property
    def result(self) -> dict[str, Any]:
        """What is stored of it as the result of the run."""
        status = {} if self.exit_status is None else {"exit_status": self.exit_status}
        return {"ping": str(self.signal), **status, **({"output": self.body} if self.body else {})}

    @property
    def error(self) -> str | None:
        """What is stored of a failure as the error of the run: the output ends with what went wrong."""
        if self.signal is not Signal.FAIL:
            return None
        message = "the job reported a failure"
        if self.exit_status is not None:
            message = f"the job exited with status {self.exit_status}"
        return f"{self.body.rstrip()}\n{message}" if self.body.strip() else message


class Verdict(Explained):
    """What became of a ping."""

    COUNTED = "counted", "An occurrence expected it, and it counts for that one."
    EARLY = "early", "It came shortly before the due time, or before a node had opened the occurrence; it counts then."
    REPEATED = "repeated", "The same early ping came before for this occurrence; the first one counts."
    UNEXPECTED = "unexpected", "No occurrence expected it; it is recorded as an event, and changes nothing."
    PAUSED = "paused", "The schedule is paused; the ping changes nothing."


def parse_ping(action: str, body: bytes) -> Ping:
    """Read the end of a URL and a body; nothing is success, and a number the exit status of a program.

    NotFound names what is allowed.
    """
    text = storable(body[-MAX_KEPT:].decode(errors="replace"))
    if action == "":
        return Ping(signal=Signal.SUCCESS, body=text)
    if action in (Signal.START, Signal.FAIL):
        return Ping(signal=Signal(action), body=text)
    if _STATUS.fullmatch(action) and (status := int(action)) <= MAX_EXIT_STATUS:
        return Ping(signal=Signal.FAIL if status else Signal.SUCCESS, exit_status=status, body=text)
    raise NotFound(f"a ping ends with /start, /fail, an exit status from 0 to {MAX_EXIT_STATUS}, or nothing")


def restore_ping(payload: object) -> Ping | None:
    """The ping that an early event stands for; None if it is not one."""
    if not isinstance(payload, dict) or payload.get("signal") not in list(Signal):
        return None
    status = payload.get("exit_status")
    return Ping(
        signal=Signal(payload["signal"]),
        exit_status=status if isinstance(status, int) else None,
        body=str(payload.get("output") or ""),
    )


def expecting(live: Iterable[Occurrence], schedule: Schedule, *, now: Micros) -> Occurrence | None:
    """The occurrence that a ping counts for: the oldest that is open, or else the next that is due or about to be."""
    target = schedule.declaration.target
    early = target.early if isinstance(target, PingTarget) else 0
    expected = sorted(live, key=lambda occurrence: (occurrence.nominal, occurrence.id))
    is_open = [occurrence for occurrence in expected if is_delivering(occurrence)]
    if is_open:
        return is_open[0]
    is_near = [occurrence for occurrence in expected if occurrence.due - early <= now]
    return is_near[0] if is_near and schedule.phase is not SchedulePhase.PAUSED else None


def is_delivering(occurrence: Occurrence) -> bool:
    """Whether a ping ends it, or starts its timeout, at once."""
    return occurrence.phase in (Phase.DISPATCHING, Phase.AWAITING_COMPLETION)


def delivered(ping: Ping, occurrence: Occurrence, *, now: Micros) -> Delivered:
    """The end of a delivery that a ping reports."""
    outcome = Outcome.COMPLETED if ping.signal is Signal.SUCCESS else Outcome.FAILED
    started = now if occurrence.started is None else max(occurrence.started, occurrence.due)
    return Delivered(outcome=outcome, started=started, ended=max(now, started), result=ping.result, error=ping.error)


def opened(schedule: Schedule, *, now: Micros) -> Accepted:
    """An occurrence that waits for its first ping: its grace begins."""
    target = schedule.declaration.target
    grace = target.grace if isinstance(target, PingTarget) else 0
    return Accepted(started=now, accepted=now, deadline=now + grace)


def begun(schedule: Schedule, *, now: Micros) -> Accepted:
    """An occurrence whose job has reported its start: its timeout begins."""
    timeout = schedule.declaration.timeout
    deadline = now + (COMPLETION_LIMIT if timeout is None else timeout)
    return Accepted(started=now, accepted=now, deadline=deadline, set_by=BY_START)


def ping_fields(ping: Ping, occurrence: Occurrence | None, *, now: Micros) -> dict[str, Any]:
    """The fields of a system event that are about the ping itself."""
    return {
        "occurrence_id": None if occurrence is None else occurrence.id,
        "due_at": None if occurrence is None else to_text(occurrence.first_due),
        "signal": str(ping.signal),
        "exit_status": ping.exit_status,
        "output": ping.body,
        "at": to_text(now),
    }
