"""Interruptions: what ends a run early, and the words for it if neither the work nor its target reported anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen
from noonmark.core.ids import is_hidden, shown_name
from noonmark.core.instants import SECOND, micros_to_seconds, parse_instant, to_text
from noonmark.core.json_values import printable
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import kept_facts
from noonmark.core.policies.expected_rate import RateProblem
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import BY_ITSELF
from noonmark.core.targets import AGENT_KINDS
from noonmark.core.targets.command import end_of_program

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.run import Run
    from noonmark.core.schedule import Declaration, Schedule

PINGED = "ping"
ANSWERS = frozenset({"http"})
"""The kinds of target that answer; what others do ends."""
DEADLINE = "deadline"
SET_BY = "deadline_set_by"
"""The key, in the detail of an occurrence that awaits its completion, of what set its deadline: its window, the
target, or the start ping of a job."""
BY_WINDOW, BY_TARGET, BY_START = "window", "target", "start"
ENGINE = "engine"
"""The key, in the same place, of the engine that carries it out, if one does."""
STOP_GRACE: Micros = 10 * SECOND
"""How long a worker of an engine has to end what was asked to stop, or has timed out, before the ledger does."""
_AWAITING_COMPLETION = Phase.AWAITING_COMPLETION


def interruption(
    outcome: Outcome, reason: Reason | None, occurrence: Occurrence, declared: Declaration, *, node: str
) -> str | None:
    """Why a run was interrupted, in a few words; None if it was not."""
    match outcome:
        case Outcome.TIMED_OUT if reason is Reason.COMPLETION_TIMED_OUT:
            by = "in time" if occurrence.deadline is None else f"by {to_text(occurrence.deadline)}"
            if declared.target.kind == PINGED:
                return f"no ping came {by}"
            return f"the target did not say {by} how the work ended"
        case Outcome.TIMED_OUT:
            what = "answer" if declared.target.kind in ANSWERS else "end"
            limit = "its timeout" if declared.timeout is None else f"{micros_to_seconds(declared.timeout):g} s"
            return f"no {what} within {limit}"
        case Outcome.CANCELLED:
            return _part((reason or Reason.CANCELLED).sentence)
        case Outcome.LEASE_LOST:
            return f"{_named(node)} stopped before it had ended"
        case _:
            return None


def interrupted_at(occurrence: Occurrence, declared: Declaration) -> Micros | None:
    """When its window ends what has begun, if it has one that does."""
    return None if declared.window is None else declared.window.cuts_off_at(occurrence.first_due)


def ends_with_window(occurrence: Occurrence, declared: Declaration, deadline: Micros) -> bool:
    """Whether it is its window that ends at this deadline what was taken over.

    The window may have been edited since: what was agreed then counts. Where the row does not tell, the window that is
    declared now does.
    """
    agreed = (kept_facts(occurrence) or {}).get(SET_BY)
    if agreed in (BY_WINDOW, BY_TARGET, BY_START):
        return bool(agreed == BY_WINDOW)
    closes = interrupted_at(occurrence, declared)
    return closes is not None and closes <= deadline


def engine_of(delivery: Delivery) -> str | None:
    """The engine that has accepted a delivery, and has not said how it ended; None without one."""
    if delivery.phase != _AWAITING_COMPLETION:
        return None
    engine = (kept_facts(delivery) or {}).get(ENGINE)
    return engine if isinstance(engine, str) else None


def stop_deadline(delivery: Delivery, *, now: Micros, is_workflow_run: bool) -> Micros | None:
    """When a delivery that is asked to stop now has to have ended; None if its node sees to that.

    What a target has accepted is not watched: it ends at once. What an engine has is stopped by its worker, which says
    what was used. A workflow run may have something to undo.
    """
    ends_by = real_deadline(delivery)
    if delivery.phase != Phase.AWAITING_COMPLETION or is_workflow_run:
        return ends_by
    stops_by = now if engine_of(delivery) is None else now + STOP_GRACE
    return stops_by if ends_by is None else min(stops_by, ends_by)


def alert_at(declared: Declaration, started: Micros) -> Micros | None:
    """When a run that began then takes longer than expected: an agent's, if nothing is, at the next fire."""
    if declared.expected is not None:
        return started + declared.expected
    if declared.target.kind not in AGENT_KINDS or declared.trigger is None:
        return None
    return declared.trigger.next_micros(started)


class Delivery(Protocol):
    """The fields of a row or an occurrence that describe a delivery."""

    @property
    def phase(self) -> str:
        """Its phase."""

    @property
    def stop(self) -> str | None:
        """Why it was asked to stop."""

    @property
    def deadline(self) -> Micros | None:
        """When something about it is next decided."""

    @property
    def detail(self) -> str:
        """The numbers behind its reason."""


