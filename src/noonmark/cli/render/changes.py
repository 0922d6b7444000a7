"""Changes that files make to schedules: + create, ~ change, - delete. Secret values are masked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.cli.output import printable, shorten
from noonmark.cli.render.console import Text, open_console
from noonmark.core.changes import Action
from noonmark.core.redaction import MASK, is_secret_name, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.cli.workflow_changes import WorkflowChanges
    from noonmark.core.changes import Change, Changes, FieldChange
    from noonmark.core.redaction import Redactor

SIGNS = {Action.CREATE: ("+", "green"), Action.CHANGE: ("~", "yellow"), Action.DELETE: ("-", "red")}
MAX_VALUE = 200
NAMES_ONLY = "secret_headers"
"""The field that has names of secrets, which are not secret."""


def show_changes(changes: Changes, redactor: Redactor) -> None:
    """Show what would happen to each schedule, field by field."""
    with open_console(10_000) as console:
        for step in changes.steps:
            sign, style = SIGNS[step.action]
            title = step.schedule_id if step.name in {None, step.schedule_id} else f"{step.name} ({step.schedule_id})"
            console.print(Text(printable(f"{sign} {title}"), style))
            for each in step.fields:
                console.print(Text(printable(f"    {_line(step, each, redactor)}")))


def show_workflow_changes(changes: WorkflowChanges) -> None:
    """Show which workflows would be created, or get a new version."""
    with open_console(10_000) as console:
        for step in changes.steps:
            sign, style = SIGNS[step.action]
            after = "" if step.version is None else f": version {step.version} -> a new version"
            console.print(Text(printable(f"{sign} workflow {step.workflow_id}{after}"), style))


def count_changes(changes: Changes) -> dict[str, int]:
    """How many schedules each action concerns."""
    return {str(action): sum(step.action is action for step in changes.steps) for action in Action} | {
        "unchanged": changes.unchanged
    }


def changes_document(
    changes: Changes,
    workflows: WorkflowChanges,
    redactor: Redactor,
    warnings: Mapping[str, list[str]],
    *,
    applied: bool,
) -> dict[str, Any]:
    """The changes for programs, with what may surprise about each schedule."""
    return {
        "workflows": {
            "changes": [
                {"action": str(step.action), "workflow_id": step.workflow_id, "version_before": step.version}
                for step in workflows.steps
            ],
            "counts": workflows.counts,
        },
        "changes": [
            {
                "action": str(step.action),
                "schedule_id": step.schedule_id,
                "name": step.name,
                "fields": [
                    {
                        "field": each.field,
                        "before": mask(each.before, each.field, redactor),
                        "after": mask(each.after, each.field, redactor),
                    }
                    for each in step.fields
                ],
                "warnings": [redact(redactor.text(one)) for one in warnings.get(step.schedule_id, ())],
            }
            for step in changes.steps
        ],
        "counts": count_changes(changes),
        "applied": applied,
    }


def mask(value: Any, path: str, redactor: Redactor) -> Any:
    """A value without secrets: those of variables, those under secret names, passwords in URLs."""
    if isinstance(value, dict):
        return {name: mask(each, f"{path}.{name}", redactor) for name, each in value.items()}
    if isinstance(value, list):
        return [mask(each, path, redactor) for each in value]
    parts = path.split(".")
    # A field of the document itself, such as concurrency_key, is none.
    if value is not None and len(parts) > 1 and is_secret_name(parts[-1]) and NAMES_ONLY not in parts:
        return MASK
    return redact(redactor.text(value)) if isinstance(value, str) else value


def _line(step: Change, change: FieldChange, redactor: Redactor) -> str:
    before, after = (_format_value(value, change.field, redactor) for value in (change.before, change.after))
    if step.action is Action.CREATE:
        return f"{change.field}: {after}"
    if before == after:  # both masked
        return f"{change.field}: {before} -> another value"
    return f"{change.field}: {before} -> {after}"


def _format_value(value: object, path: str, redactor: Redactor) -> str:
    if value is None:
        return "none"
    return shorten(json.dumps(mask(value, path, redactor), ensure_ascii=False), MAX_VALUE)
