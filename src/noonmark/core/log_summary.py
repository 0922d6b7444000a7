"""What a log says of a run that did not end well: what happened, and nothing that passed through it.

Logs go where payloads, the output of programs and the answers of servers must not: those are in the run, to which the
ids of the line lead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from noonmark.core.instants import to_text
from noonmark.core.interruption import ANSWERS
from noonmark.core.json_values import printable
from noonmark.core.policies.expected_rate import RateProblem
from noonmark.core.run import Outcome
from noonmark.core.targets.command import end_of_program

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule

OWN = frozenset({"function"})
"""The kinds of target that run the node's own code, whose exceptions belong in its log."""


def log_summary(kind: str, run: Run, reason: Reason, own_words: str | None = None) -> str:
    """How a run of such a target ended, to follow the words that tell of its failure; nothing, if that is all.

    What Noonmark decided on itself is said in its own words.
    """
    if kind in OWN:
        return f"\n{run.error.rstrip()}" if run.error else ""
    if own_words is not None:
        return f": {printable(own_words)} ({reason})"
    known = run.result if isinstance(run.result, Mapping) else {}
    if isinstance(code := known.get("exit_code"), int):
        return f": it {end_of_program(code)} ({reason})"
    if isinstance(status := known.get("status"), int):
        return f": it was answered with status {status} ({reason})"
    if kind in ANSWERS and run.outcome is Outcome.FAILED:
        return f": there was no answer ({reason})"
    return f" ({reason})"


def failure_line(
    schedule: Schedule,
    occurrence: Occurrence,
    run: Run,
    reason: Reason,
    *,
    retry_at: Micros | None,
    own_words: str | None = None,
) -> str:
    """The line about a run that did not complete: which one, how it ended, and what follows or where to read more."""
    declaration = schedule.declaration
    nominal, allowed = to_text(occurrence.nominal), declaration.retry_policy.max_attempts
    then = "" if retry_at is None else f", retry at {to_text(retry_at)}"
    more = f"; {more_about(occurrence.id)}" if retry_at is None else ""
    summary = log_summary(declaration.target.kind, run, reason, own_words)
    first, newline, traceback = summary.partition("\n")
    return (
        f"{log_name(schedule)}: the run of {nominal} {run.outcome}, attempt {run.attempt} of {allowed}"
        f"{then}{first}{more}{newline}{traceback}"
    )


def rate_line(schedule: Schedule, alert: RateAlert) -> str:
    """The line about a schedule that starts too often, or succeeds too rarely."""
    words = "too often" if alert.problem is RateProblem.TOO_OFTEN else "too rarely"
    return f"{log_name(schedule)} runs {words}: {alert.to_sentence()}"


def more_about(some_id: str) -> str:
    """Where to read more about a schedule or an occurrence."""
    return f"`noonmark schedule explain {some_id}` says more"


def log_name(schedule: Schedule) -> str:
    """What a log calls a schedule: its name, or else its id and its route."""
    return schedule.declaration.name or f"{schedule.schedule_id} ({schedule.declaration.target.route})"
