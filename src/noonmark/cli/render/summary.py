"""A summary of a schedule: its target, limits and policies."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, assert_never

from noonmark.cli.output import printable, shorten
from noonmark.cli.render.console import Text, facts_table, open_console
from noonmark.cli.render.fires import print_fires
from noonmark.core.describe.words import duration_words
from noonmark.core.policies import OverlapKind
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread
from noonmark.core.policies.window import EndAction
from noonmark.core.targets import BundleTarget, CommandTarget, EventTarget, WorkflowTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.targets.ping import PingTarget
from noonmark.core.triggers import EventTrigger, OnceTrigger

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.cli.render.fires import Upcoming
    from noonmark.core.policies import MisfirePolicy
    from noonmark.core.policies.expected_rate import ExpectedRate
    from noonmark.core.policies.runaway import Guard
    from noonmark.core.schedule import Declaration
    from noonmark.core.targets import Target

MAX_TARGET = 300
"""The most characters of a URL or of arguments that are shown."""

WHEN_BUSY = {
    OverlapKind.SKIP: "a new one is skipped",
    OverlapKind.QUEUE: "new ones wait and run in order",
    OverlapKind.QUEUE_ONE: "one waits, and a newer one replaces it",
    OverlapKind.ALLOW: "a new one runs beside it",
    OverlapKind.CANCEL_RUNNING: "it is asked to stop, then the new one starts",
    OverlapKind.TERMINATE: "it is killed, then the new one starts",
}
AT_THE_END = {
    EndAction.CANCEL: "then it is asked to stop",
    EndAction.PAUSE: "then it is suspended until the next one opens",
    EndAction.NONE: "then a run continues",
}


def show_valid_schedule(declaration: Declaration, upcoming: Upcoming, *, now: datetime) -> None:
    """Show that a schedule document is valid, and what it does."""
    name = declaration.name or "The schedule"
    with open_console() as console:
        console.print(Text(printable(name), "bold green"), Text(" is valid.", "green"))
        console.print(facts_table({"Fires": upcoming.text} | summarize(declaration)))
        print_fires(console, upcoming, now)


def summarize(declaration: Declaration) -> dict[str, str]:
    """Short facts by label."""
    attempts = declaration.retry_policy.max_attempts
    facts = {
        "Starts": _target(declaration.target) + (f", at most {attempts} attempts" if attempts > 1 else ""),
        "When busy": WHEN_BUSY[declaration.overlap_policy.kind],
    }
    facts |= _limits(declaration)
    if not isinstance(declaration.trigger, EventTrigger | None):  # only a scheduled time can be missed
        grace = duration_words(declaration.misfire_policy.grace)
        facts["When late"] = f"by more than {grace}: {_when_late(declaration.misfire_policy)}"
    if not declaration.enabled:
        facts["Enabled"] = "no, nothing fires until it is resumed"
    return facts


def _target(target: Target) -> str:
    match target:
        case HttpTarget():
            text = f"{target.method} {target.url}"
        case CommandTarget():
            text = f"command {shlex.join(target.argv)}"
        case EventTarget():
            text = f"event {target.event_type}"
        case WorkflowTarget():
            text = f"workflow {target.workflow_id}" + ("" if target.version is None else f" version {target.version}")
        case BundleTarget():
            text = f"bundle {target.bundle_id or target.digest}"
        case PingTarget():
            text = f"ping within {duration_words(target.grace)}"
        case _:
            text = target.route
    return shorten(text, MAX_TARGET)


def _limits(declaration: Declaration) -> dict[str, str]:
    """The timeouts and the window, if there are any."""
    target, window = declaration.target, declaration.window
    timeouts = [] if declaration.timeout is None else [f"at most {duration_words(declaration.timeout)}"]
    if isinstance(target, HttpTarget) and target.timeout is not None:
        timeouts.append(f"{duration_words(target.timeout)} for each request")
    if declaration.expected is not None:
        timeouts.append(f"an alert after {duration_words(declaration.expected)}")
    facts = {"Takes": ", ".join(timeouts)} if timeouts else {}
    if declaration.expected_rate is not None:
        facts["Expected"] = _rate_words(declaration.expected_rate)
    guard = declaration.guard
    if guard is not None or declaration.runaway is not None:
        facts["Runaway"] = _guard_words(guard)
    if window is not None:
        is_last = window.end_action is EndAction.PAUSE and isinstance(declaration.trigger, OnceTrigger | None)
        at_the_end = "then it is cancelled, as no further one opens" if is_last else AT_THE_END[window.end_action]
        facts["Window"] = f"{duration_words(window.duration)}, {at_the_end}"
    return facts


def _rate_words(rate: ExpectedRate) -> str:
    """An expected rate in words."""
    least = [] if rate.at_least is None else [f"at least {rate.at_least:,} success{'es' * (rate.at_least > 1)}"]
    most = [] if rate.at_most is None else [f"at most {rate.at_most:,} start{'s' * (rate.at_most > 1)}"]
    return f"{' and '.join([*least, *most])} within {duration_words(rate.per)}, or an alert"


def _guard_words(guard: Guard | None) -> str:
    """The rules of the runaway guard in words."""
    if guard is None:
        return "no guard"
    rules = [
        *([] if guard.fires is None else [f"{guard.fires:,} start{'s' * (guard.fires > 1)} in an hour"]),
        *([] if guard.factor is None else [f"{guard.factor:g} times the spend of its usual hours"]),
        *([] if guard.identical is None else [f"{guard.identical:,} identical results in a row"]),
    ]
    return f"beyond {' or '.join(rules)}, it is paused"


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
