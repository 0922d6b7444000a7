"""The call of a function: its arguments and its context, for this process or for a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.json_values import json_copy
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import FunctionTarget
from noonmark.targets.function.context import CancelEvent, make_context
from noonmark.targets.function.registry import import_reference, process_problem
from noonmark.targets.usage import usage_reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.ports.target import Assignment
    from noonmark.targets.function.registry import Function, FunctionRegistry

    TakeProgress = Callable[[dict[str, Any]], None]


def prepare_call(
    registry: FunctionRegistry, assignment: Assignment, progress: Callable[[Assignment], TakeProgress]
) -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    """Return the function of an assignment with its arguments; LookupError if this process cannot call it.

    `progress` makes what takes the progress of the run, if the function wants a context. An assignment does not refer
    to it: they would keep each other until the collector of garbage finds them.
    """
    function, target = _resolve(registry, assignment)
    # Copies: what a function does to its arguments must not reach the next run.
    args = tuple(json_copy(target.args)) if target.args else ()
    kwargs = json_copy(target.kwargs) if target.kwargs else {}
    if not function.wants_context or "context" in kwargs:
        return function, args, kwargs
    cancelled = CancelEvent()
    assignment.signal = cancelled
    if assignment.stop_reason is not None:  # the stop request came before the signal existed
        cancelled.set()
    context = make_context(
        _context_fields(assignment, target), cancelled, progress(assignment), usage_reports(assignment).add
    )
    return function, args, {**kwargs, "context": context}


def prepare_remote_call(registry: FunctionRegistry, assignment: Assignment) -> dict[str, Any]:
    """Return the call of an assignment as JSON for a worker process; LookupError if it cannot be called there."""
    function, target = _resolve(registry, assignment)
    if (problem := process_problem(function.call)) is not None:
        raise LookupError(f"{target.function!r} cannot be called in a worker process: {problem}")
    wants_context = function.wants_context and "context" not in target.kwargs
    return {
        "function": import_reference(function.call),
        "args": target.args,
        "kwargs": target.kwargs,
        "context": _context_fields(assignment, target) if wants_context else None,
    }


def _resolve(registry: FunctionRegistry, assignment: Assignment) -> tuple[Function, FunctionTarget]:
    target = assignment.schedule.declaration.target
    if not isinstance(target, FunctionTarget):
        raise LookupError(f"a {target.kind} target is not a function")
    function = registry.find(target.function)
    if function is None:
        raise LookupError(f"no function is registered as {target.function!r} in this process")
    if assignment.schedule.source != TRUSTED and not registry.is_offered(target.function):
        raise LookupError(
            f"{target.function!r} is not offered to callers on this node: a program declared it for its own schedules;"
            " offer it with --function or register_function"
        )
    return function, target


def _context_fields(assignment: Assignment, target: FunctionTarget) -> dict[str, Any]:
    """Return the fields of a context. The payload is that of the event or of the caller, else that of the schedule."""
    occurrence = assignment.occurrence
    brought = json_copy(occurrence.payload)
    event = brought if kind_of(occurrence.origin) is OriginKind.EVENT else None
    payload = brought if event is None else event["payload"]
    return {
        "occurrence_id": occurrence.id,
        "schedule_id": occurrence.schedule_id,
        "nominal": occurrence.nominal,
        "due": occurrence.due,
        "attempt": occurrence.attempt,
        "payload": json_copy(target.payload) if payload is None else payload,
        "event": event,
        "upstream": json_copy(assignment.upstream or {}),
    }
