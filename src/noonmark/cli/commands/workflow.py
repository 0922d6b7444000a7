"""`noonmark workflow`: create, show and delete workflows, and run, watch and cancel them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.inputs import parse_json, parse_pair
from noonmark.cli.options import Connection, ConnectionBesideKey, Limit, Number, Reason, Text, Texts
from noonmark.cli.output import (
    EXIT_FAILED,
    last_line,
    print_answer,
    print_errors,
    print_json,
    print_line,
    print_text,
    progress_bar,
    shorten,
)
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.cli.schedule_files import read_files
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, InvalidSchedule, NotAllowed
from noonmark.core.lifecycle import FINAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.cli.remote import Remote

POLL_SECONDS = 0.25
FRAME_SECONDS = 0.5
ONCE_HEIGHT = 10_000
"""The lines of a status that is not drawn again."""
WorkflowId = Annotated[str, Parameter(help="The id of the workflow.")]
RunId = Annotated[str, Parameter(help="The id of a workflow run, as `workflow run` prints it.")]
Version = Annotated[Number, Parameter(help="This version; default: the newest.")]


def create(
    file: Annotated[str, Parameter(help="A .yaml, .json or .toml file with a definition, or - for standard input.")],
    /,
    *,
    connection: Connection = Connection(),
) -> None:
    """Create a version of a workflow from a file. The definition of the newest version again changes nothing.

    The file has one definition, or several under `workflows:`. Texts may contain ${VARIABLES}.
    """
    files = read_files([file], os.environ, are_workflows=True)
    answers = []
    with connect(connection) as remote:
        for index, definition in enumerate(files.workflows):
            try:
                answers.append(remote.call("workflow/create", definition))
            except InvalidSchedule as error:
                raise files.refuse_workflows([(index, problem) for problem in error.problems]) from None
    if connection.as_json:
        print_json(answers[0] if len(answers) == 1 else {"workflows": answers})
        return
    for answer in answers:
        print_line(f"Workflow {answer['workflow_id']} has version {answer['version']}.")
        print_errors(f"warning: {answer['workflow_id']}: {warning}" for warning in answer["warnings"])


def list_workflows(*, limit: Limit = 100, connection: Connection = Connection()) -> None:
    """List workflows by id, each with its newest version."""
    with connect(connection) as remote:
        answer = read_pages(remote, "workflow/list", {}, entries="workflows", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries
    from noonmark.cli.render.workflows import show_workflows

    show_workflows(answer["workflows"], more_entries(answer, limit))


def show(
    workflow_id: WorkflowId,
    /,
    *,
    version: Version = None,
    mermaid: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print the graph as Mermaid text.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Show a workflow: its inputs, and the graph of its steps."""
    with connect(connection) as remote:
        workflow = remote.call("workflow/get", present(workflow_id=workflow_id, version=version))
    if mermaid:
        from noonmark.cli.render.workflows import definition_of
        from noonmark.core.workflows.diagram import mermaid as to_mermaid

        text = to_mermaid(definition_of(workflow))
        if connection.as_json:
            print_json({"workflow_id": workflow["workflow_id"], "version": workflow["version"], "mermaid": text})
        else:
            print_text(text if text.endswith("\n") else f"{text}\n")
        return
    if connection.as_json:
        print_json(workflow)
        return
    from noonmark.cli.render.workflows import show_workflow

    show_workflow(workflow)


