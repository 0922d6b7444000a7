"""Tables of what is stored: schedules, occurrences, runs, events, nodes and the audit log, a line each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from noonmark.cli.local_zone import local_zone
from noonmark.cli.output import one_line
from noonmark.cli.show import from_now, local_text, page, plain_text
from noonmark.clocks import SystemClock
from noonmark.core.instants import from_micros, parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

WIDE = 10_000
"""In a pipe, a row is one line, whatever is in it."""
MAX_CELL = 200
MAX_FILTERS = 60
GAP = 2
ROOM_FOR_RESULTS = 120
"""A terminal of so many columns has room for results in a table of runs."""
NOTHING = "-"
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
"""The colours of phases and outcomes, on a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How times are told: in the zone of whoever reads, and in UTC beside it unless that is the same."""

    zone: str
    now: datetime

    def titles(self, title: str) -> list[str]:
        """The headings of the columns of one time."""
        return [f"{title}, {self.zone}"] + ([] if self.zone == "UTC" else ["UTC"])

    def cells(self, text: str | None) -> list[str]:
        """The cells of one time."""
        if text is None:
            return ["-"] * len(self.titles(""))
        instant = from_micros(parse_instant(text)).replace(microsecond=0)
        plain = plain_text(instant, "seconds")
        return [plain] if self.zone == "UTC" else [self.local(text), plain]

    def local(self, text: str | None) -> str:
        """One time in the zone of whoever reads, with its offset."""
        if text is None:
            return "-"
        instant = from_micros(parse_instant(text)).replace(microsecond=0)
        return local_text(instant, self.zone, "seconds").partition(" ")[2].removesuffix(" +00:00")

    def away(self, text: str | None) -> str:
        """How far away it is."""
        return "-" if text is None else from_now(from_micros(parse_instant(text)) - self.now)


def here() -> Times:
    """The times of this machine."""
    return Times(zone=local_zone(), now=SystemClock().now().replace(microsecond=0))


def show_schedules(documents: Sequence[dict[str, Any]], more: str) -> None:
    """A line for each schedule."""
    times = here()
    titles = ["Schedule", "Name", "Phase", "When", times.titles("Next run")[0], "From now"]
    rows = [
        [
            one["schedule_id"],
            one["name"] or "-",
            one["phase"],
            when(one),
            times.local(one["next_run_at"]),
            times.away(one["next_run_at"]),
        ]
        for one in documents
    ]
    show_table(titles, rows, _counted(documents, "schedule") + more, spare=("From now", "When"))


OF_OCCURRENCES = ("UTC", "Origin")
"""What the table of occurrences can spare."""


def show_occurrences(documents: Sequence[dict[str, Any]], more: str) -> None:
    """A line for each occurrence."""
    show_table(*occurrence_rows(documents), _counted(documents, "occurrence") + more, spare=OF_OCCURRENCES)


def occurrence_rows(documents: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The headings, and a row for each occurrence."""
    times = here()
    titles = ["Occurrence", *times.titles("Nominal time"), "Phase", "Origin", "Why"]
    rows = [
        [one["occurrence_id"], *times.cells(one["nominal_at_utc"]), one["phase"], one["origin"], _why(one)]
        for one in documents
    ]
    return titles, rows


def show_runs(documents: Sequence[dict[str, Any]], more: str) -> None:
    """A line for each run; what it gave or raised is below the table, where that has no room for it."""
    times = here()
    titles = ["Run", *times.titles("Started"), "Took", "Outcome", "Attempt", "Node", "Result"]
    rows = [
        [
            one["run_id"],
            *times.cells(one["started_at_utc"]),
            _took(one["duration_seconds"]),
            one["outcome"] or "running",
            one["attempt"],
            one["node"],
            _result(one),
        ]
        for one in documents
    ]
    with page(WIDE) as out:
        has_room = out.width >= ROOM_FOR_RESULTS
        if rows:
            shown = titles if has_room else titles[:-1]
            cells = rows if has_room else [row[:-1] for row in rows]
            out.print(make_table(shown, cells, width=out.width, spare=("UTC", "Node", "Attempt")))
            out.print()
        below = [] if has_room else [_cell(f"{row[0]}: {row[-1]}") for row in rows if row[-1] != NOTHING]
        for line in below:
            out.print(line)
        if below:
            out.print()
        out.print(_counted(documents, "run") + more)


