"""What files change about workflows: each differing definition becomes a new version. None is ever deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.changes import Action
from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule, InvalidWorkflow, NotFound, Problem
from noonmark.core.frozen import frozen
from noonmark.core.workflows.definition import parse_definition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.cli.remote import Remote
    from noonmark.cli.schedule_files import ScheduleFiles

DEFINED = ("workflow_id", "name", "description", "inputs", "steps", "on_failure")
"""The fields of a workflow document that define it."""


@frozen(kw_only=True)
class WorkflowChange:
    """A workflow to create, or to give a new version."""

    action: Action
    workflow_id: str
    version: int | None
    """The version that is there; None if there is none."""
    index: int
    definition: dict[str, Any]


@frozen(kw_only=True)
class WorkflowChanges:
    """All changes of workflows that files make."""

    steps: Sequence[WorkflowChange] = ()
    unchanged: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many workflows each action concerns."""
        return {
            "create": sum(step.action is Action.CREATE for step in self.steps),
            "change": sum(step.action is Action.CHANGE for step in self.steps),
            "unchanged": self.unchanged,
        }


def plan_workflows(remote: Remote, files: ScheduleFiles) -> WorkflowChanges:
    """Compare the definitions of files with the stored ones; an error lists all problems of all of them."""
    steps: list[WorkflowChange] = []
    problems: list[tuple[int, Problem]] = []
    first: dict[str, int] = {}
    unchanged = 0
    for index, document in enumerate(files.workflows):
        try:
            definition, number = parse_definition(document)
        except InvalidSchedule as error:
            problems += [(index, problem) for problem in error.problems]
            continue
        workflow_id = definition.workflow_id
        if first.setdefault(workflow_id, index) != index:
            problems.append((index, Problem("workflow_id", f"{workflow_id!r} is declared twice", InvalidWorkflow.code)))
            continue
        stored = _stored(remote, workflow_id, number)
        if stored is not None and parse_definition(defined(stored))[0].digest == definition.digest:
            unchanged += 1
            continue
        steps.append(
            WorkflowChange(
                action=Action.CREATE if stored is None else Action.CHANGE,
                workflow_id=workflow_id,
                version=None if stored is None else stored["version"],
                index=index,
                definition=document,
            )
        )
    if problems:
        raise files.refuse_workflows(problems)
    return WorkflowChanges(steps=steps, unchanged=unchanged)


def defined(workflow: Mapping[str, Any]) -> dict[str, Any]:
    """The definition in the document of a workflow, as a file may have it."""
    return present(**{name: workflow[name] for name in DEFINED if (name, workflow[name]) != ("description", "")})


def _stored(remote: Remote, workflow_id: str, number: int | None) -> dict[str, Any] | None:
    """The version that is there; None if there is none, or no store yet."""
    try:
        return remote.call("workflow/get", present(workflow_id=workflow_id, version=number))
    except NotFound:
        return None
