"""Outcomes: what is recorded when a run succeeded, raised, was cut off or could not start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import exception_names
from noonmark.core.frozen import maker
from noonmark.core.json_values import json_problem
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered
from noonmark.targets.serialization import MAX_RESULT, result_to_json, traceback_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment

_make_delivered, _COMPLETED = maker(Delivered), Outcome.COMPLETED


def succeeded(assignment: Assignment, result: object, *, now: Micros, note: str | None = None) -> Delivered:
    """The work returned. If it had noticed a stop request, it counts as stopped: it did not finish.

    `note` says why the result is missing.
    """
    assignment.result = result
    if assignment.stop_reason is not None and getattr(assignment.signal, "was_seen", False):
        return stopped(assignment, assignment.stop_reason, None, now=now)
    if result is None:
        return _make_delivered(outcome=_COMPLETED, started=_started(assignment, now), ended=now, error=note)
    stored, note = _storable(result)
    return Delivered(outcome=Outcome.COMPLETED, started=_started(assignment, now), ended=now, result=stored, error=note)


def failed(
    assignment: Assignment,
    error: BaseException,
    *,
    now: Micros,
    text: str | None = None,
    raised: Sequence[str] | None = None,
) -> Delivered:
    """The work raised. If it had been asked to stop, it counts as stopped. `text` replaces the traceback.

    `raised` has the names of the class and the bases of what was raised, where that was not `error` itself.
    """
    assignment.error = error
    text = traceback_text(error) if text is None else text
    if assignment.stop_reason is not None:
        return stopped(assignment, assignment.stop_reason, text, now=now)
    names = exception_names(type(error)) if raised is None else tuple(raised)
    return Delivered(outcome=Outcome.FAILED, started=_started(assignment, now), ended=now, error=text, raised=names)


def cut_off(assignment: Assignment, *, now: Micros) -> Delivered:
    """The work reached its timeout, or the end of its window."""
    started = _started(assignment, now)
    if assignment.is_timeout(now):
        return Delivered(outcome=Outcome.TIMED_OUT, started=started, ended=now)
    return Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, reason=Reason.WINDOW_CLOSED)


def undeliverable(why: str, *, now: Micros, log_text: str | None = None) -> Delivered:
    """The work could not start. `log_text` replaces `why` in logs, where `why` may repeat what others sent."""
    own = why if log_text is None else log_text
    return Delivered(outcome=Outcome.DELIVERY_FAILED, started=now, ended=now, error=why, own_words=own)


def not_started(assignment: Assignment, reason: Reason, *, now: Micros) -> Delivered:
    """The work was asked to stop while it was queued."""
    return stopped(assignment, reason, None, now=now)


def stopped(assignment: Assignment, reason: Reason, text: str | None, *, now: Micros) -> Delivered:
    """The work ended because it was asked to stop."""
    started = _started(assignment, now)
    if reason is Reason.LEASE_LOST:
        return Delivered(outcome=Outcome.LEASE_LOST, started=started, ended=now, error=text)
    return Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, error=text, reason=reason)


def _started(assignment: Assignment, now: Micros) -> Micros:
    return now if assignment.started is None else assignment.started


def _storable(result: object) -> tuple[Any, str | None]:
    """Return the result as bounded JSON, or a note. The work is done, so an unsuitable result is not a failure."""
    text, note = result_to_json(result)
    if note is not None:
        return None, note
    if len(text) > MAX_RESULT:
        return None, f"the result was not stored: its JSON has {len(text):,} bytes; the limit is {MAX_RESULT:,}"
    stored = json.loads(text)
    problem = json_problem(stored)
    return (stored, None) if problem is None else (None, f"the result was not stored: it {problem}")