def show_events(documents: Sequence[dict[str, Any]], more: str) -> None:
    """A line for each event."""
    times = here()
    titles = ["Event", "Type", *times.titles("Emitted"), "Source", "Payload"]
    rows = [
        [one["event_id"], one["event_type"], *times.cells(one["emitted_at"]), one["source"], _json(one["payload"])]
        for one in documents
    ]
    show_table(titles, rows, _counted(documents, "event") + more, spare=("UTC", "Source"))


def show_matched(answer: dict[str, Any]) -> None:
    """A line for each event that was looked at: whether it is matched, and why not."""
    times = here()
    titles = ["Event", "Type", *times.titles("Emitted"), "Source", "Matches", "Why not"]
    rows = [
        [
            one["event_id"] or "-",
            one["event_type"],
            *times.cells(one["emitted_at"]),
            one["source"],
            "yes" if one["matches"] else "no",
            one["why"] or "-",
        ]
        for one in answer["events"]
    ]
    counted = f"{answer['matched']:,} of {_counted(answer['events'], 'event')}"
    show_table(titles, rows, f"{counted} match" if rows else "no events", spare=("UTC", "Source", "Type"))


def show_uploads(documents: Sequence[dict[str, Any]], more: str) -> None:
    """A line for each file that is kept."""
    times = here()
    titles = ["Upload", "File", "Path", "Bytes", *times.titles("Came"), "Type"]
    rows = [
        [
            one["upload_id"],
            one["filename"],
            one["path"],
            f"{one['size']:,}",
            *times.cells(one["created_at_utc"]),
            one["content_type"],
        ]
        for one in documents
    ]
    show_table(titles, rows, _counted(documents, "upload") + more, spare=("UTC", "Type", "File"))


def show_nodes(documents: Sequence[dict[str, Any]]) -> None:
    """A line for each node."""
    times = here()
    titles = ["Node", "State", *times.titles("Last heard of"), "Load", "Routes", "Version"]
    rows = [
        [
            one["node"],
            _state(one),
            *times.cells(one["seen_at_utc"]),
            f"{one['load']:,} of {one['capacity']:,}",
            ", ".join(one["routes"]) or "-",
            one["version"],
        ]
        for one in documents
    ]
    show_table(titles, rows, _counted(documents, "node"), spare=("UTC", "Version"))


def show_secrets(documents: Sequence[dict[str, Any]]) -> None:
    """A line for each secret."""
    times = here()
    titles = ["Secret", "Hosts", *times.titles("Set")]
    rows = [[one["name"], ", ".join(one["hosts"]), *times.cells(one["updated_at_utc"])] for one in documents]
    show_table(titles, rows, _counted(documents, "secret"), spare=("UTC",))


def show_entries(documents: Sequence[dict[str, Any]], more: str) -> None:
    """A line for each entry of the audit log."""
    times = here()
    titles = ["#", *times.titles("At"), "Who", "Did", "Schedule", "Revision", "Why"]
    rows = [
        [
            one["entry"],
            *times.cells(one["at_utc"]),
            one["caller"],
            one["operation"],
            one["schedule_id"] or "-",
            _revisions(one),
            one["reason"] or "-",
        ]
        for one in documents
    ]
    show_table(titles, rows, _counted(documents, "entry", "entries") + more, spare=("UTC", "Who", "Revision"))


def show_table(
    titles: Sequence[str], rows: Sequence[Sequence[object]], closing: str, *, spare: Sequence[str] = ()
) -> None:
    """The table, then a line about it; of no rows, the line alone."""
    with page(WIDE) as out:
        if rows:
            out.print(make_table(titles, rows, width=out.width, spare=spare))
            out.print()
        out.print(closing)


