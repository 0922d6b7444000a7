"""Details of a stored schedule, of its preview, or of an explanation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.cli.output import one_line, printable
from noonmark.cli.render.console import Text, facts_table, open_console
from noonmark.cli.render.fires import Upcoming, print_fires, show_upcoming
from noonmark.cli.render.summary import summarize
from noonmark.cli.render.tables import (
    OCCURRENCE_OPTIONAL,
    PIPE_WIDTH,
    lost_nodes,
    make_table,
    occurrence_rows,
    run_state,
    trigger_summary,
)
from noonmark.cli.render.times import Times, local_times
from noonmark.cli.render.usage import forecast_sentence
from noonmark.core.describe import describe
from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import from_micros, parse_instant
from noonmark.core.schedule import restore_schedule
from noonmark.core.triggers.recurrence import WallTrigger
from noonmark.operations.schedules import READ_ONLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.schedule import Declaration


def show_schedule(
    document: dict[str, Any],
    heading: str,
    occurrences: Sequence[dict[str, Any]] = (),
    runs: Sequence[dict[str, Any]] = (),
    nodes: Sequence[dict[str, Any]] = (),
) -> None:
    """Show the heading, the facts, the next fires, and the last run and occurrences if they are given.

    `nodes` are read where the last run has not ended.
    """
    times, declaration = local_times(), _declaration(document)
    upcoming = _upcoming(document, declaration, times)
    with open_console() as console:
        console.print(Text(printable(heading), "bold"))
        last_run = _last_run(document, runs, times, lost_nodes(nodes))
        console.print(facts_table(_facts(document, declaration, upcoming) | last_run))
        print_fires(console, upcoming, times.now)
    if not occurrences:
        return
    with open_console(PIPE_WIDTH) as console:
        console.print()
        console.print(make_table(*occurrence_rows(occurrences), width=console.width, optional=OCCURRENCE_OPTIONAL))


def _declaration(document: dict[str, Any]) -> Declaration | None:
    """The declaration of a schedule; None if a newer server wrote it and this release cannot read it."""
    try:
        return restore_schedule({name: value for name, value in document.items() if name not in READ_ONLY})
    except InvalidSchedule:
        return None


def _upcoming(document: dict[str, Any], declaration: Declaration | None, times: Times) -> Upcoming:
    fires = [from_micros(parse_instant(text)) for text in document["next_fire_times"]]
    trigger = None if declaration is None else declaration.trigger
    description = None if trigger is None else describe(trigger, now=times.now)
    return Upcoming(
        text=trigger_summary(document) if description is None else description.text,
        warnings=document.get("warnings") or ([] if description is None else description.warnings),
        fires=fires,
        after=times.now,
        count=len(fires),
        zone=trigger.timezone if isinstance(trigger, WallTrigger) else times.zone,
    )


def _facts(document: dict[str, Any], declaration: Declaration | None, upcoming: Upcoming) -> dict[str, str]:
    counters = document["counters"]
    facts = {"Schedule": document["schedule_id"], "Phase": f"{document['phase']}, revision {document['revision']}"}
    if document.get("paused"):
        facts["Paused"] = _pause(document["paused"])
    if document["description"]:
        facts["For"] = one_line(document["description"])
    facts["Fires"] = upcoming.text
    if declaration is not None:
        facts |= {label: value for label, value in summarize(declaration).items() if label != "Enabled"}
    if document.get("ping_url"):
        facts["Ping URL"] = document["ping_url"]
    if document.get("forecast"):
        facts["Cost"] = forecast_sentence(document["forecast"])
    if document["labels"]:
        facts["Labels"] = ", ".join(f"{name}={value}" for name, value in document["labels"].items())
    if any(counters.values()):
        facts["So far"] = ", ".join(f"{count:,} {name}" for name, count in counters.items() if count)
    return facts


def _pause(paused: dict[str, Any]) -> str:
    """Since when, by whom, why, and until when."""
    times = local_times()
    by = "" if paused["by"] is None else f" by {paused['by']}"
    until = "" if paused["until_utc"] is None else f", until {times.cells(paused['until_utc'])[0]}"
    why = "" if paused["reason"] is None else f": {one_line(paused['reason'])}"
    return f"since {times.cells(paused['at_utc'])[0]}{by}{until}{why}"


def _last_run(
    document: dict[str, Any], runs: Sequence[dict[str, Any]], times: Times, lost: Mapping[str, str]
) -> dict[str, str]:
    """When the schedule last ran and how that ended. Its last phase may belong to an occurrence that never ran."""
    last = runs[0]["started_at_utc"] if runs else document["last_run_at"]
    if last is None:
        return {}
    outcome = f": {run_state(runs[0], lost)}" if runs else ""
    return {"Last run": f"{times.cells(last)[0]}, {times.relative(last)}{outcome}"}


def show_preview(answer: dict[str, Any], trigger: dict[str, Any] | None, *, after: str | None, count: int) -> None:
    """Show the preview that an operation answered, in the zone of the trigger."""
    times = local_times()
    upcoming = Upcoming(
        text=answer["description"],
        warnings=answer["warnings"],
        fires=[from_micros(parse_instant(text)) for text in answer["fires"]],
        after=times.now if after is None else from_micros(parse_instant(after)),
        count=0 if trigger is None or trigger["type"] == "event" else count,
        zone=(trigger or {}).get("timezone") or times.zone,
    )
    show_upcoming(upcoming, now=times.now)
    if answer.get("forecast"):
        with open_console(PIPE_WIDTH) as console:
            console.print()
            console.print(forecast_sentence(answer["forecast"]))


def show_explanation(summary: str, steps: Sequence[dict[str, Any]]) -> None:
    """Show the summary, each rule with its decision and facts, and each attempt. Nothing is cut."""
    rows = [[step["rule"], step["decision"].replace("_", " "), _step_facts(step["facts"])] for step in steps]
    # Older servers do not describe the attempts.
    attempts = [run["told"] for step in steps for run in step["facts"].get("runs", []) if "told" in run]
    lines = [summary, *attempts, *("".join(row) for row in rows)]
    with open_console(PIPE_WIDTH + 2 * max(map(len, lines))) as console:  # a character may take two columns
        console.print(Text(summary, "bold"))
        console.print()
        console.print(make_table(["Rule", "Decision", "Facts"], rows, width=console.width, max_cell=None))
        if attempts:
            console.print()
        for attempt in attempts:
            console.print(Text(one_line(attempt)))


def _step_facts(facts: dict[str, Any]) -> str:
    shown = {name: value for name, value in facts.items() if name != "runs" and value not in (None, [], {})}
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in shown.items()
    )
