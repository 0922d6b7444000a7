"""A schedule in plain words, beside its trigger: what it starts, and what it does in the awkward cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.describe.words import duration_words
from noonmark.core.policies import OverlapKind
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.policies import MisfirePolicy
    from noonmark.core.schedule import Declaration

WHEN_BUSY = {
    OverlapKind.SKIP: "a new one is skipped",
    OverlapKind.QUEUE: "new ones wait and run in order",
    OverlapKind.QUEUE_ONE: "one waits, and a newer one replaces it",
    OverlapKind.ALLOW: "a new one runs beside it",
    OverlapKind.CANCEL_RUNNING: "it is asked to stop, then the new one starts",
}


def facts(declaration: Declaration) -> dict[str, str]:
    """Short answers by their question."""
    attempts = declaration.retry_policy.max_attempts
    answers = {
        "Starts": declaration.target.route + (f", at most {attempts} attempts" if attempts > 1 else ""),
        "When busy": WHEN_BUSY[declaration.overlap_policy.kind],
    }
    if not isinstance(declaration.trigger, EventTrigger | None):  # only a time of its own can be missed
        grace = duration_words(declaration.misfire_policy.grace)
        answers["When late"] = f"by more than {grace}: {_when_late(declaration.misfire_policy)}"
    if not declaration.enabled:
        answers["Enabled"] = "no, nothing fires until it is resumed"
    return answers


def _when_late(policy: MisfirePolicy) -> str:
    match policy:
        case Skip():
            return "not run"
        case CatchUpOne():
            return "the newest missed one runs"
        case CatchUpAll():
            return f"the newest {policy.limit:,} missed ones run"
        case CatchUpWithin():
            return f"run if missed within {duration_words(policy.window)}, the newest {policy.limit:,}"
        case Spread():
            return f"the newest {policy.limit:,} missed ones run, spread over {duration_words(policy.window)}"
    assert_never(policy)