def make_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int,
    spare: Sequence[str] = (),
    most: int | None = MAX_CELL,
) -> Table:
    """A table whose first column, the id, is never cut or folded: people copy it.

    Where it is too wide, columns that can be spared are left out, the first of them first. Of a cell, so many
    characters are shown at `most`, or all of them.
    """
    cells = [[_cell(value, most) for value in row] for row in rows]
    kept = list(range(len(titles)))
    for title in spare:
        if title in titles and _width(titles, cells, kept) > width:
            kept.remove(titles.index(title))
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, GAP, 0, 0))
    for number in kept:
        table.add_column(titles[number], overflow="fold", no_wrap=number == 0)
    for row in cells:
        table.add_row(*(row[number] for number in kept))
    return table


def _width(titles: Sequence[str], cells: Sequence[Sequence[Text]], kept: Sequence[int]) -> int:
    """How wide a table is in which nothing is folded."""
    widest = [max(len(titles[number]), *(row[number].cell_len for row in cells)) for number in kept]
    return sum(widest) + GAP * (len(kept) - 1)


def when(schedule: dict[str, Any]) -> str:
    """When a schedule fires, in a few words."""
    trigger = schedule["trigger"]
    if trigger is None:
        return "after " + ", ".join(one["schedule_id"] for one in schedule.get("depends_on", []))
    tell = _WHEN.get(trigger["type"])
    return trigger["type"] if tell is None else tell(trigger)


_WHEN: dict[str, Callable[[dict[str, Any]], str]] = {
    "cron": lambda trigger: " | ".join(trigger.get("crons") or [trigger["expression"]]),
    "interval": lambda trigger: "every " + _length(trigger["every_seconds"]),
    "event": lambda trigger: "on " + _several(trigger["event_type"]) + _if(trigger.get("filters")),
}


def _several(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " or ".join(value)


def _if(filters: dict[str, Any] | None) -> str:
    """The filters of a trigger in short, if it has any."""
    text = _json(filters)
    return "" if not filters else f" if {text if len(text) <= MAX_FILTERS else f'{text[:MAX_FILTERS]}…'}"


def _cell(value: object, most: int | None = MAX_CELL) -> Text:
    text = one_line(value)
    return Text(text if most is None or len(text) <= most else f"{text[:most]}…", style=STYLES.get(text, ""))


def _counted(documents: Sequence[object], one: str, many: str = "") -> str:
    return f"{len(documents):,} {one if len(documents) == 1 else many or f'{one}s'}"


def _why(one: dict[str, Any]) -> str:
    if one["missed_count"] > 1:
        return f"{one['why'] or one['reason'] or ''} ({one['missed_count']:,} times)"
    return one["why"] or one["reason"] or (f"waits: {one['waiting_for']}" if one["waiting_for"] else "-")


def _took(seconds: float | None) -> str:
    return "-" if seconds is None else _length(seconds)


def _length(seconds: float) -> str:
    """A length of time in its two largest units; a short one with what is below a second, or in milliseconds."""
    if 0 < seconds < 0.9995:  # what is more is a second, to three digits
        return f"{seconds * 1_000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 60 else from_now(timedelta(seconds=seconds)).removeprefix("in ")


def _result(one: dict[str, Any]) -> str:
    """What it gave or raised: the last line of a traceback says what that was."""
    lines = [line.strip() for line in (one["error"] or "").splitlines() if line.strip()]
    if lines:
        return str(lines[-1])
    return NOTHING if one["result"] is None else _json(one["result"])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _state(one: dict[str, Any]) -> str:
    if one["left_at_utc"] is not None:
        return "left"
    return ("leads" if one["is_leader"] else "alive") if one["is_alive"] else "silent"


def _revisions(one: dict[str, Any]) -> str:
    before, after = one["revision_before"], one["revision_after"]
    if before == after:
        return "-" if after is None else str(after)
    return f"{'-' if before is None else before} to {'-' if after is None else after}"
