"""One frame of `noonmark top`: as many lines as fit, each cut to the width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.cli.output import one_line
from noonmark.cli.render.console import Text, text_width
from noonmark.cli.render.tables import lost_nodes, node_state, schedule_label
from noonmark.cli.render.times import duration_text
from noonmark.core.halt import halted_text
from noonmark.core.instants import from_micros, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noonmark.cli.render.times import Times

    Line = list[Text]

GAP = "  "
MAX_CELL = 28
NARROW, NARROW_CELL = 70, 16
"""Below this width, cells are shorter."""
MIN_ROWS = 2
STYLES = {"dead": "bold red", "overdue": "bold red", "leader": "green", "failed": "red", "timed_out": "red"}


def frame(
    answer: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] | None, times: Times, *, width: int, height: int
) -> list[Line]:
    """The lines of a frame. `nodes` is None where the caller may not see them."""
    sections = list(_sections(answer, nodes, times))
    summary = _summary(answer, nodes)
    rows = _shares([len(cells) for _, _, cells in sections], height - len(summary) - 3 * len(sections))
    lines = summary
    for (title, titles, cells), count in zip(sections, rows, strict=True):
        lines.append([])
        hidden = len(cells) - count
        lines.append([Text(title, "bold"), Text(f"  {hidden} more below" if hidden > 0 else "", "dim")])
        lines += _table(titles, cells[:count], NARROW_CELL if width < NARROW else MAX_CELL)
    return [_cut(line, width) for line in lines[:height]]


def halt_sentence(halt: Mapping[str, Any]) -> str:
    """What is halted, by whom, and why."""
    subject = halted_text(halt["labels"], halt["lineage"])
    why = "" if halt["reason"] is None else f" ({halt['reason']})"
    return f"{subject} is halted since {halt['halted_at_utc']} by {halt['halted_by']}{why}: {halt['halt_id']}."


def _summary(answer: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] | None) -> list[Line]:
    failed = len(answer["failed"])
    orphans = _orphans(answer, nodes)
    line = [Text(f"{_count(answer['running'])} running")]
    if orphans:
        line.append(Text(f" ({orphans:,} lost)", "bold red"))
    line.append(Text(f"  {_count(answer['due'])} due  {_count(answer['waiting'])} waiting  "))
    overdue = answer["overdue"]["count"]
    line.append(Text(f"{_count(answer['overdue'])} overdue", "bold red" if overdue else ""))
    line.append(Text(f"  {failed} failed", "red" if failed else ""))
    if nodes is not None:
        alive = sum(1 for node in nodes if node["is_alive"])
        line.append(Text(f"  {alive} {'node' if alive == 1 else 'nodes'} alive", "" if alive else "bold red"))
    return [line, *([Text(one_line(halt_sentence(halt)), "bold red")] for halt in answer["halts"])]


def _orphans(answer: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] | None) -> int:
    """How many of those that run, as far as they are read, a node holds that is not alive."""
    lost = lost_nodes(nodes or ())
    return sum(row["phase"] == "dispatching" and row["node"] in lost for row in answer["running"]["occurrences"])


def _sections(
    answer: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] | None, times: Times
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """What needs attention first: failures above what comes next."""
    running, now = answer["running"]["occurrences"], times.now
    if nodes is not None:
        on = [row["node"] for row in running]
        yield (
            "Nodes",
            ["Node", "State", "Running", "Load", "Seen"],
            [
                [
                    node["node"],
                    "dead" if node_state(node) == "silent" else node_state(node),
                    str(on.count(node["node"])),
                    f"{node['load']:,} of {node['capacity']:,}",
                    times.relative(node["seen_at_utc"]),
                ]
                for node in nodes
                if node["left_at_utc"] is None
            ],
        )
    progress = {run["occurrence_id"]: run["progress"] for run in answer["runs"]}
    lost = lost_nodes(nodes or ())
    overdue = {row["occurrence_id"] for row in answer["overdue"]["occurrences"]}
    yield (
        f"Running: {_count(answer['running'])}",
        ["Schedule", "For", "Progress", "Node", "Occurrence"],
        [
            [
                schedule_label(row),
                duration_text(max(0, (now - from_micros(parse_instant(row["started_at_utc"]))).total_seconds() // 1)),
                "overdue"
                if row["occurrence_id"] in overdue
                else _progress(row, progress.get(row["occurrence_id"]), lost),
                row["node"] or "-",
                row["occurrence_id"],
            ]
            for row in running
        ],
    )
    queued = [*answer["due"]["occurrences"], *answer["waiting"]["occurrences"]]
    count = f"{_count(answer['due'])} due, {_count(answer['waiting'])} waiting"
    yield (
        f"Queued: {count}",
        ["Schedule", "Due", "Waits for", "Occurrence"],
        [
            [
                schedule_label(row),
                times.relative(row["due_at_utc"]),
                row["waiting_for"] or "a node",
                row["occurrence_id"],
            ]
            for row in queued
        ],
    )
    yield (
        "Failed within the last hour",
        ["Schedule", "Ended", "Phase", "Why"],
        [
            [
                schedule_label(row),
                times.relative(row["completed_at_utc"]),
                row["phase"],
                row["failure_detail"] or row["why"] or row["reason"] or "-",
            ]
            for row in answer["failed"]
        ],
    )
    yield (
        "Next",
        ["Schedule", "Starts", times.titles("At")[0]],
        [
            [schedule_label(row), times.relative(row["due_at_utc"]), times.local(row["due_at_utc"])]
            for row in answer["upcoming"]["occurrences"]
        ],
    )


def _progress(row: Mapping[str, Any], progress: Mapping[str, Any] | None, lost: Mapping[str, str]) -> str:
    if row["phase"] == "dispatching" and row["node"] in lost:
        return f"unknown, node {lost[row['node']]}"
    if progress is None:
        return "accepted" if row["phase"] == "awaiting_completion" else "-"
    return f"{progress['fraction']:.0%} {progress['message'] or ''}".strip()


def _count(group: Mapping[str, Any]) -> str:
    return f"{group['count']:,}" + ("" if group["is_complete"] else "+")


def _shares(heights: Sequence[int], room: int) -> list[int]:
    """How many rows each section shows: a few of each, then more of the first ones."""
    shares = [min(count, MIN_ROWS) for count in heights]
    for place, count in enumerate(heights):
        shares[place] += max(0, min(count - shares[place], room - sum(shares)))
    return shares


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> list[Line]:
    """A table whose last column may be long; the others are cut."""
    if not rows:
        return [[Text("  none", "dim")]]
    cells = [[_short(cell, most) for cell in row[:-1]] + [one_line(row[-1])] for row in rows]
    widths = [max(map(text_width, column)) for column in zip(titles, *cells, strict=True)]
    lines = [[Text("  " + GAP.join(_pad(*pair) for pair in zip(titles, widths, strict=True)), "dim")]]
    lines += [
        [Text(GAP + _pad(cell, size), STYLES.get(cell, "")) for cell, size in zip(row, widths, strict=True)]
        for row in cells
    ]
    return lines


def _pad(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def _short(text: object, most: int) -> str:
    line = one_line(text)
    return line if text_width(line) <= most else f"{_truncate(line, most - 1)}…"


def _cut(line: Line, width: int) -> Line:
    """A line without what is beyond the width."""
    cut: Line = []
    for text in line:
        plain = _truncate(text.plain, width)
        cut.append(Text(plain, text.style))
        width -= text_width(plain)
    return cut


def _truncate(text: str, width: int) -> str:
    text = text[: max(0, width)]
    while text_width(text) > max(0, width):
        text = text[:-1]
    return text
