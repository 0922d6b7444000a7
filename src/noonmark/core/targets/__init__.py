"""Targets: what receives the work of a schedule. Ten kinds, by `target_kind`.

Those of agents and of the network are loaded when one is read: a program that runs its own functions has no need of
them, and should not wait for them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never, cast

from noonmark.core.documents import Reader, named
from noonmark.core.errors import InvalidSchedule, Problem, refusal
from noonmark.core.targets.command import CommandTarget, read_command
from noonmark.core.targets.ping import PingTarget, read_ping
from noonmark.core.targets.placeholders import is_fact
from noonmark.core.targets.work import (
    BundleTarget,
    EventTarget,
    Executor,
    FunctionTarget,
    TaskTarget,
    WorkflowTarget,
    read_bundle,
    read_event_target,
    read_function,
    read_task,
    read_workflow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.targets.http import HttpTarget
    from noonmark.core.targets.mob import MobTarget
    from noonmark.core.targets.session import OnDemandSessionTarget, SessionTarget

    Target = (
        FunctionTarget
        | HttpTarget
        | CommandTarget
        | WorkflowTarget
        | BundleTarget
        | EventTarget
        | TaskTarget
        | PingTarget
        | SessionTarget
        | OnDemandSessionTarget
        | MobTarget
    )
    """Each has a `kind`, the `route` that a node must serve to deliver it, and `to_document()`."""

__all__ = [
    "AGENT_KINDS",
    "AGENT_ROUTES",
    "BundleTarget",
    "CommandTarget",
    "EventTarget",
    "Executor",
    "FunctionTarget",
    "TargetKind",
    "TaskTarget",
    "WorkflowTarget",
    "note_unfillable",
    "parse_target",
    "read_target",
]


class TargetKind(StrEnum):
    """The discriminator of target documents."""

    FUNCTION = "function"
    HTTP = "http"
    COMMAND = "command"
    WORKFLOW = "workflow"
    BUNDLE = "bundle"
    EVENT = "event"
    SESSION = "session"
    MOB = "mob"
    TASK = "task"
    PING = "ping"


AGENT_KINDS = frozenset({TargetKind.SESSION, TargetKind.MOB, TargetKind.TASK})
"""The kinds of targets that call models."""
AGENT_ROUTES = frozenset(str(kind) for kind in AGENT_KINDS)
_KINDS = named(TargetKind)


def parse_target(document: object) -> Target:
    """Read a target on its own; InvalidSchedule lists everything wrong with it, under `target`."""
    problems: list[Problem] = []
    target = read_target(Reader({"target": document}, path="", code=InvalidSchedule.code, problems=problems), "target")
    if target is None:
        raise refusal(problems)
    return target


def read_target(reader: Reader, name: str, *, is_known: Callable[[str], bool] = is_fact) -> Target | None:
    """Read the target in a field of a document; None when there is anything wrong with it.

    `is_known` says which names the placeholders of a request may have.
    """
    before = len(reader.problems)
    fields = reader.part(name)
    if fields is None or (kind := fields.variant("target_kind", _KINDS)) is None:
        return None
    target = _read_kind(fields, kind, is_known)
    return target if len(reader.problems) == before else None


def note_unfillable(reader: Reader, name: str, target: Target, *, has_event: bool) -> None:
    """Note what a target in a field asks for that no occurrence of its schedule can have."""
    if target.kind == TargetKind.HTTP:
        for field, problem in cast("HttpTarget", target).unfillable(has_event=has_event):
            reader.problem(f"{name}.{field}", problem)


def _read_kind(fields: Reader, kind: TargetKind, is_known: Callable[[str], bool]) -> Target | None:
    target: Target
    match kind:
        case TargetKind.FUNCTION:
            target = read_function(fields)
        case TargetKind.HTTP:
            from noonmark.core.targets.http import read_http

            target = read_http(fields, is_known=is_known)
        case TargetKind.COMMAND:
            target = read_command(fields)
        case TargetKind.WORKFLOW:
            target = read_workflow(fields)
        case TargetKind.BUNDLE:
            target = read_bundle(fields)
        case TargetKind.EVENT:
            target = read_event_target(fields)
        case TargetKind.TASK:
            target = read_task(fields)
        case TargetKind.PING:
            target = read_ping(fields)
        case TargetKind.SESSION | TargetKind.MOB:
            return _read_agent(fields, kind)
        case _:
            assert_never(kind)
    fields.close()
    return target


def _read_agent(fields: Reader, kind: TargetKind) -> Target | None:
    if kind is TargetKind.SESSION:
        from noonmark.core.targets.session import read_session

        return read_session(fields)
    from noonmark.core.targets.mob import read_mob

    return read_mob(fields)