def versions(workflow_id: WorkflowId, /, *, limit: Limit = 100, connection: Connection = Connection()) -> None:
    """List the versions of a workflow."""
    arguments = {"workflow_id": workflow_id}
    with connect(connection) as remote:
        answer = read_pages(remote, "workflow/versions", arguments, entries="versions", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries
    from noonmark.cli.render.workflows import show_versions

    show_versions(answer["versions"], more_entries(answer, limit))


def delete(workflow_id: WorkflowId, /, *, reason: Reason = None, connection: Connection = Connection()) -> None:
    """Delete a workflow, unless schedules name it. Runs that have begun go on."""
    with connect(connection) as remote:
        answer = remote.call("workflow/delete", present(workflow_id=workflow_id, reason=reason))
    print_answer(answer, f"Deleted workflow {answer['workflow_id']}.", as_json=connection.as_json)


def run(  # noqa: PLR0913 - one argument per option
    workflow_id: WorkflowId,
    /,
    *,
    given: Annotated[
        Texts, Parameter(name="--input", help="An input, as name=value; a value that is JSON is read as such.")
    ] = (),
    inputs_json: Annotated[Text, Parameter(help="The inputs, as a JSON object.")] = None,
    payload_json: Annotated[Text, Parameter(help="The payload, as JSON.")] = None,
    version: Version = None,
    key: Annotated[Text, Parameter(help="An idempotency key; the same key again is the same run.")] = None,
    wait: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for the end; fail unless it completes.")
    ] = False,
    reason: Reason = None,
    connection: ConnectionBesideKey = ConnectionBesideKey(),
) -> int:
    """Run a workflow now."""
    with connect(connection) as remote:
        inputs = _inputs(remote, workflow_id, version, given, inputs_json)
        payload = None if payload_json is None else parse_json(payload_json, field="--payload-json")
        started = remote.call(
            "workflow/run",
            present(
                workflow_id=workflow_id, inputs=inputs or None, payload=payload, version=version, key=key, reason=reason
            ),
        )
        if wait:
            started = _wait(remote, started)
    if not wait:
        sentence = (
            f"Requested a run of {started['workflow_id']} version {started['version']}: {started['workflow_run_id']}."
        )
        print_answer(started, sentence, as_json=connection.as_json)
        return 0
    print_answer(started, _outcome(started), as_json=connection.as_json)
    return 0 if started["phase"] == "completed" else EXIT_FAILED


def _inputs(
    remote: Remote, workflow_id: str, version: int | None, given: tuple[str, ...], inputs_json: str | None
) -> dict[str, Any]:
    """The inputs of the options; an input that is declared as text is text, whatever it looks like."""
    inputs = {} if inputs_json is None else parse_json(inputs_json, field="--inputs-json")
    if not isinstance(inputs, dict):
        raise InvalidRequest("must be a JSON object", field="--inputs-json")
    declared: dict[str, Any] = {}
    if given:
        with suppress(NotAllowed):  # who may run a workflow need not be allowed to read it
            workflow = remote.call("workflow/get", present(workflow_id=workflow_id, version=version))
            declared = workflow["inputs"] or {}
    for pair in given:
        name, value = parse_pair(pair, "=", "--input")
        inputs[name] = value if _is_text(declared.get(name)) else _json_or_text(value)
    return inputs


def _is_text(declared: object) -> bool:
    return isinstance(declared, str) or (isinstance(declared, dict) and declared.get("type") == "string")


def _json_or_text(value: str) -> Any:
    try:
        return parse_json(value)
    except InvalidSchedule:
        return value


def _wait(remote: Remote, workflow_run: dict[str, Any]) -> dict[str, Any]:
    """Poll a run until it ends, and say what it waits for, whenever that has not changed since the last look."""
    shown_reason = before = None
    with progress_bar("Steps", _totals(workflow_run)[1] or None) as advance:
        done = 0
        while workflow_run["phase"] not in FINAL:
            waits = workflow_run["waiting_for"] or any(step["waiting_for"] for step in workflow_run["steps"])
            why = workflow_run["why"] if waits else None
            if why is not None and why == before != shown_reason:
                shown_reason = why
                print_errors([f"{workflow_run['workflow_run_id']} waits: {why}"])
            before = why
            threading.Event().wait(POLL_SECONDS)
            workflow_run = remote.call("workflow_run/get", {"workflow_run_id": workflow_run["workflow_run_id"]})
            ended = _totals(workflow_run)[0]
            advance(max(0, ended - done))
            done = max(done, ended)
    return workflow_run


def _totals(workflow_run: dict[str, Any]) -> tuple[int, int]:
    """How many steps have ended, of how many."""
    steps = [step for step in workflow_run["steps"] if step["index"] is None]
    return sum(step["phase"] not in ("pending", "running") for step in steps), len(steps)


def _outcome(workflow_run: dict[str, Any]) -> str:
    """The final phase of a run, with its result or the step that failed."""
    phase = f"{workflow_run['workflow_run_id']} {workflow_run['phase'].replace('_', ' ')}"
    failed = next((step for step in workflow_run["steps"] if step["phase"] == "failed" and step["index"] is None), None)
    if failed is not None:
        return f"{phase}: step {failed['step_id']} failed: {last_line(failed['error'] or 'no error')}"
    if workflow_run["error"]:
        return f"{phase}: {last_line(workflow_run['error'])}"
    if workflow_run["phase"] == "completed" and workflow_run["result"] is not None:
        return f"{phase}: {shorten(json.dumps(workflow_run['result'], ensure_ascii=False))}"
    return f"{phase}." if workflow_run["why"] is None else f"{phase}: {workflow_run['why']}"


