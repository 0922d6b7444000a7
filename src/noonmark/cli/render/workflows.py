"""Workflows, their graphs, their runs and approvals, as tables and drawings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.cli.output import last_line, one_line, shorten
from noonmark.cli.render.console import Text, facts_table, open_console, warnings_table
from noonmark.cli.render.tables import STYLES, show_table
from noonmark.cli.render.times import duration_text, local_times
from noonmark.cli.render.workflow_graph import draw
from noonmark.cli.workflow_changes import defined
from noonmark.core.instants import from_micros, parse_instant
from noonmark.core.workflows.definition import parse_definition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.cli.render.times import Times
    from noonmark.core.workflows.definition import Definition

    Line = list[Text]

BAR = 30
"""The width of the progress bar."""
MAX_ELEMENTS = 20
"""How many elements of one step are shown: those that run or failed first."""
FIRST = ("failed", "running", "cancelled", "compensated", "pending", "skipped", "completed")
"""The elements that are shown first."""
MARKS = {
    "pending": "·",
    "running": "▶",
    "completed": "✓",
    "failed": "✗",
    "skipped": "-",
    "cancelled": "○",
    "compensated": "↩",
}


def definition_of(workflow: Mapping[str, Any]) -> Definition:
    """The definition in the document of a workflow."""
    return parse_definition(defined(workflow))[0]


def show_workflows(workflows: Sequence[dict[str, Any]], more: str) -> None:
    """Show workflows, each with its newest version."""
    times = local_times()
    rows = [
        [one["workflow_id"], one["version"], one["name"] or "-", one["step_count"], times.local(one["created_at_utc"])]
        for one in workflows
    ]
    titles = ["Workflow", "Version", "Name", "Steps", times.titles("Created")[0]]
    show_table(titles, rows, _count(workflows, "workflow") + more)


def show_versions(versions: Sequence[dict[str, Any]], more: str) -> None:
    """Show the versions of a workflow."""
    times = local_times()
    rows = [
        [one["version"], one["step_count"], one["created_by"], one["source"], times.local(one["created_at_utc"])]
        for one in versions
    ]
    titles = ["Version", "Steps", "By", "Through", times.titles("Created")[0]]
    show_table(titles, rows, _count(versions, "version") + more)


def show_runs(runs: Sequence[dict[str, Any]], more: str) -> None:
    """Show workflow runs."""
    times = local_times()
    rows = [
        [
            one["workflow_run_id"],
            one["workflow_id"],
            "-" if one["version"] is None else one["version"],
            one["phase"],
            times.local(one["started_at_utc"]),
            one["schedule_id"] or "-",
            _why(one) or "-",
        ]
        for one in runs
    ]
    titles = ["Run", "Workflow", "Version", "Phase", times.titles("Started")[0], "Schedule", "Why"]
    show_table(titles, rows, _count(runs, "run") + more, optional=("Why", "Schedule"))


def _why(run: Mapping[str, Any]) -> str:
    """Which step failed and with what, or else why the run is in its phase."""
    return last_line(run["error"]) if run["error"] else str(run["why"] or "")


def show_approvals(approvals: Sequence[dict[str, Any]], more: str) -> None:
    """Show approvals."""
    times = local_times()
    rows = [
        [
            one["approval_id"],
            one["state"],
            one["schedule_name"] or one["schedule_id"] or one["workflow_id"] or "-",
            one["occurrence_id"] if one["step_id"] is None else f"step {one['step_id']}",
            times.relative(one["expires_at_utc"]) if one["state"] == "pending" else one["by"] or "-",
            one["message"] or "-",
        ]
        for one in approvals
    ]
    titles = ["Approval", "State", "Of", "What waits", "Expires or by", "Message"]
    show_table(titles, rows, _count(approvals, "approval") + more)


def _count(documents: Sequence[object], singular: str) -> str:
    return f"{len(documents):,} {singular if len(documents) == 1 else f'{singular}s'}"


def show_workflow(workflow: Mapping[str, Any]) -> None:
    """Show a version of a workflow, with its inputs and its graph."""
    name = f" ({workflow['name']})" if workflow["name"] else ""
    facts = {
        "Workflow": f"{workflow['workflow_id']}{name}, version {workflow['version']}",
        **({"About": workflow["description"]} if workflow["description"] else {}),
        "Inputs": _inputs(workflow["inputs"]),
        "When a step fails": "the others stop" if workflow["on_failure"] == "stop" else "independent ones go on",
        "Created": f"{local_times().local(workflow['created_at_utc'])} by {workflow['created_by']}",
    }
    with open_console() as console:
        console.print(facts_table(facts))
        console.print()
        for line in draw(definition_of(workflow)):
            console.print_line([Text(line)])
        if workflow["warnings"]:
            console.print()
            console.print(warnings_table(workflow["warnings"]))


def _inputs(inputs: Mapping[str, Any] | None) -> str:
    if inputs is None:
        return "any"
    return ", ".join(_input(name, spec) for name, spec in inputs.items()) or "none"


def _input(name: str, spec: object) -> str:
    """An input with its type and its default."""
    if not isinstance(spec, dict):
        return f"{name} = {json.dumps(spec, ensure_ascii=False)}"
    kind = f": {spec['type']}" if spec.get("type") else ""
    if "default" in spec:
        return f"{name}{kind} = {json.dumps(spec['default'], ensure_ascii=False)}"
    return f"{name}{kind}" if spec.get("required", True) else f"{name}{kind} (optional)"


def status_lines(run: Mapping[str, Any], times: Times, *, width: int, height: int) -> list[Line]:
    """The lines of the status of a run: a summary, a progress bar, and its steps; as many as fit."""
    steps = run["steps"]
    own = [step for step in steps if step["index"] is None]
    ended = sum(step["phase"] not in ("pending", "running") for step in own)
    why = f": {_why(run)}" if _why(run) and run["phase"] != "completed" else ""
    version = "" if run["version"] is None else f" version {run['version']}"
    lines: list[Line] = [
        [
            Text(f"{run['workflow_id']}{version}  ", "bold"),
            Text(run["phase"], STYLES.get(run["phase"], "")),
            Text(one_line(why)),
        ],
        [Text(f"{_bar(ended, len(own))} {ended} of {len(own)} steps"), Text(_counts(own), "dim")],
        [],
    ]
    longest = max((len(step["step_id"]) for step in own), default=0)
    for step in own:
        lines.append(_step_line(step, times, longest))
        if step["approval_id"] and step["phase"] == "running":
            lines.append([Text(f"  noonmark approval approve {step['approval_id']}", "dim")])
        elements = [one for one in steps if one["step_id"] == step["step_id"] and one["index"] is not None]
        lines += _element_lines(elements, times, longest)
    if len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], [Text(f"{hidden} more lines below", "dim")]]
    return [_cut(line, width) for line in lines]


def _bar(done: int, total: int) -> str:
    filled = BAR if total == 0 else BAR * done // total
    return "█" * filled + "░" * (BAR - filled)


def _counts(steps: Sequence[Mapping[str, Any]]) -> str:
    counts = {phase: sum(step["phase"] == phase for step in steps) for phase in MARKS}
    summary = ", ".join(f"{count} {phase}" for phase, count in counts.items() if count)
    return f"  {summary}" if summary else ""


def _element_lines(elements: Sequence[Mapping[str, Any]], times: Times, longest: int) -> list[Line]:
    """The elements of a step that say most, and how many others there are."""
    shown_elements = [one for one in elements if one["phase"] in ("failed", "running")] or list(elements)
    shown = sorted(shown_elements, key=lambda one: (FIRST.index(one["phase"]), one["index"]))[:MAX_ELEMENTS]
    lines = [_step_line(one, times, longest) for one in shown]
    if others := len(elements) - len(shown):
        lines.append([Text(f"    {others:,} more elements", "dim")])
    return lines


def _step_line(step: Mapping[str, Any], times: Times, longest: int) -> Line:
    name = step["step_id"] if step["index"] is None else f"  [{step['index']}]"
    elements = f", {step['count']:,} elements" if step["count"] is not None else ""
    attempt = f", attempt {step['attempt']}" if step["attempt"] > 1 else ""
    return [
        Text(f"{MARKS[step['phase']]} ", STYLES.get(step["phase"], "")),
        Text(f"{name:<{longest}}  "),
        Text(f"{step['phase']}{elements}", STYLES.get(step["phase"], "")),
        Text(f"{_duration(step, times)}{attempt}", "dim"),
        Text(_end(step, times)),
    ]


def _duration(step: Mapping[str, Any], times: Times) -> str:
    if step["started_at_utc"] is None:
        return ""
    start = from_micros(parse_instant(step["started_at_utc"]))
    end = times.now if step["ended_at_utc"] is None else from_micros(parse_instant(step["ended_at_utc"]))
    seconds = max(0.0, (end - start).total_seconds())
    return f"  {duration_text(round(seconds, 1) if seconds < 10 else round(seconds))}"


def _end(step: Mapping[str, Any], times: Times) -> str:
    """The error or the result of a step, or what it waits for."""
    if step["error"]:
        return f"  {last_line(step['error'])}"
    if step["waiting_for"] is not None:
        verb = "expires " if step["approval_id"] else ""
        until = "" if step["ready_at_utc"] is None else f", {verb}{times.relative(step['ready_at_utc'])}"
        what = step["occurrence_id"]
        return f"  waits for {step['waiting_for']}{f' {what}' if what else ''}{until}"
    if step["phase"] == "completed" and step["result"] is not None:
        return f"  {shorten(json.dumps(step['result'], ensure_ascii=False))}"
    return ""


def _cut(line: Line, width: int) -> Line:
    """A line that is not longer than the width."""
    cut: Line = []
    for text in line:
        room = width - sum(part.cell_len for part in cut)
        if room <= 0:
            break
        plain = one_line(text.plain) if not text.plain.isprintable() else text.plain
        cut.append(Text(plain if Text(plain).cell_len <= room else f"{plain[: max(0, room - 1)]}…", text.style))
    return cut
