"""`noonmark apply`, `diff` and `export`: workflows and schedules that files declare."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.commands.schedule import is_confirmed, schedule_filter
from noonmark.cli.options import Confirm, Connection, Texts
from noonmark.cli.output import EXIT_FAILED, print_errors, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import MAX_PAGE, connect
from noonmark.cli.schedule_files import escape_variables, read_files
from noonmark.cli.workflow_changes import defined, plan_workflows
from noonmark.clocks import SystemClock
from noonmark.core.changes import (
    MANAGED_BY,
    Action,
    Desired,
    Stored,
    file_document,
    owner_name,
    plan_changes,
    schedule_id_of,
    upstream_ids,
)
from noonmark.core.errors import InvalidRequest, InvalidSchedule, NoonmarkError, NotFound, Problem
from noonmark.core.frozen import frozen
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.redaction import Redactor
from noonmark.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from noonmark.cli.remote import Remote
    from noonmark.cli.schedule_files import ScheduleFiles
    from noonmark.cli.workflow_changes import WorkflowChange, WorkflowChanges
    from noonmark.core.changes import Change, Changes

OPERATIONS = {
    Action.CREATE: ("schedule/create", "Created"),
    Action.CHANGE: ("schedule/update", "Changed"),
    Action.DELETE: ("schedule/delete", "Deleted"),
}
"""The operation that makes each change, and the word for it."""
MAX_CHECKED, MAX_CHECKED_BYTES = 100, 500_000
"""How much one request to check schedules holds."""
FORMATS = ("yaml", "json")
EXPORTED = (SchedulePhase.ACTIVE, SchedulePhase.PAUSED)

Files = Annotated[
    tuple[str, ...],
    Parameter(
        name=("--file", "-f"),
        negative=(),
        show_default=False,
        allow_leading_hyphen=True,
        help="A .yaml, .json or .toml file, a folder of such files, or - for standard input; repeatable.",
    ),
]
Prune = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="Delete schedules of the same managed_by that no file declares any more."
    ),
]
Adopt = Annotated[
    bool,
    Parameter(negative=(), show_default=False, help="Take over declared schedules that others created."),
]
ManagedBy = Annotated[
    str | None,
    Parameter(show_default=False, help="The owner of the schedules, instead of managed_by in the files."),
]


def apply(  # noqa: PLR0913 - one per option
    *,
    file: Files,
    prune: Prune = False,
    dry_run: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Only show what would change, as diff does.")
    ] = False,
    adopt: Adopt = False,
    managed_by: ManagedBy = None,
    confirm: Confirm = False,
    connection: Connection = Connection(),
) -> int:
    """Create and change workflows and schedules so that they are as files declare them. Applied again, nothing changes.

    All files are checked before anything changes. Workflows come first. They are never deleted, also not with --prune.
    """
    files = read_files(file, os.environ, managed_by=_owner(managed_by))
    return apply_files(connection, files, prune=prune, adopt=adopt, dry_run=dry_run, confirm=confirm)


def diff(
    *,
    file: Files,
    prune: Prune = False,
    adopt: Adopt = False,
    managed_by: ManagedBy = None,
    exit_code: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Exit with 1 if something would change.")
    ] = False,
    connection: Connection = Connection(),
) -> int:
    """Show what noonmark apply would change. Changes nothing."""
    files = read_files(file, os.environ, managed_by=_owner(managed_by))
    with connect(connection) as remote:
        workflows = plan_workflows(remote, files)
        changes = _plan(remote, files, prune=prune, adopt=adopt)
        checks = _check(remote, changes, workflows)
    _show_plan(connection, changes, workflows, files, checks)
    _refuse(files, checks)
    return EXIT_FAILED if exit_code and (changes.steps or workflows.steps) else 0


def apply_files(
    connection: Connection,
    files: ScheduleFiles,
    *,
    prune: bool = False,
    adopt: bool = False,
    dry_run: bool = False,
    confirm: bool = False,
) -> int:
    """Show what files change, and change it; returns the exit code."""
    with connect(connection) as remote:
        workflows = plan_workflows(remote, files)
        changes = _plan(remote, files, prune=prune, adopt=adopt)
        checks = _check(remote, changes, workflows)
        if dry_run or not connection.as_json:
            _show_plan(connection, changes, workflows, files, checks)
        _refuse(files, checks)
        if dry_run:
            return 0
        total = len(workflows.steps) + len(changes.steps)
        if confirm and total and not is_confirmed("Make these changes?"):
            return EXIT_FAILED
        for done, workflow in enumerate(workflows.steps):
            _create_workflow(connection, remote, files, workflow, f"{done} of {total} changes were made")
        for done, step in enumerate(changes.steps, len(workflows.steps)):
            progress = f"{done} of {total} changes were made"
            _make_change(connection, remote, files, step, progress, checks.warnings.get(step.schedule_id, ()))
    if connection.as_json:
        from noonmark.cli.render.changes import changes_document

        print_json(changes_document(changes, workflows, Redactor(files.secrets), checks.warnings, applied=True))
    return 0


def _create_workflow(
    connection: Connection, remote: Remote, files: ScheduleFiles, step: WorkflowChange, progress: str
) -> None:
    """Create one version of a workflow and say so; an error names the document and what was done before."""
    try:
        answer = remote.call("workflow/create", step.definition)
    except NoonmarkError as error:
        raise _located(
            error, files.locate_workflow(step.index, Problem(error.field, error.message)), progress
        ) from None
    if not connection.as_json:
        print_line(f"Created version {answer['version']} of workflow {step.workflow_id}.")
        _warn(step.workflow_id, answer["warnings"])


def _located(error: NoonmarkError, problem: Problem, progress: str) -> NoonmarkError:
    """An error of the server with the place in a file, and what was done before."""
    message, place = f"{problem.message} ({progress}; apply again to make the others)", problem.field
    if isinstance(error, InvalidSchedule):
        return type(error)(message, field=place)
    error.message, error.field = message, place
    return error


def _make_change(
    connection: Connection,
    remote: Remote,
    files: ScheduleFiles,
    step: Change,
    progress: str,
    known: Collection[str],
) -> None:
    """Make one change and say so, with warnings that are new; an error names the document and what was done before."""
    operation, verb = OPERATIONS[step.action]
    try:
        answer = remote.call(operation, step.arguments)
    except NoonmarkError as error:
        problem = Problem(step.schedule_id, error.message)
        if step.index is not None:
            problem = files.locate(step.index, Problem(error.field, error.message))
        raise _located(error, problem, progress) from None
    if not connection.as_json:
        print_line(f"{verb} {step.schedule_id}.")
        _warn(step.schedule_id, [one for one in answer.get("warnings") or () if one not in known])


def _warn(schedule_id: str, warnings: Iterable[str]) -> None:
    print_errors(f"warning: {schedule_id}: {warning}" for warning in warnings)


@frozen
class Checks:
    """What the server says about changes before they are made."""

    problems: list[tuple[int, Problem]] = field(default_factory=list)
    """Why it would refuse documents, each with the number of the document."""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """What may surprise about each schedule."""


def _check(remote: Remote, changes: Changes, workflows: WorkflowChanges) -> Checks:
    """Check the changes on the server: only it knows where requests may go and what nodes run."""
    checks = Checks()
    from noonmark.operations.target_policy import unknown_workflow_words

    # Workflows are created before the schedules that name them.
    expected = {unknown_workflow_words(step.workflow_id) for step in workflows.steps}
    for steps in _batches([step for step in changes.steps if step.index is not None]):
        try:
            answer = remote.call("schedule/check", {"schedules": [_checkable(step) for step in steps]})
        except NotFound as error:
            if error.field != "--store":  # the file of a new store
                raise
            return checks
        for step, check in zip(steps, answer["checks"], strict=True):
            if warnings := [warning for warning in check["warnings"] if warning not in expected]:
                checks.warnings[step.schedule_id] = warnings
            if step.index is not None:
                problems = [Problem(one["field"], one["detail"], one["code"]) for one in check["problems"]]
                checks.problems.extend((step.index, problem) for problem in problems)
    return checks


def _checkable(step: Change) -> dict[str, Any]:
    return {name: value for name, value in step.arguments.items() if not name.startswith("expected_")} | {
        "schedule_id": step.schedule_id
    }


def _batches(steps: Sequence[Change]) -> Iterator[list[Change]]:
    """Steps in as few requests as their limits allow."""
    batch: list[Change] = []
    size = 0
    for step in steps:
        length = len(json.dumps(_checkable(step)))
        if batch and (len(batch) == MAX_CHECKED or size + length > MAX_CHECKED_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(step)
        size += length
    if batch:
        yield batch


def _refuse(files: ScheduleFiles, checks: Checks) -> None:
    if checks.problems:
        raise files.refuse(checks.problems)


def _plan(remote: Remote, files: ScheduleFiles, *, prune: bool, adopt: bool) -> Changes:
    """Read the schedules in question and compare; a problem of any document refuses all of them."""
    owners = {owner for owner in files.owners if owner is not None}
    if prune and len(owners) < len(files.owners):
        message = "needs a name in managed_by: null owns no schedules"
        raise InvalidRequest(message, field="--prune")
    stored = _read_stored(remote, files.desired, owners)
    has_secrets = any(_has_secret_headers(one) for one in files.desired)
    changes = plan_changes(
        files.desired,
        stored,
        now=SystemClock().now().replace(microsecond=0),
        prune=owners if prune else (),
        adopts=adopt,
        secrets=_read_secrets(remote) if has_secrets else None,
    )
    if changes.problems:
        raise files.refuse(changes.problems)
    return changes


def _read_stored(remote: Remote, desired: Iterable[Desired], owners: Iterable[str]) -> dict[str, Stored]:
    """All schedules of the owners, those that are declared, and those that they depend on."""
    stored: dict[str, Stored] = {}
    try:
        for owner in sorted(owners):
            stored |= {one.document["schedule_id"]: one for one in _list(remote, {"labels": {MANAGED_BY: owner}})}
    except NotFound as error:
        if error.field != "--store":  # the file of a new store
            raise
    absent: set[str] = set()
    missing_ids = [each for one in desired for each in (*_id(one), *upstream_ids(one.document))]
    missing_ids += [each for one in stored.values() for each in upstream_ids(one.document)]
    while missing_ids:
        schedule_id = missing_ids.pop()
        if schedule_id in stored or schedule_id in absent:
            continue
        try:
            schedule = _to_stored(remote.call("schedule/get", {"schedule_id": schedule_id}))
        except NotFound:
            absent.add(schedule_id)
            continue
        stored[schedule_id] = schedule
        missing_ids += upstream_ids(schedule.document)
    return stored


def _list(remote: Remote, arguments: dict[str, Any]) -> list[Stored]:
    """Every schedule that matches."""
    schedules: list[Stored] = []
    page = {**arguments, "limit": MAX_PAGE}
    while True:
        answer = remote.call("schedule/list", page)
        schedules += [_to_stored(document) for document in answer["schedules"]]
        if answer["next_cursor"] is None:
            return schedules
        page["cursor"] = answer["next_cursor"]


def _id(desired: Desired) -> tuple[str, ...]:
    try:
        return (schedule_id_of(desired.document),)
    except ValueError:  # the plan refuses it
        return ()


def _to_stored(document: dict[str, Any]) -> Stored:
    from noonmark.operations.models.arguments import ScheduleFields

    fields = ("schedule_id", *ScheduleFields.fields())
    return Stored(
        document={name: document[name] for name in fields if document.get(name) is not None},
        phase=SchedulePhase(document["phase"]),
        created_at_utc=document["created_at_utc"],
        updated_at_utc=document["updated_at_utc"],
    )


def _has_secret_headers(desired: Desired) -> bool:
    target = desired.document.get("target")
    return isinstance(target, dict) and bool(target.get("secret_headers"))


def _read_secrets(remote: Remote) -> dict[str, Secret]:
    """The names and hosts of secrets; none if there is no store yet."""
    try:
        answer = remote.call("secret/list", {})
    except NotFound:
        return {}
    return {
        secret["name"]: Secret(name=secret["name"], hosts=tuple(secret["hosts"]), sealed="", created=0, updated=0)
        for secret in answer["secrets"]
    }


def _show_plan(
    connection: Connection, changes: Changes, workflows: WorkflowChanges, files: ScheduleFiles, checks: Checks
) -> None:
    from noonmark.cli.render.changes import (
        changes_document,
        count_changes,
        show_changes,
        show_workflow_changes,
    )

    redactor = Redactor(files.secrets)
    if connection.as_json:
        print_json(changes_document(changes, workflows, redactor, checks.warnings, applied=False))
        return
    counts, of_workflows = count_changes(changes), workflows.counts
    if not changes.steps and not workflows.steps:
        print_line(f"No changes: {counts['unchanged'] + of_workflows['unchanged']} unchanged.")
        return
    show_workflow_changes(workflows)
    show_changes(changes, redactor)
    if files.workflows:
        print_line(
            f"Workflows: {of_workflows['create']} to create, {of_workflows['change']} to change,"
            f" {of_workflows['unchanged']} unchanged."
        )
    print_line(
        f"Plan: {counts['create']} to create, {counts['change']} to change, {counts['delete']} to delete,"
        f" {counts['unchanged']} unchanged."
    )
    for schedule_id, warnings in checks.warnings.items():
        _warn(schedule_id, warnings)


def export(
    *,
    label: Annotated[Texts, Parameter(help="With this label, as name=value.")] = (),
    managed_by: Annotated[str | None, Parameter(show_default=False, help="Only schedules of this owner.")] = None,
    completed: Annotated[bool, Parameter(negative=(), show_default=False, help="Completed schedules too.")] = False,
    file_format: Annotated[str, Parameter(name="--format", help="yaml or json.")] = "yaml",
    connection: Connection = Connection(),
) -> None:
    """Print workflows and schedules as a file for noonmark apply. Applied where they come from, it changes nothing.

    With a selection of schedules, it has the workflows that these name.
    """
    if file_format not in FORMATS:
        raise InvalidRequest(f"must be one of {', '.join(FORMATS)}", field="--format")
    arguments = schedule_filter(None, label)
    if managed_by is not None:
        arguments["labels"] = {**arguments.get("labels", {}), MANAGED_BY: managed_by}
    is_selection = bool(arguments)
    if not completed:
        arguments["phase"] = [str(phase) for phase in EXPORTED]
    with connect(connection) as remote:
        schedules = _list(remote, arguments)
        named = {_workflow_id(stored) for stored in schedules} if is_selection else None
        workflows = _list_workflows(remote, named)
    write_file(schedules, workflows, as_json=connection.as_json or file_format == "json")


def _workflow_id(stored: Stored) -> str | None:
    target = stored.document["target"]
    return target.get("workflow_id") if target["target_kind"] == "workflow" else None


def _list_workflows(remote: Remote, named: Collection[str | None] | None) -> list[dict[str, Any]]:
    """The newest definitions of the named workflows, or of all."""
    ids: list[str] = []
    page: dict[str, Any] = {"limit": MAX_PAGE}
    while True:
        answer = remote.call("workflow/list", page)
        ids += [one["workflow_id"] for one in answer["workflows"]]
        if answer["next_cursor"] is None:
            break
        page["cursor"] = answer["next_cursor"]
    listed_ids = ids if named is None else [one for one in ids if one in named]
    return [defined(remote.call("workflow/get", {"workflow_id": one})) for one in listed_ids]


def write_file(stored: list[Stored], workflows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print the file that declares stored workflows and schedules."""
    owners = {one.owner for one in stored}
    # Schedules of several owners keep their labels, and the file owns none of them.
    owner = owners.pop() if len(owners) == 1 else None
    documents = [file_document(one, owner=owner) for one in stored]
    content = {"managed_by": owner}
    if workflows:
        content["workflows"] = escape_variables(workflows)
    print_file(content | {"schedules": escape_variables(documents)}, as_json=as_json)


def print_file(document: dict[str, Any], *, as_json: bool) -> None:
    """Print a file of schedules."""
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    from noonmark.cli.yaml_documents import format_yaml

    sys.stdout.write(format_yaml(document))


def _owner(managed_by: str | None) -> str | None:
    try:
        return None if managed_by is None else owner_name(managed_by)
    except ValueError as error:
        raise InvalidRequest(str(error), field="--managed-by") from None
