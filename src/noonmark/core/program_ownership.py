"""Program ownership: what callers may change of a schedule that a program declared in its own process.

Nodes do for such a schedule whatever it says, because the program could do it by itself. So a document that came over
the network may decide when it runs and whether, but not what it calls or with what. A function that a server offers by
name is different: every caller may have it called with any arguments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.targets import Target
    from noonmark.core.triggers import Trigger

BY_MODULE = ":"
"""In the name of a function: it was found by its module, so a program declared it."""


def is_program_owned(schedule: Schedule, offered: Collection[str]) -> bool:
    """Whether a program declared what the schedule does, and no server offers that to callers."""
    target = schedule.declaration.target
    if isinstance(target, FunctionTarget):
        by_program = schedule.source == TRUSTED or BY_MODULE in target.function
        return by_program and target.function not in offered
    return schedule.source == TRUSTED


def change_problem(schedule: Schedule, changed: Declaration, offered: Collection[str]) -> tuple[str, str] | None:
    """The field that callers may not change like this, and why; None if they may."""
    before = schedule.declaration
    if not _says_the_same(changed.target, before.target) and not _may_call(schedule, changed, offered):
        return "target", (
            "a program declared this schedule, and only a program can change what it calls or with what"
            + _way_out(schedule, offered)
        )
    if not is_program_owned(schedule, offered):
        return None
    if changed.name != before.name:
        return "name", "a program declared this schedule and finds it by its name, so only a program can change it"
    if changed.accepts_payload != before.accepts_payload:
        return "accepts_payload", "a program declared this schedule, and only a program can say that it takes payloads"
    listens = isinstance(changed.trigger, EventTrigger)
    if listens and not _says_the_same(changed.trigger, before.trigger) and not before.accepts_payload:
        return "trigger", (
            "a program declared this schedule, and only a program can say which events it gets, with their payloads;"
            " unless it declares it with accepts_payload=True"
        )
    return None


def payload_problem(schedule: Schedule, offered: Collection[str]) -> str | None:
    """Why callers may not send a payload along with a run; None if they may."""
    if schedule.declaration.accepts_payload or not is_program_owned(schedule, offered):
        return None
    way_out = "; the program can declare it with accepts_payload=True"
    if isinstance(schedule.declaration.target, FunctionTarget):
        way_out += ", or the server can offer its function with --function"
    return f"a program declared this schedule, and it takes no payloads from callers{way_out}"


def _way_out(schedule: Schedule, offered: Collection[str]) -> str:
    """How callers can be allowed to change a target, as the end of the error text; empty for most targets."""
    target = schedule.declaration.target
    if not isinstance(target, FunctionTarget):
        return ""
    if target.function in offered:
        return "; callers can change it to functions that the server offers with --function"
    return "; to let callers do so, offer its function with --function"


def _may_call(schedule: Schedule, changed: Declaration, offered: Collection[str]) -> bool:
    """Whether a caller may change what is called: only from one offered function to another."""
    if schedule.source != TRUSTED:
        return not is_program_owned(schedule, offered)
    target = changed.target
    is_offered = isinstance(target, FunctionTarget) and target.function in offered
    return is_offered and not is_program_owned(schedule, offered)


def _says_the_same(stored: Target | Trigger | None, declared: Target | Trigger | None) -> bool:
    """Whether two values are the same JSON; to Python, true, 1 and 1.0 are equal."""
    documents = [
        None if part is None else json.dumps(part.to_document(), sort_keys=True) for part in (stored, declared)
    ]
    return documents[0] == documents[1]
