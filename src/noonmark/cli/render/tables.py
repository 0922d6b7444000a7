"""Tables of schedules, occurrences, runs, events, uploads, nodes, secrets, audit entries and settings."""

from __future__ import annotations

import json
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from noonmark.cli.output import one_line, shorten
from noonmark.cli.render.console import Table, Text, open_console
from noonmark.cli.render.marks import outcome_marks
from noonmark.cli.render.times import duration_text, exact_text, local_times
from noonmark.core.ids import shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NO_NODES: Mapping[str, str] = MappingProxyType({})
PIPE_WIDTH = 10_000
"""In a pipe, a row is always one line."""
MAX_CELL = 200
MAX_FILTERS = 60
GAP = 2
MIN_CENTS = 0.1
"""Smaller amounts show more decimals."""
RESULT_WIDTH = 120
"""The width from which a table of runs includes the results."""
STYLES = {
    "active": "green",
    "completed": "green",
    "running": "green",
    "paused": "yellow",
    "skipped": "yellow",
    "misfired": "yellow",
    "failed": "red",
    "timed_out": "red",
    "delivery_failed": "red",
    "deleted": "dim",
    "superseded": "dim",
}
"""The colours of phases and outcomes on a terminal."""


def show_schedules(schedules: Sequence[dict[str, Any]], more: str) -> None:
    times = local_times()
    titles = ["Schedule", "Name", "Phase", "When", times.titles("Next run")[0], "From now"]
    titles.append("Last outcomes" if any("outcomes" in one for one in schedules) else "Last outcome")
    rows = [
        [
            schedule["schedule_id"],
            schedule["name"] or "-",
            schedule["phase"],
            trigger_summary(schedule),
            times.local(schedule["next_run_at"]),
            times.relative(schedule["next_run_at"]),
            outcome_marks(schedule["outcomes"]) or "-" if "outcomes" in schedule else schedule["last_phase"] or "-",
        ]
        for schedule in schedules
    ]
    show_table(titles, rows, _count(schedules, "schedule") + more, optional=("From now", "When"))


def show_selected(answer: dict[str, Any], verb: str) -> None:
    """Show the schedules of a selection, and what became of them."""
    rows = [
        [
            schedule["schedule_id"],
            schedule["name"] or "-",
            schedule["phase"],
            schedule["problem"] or schedule["occurrence_id"] or "-",
        ]
        for schedule in answer["schedules"]
    ]
    count = f"{answer['count']:,} {'schedule' if answer['count'] == 1 else 'schedules'}"
    show_table(["Schedule", "Name", "Phase", "Run or problem"], rows, f"{verb} {count}{_runs_of_selection(answer)}")


def _runs_of_selection(answer: dict[str, Any]) -> str:
    """What became of the runs of deleted schedules; nothing if there were none."""
    stopped, unfinished = (
        sum(one[field] or 0 for one in answer["schedules"]) for field in ("stopped_runs", "unfinished_runs")
    )
    sentence = f". Runs that were asked to stop: {stopped:,}" if stopped else ""
    if unfinished:
        sentence += (
            f". Runs that go on: {unfinished:,}; `noonmark schedule delete ID --stop-running` stops those of one"
        )
    return sentence


OCCURRENCE_OPTIONAL = ("UTC", "Origin")
"""The columns that a narrow table of occurrences leaves out."""


def show_occurrences(occurrences: Sequence[dict[str, Any]], more: str) -> None:
    show_table(*occurrence_rows(occurrences), _count(occurrences, "occurrence") + more, optional=OCCURRENCE_OPTIONAL)


def schedule_label(occurrence: Mapping[str, Any]) -> str:
    """What people call the schedule of an occurrence: its name, or its id if it has none.

    A run without a schedule has what it runs as its name, such as `workflow sales`.
    """
    label: str = occurrence.get("schedule_name") or shown_name(occurrence["schedule_id"])  # older servers send no name
    return label


