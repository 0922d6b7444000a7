"""`noonmark backfill`: list, show, pause, resume and cancel backfills."""

from __future__ import annotations

from typing import Annotated, Any

from noonmark.cli.options import Connection, Reason, ScheduleId
from noonmark.cli.output import print_answer, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect
from noonmark.core.documents import present

BackfillId = Annotated[str, Parameter(help="The id of the backfill.")]


def list_backfills(schedule_id: ScheduleId, /, *, connection: Connection = Connection()) -> None:
    """List the backfills of a schedule, the last one requested first."""
    with connect(connection) as remote:
        answer = remote.call("backfill/list", {"schedule_id": schedule_id})
    if connection.as_json:
        print_json(answer)
        return
    for backfill in answer["backfills"]:
        print_line(_summary(backfill))
    if not answer["backfills"]:
        print_line("No backfills.")


def show(schedule_id: ScheduleId, backfill_id: BackfillId, /, *, connection: Connection = Connection()) -> None:
    """Show a backfill and its progress."""
    _call(connection, "backfill/get", {"schedule_id": schedule_id, "backfill_id": backfill_id})


def pause(
    schedule_id: ScheduleId, backfill_id: BackfillId, /, *, reason: Reason = None, connection: Connection = Connection()
) -> None:
    """Pause a backfill: what runs is finished, and nothing more of it starts until it is resumed."""
    _call(connection, "backfill/pause", present(schedule_id=schedule_id, backfill_id=backfill_id, reason=reason))


def resume(
    schedule_id: ScheduleId, backfill_id: BackfillId, /, *, reason: Reason = None, connection: Connection = Connection()
) -> None:
    """Resume a paused backfill."""
    _call(connection, "backfill/resume", present(schedule_id=schedule_id, backfill_id=backfill_id, reason=reason))


def cancel(
    schedule_id: ScheduleId, backfill_id: BackfillId, /, *, reason: Reason = None, connection: Connection = Connection()
) -> None:
    """Cancel a backfill: what waits never runs, and what runs is asked to stop."""
    _call(connection, "backfill/cancel", present(schedule_id=schedule_id, backfill_id=backfill_id, reason=reason))


def _call(connection: Connection, operation: str, arguments: dict[str, Any]) -> None:
    with connect(connection) as remote:
        answer = remote.call(operation, arguments)
    print_answer(answer, _summary(answer), as_json=connection.as_json)


def _summary(document: dict[str, Any]) -> str:
    phases = ", ".join(f"{count:,} {phase}" for phase, count in document["phases"].items())
    times = f"{document['from_utc']} to {document['to_utc']}"
    ended = f"{document['ended']:,} of {document['count']:,} ended"
    return f"Backfill {document['backfill_id']} is {document['phase']}: {times}, {ended} ({phases})."
