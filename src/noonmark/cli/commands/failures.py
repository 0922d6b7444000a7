"""`noonmark failures` and `noonmark run redrive`: what went wrong across schedules, and how to run it again."""

from __future__ import annotations

from typing import Annotated, Any

from noonmark.cli.commands.schedule import schedule_filter
from noonmark.cli.inputs import parse_past
from noonmark.cli.options import Connection, Limit, OccurrenceSelection, Reason
from noonmark.cli.output import EXIT_FAILED, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest
from noonmark.core.lifecycle import FAILURES


def filters(selection: OccurrenceSelection) -> dict[str, Any]:
    """The filters of an operation."""
    return schedule_filter(None, selection.label) | present(
        phase=list(selection.phase) or None,
        reason=list(selection.why) or None,
        schedule_id=selection.schedule,
        since=parse_past(selection.since, "--since"),
        until=parse_past(selection.until, "--until"),
    )


def failures(
    *, selection: OccurrenceSelection = OccurrenceSelection(), limit: Limit = 100, connection: Connection = Connection()
) -> None:
    """List what failed or was missed, across schedules, latest end first.

    See one with noonmark schedule explain OCCURRENCE, and run it again with noonmark run redrive OCCURRENCE.
    """
    arguments = {"phase": sorted(FAILURES), **filters(selection)}
    with connect(connection) as remote:
        answer = read_pages(remote, "occurrence/list", arguments, entries="occurrences", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_failures  # noqa: PLC0415 - not for --json

    show_failures(answer["occurrences"], more_entries(answer, limit))


def redrive(
    *occurrence_ids: Annotated[str, Parameter(name="OCCURRENCE-ID", help="The ids of ended occurrences.")],
    selection: OccurrenceSelection = OccurrenceSelection(),
    limit: Annotated[int, Parameter(help="Refuse a selection of more occurrences, up to 10,000.")] = 1_000,
    dry_run: Annotated[bool, Parameter(negative=(), show_default=False, help="Only show what would run.")] = False,
    comment: Reason = None,
    connection: Connection = Connection(),
) -> int:
    """Run occurrences again that failed or were missed: by id, or all that a selection finds.

    Each runs again once, as a new occurrence with the same nominal time and payload.
    """
    arguments = filters(selection)
    if bool(occurrence_ids) == bool(arguments):
        raise InvalidRequest("give the ids of occurrences, or a selection such as --since 1d")
    asked = [{"occurrence_id": one} for one in occurrence_ids] or [arguments | {"limit": limit}]
    with connect(connection) as remote:
        more = present(dry_run=dry_run or None, comment=comment)
        answers = [remote.call("occurrence/redrive", one | more) for one in asked]
    answer = {
        "count": sum(one["count"] for one in answers),
        "occurrences": [row for one in answers for row in one["occurrences"]],
        "refused": [row for one in answers for row in one["refused"]],
    }
    if connection.as_json:
        print_json(answers[0] if len(answers) == 1 else answer)
    else:
        _show_redrive(answer, dry_run=dry_run)
    return EXIT_FAILED if answer["refused"] and not answer["count"] else 0


def _show_redrive(answer: dict[str, Any], *, dry_run: bool) -> None:
    from noonmark.cli.render.tables import show_failures  # noqa: PLC0415 - not for --json

    show_failures(answer["occurrences"], " would run again" if dry_run else " to run again")
    for refused in answer["refused"]:
        print_line(f"{refused['occurrence_id']} does not run again: {refused['problem']}.")