def list_runs(
    *,
    workflow: Annotated[Text, Parameter(help="Only of this workflow.")] = None,
    phase: Annotated[Text, Parameter(help="Only in this phase, such as failed.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List workflow runs, latest first."""
    arguments = present(workflow_id=workflow, phase=phase)
    with connect(connection) as remote:
        answer = read_pages(remote, "workflow_run/list", arguments, entries="workflow_runs", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries
    from noonmark.cli.render.workflows import show_runs

    show_runs(answer["workflow_runs"], more_entries(answer, limit))


def status(
    workflow_run_id: RunId,
    /,
    *,
    watch: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Show the steps live until the end; fail unless it completes."),
    ] = False,
    connection: Connection = Connection(),
) -> int:
    """Show a workflow run and its steps.

    With --watch in a pipe, it prints a line for each change of a step.
    """
    arguments = {"workflow_run_id": workflow_run_id}
    with connect(connection) as remote:
        workflow_run = remote.call("workflow_run/get", arguments)
        if watch:
            draws = sys.stdout.isatty() and not connection.as_json
            workflow_run = (
                _watch(remote, workflow_run) if draws else _follow(remote, workflow_run, is_silent=connection.as_json)
            )
    if connection.as_json:
        print_json(workflow_run)
    elif not watch or sys.stdout.isatty():
        _draw(workflow_run, shutil.get_terminal_size().columns if sys.stdout.isatty() else None, ONCE_HEIGHT)
    else:
        print_line(_outcome(workflow_run))
    return EXIT_FAILED if watch and workflow_run["phase"] != "completed" else 0


def _watch(remote: Remote, workflow_run: dict[str, Any]) -> dict[str, Any]:
    """Draw a run again and again until it ends, or the user ends it."""
    from noonmark.cli.screen import begin_frame, open_screen

    with open_screen() as wait:
        while workflow_run["phase"] not in FINAL:
            columns, lines = shutil.get_terminal_size()
            begin_frame()
            _draw(workflow_run, columns, lines - 1)
            sys.stdout.flush()
            if wait(FRAME_SECONDS):
                break
            workflow_run = remote.call("workflow_run/get", {"workflow_run_id": workflow_run["workflow_run_id"]})
    return workflow_run


def _follow(remote: Remote, workflow_run: dict[str, Any], *, is_silent: bool) -> dict[str, Any]:
    """Print a line for each change of a step until the run ends."""
    shown_states: dict[tuple[str, int | None], str] = {}
    while True:
        for line in _changes(workflow_run, shown_states):
            if not is_silent:
                print_line(line)
                sys.stdout.flush()
        if workflow_run["phase"] in FINAL:
            return workflow_run
        threading.Event().wait(POLL_SECONDS)
        workflow_run = remote.call("workflow_run/get", {"workflow_run_id": workflow_run["workflow_run_id"]})


def _changes(workflow_run: dict[str, Any], shown_states: dict[tuple[str, int | None], str]) -> Iterator[str]:
    for step in workflow_run["steps"]:
        key = step["step_id"], step["index"]
        if shown_states.get(key, "pending") != step["phase"]:
            name = step["step_id"] if step["index"] is None else f"{step['step_id']}[{step['index']}]"
            error = f": {last_line(step['error'])}" if step["error"] else ""
            yield f"{name} {step['phase']}{error}"
        shown_states[key] = step["phase"]


def _draw(workflow_run: dict[str, Any], columns: int | None, lines: int) -> None:
    """Print the status; without `columns`, no line is cut."""
    from noonmark.cli.render.console import open_console
    from noonmark.cli.render.tables import PIPE_WIDTH
    from noonmark.cli.render.times import local_times
    from noonmark.cli.render.workflows import status_lines

    width = columns or PIPE_WIDTH
    with open_console(width) as console:
        for line in status_lines(workflow_run, local_times(), width=width, height=lines):
            console.print_line(line)


def cancel(workflow_run_id: RunId, /, *, reason: Reason = None, connection: Connection = Connection()) -> None:
    """Cancel a workflow run: running steps are asked to stop, completed ones are compensated."""
    with connect(connection) as remote:
        workflow_run = remote.call("workflow_run/cancel", present(workflow_run_id=workflow_run_id, reason=reason))
    if workflow_run["phase"] in FINAL:
        sentence = f"Cancelled {workflow_run['workflow_run_id']}."
    else:
        sentence = f"Asked {workflow_run['workflow_run_id']} to stop; it has not ended yet."
    print_answer(workflow_run, sentence, as_json=connection.as_json)