def real_deadline(delivery: Delivery) -> Micros | None:
    """When a delivery has to end, however long it is expected to take; None without a limit."""
    if delivery.stop is not None:
        return delivery.deadline
    if delivery.phase != Phase.AWAITING_COMPLETION:
        return None
    try:
        return parse_instant(json.loads(delivery.detail)[DEADLINE])
    except (ValueError, TypeError, KeyError):  # the record is damaged, or of an earlier release
        return delivery.deadline


def is_alert(delivery: Delivery) -> bool:
    """Whether its next deadline is only when it takes longer than expected."""
    return delivery.deadline is not None and real_deadline(delivery) != delivery.deadline


def is_begun(occurrence: Occurrence) -> bool:
    """Whether a job that runs elsewhere has sent a start ping."""
    return (kept_facts(occurrence) or {}).get(SET_BY) == BY_START


@frozen(kw_only=True)
class LostNode:
    """A node that holds an occurrence and is not alive, as of its last heartbeat."""

    seen: Micros | None
    """Its last heartbeat; None if that is so long ago that it is not listed any more."""
    left: Micros | None = None
    """When it stopped; None if it did not."""
    gone: Micros | None = None
    """When its process was found to have ended; None if it was not."""


def lost_error(node: str | None) -> str:
    """The words for a run whose node was lost."""
    return f"{_named(node)} was lost before it had ended"


def gone_error(node: str | None) -> str:
    """The words for a run whose node was lost because its process was gone."""
    return f"the process of {_named(node)} was gone before it had ended"


def _named(node: str | None) -> str:
    return f"node {node}" if node else "its node"


def _part(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:].removesuffix(".")


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
    if is_unpinged(kind, reason):
        return f": no ping came in time ({reason})"
    result = run.result if isinstance(run.result, Mapping) else {}
    if isinstance(code := result.get("exit_code"), int):
        return f": it {end_of_program(code)} ({reason})"
    if isinstance(status := result.get("status"), int):
        return f": it was answered with status {status} ({reason})"
    if kind in ANSWERS and run.outcome is Outcome.FAILED:
        return f": there was no answer ({reason})"
    return f" ({reason})"


def failure_line(  # noqa: PLR0913 - each is a part of the line
    schedule: Schedule,
    occurrence: Occurrence,
    run: Run,
    reason: Reason,
    *,
    retry_at: Micros | None,
    own_words: str | None = None,
    reach: str | None = "",
) -> str:
    """The line about a run that did not complete: which one, how it ended, and what follows or where to read more."""
    declaration = schedule.declaration
    nominal, allowed = to_text(occurrence.nominal), declaration.retry_policy.max_attempts
    then = "" if retry_at is None else f", retry at {to_text(retry_at)}"
    more = f"; {more_about(occurrence.id, reach)}" if retry_at is None else ""
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


def is_unpinged(kind: str, reason: Reason | None) -> bool:
    """Whether a reason says that the ping of a job that runs elsewhere did not come."""
    return kind == PINGED and reason is Reason.COMPLETION_TIMED_OUT


def pause_line(schedule: Schedule, run: Run, reach: str | None = "") -> str | None:
    """The line about a schedule that Noonmark paused because of a run; None if it did not."""
    pause = schedule.pause
    if pause is None or pause.by != BY_ITSELF or run.ended is None or pause.at < run.ended:
        return None
    return _paused(schedule, pause.reason, reach)


def runaway_line(schedule: Schedule, breach: Breach, reach: str | None = "") -> str:
    """The line about a schedule that has broken a rule of the runaway guard."""
    return _paused(schedule, breach.text, reach)


def _paused(schedule: Schedule, why: str | None, reach: str | None) -> str:
    resume = f"{_call('resume', schedule.schedule_id, reach)} resumes it"
    return f"{log_name(schedule)} is paused: {why}; {resume}"


def more_about(some_id: str, reach: str | None = "") -> str:
    """Where to read more about a schedule or an occurrence; `reach` is as in `Runtime`."""
    return f"{_call('explain', some_id, reach)} says more"


def _call(verb: str, some_id: str, reach: str | None) -> str:
    if reach is None:
        return f'`scheduler.{verb}("{some_id}")`'
    return f"`noonmark schedule {verb} {some_id}{reach and f' {reach}'}`"


def log_name(schedule: Schedule) -> str:
    """What a log calls a schedule: its name, or else its id and its route; a run without one has what it runs."""
    if is_hidden(schedule.schedule_id):
        return shown_name(schedule.schedule_id)
    return schedule.declaration.name or f"{schedule.schedule_id} ({schedule.declaration.target.route})"
