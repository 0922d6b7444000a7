"""A schedule in plain words, beside its trigger: what it starts, and what it does in the awkward cases."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, assert_never

from noonmark.core.describe.words import duration_words
from noonmark.core.policies import OverlapKind
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread
from noonmark.core.policies.window import EndAction
from noonmark.core.targets import CommandTarget, EventTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.policies import MisfirePolicy
    from noonmark.core.schedule import Declaration
    from noonmark.core.targets import Target

MAX_TARGET = 300
"""No more characters of an address or of arguments are shown."""

WHEN_BUSY = {
    OverlapKind.SKIP: "a new one is skipped",
    OverlapKind.QUEUE: "new ones wait and run in order",
    OverlapKind.QUEUE_ONE: "one waits, and a newer one replaces it",
    OverlapKind.ALLOW: "a new one runs beside it",
    OverlapKind.CANCEL_RUNNING: "it is asked to stop, then the new one starts",
}
AT_THE_END = {
    EndAction.CANCEL: "then it is asked to stop",
    EndAction.PAUSE: "then it is suspended until the next one opens",
    EndAction.NONE: "what runs then goes on",
}


def facts(declaration: Declaration) -> dict[str, str]:
    """Short answers by their question."""
    attempts = declaration.retry_policy.max_attempts
    answers = {
        "Starts": _started(declaration.target) + (f", at most {attempts} attempts" if attempts > 1 else ""),
        "When busy": WHEN_BUSY[declaration.overlap_policy.kind],
    }
    answers |= _limits(declaration)
    if not isinstance(declaration.trigger, EventTrigger | None):  # only a time of its own can be missed
        grace = duration_words(declaration.misfire_policy.grace)
        answers["When late"] = f"by more than {grace}: {_when_late(declaration.misfire_policy)}"
    if not declaration.enabled:
        answers["Enabled"] = "no, nothing fires until it is resumed"
    return answers


def _started(target: Target) -> str:
    """What is started, as far as it fits on a line or two."""
    match target:
        case HttpTarget():
            text = f"{target.method} {target.url}"
        case CommandTarget():
            text = f"command {shlex.join(target.argv)}"
        case EventTarget():
            text = f"event {target.event_type}"
        case _:
            text = target.route
    return text if len(text) <= MAX_TARGET else f"{text[:MAX_TARGET]}…"


def _limits(declaration: Declaration) -> dict[str, str]:
    """How long it may take, where that is said."""
    target, window = declaration.target, declaration.window
    said = [] if declaration.timeout is None else [f"at most {duration_words(declaration.timeout)}"]
    if isinstance(target, HttpTarget) and target.timeout is not None:
        said.append(f"{duration_words(target.timeout)} for each request")
    answers = {"Takes": ", ".join(said)} if said else {}
    if window is not None:
        answers["Window"] = f"{duration_words(window.duration)}, {AT_THE_END[window.end_action]}"
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
