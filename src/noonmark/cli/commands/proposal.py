"""`noonmark schedule proposals`, `approve` and `deny`: decide what agents and others propose for schedules."""

from __future__ import annotations

from typing import Annotated

from noonmark.cli.options import Connection, Limit, ScheduleId, Text
from noonmark.cli.output import display_name, print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present

Comment = Annotated[Text, Parameter(help="A comment, recorded in the audit log.")]


def list_proposals(
    schedule_id: Annotated[Text, Parameter(help="Show the proposal for this schedule, field by field.")] = None,
    /,
    *,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List pending proposals, or show one with a diff."""
    with connect(connection) as remote:
        if schedule_id is not None:
            answer = remote.call("schedule/proposal", {"schedule_id": schedule_id})
        else:
            answer = read_pages(remote, "schedule/proposals", {}, entries="proposals", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.proposals import show_proposal, show_proposals
    from noonmark.cli.render.tables import more_entries

    if schedule_id is None:
        show_proposals(answer["proposals"], more_entries(answer, limit))
    else:
        show_proposal(answer)


def approve(schedule_id: ScheduleId, /, *, comment: Comment = None, connection: Connection = Connection()) -> None:
    """Approve a proposal: it takes effect now, and the schedule is planned."""
    _decide("approve", "Approved", schedule_id, comment, connection)


def deny(schedule_id: ScheduleId, /, *, comment: Comment = None, connection: Connection = Connection()) -> None:
    """Deny a proposal: a proposed schedule is deleted, any other stays unchanged."""
    _decide("deny", "Denied", schedule_id, comment, connection)


def _decide(verb: str, word: str, schedule_id: str, comment: str | None, connection: Connection) -> None:
    with connect(connection) as remote:
        answer = remote.call(f"schedule/{verb}", present(schedule_id=schedule_id, comment=comment))
    sentence = f"{word} the proposal for {display_name(answer)}; it is {answer['phase']}."
    print_answer(answer, sentence, as_json=connection.as_json)
