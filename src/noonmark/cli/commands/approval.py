"""`noonmark approval`: list, approve and deny what steps of workflows, and occurrences beyond a budget, wait for."""

from __future__ import annotations

from typing import Annotated

from noonmark.cli.options import Connection, Limit, Text
from noonmark.cli.output import print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present

ApprovalId = Annotated[str, Parameter(help="The id of the approval.")]
Comment = Annotated[Text, Parameter(help="A comment, stored with the decision.")]


def list_approvals(
    *,
    state: Annotated[Text, Parameter(help="pending, approved, denied, expired or cancelled; default: pending.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List approvals, by default those that are pending."""
    with connect(connection) as remote:
        answer = read_pages(remote, "approval/list", present(state=state), entries="approvals", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries
    from noonmark.cli.render.workflows import show_approvals

    show_approvals(answer["approvals"], more_entries(answer, limit))


def approve(approval_id: ApprovalId, /, *, comment: Comment = None, connection: Connection = Connection()) -> None:
    """Approve: the occurrence starts, or the step completes and what depends on it starts."""
    _decide("approve", "Approved", approval_id, comment, connection)


def deny(approval_id: ApprovalId, /, *, comment: Comment = None, connection: Connection = Connection()) -> None:
    """Deny: the occurrence is skipped, or the step fails."""
    _decide("deny", "Denied", approval_id, comment, connection)


def _decide(verb: str, word: str, approval_id: str, comment: str | None, connection: Connection) -> None:
    with connect(connection) as remote:
        answer = remote.call(f"approval/{verb}", present(approval_id=approval_id, comment=comment))
    of = answer["schedule_name"] or answer["schedule_id"] or answer["workflow_id"]
    what = f"occurrence {answer['occurrence_id']}" + ("" if of is None else f" of {of}")
    if answer["step_id"] is not None:
        what = f"step {answer['step_id']} of {answer['workflow_run_id']}"
    sentence = f"{word} {what}."
    print_answer(answer, sentence, as_json=connection.as_json)
