"""One stored schedule as people read it: what it is, when it fires next, what became of it last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from noonmark.cli.output import one_line, printable
from noonmark.cli.show import facts_table, page, show_fires, show_upcoming
from noonmark.cli.summary import facts
from noonmark.cli.tables import OF_OCCURRENCES, WIDE, here, make_table, occurrence_rows, when
from noonmark.cli.upcoming import Upcoming
from noonmark.core.describe import describe
from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import from_micros, parse_instant
from noonmark.core.schedule import restore_schedule
from noonmark.core.triggers.recurrence import WallTrigger
from noonmark.operations.schedules import READ_ONLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.cli.tables import Times
    from noonmark.core.schedule import Declaration


def show_stored(
    document: dict[str, Any],
    heading: str,
    occurrences: Sequence[dict[str, Any]] = (),
    runs: Sequence[dict[str, Any]] = (),
) -> None:
    """The heading, the facts, the next fires; its last run and its last occurrences, if they were asked for."""
    times, declaration = here(), _declared(document)
    upcoming = _upcoming(document, declaration, times)
    with page() as out:
        out.print(Text(printable(heading), style="bold"))
        out.print(facts_table(_facts(document, declaration, upcoming) | _last_run(document, runs, times)))
        show_fires(out, upcoming, times.now)
    if not occurrences:
        return
    with page(WIDE) as out:
        out.print()
        out.print(make_table(*occurrence_rows(occurrences), width=out.width, spare=OF_OCCURRENCES))


def _declared(document: dict[str, Any]) -> Declaration | None:
    """What was declared; None of a document that a newer server wrote, and this release cannot read."""
    try:
        return restore_schedule({name: value for name, value in document.items() if name not in READ_ONLY})
    except InvalidSchedule:
        return None


def _upcoming(document: dict[str, Any], declaration: Declaration | None, times: Times) -> Upcoming:
    fires = [from_micros(parse_instant(text)) for text in document["next_fire_times"]]
    trigger = None if declaration is None else declaration.trigger
    described = None if trigger is None else describe(trigger, now=times.now)
    return Upcoming(
        text=when(document) if described is None else described.text,
        warnings=[] if described is None else described.warnings,
        fires=fires,
        after=times.now,
        count=len(fires),
        zone=trigger.timezone if isinstance(trigger, WallTrigger) else times.zone,
    )


def _facts(document: dict[str, Any], declaration: Declaration | None, upcoming: Upcoming) -> dict[str, str]:
    counters = document["counters"]
    answers = {"Schedule": document["schedule_id"], "Phase": f"{document['phase']}, revision {document['revision']}"}
    if document["description"]:
        answers["For"] = one_line(document["description"])
    answers["Fires"] = upcoming.text
    if declaration is not None:
        answers |= {question: said for question, said in facts(declaration).items() if question != "Enabled"}
    if document["labels"]:
        answers["Labels"] = ", ".join(f"{name}={value}" for name, value in document["labels"].items())
    if any(counters.values()):
        answers["So far"] = ", ".join(f"{count:,} {name}" for name, count in counters.items() if count)
    return answers


def _last_run(document: dict[str, Any], runs: Sequence[dict[str, Any]], times: Times) -> dict[str, str]:
    """When it was last started, and how that ended: the schedule's last phase may be that of what never ran."""
    last = document["last_run_at"]
    if runs:
        last = runs[0]["started_at_utc"]
    if last is None:
        return {}
    ended = f": {runs[0]['outcome'] or 'running'}" if runs else ""
    return {"Last run": f"{times.cells(last)[0]}, {times.away(last)}{ended}"}


def show_answer(answer: dict[str, Any], trigger: dict[str, Any] | None, *, after: str | None, count: int) -> None:
    """A preview that a server gave, in the zone of its trigger."""
    times = here()
    asked = 0 if trigger is None or trigger["type"] == "event" else count
    upcoming = Upcoming(
        text=answer["description"],
        warnings=answer["warnings"],
        fires=[from_micros(parse_instant(text)) for text in answer["fires"]],
        after=times.now if after is None else from_micros(parse_instant(after)),
        count=asked,
        zone=(trigger or {}).get("timezone") or times.zone,
    )
    show_upcoming(upcoming, now=times.now)
