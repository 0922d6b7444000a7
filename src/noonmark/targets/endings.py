"""Endings: what is recorded when a function returned, raised, was cut off or could not be called at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import json_problem
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered
from noonmark.targets.answers import MAX_RESULT, as_json, shown_error

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment


def succeeded(assignment: Assignment, result: object, *, now: Micros, note: str | None = None) -> Delivered:
    """The function returned. If it had noticed that it should stop, it did not finish its work.

    A note says why its result is not here.
    """
    assignment.result = result
    if assignment.stop_reason is not None and getattr(assignment.signal, "was_seen", False):
        return stopped(assignment, assignment.stop_reason, None, now=now)
    started = now if assignment.started is None else assignment.started
    if result is None:
        return Delivered(outcome=Outcome.COMPLETED, started=started, ended=now, error=note)
    kept, note = _kept(result)
    return Delivered(outcome=Outcome.COMPLETED, started=started, ended=now, result=kept, error=note)


def raised(assignment: Assignment, error: BaseException, *, now: Micros, text: str | None = None) -> Delivered:
    """The function raised; when it had been asked to stop, that was its answer. The text is its traceback."""
    assignment.error = error
    text = shown_error(error) if text is None else text
    if assignment.stop_reason is not None:
        return stopped(assignment, assignment.stop_reason, text, now=now)
    started = now if assignment.started is None else assignment.started
    return Delivered(outcome=Outcome.FAILED, started=started, ended=now, error=text)


def cut_off(assignment: Assignment, *, now: Micros) -> Delivered:
    """Its time was up: its timeout, or the end of its window."""
    started = now if assignment.started is None else assignment.started
    if assignment.is_timeout(now):
        return Delivered(outcome=Outcome.TIMED_OUT, started=started, ended=now)
    return Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, reason=Reason.WINDOW_CLOSED)


def undeliverable(why: str, *, now: Micros, in_log: str | None = None) -> Delivered:
    """The function was not called: this process has none of that name any more, or no way to call it.

    Where others had a hand in what is said of it, or it repeats what is sent, a log says something else.
    """
    own = why if in_log is None else in_log
    return Delivered(outcome=Outcome.DELIVERY_FAILED, started=now, ended=now, error=why, own_words=own)


def not_begun(assignment: Assignment, reason: Reason, *, now: Micros) -> Delivered:
    """It was asked to stop while it waited for its time, or for a thread."""
    return stopped(assignment, reason, None, now=now)


def stopped(assignment: Assignment, reason: Reason, text: str | None, *, now: Micros) -> Delivered:
    """It has ended because it was asked to stop."""
    started = now if assignment.started is None else assignment.started
    if reason is Reason.LEASE_LOST:
        return Delivered(outcome=Outcome.LEASE_LOST, started=started, ended=now, error=text)
    return Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, error=text, reason=reason)


def _kept(result: object) -> tuple[Any, str | None]:
    """What is kept of a result: JSON, and not too much of it. The work is done, so anything else is no failure."""
    text, note = as_json(result)
    if note is not None:
        return None, note
    if len(text) > MAX_RESULT:
        return None, f"the result was not kept: it has {len(text):,} bytes of JSON, and at most {MAX_RESULT:,} are kept"
    kept = json.loads(text)
    problem = json_problem(kept)
    return (kept, None) if problem is None else (None, f"the result was not kept: it {problem}")
