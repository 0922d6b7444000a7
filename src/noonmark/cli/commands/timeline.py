"""`noonmark timeline` and `noonmark overview`: past and future on one axis, and the numbers of the day."""

from __future__ import annotations

import shutil
from typing import Annotated

from noonmark.cli.commands.schedule import schedule_filter
from noonmark.cli.inputs import parse_future, parse_past
from noonmark.cli.local_zone import local_zone
from noonmark.cli.options import Connection, Limit, ScheduleId, Text, Texts
from noonmark.cli.output import print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present

MIN_CELLS, MAX_CELLS = 24, 240
"""How many cells the axis has."""
LABELS = 24
"""The columns that the names take."""


def timeline(  # noqa: PLR0913 - one argument per option
    schedule_id: Annotated[
        str | None, Parameter(help="The schedule; default: those with something to look at.")
    ] = None,
    /,
    *,
    since: Annotated[Text, Parameter(help="From this instant on, or back from now: 1d; default: 6h.")] = None,
    until: Annotated[Text, Parameter(help="Before this instant, or ahead of now: 1d; default: 6h.")] = None,
    together: Annotated[
        bool, Parameter(name="--all", negative=(), show_default=False, help="One row for all schedules.")
    ] = False,
    kind: Annotated[Text, Parameter(help="periodic, delayed or event; or a type of trigger, such as cron.")] = None,
    status: Annotated[Text, Parameter(help="In this phase: active, paused, completed or deleted.")] = None,
    label: Annotated[Texts, Parameter(help="With this label, as name=value; repeatable.")] = (),
    text: Annotated[Text, Parameter(help="With this text in the name, description or id.")] = None,
    limit: Annotated[int, Parameter(help="The maximum number of rows, up to 100.")] = 20,
    connection: Connection = Connection(),
) -> None:
    """Show past, running and planned occurrences on one axis with a line at now.

    A cell stands for a stretch of time, and has the mark of what needs attention most in it.
    """
    cells = min(MAX_CELLS, max(MIN_CELLS, shutil.get_terminal_size().columns - LABELS - 2))
    arguments = schedule_filter(status, label) | present(
        schedule_id=schedule_id,
        by="all" if together else None,
        kind=kind,
        text=text,
        to=parse_future(until, "--until"),
        limit=limit,
        **{"from": parse_past(since, "--since")},
    )
    if not connection.as_json:
        arguments |= {"max_marks": 0, "buckets": cells}
    with connect(connection) as remote:
        answer = remote.call("timeline", arguments)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.timeline import show_timeline

    show_timeline(answer, labels=LABELS)


def list_revisions(schedule_id: ScheduleId, /, *, limit: Limit = 20, connection: Connection = Connection()) -> None:
    """List the changes of a schedule, newest first: who made each, when, and what it changed."""
    arguments = {"schedule_id": schedule_id}
    with connect(connection) as remote:
        answer = read_pages(remote, "schedule/revisions", arguments, entries="revisions", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries
    from noonmark.cli.render.timeline import show_revisions

    show_revisions(answer["revisions"], more_entries(answer, limit))


def trends(
    schedule_id: ScheduleId,
    /,
    *,
    since: Annotated[Text, Parameter(help="From this instant on, or back from now: 90d; default: 30 units.")] = None,
    until: Annotated[Text, Parameter(help="Before this instant, or back from now; default: now.")] = None,
    unit: Annotated[str, Parameter(help="hour, day, week or month.")] = "day",
    timezone: Annotated[Text, Parameter(help="A time zone; default: that of the trigger, or else UTC.")] = None,
    connection: Connection = Connection(),
) -> None:
    """Show the outcomes of a schedule in each local hour, day, week or month, with durations and cost."""
    arguments = present(
        schedule_id=schedule_id,
        to=parse_past(until, "--until"),
        unit=unit,
        timezone=timezone,
        **{"from": parse_past(since, "--since")},
    )
    with connect(connection) as remote:
        answer = remote.call("schedule/trends", arguments)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.timeline import show_trends

    show_trends(answer)


def overview(
    *,
    timezone: Annotated[
        Text, Parameter(help="The time zone in which the day begins; default: that of this machine.")
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Show today's figures, and what needs attention."""
    with connect(connection) as remote:
        answer = remote.call("overview", {"timezone": timezone or local_zone()})
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.timeline import show_overview

    show_overview(answer)
