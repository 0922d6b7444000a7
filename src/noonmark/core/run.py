"""Runs: one attempt to deliver an occurrence each."""

from __future__ import annotations

import json
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import brief, evolve, fast_frozen, frozen
from noonmark.core.instants import Micros, from_micros, to_text

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.budgets.spend import Usage

MAX_SUMMARY = 300
MAX_MESSAGE = 200
"""Characters of the message with the progress of a run."""
_PROGRESS = "progress"


class Outcome(StrEnum):
    """How a run ended; the first five are also phases in which its occurrence may end."""

    __hash__ = str.__hash__

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DELIVERY_FAILED = "delivery_failed"
    LEASE_LOST = "lease_lost"
    """Its node was lost with it; it does not count as an attempt."""
    SUSPENDED = "suspended"
    """Its workflow waits, and goes on later in another run; it does not count as an attempt."""


CUT_OFF = frozenset(Outcome) - {Outcome.COMPLETED, Outcome.FAILED}
"""Outcomes of interrupted runs."""


@frozen(kw_only=True)
class RunProgress:
    """The progress of a run, as last reported."""

    fraction: float
    """From 0 to 1."""
    message: str = ""


@fast_frozen
@frozen(kw_only=True)
class Run:
    """Start, end and outcome; `ended` and `outcome` are None while it runs. `result` is JSON, `error` is for people."""

    id: str
    """The id of its occurrence, and the number of the attempt."""
    occurrence_id: str
    """Its occurrence."""
    attempt: int
    """1, and more after a failure."""
    node: str
    """The process that ran it."""
    started: Micros
    ended: Micros | None = None
    outcome: Outcome | None = None
    """How it ended."""
    result: Any = field(default=None, hash=False)
    """What the function returned, as far as that is JSON of at most 64 KiB; of a program that runs, its last output."""
    error: str | None = None
    """The traceback of what it raised, why it was cut short, or why its result was not kept."""
    usage: Usage | None = None
    """What it spent, where its target says so."""

    def __repr__(self) -> str:
        return brief(
            self,
            outcome=self.outcome,
            started_at=to_text(self.started),
            attempt=self.attempt,
            error=self.summary,
            id=self.id,
        )

    @property
    def summary(self) -> str | None:
        """What went wrong, on one line: the last one of a traceback says what was raised."""
        lines = (self.error or "").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
        return last if last is None or len(last) <= MAX_SUMMARY else f"{last[: MAX_SUMMARY - 1]}…"

    @property
    def progress(self) -> RunProgress | None:
        """Its last reported progress, while it runs or if it was interrupted."""
        reported = self.result.get(_PROGRESS) if isinstance(self.result, dict) else None
        if not isinstance(reported, dict) or not (self.outcome is None or self.outcome in CUT_OFF):
            return None
        return RunProgress(fraction=reported.get("fraction", 0), message=reported.get("message", ""))

    @property
    def started_at(self) -> datetime:
        """When delivery began, in UTC."""
        return from_micros(self.started)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, in UTC."""
        return None if self.ended is None else from_micros(self.ended)


def progress_result(progress: dict[str, Any]) -> dict[str, Any]:
    """The result of a run in progress that has reported its progress."""
    return {_PROGRESS: progress}


def in_place_of(before: Run | None, run: Run) -> Run:
    """A run that replaces the open run with its id; if it was cut off without output, it keeps that run's output."""
    is_mute = run.result is None and run.outcome in CUT_OFF
    return evolve(run, result=before.result) if before is not None and is_mute else run


def output_text(result: Any, error: str | None) -> str:
    """What a run left, as plain text: the output of a command, a text, or other results as JSON, and its error.

    A failed workflow has both: what its steps have returned, and which of them failed. What a program has written ends
    with its error already.
    """
    if isinstance(result, dict) and isinstance(result.get("output"), str):
        return str(result["output"])
    if isinstance(result, str):
        return result
    written = "" if result is None else json.dumps(result, ensure_ascii=False, indent=2) + "\n"
    return written + (f"{error.rstrip()}\n" if error else "")
