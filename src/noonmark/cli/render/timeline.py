"""Timelines as lines of marks, and the overview."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.cli.output import one_line
from noonmark.cli.render.console import Text, fold, open_console, text_width
from noonmark.cli.render.marks import MARKS, outcome_bar
from noonmark.cli.render.tables import dollars, show_table
from noonmark.cli.render.times import duration_text, local_times
from noonmark.core.instants import SECOND, parse_instant, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.cli.render.console import Console
    from noonmark.cli.render.times import Times

NOW = Text("│", "bold yellow")
LABEL_ALL = "all schedules"
CLOCK = 5
"""The columns of a time such as 12:00."""
DAYS: float = 2 * 86_400
"""From how many seconds on the axis shows days."""


def show_timeline(answer: Mapping[str, Any], *, labels: int) -> None:
    """Draw a timeline: an axis, a line for each row, and the marks in words."""
    times = local_times()
    since, until, now = (parse_instant(answer[name]) for name in ("from_utc", "to_utc", "now_utc"))
    width = answer["bucket_seconds"] * SECOND
    cells = -(-(until - since) // width)
    now_cell = (now - since) // width if since <= now < until else None
    with open_console(labels + cells + 2) as console:
        console.print_line([Text(" " * (labels + 1)), Text(_axis(answer, cells, times), "dim")])
        for row in answer["rows"]:
            name = _padded(row["name"] or LABEL_ALL, labels)
            columns: dict[int, Mapping[str, Any]] = {
                (parse_instant(one["from_utc"]) - since) // width: one for one in row["buckets"] or ()
            }
            console.print_line([Text(name), Text(" "), *(_cell(columns.get(n), n == now_cell) for n in range(cells))])
        if not answer["rows"]:
            console.print("No schedules match.")
        legend = [part for name, (sign, style) in MARKS.items() for part in (Text(sign, style), Text(f" {name}  "))]
        console.print_line([*legend, NOW, Text(f" now, {times.zone}")])
        if answer["planned_until_utc"] is not None:
            console.print(f"Fires to come are complete up to {times.local(answer['planned_until_utc'])}.")
        if answer["next_cursor"] is not None:
            console.print("There are more schedules: raise --limit, or select fewer.")


def _cell(bucket: Mapping[str, Any] | None, is_now: bool) -> Text:  # noqa: FBT001 - it is where now is
    for state, (sign, style) in MARKS.items():
        if bucket is not None and bucket[state]:
            return Text(sign, style)
    return NOW if is_now else Text("·", "dim")


def _axis(answer: Mapping[str, Any], cells: int, times: Times) -> str:
    """The times at even distances, as many as fit."""
    seconds = answer["bucket_seconds"]
    since = parse_instant(answer["from_utc"])
    is_long = seconds * cells >= DAYS
    step = max(12, -(-cells // 8))
    line = ""
    for place in range(0, cells - CLOCK, step):
        day, _, clock = times.local(to_text(since + place * seconds * SECOND)).partition(" ")
        line = line.ljust(place) + (day[5:] if is_long else clock[:CLOCK])
    return line


def _padded(name: str, width: int) -> str:
    line = one_line(name)
    while text_width(line) > width:
        line = line[:-2] + "…"
    return " " * (width - text_width(line)) + line


def show_revisions(revisions: Sequence[Mapping[str, Any]], more: str) -> None:
    """Show the changes of a schedule, each with a line for every field."""
    times = local_times()
    with open_console() as console:
        for one in revisions:
            number = "-" if one["revision"] is None else one["revision"]
            why = "" if one["reason"] is None else f": {one['reason']}"
            console.print(
                Text(f"Revision {number}", "bold"),
                Text(
                    f"  {times.local(one['at_utc'])}  {one_line(one['by'])}  {one['operation']}{one_line(why)}", "dim"
                ),
            )
            for change in one["changes"] or ():
                console.print(f"  {change['field']}: {_value(change['before'])} → {_value(change['after'])}")
        console.print(f"{len(revisions):,} {'change' if len(revisions) == 1 else 'changes'}{more}")


def _value(value: object) -> str:
    return "nothing" if value is None else one_line(value if isinstance(value, str) else json.dumps(value))


def show_trends(answer: Mapping[str, Any]) -> None:
    """Show a row for each stretch of time in which something happened."""
    counted = ("completed", "late", "failed", "skipped", "running", "queued", "planned")
    rows = [
        [
            bucket["local_date"],
            outcome_bar({state: bucket[state] for state in counted}),
            *(f"{bucket[state]:,}" if bucket[state] else "-" for state in counted[:4]),
            "-" if bucket["duration_p50_seconds"] is None else duration_text(bucket["duration_p50_seconds"]),
            "-" if bucket["duration_p95_seconds"] is None else duration_text(bucket["duration_p95_seconds"]),
            "-" if not bucket["cost_usd"] else dollars(bucket["cost_usd"]),
        ]
        for bucket in answer["buckets"]
        if any(bucket[state] for state in counted)
    ]
    titles = [answer["unit"].capitalize(), "", "On time", "Late", "Failed", "Skipped", "p50", "p95", "Cost"]
    show_table(titles, rows, f"By {answer['unit']} in {answer['timezone']}")


def show_overview(answer: Mapping[str, Any]) -> None:
    """Show today's figures, and what needs attention."""
    times = local_times()
    with open_console() as console:
        for line in _numbers(answer):
            console.print(line)
        console.print()
        if not answer["needs_look"]:
            console.print(Text("Nothing needs attention.", "green"))
        for entry in answer["needs_look"]:
            _show_entry(console, entry, times)


def _numbers(answer: Mapping[str, Any]) -> list[str]:
    share, late, schedules, spend = (
        answer[name] for name in ("on_time_share", "lateness_p99_seconds", "schedules", "spend")
    )
    on_time = "" if share is None else f", {share:.1%} on time"
    lateness = "" if late is None else f"; p99 of the lateness within the last hour: {duration_text(late) or '0 s'}"
    limit = "" if spend["limit_usd"] is None else f" of {dollars(spend['limit_usd'])}"
    live = answer["nodes"]["live"]
    phases = ", ".join(f"{schedules[phase]:,} {phase}" for phase in ("active", "paused", "completed"))
    waiting = ", ".join(f"{answer[f'{what}_waiting']} {what}" for what in ("approvals", "proposals"))
    return [
        f"{_plural(answer['fires_today'], 'fire')} today{on_time}{lateness}",
        f"{answer['running']:,} running, {answer['queued']:,} queued, {answer['failed_last_day']:,} failed in 24 hours",
        f"{_plural(schedules['total'], 'schedule')}: {phases}",
        f"{dollars(spend['today_usd'])}{limit} spent today, forecast {dollars(spend['forecast_usd'])}",
        f"{_plural(live, 'node')} alive; waiting for a decision: {waiting}",
    ]


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _show_entry(console: Console, entry: Mapping[str, Any], times: Times) -> None:
    name = "" if entry["schedule_name"] is None else f"{entry['schedule_name']}: "
    style = "yellow" if entry["kind"] in ("late", "budget", "approval", "proposal") else "red"
    console.print_line([Text(f"{entry['kind']:<10}  ", style), Text(f"{times.relative(entry['at_utc']):<16}  ", "dim")])
    for part in fold(one_line(name + entry["text"]), console.width - 2):
        console.print_line([Text(f"  {part}")])