def show_failures(occurrences: Sequence[dict[str, Any]], more: str) -> None:
    """Show occurrences of several schedules."""
    times = local_times()
    titles = ["Occurrence", "Schedule", times.titles("Nominal time")[0], times.titles("Ended")[0], "Phase", "Why"]
    ids = defaultdict[str, set[str]](set)
    for occurrence in occurrences:
        ids[schedule_label(occurrence)].add(occurrence["schedule_id"])

    def label(occurrence: Mapping[str, Any]) -> str:
        name = schedule_label(occurrence)
        return name if len(ids[name]) == 1 else f"{name} ({occurrence['schedule_id']})"

    rows = [
        [
            occurrence["occurrence_id"],
            label(occurrence),
            times.local(occurrence["nominal_at_utc"]),
            times.local(occurrence["completed_at_utc"]),
            occurrence["phase"],
            occurrence["failure_detail"] or _reason(occurrence),
        ]
        for occurrence in occurrences
    ]
    show_table(titles, rows, _count(occurrences, "occurrence") + more, optional=(titles[3], titles[2]))


def occurrence_rows(occurrences: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The headings and rows of a table of occurrences."""
    times = local_times()
    titles = ["Occurrence", *times.titles("Nominal time"), "Phase", "Origin", "Why"]
    rows = [
        [
            occurrence["occurrence_id"],
            *times.cells(occurrence["nominal_at_utc"]),
            occurrence["phase"],
            occurrence["origin"],
            _reason(occurrence),
        ]
        for occurrence in occurrences
    ]
    return titles, rows


def run_state(run: dict[str, Any], lost: Mapping[str, str] = NO_NODES) -> str:
    """The outcome of a run, or how far it has come; `lost` are the states of the nodes that are not alive."""
    if run["outcome"] is None and run["node"] in lost:
        return f"unknown, node {lost[run['node']]}"
    state, progress = run["outcome"] or "running", run.get("progress")  # older servers have no progress
    if progress is None:
        return str(state)
    message = f" ({one_line(progress['message'])})" if progress["message"] else ""
    return f"{state}, {progress['fraction']:.0%}{message}"


def show_runs(runs: Sequence[dict[str, Any]], more: str, lost: Mapping[str, str] = NO_NODES) -> None:
    """Show runs; results and errors are below the table if it has no room for them. `lost` is as in `run_state`."""
    times = local_times()
    costs = ["Cost"] if any(run.get("usage") for run in runs) else []
    titles = ["Run", *times.titles("Started"), "Took", "Outcome", "Attempt", "Node", *costs, "Result"]
    rows = [
        [
            run["run_id"],
            *times.cells(run["started_at_utc"]),
            "-" if run["duration_seconds"] is None else duration_text(run["duration_seconds"]),
            run_state(run, lost),
            run["attempt"],
            run["node"],
            *(_cost(run) for _ in costs),
            _result(run),
        ]
        for run in runs
    ]
    with open_console(PIPE_WIDTH) as console:
        has_room = console.width >= RESULT_WIDTH
        if rows:
            shown = titles if has_room else titles[:-1]
            cells = rows if has_room else [row[:-1] for row in rows]
            console.print(make_table(shown, cells, width=console.width, optional=("UTC", "Node", "Attempt")))
            console.print()
        below = [] if has_room else [_cell(f"{row[0]}: {row[-1]}") for row in rows if row[-1] != "-"]
        for line in below:
            console.print(line)
        if below:
            console.print()
        console.print(_count(runs, "run") + more)


def show_events(events: Sequence[dict[str, Any]], more: str) -> None:
    times = local_times()
    titles = ["Event", "Type", *times.titles("Emitted"), "Source", "Payload"]
    rows = [
        [
            event["event_id"],
            event["event_type"],
            *times.cells(event["emitted_at"]),
            event["source"],
            _json(event["payload"]),
        ]
        for event in events
    ]
    show_table(titles, rows, _count(events, "event") + more, optional=("UTC", "Source"))


def show_event_matches(answer: dict[str, Any]) -> None:
    """Show the examined events: whether each matches, and why not."""
    times = local_times()
    titles = ["Event", "Type", *times.titles("Emitted"), "Source", "Matches", "Why not"]
    rows = [
        [
            event["event_id"] or "-",
            event["event_type"],
            *times.cells(event["emitted_at"]),
            event["source"],
            "yes" if event["matches"] else "no",
            event["why"] or "-",
        ]
        for event in answer["events"]
    ]
    counted = f"{answer['matched']:,} of {_count(answer['events'], 'event')}"
    show_table(titles, rows, f"{counted} match" if rows else "no events", optional=("UTC", "Source", "Type"))


def show_uploads(uploads: Sequence[dict[str, Any]], more: str) -> None:
    times = local_times()
    titles = ["Upload", "File", "Path", "Bytes", *times.titles("Uploaded"), "Type"]
    rows = [
        [
            upload["upload_id"],
            upload["filename"],
            upload["path"],
            f"{upload['size']:,}",
            *times.cells(upload["created_at_utc"]),
            upload["content_type"],
        ]
        for upload in uploads
    ]
    show_table(titles, rows, _count(uploads, "upload") + more, optional=("UTC", "Type", "File"))


def show_bundles(bundles: Sequence[dict[str, Any]], more: str) -> None:
    times = local_times()
    titles = ["Bundle", "Files", "Bytes", *times.titles("Pushed"), "By", "Digest"]
    rows = [
        [
            bundle["bundle_id"],
            f"{bundle['files']:,}",
            f"{bundle['size']:,}",
            *times.cells(bundle["pushed_at_utc"]),
            bundle["pushed_by"],
            bundle["digest"][:12],
        ]
        for bundle in bundles
    ]
    show_table(titles, rows, _count(bundles, "bundle") + more, optional=("UTC", "By"))


def show_bundle_versions(versions: Sequence[dict[str, Any]]) -> None:
    times = local_times()
    rows = [[one["digest"], f"{one['size']:,}", *times.cells(one["pushed_at_utc"])] for one in versions]
    show_table(["Digest", "Bytes", *times.titles("Pushed")], rows, _count(versions, "archive"), optional=("UTC",))


def show_nodes(nodes: Sequence[dict[str, Any]]) -> None:
    times = local_times()
    titles = ["Node", "State", *times.titles("Last seen"), "Load", "Routes", "Version"]
    rows = [
        [
            node["node"],
            node_state(node),
            *times.cells(node["seen_at_utc"]),
            f"{node['load']:,} of {node['capacity']:,}",
            ", ".join(node["routes"]) or "-",
            node["version"],
        ]
        for node in nodes
    ]
    show_table(titles, rows, _count(nodes, "node"), optional=("UTC", "Version"))


def show_secrets(secrets: Sequence[dict[str, Any]]) -> None:
    times = local_times()
    titles = ["Secret", "For", *times.titles("Set")]
    rows = [
        [secret["name"], ", ".join([*secret["hosts"], *secret["programs"]]), *times.cells(secret["updated_at_utc"])]
        for secret in secrets
    ]
    show_table(titles, rows, _count(secrets, "secret"), optional=("UTC",))


def show_keys(keys: Sequence[dict[str, Any]]) -> None:
    times = local_times()
    titles = ["Key", "Tenant", "User", "Scopes", "Name", "Status", *times.titles("Last used")]
    rows = [
        [
            key["key_id"],
            key["tenant"],
            key["user"],
            ", ".join(key["scopes"]),
            (key["name"] or "-") + (" (agent)" if key["agent"] else ""),
            key["status"],
            *times.cells(key["last_used_at_utc"]),
        ]
        for key in keys
    ]
    show_table(titles, rows, _count(keys, "key"), optional=("UTC", "Name"))


def show_audit_entries(entries: Sequence[dict[str, Any]], more: str) -> None:
    times = local_times()
    titles = ["#", *times.titles("At"), "Who", "Did", "Schedule", "Revision", "Why"]
    rows = [
        [
            "-" if entry["entry"] is None else entry["entry"],
            *times.cells(entry["at_utc"]),
            _actor(entry),
            entry["operation"],
            entry["schedule_id"] or "-",
            _revisions(entry),
            entry["reason"] or "-",
        ]
        for entry in entries
    ]
    show_table(titles, rows, _count(entries, "entry", "entries") + more, optional=("UTC", "Who", "Revision"))


def _actor(entry: Mapping[str, Any]) -> str:
    """Who made a change; for an agent, in which session."""
    session = entry["session_id"]
    return str(entry["caller"]) if session is None else f"{entry['caller']}, session {session}"


def show_settings(settings: Mapping[str, tuple[str, str]]) -> None:
    """Show settings with their values and sources."""
    table = Table(("Setting", "Value", "Source"), styles={0: "bold", 2: "dim"})
    for name, (value, source) in settings.items():
        table.add_row(name, value, source)
    with open_console() as console:
        console.print(table)


def more_entries(answer: Mapping[str, Any], limit: int) -> str:
    """What follows the number of entries if the list continues."""
    return "" if answer["next_cursor"] is None else f"; there are more: --limit {limit * 10}"


def show_table(
    titles: Sequence[str], rows: Sequence[Sequence[object]], closing: str, *, optional: Sequence[str] = ()
) -> None:
    """Show the table and a line below it; without rows, only the line."""
    with open_console(PIPE_WIDTH) as console:
        if rows:
            console.print(make_table(titles, rows, width=console.width, optional=optional))
            console.print()
        console.print(closing)


def make_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int,
    optional: Sequence[str] = (),
    max_cell: int | None = MAX_CELL,
) -> Table:
    """A table whose first column, the id, is never cut or folded, so that it can be copied.

    If the table is too wide, it leaves out optional columns, in their order. Cells are cut to `max_cell` characters.
    """
    cells = [[_cell(value, max_cell) for value in row] for row in rows]
    columns = list(range(len(titles)))
    for title in optional:
        if title in titles and _width(titles, cells, columns) > width:
            columns.remove(titles.index(title))
    table = Table([titles[number] for number in columns], gap=GAP, rigid=0)
    for row in cells:
        table.add_row(*(row[number] for number in columns))
    return table


def _width(titles: Sequence[str], cells: Sequence[Sequence[Text]], columns: Sequence[int]) -> int:
    """The width of a table in which nothing is folded."""
    widest = [max(len(titles[number]), *(row[number].cell_len for row in cells)) for number in columns]
    return sum(widest) + GAP * (len(columns) - 1)


def trigger_summary(schedule: dict[str, Any]) -> str:
    """When a schedule fires, in a few words."""
    trigger = schedule["trigger"]
    if trigger is None:
        return "after " + ", ".join(one["schedule_id"] for one in schedule.get("depends_on", []))
    summarize = _TRIGGER_SUMMARIES.get(trigger["type"])
    return trigger["type"] if summarize is None else summarize(trigger)


_TRIGGER_SUMMARIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "cron": lambda trigger: " | ".join(trigger.get("crons") or [trigger["expression"]]),
    "interval": lambda trigger: "every " + exact_text(trigger["every_seconds"]),
    "event": lambda trigger: "on " + _event_types(trigger["event_type"]) + _filters(trigger.get("filters")),
}


def _event_types(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " or ".join(value)


def _filters(filters: dict[str, Any] | None) -> str:
    return f" if {shorten(_json(filters), MAX_FILTERS)}" if filters else ""


def _cell(value: object, max_cell: int | None = MAX_CELL) -> Text:
    text = one_line(value)
    return Text(text if max_cell is None else shorten(text, max_cell), STYLES.get(text, ""))


def _count(documents: Sequence[object], singular: str, plural: str = "") -> str:
    return f"{len(documents):,} {singular if len(documents) == 1 else plural or f'{singular}s'}"


def _reason(occurrence: dict[str, Any]) -> str:
    if occurrence["missed_count"] > 1:
        return f"{occurrence['why'] or occurrence['reason'] or ''} ({occurrence['missed_count']:,} times)"
    return (
        occurrence["why"]
        or occurrence["reason"]
        or (f"waits: {occurrence['waiting_for']}" if occurrence["waiting_for"] else "-")
    )


def _cost(run: dict[str, Any]) -> str:
    return dollars(run["usage"]["cost_usd"]) if run["usage"] else "-"


def dollars(amount: float | None) -> str:
    """An amount of money: cents, and more decimals where it is small."""
    if amount is None:
        return "unknown"
    if amount == 0 or amount >= MIN_CENTS:
        return f"${amount:,.2f}"
    return f"${amount:.9f}".rstrip("0")


def _result(run: dict[str, Any]) -> str:
    """The result, or the last line of the error."""
    lines = [line.strip() for line in (run["error"] or "").splitlines() if line.strip()]
    if lines:
        return str(lines[-1])
    return "-" if run["result"] is None else _json(run["result"])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def node_state(node: Mapping[str, Any]) -> str:
    """The state of a node in one word."""
    if node["left_at_utc"] is not None:
        return "left"
    if node.get("gone_at_utc") is not None:  # an older server does not say
        return "gone"
    return ("leader" if node["is_leader"] else "alive") if node["is_alive"] else "silent"


def lost_nodes(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The states of the nodes that are not alive, by name."""
    return {node["node"]: node_state(node) for node in nodes if not node["is_alive"]}


def _revisions(entry: dict[str, Any]) -> str:
    before, after = entry["revision_before"], entry["revision_after"]
    if before == after:
        return "-" if after is None else str(after)
    return f"{'-' if before is None else before} to {'-' if after is None else after}"
