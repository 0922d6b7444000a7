"""Why something did or did not happen: one code for each reason, and the sentence that explains it.

A decision carries a `Reason` with the numbers behind it, and so does every occurrence that has ended. Which
reasons may stand with which final phase is written in `noonmark.core.lifecycle`.
"""

from __future__ import annotations

import json
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NO_FACTS: Mapping[str, int | float | str] = MappingProxyType({})


class Explained(StrEnum):
    """Stable codes; `sentence` says in plain words what one means."""

    sentence: str
    __hash__ = str.__hash__  # that of an enumeration is written in Python, and asked for at every look into a table

    def __new__(cls, code: str, sentence: str) -> Self:
        """A member is its code; the sentence travels with it."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member


class Reason(Explained):
    """Why something did or did not happen."""

    # When a fire is due
    NOT_DUE = "not_due", "No fire was due yet."
    ON_TIME = "on_time", "It was taken up within a second of its due time."
    WITHIN_GRACE = "within_grace", "It was late, but by no more than its grace."
    CAUGHT_UP = "caught_up", "It was missed, and the misfire policy runs it after all."
    LATE = "late", "It was later than the misfire policy allows."
    NEWER_FIRE = "newer_fire", "A newer fire was due before it started, and the misfire policy runs only the newest."
    CATCH_UP_LIMIT = "catch_up_limit", "More fires were due at once than may be caught up; the newest ones ran."

    # What an occurrence waits for
    QUEUED = "queued", "It waits for its turn behind another occurrence of the same schedule."
    CONCURRENCY_LIMIT = "concurrency_limit", "It waits because its concurrency key has no free place."
    INFLIGHT_LIMIT = "inflight_limit", "It waits because its user has as many occurrences in flight as allowed."
    TENANT_INFLIGHT_LIMIT = (
        "tenant_inflight_limit",
        "It waits because its tenant has as many occurrences in flight as allowed.",
    )
    TARGET_BUSY = "target_busy", "Its session, or the flow of its mob, was busy with another turn."
    DEPENDENCY_PENDING = "dependency_pending", "It waits for the schedules it depends on."
    RESOURCES_SHORT = "resources_short", "It waits because no node has the resources it asks for."
    SERVICE_UNAVAILABLE = "service_unavailable", "It waits because a service that it needs does not answer."
    STEP_PENDING = "step_pending", "It waits for a step of its workflow: a time, an event or work that runs elsewhere."
    APPROVAL = "approval", "It waits for somebody's approval."

    # Why it did not start
    OVERLAP = "overlap", "An earlier occurrence was still in flight, and the overlap policy forbids a second one."
    QUEUE_FULL = "queue_full", "As many occurrences were waiting as the queue may hold."
    REPLACED = "replaced", "A newer occurrence took its place."
    WINDOW_OPEN = "window_open", "The window in which it may run was open."
    WINDOW_CLOSED = "window_closed", "The window in which it may run had closed."
    DEPENDENCY_FAILED = "dependency_failed", "A schedule it depends on did not complete."
    DEPENDENCY_TIMED_OUT = "dependency_timed_out", "A schedule it depends on did not end within the wait limit."
    PAUSED = "paused", "The schedule was paused at that time."
    HALTED = "halted", "Somebody had halted its schedule, or its whole tenant."
    TARGET_MISSING = "target_missing", "No live node could serve its target."
    MAX_RUNS_REACHED = "max_runs_reached", "The schedule had run as often as it may."
    APPROVAL_DENIED = "approval_denied", "Somebody denied that it goes beyond its budget."
    APPROVAL_EXPIRED = "approval_expired", "Nobody decided in time whether it may go beyond its budget."
    EDITED = "edited", "The schedule was edited, and its new rule does not name this time."
    DELETED = "deleted", "The schedule was deleted."

    # How its delivery went
    ACCEPTED = "accepted", "The target accepted the work, and says later how it ended."
    SUCCEEDED = "succeeded", "The target did the work."
    FAILED = "failed", "The target reported a failure."
    UNDELIVERABLE = "undeliverable", "The target could not be reached, or refused the work."
    TIMED_OUT = "timed_out", "The run took longer than its timeout."
    COMPLETION_TIMED_OUT = "completion_timed_out", "The target accepted the work, but did not say in time how it ended."
    CANCELLED = "cancelled", "Someone asked for it to be cancelled."
    RETRY_SCHEDULED = "retry_scheduled", "The attempt failed, and another one is scheduled."
    ATTEMPTS_EXHAUSTED = "attempts_exhausted", "The attempt failed, and it was the last one allowed."
    NOT_RETRIED = "not_retried", "The attempt failed with an exception that the retry policy does not retry."
    BUDGET_EXCEEDED = "budget_exceeded", "A budget has no room for the next call of a model."
    TOOL_LOOP = "tool_loop", "The agent called the same tool again and again, without getting further."
    LEASE_LOST = "lease_lost", "The node that held it stopped, or was lost, so it is delivered again."
    SUSPENDED = "suspended", "Its workflow waits, so it gave up its node; it goes on when the wait is over."
    POISON = "poison", "Its lease was lost too often; it is not delivered again."
    OUTCOME_UNKNOWN = "outcome_unknown", "Delivery had begun when contact was lost, and it must not begin twice."
    UNREADABLE = "unreadable", "Its stored record cannot be read."


def no_facts() -> Mapping[str, int | float | str]:
    """The facts of a decision without numbers."""
    return _NO_FACTS


def reason_sentence(reason: Reason, detail: str) -> str:
    """The sentence of a reason; where its facts say what was missing or used up, or who stopped it, one about that."""
    words = None
    if detail and (tell := _WORDS.get(reason)) is not None:
        try:
            facts = json.loads(detail)
        except ValueError:
            facts = None
        if isinstance(facts, dict):
            words = tell(facts)
    return f"{words[0].upper()}{words[1:]}." if isinstance(words, str) and words else reason.sentence


def missing_words(facts: Mapping[str, object]) -> str | None:
    """What a target needed and did not find; None if no node could serve it at all."""
    match facts:
        case {"workflow": workflow}:
            return f"there was no workflow `{workflow}`"
        case {"session": session, "state": state}:
            return f"the session `{session}` was {state}"
        case {"session": session}:
            return f"there was no session `{session}`"
        case {"mob": mob, "member": member}:
            return f"the mob `{mob}` had no member `{member}`"
        case {"mob": mob, "flow": flow}:
            return f"the mob `{mob}` had no flow `{flow}`"
        case {"mob": mob}:
            return f"there was no mob `{mob}`"
        case {"why": str(why)}:
            return why
        case {"host": host}:
            return f"the node has no {host} agent host (see --agents)"
        case _:
            return None


def unserved_words(facts: Mapping[str, object]) -> str | None:
    """That no live node served the target of a fire when a newer one was due; None if that was not so."""
    route = facts.get("route")
    if route is None:
        return None
    return f"no live node served `{route}` until a newer fire was due, and the misfire policy runs only the newest"


def halted_words(facts: Mapping[str, object]) -> str | None:
    """Who halted it, when, and why; None if that was not stored."""
    by, since, why = (facts.get(name) for name in ("halted_by", "halted_at", "halt_reason"))
    if by is None:
        return None
    return f"it was halted by `{by}`{'' if since is None else f' at {since}'}{'' if why is None else f' ({why})'}"


_WORDS: Mapping[Reason, Callable[[Mapping[str, object]], object]] = MappingProxyType(
    {
        Reason.NEWER_FIRE: unserved_words,
        Reason.TARGET_MISSING: missing_words,
        Reason.BUDGET_EXCEEDED: lambda facts: facts.get("why"),
        Reason.HALTED: halted_words,
    }
)
