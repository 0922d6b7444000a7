"""`noonmark worker`, `noonmark node` and `noonmark audit`: the nodes of a cluster, and who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.options import Connection, Limit
from noonmark.cli.output import one_line, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present

if TYPE_CHECKING:
    from collections.abc import Mapping


def start_worker(*, connection: Connection = Connection()) -> None:
    """Start the worker of the server."""
    _call_worker(connection, "worker/start")


def stop_worker(*, connection: Connection = Connection()) -> None:
    """Stop the worker of the server; other nodes continue."""
    _call_worker(connection, "worker/stop")


def confirm_time(*, connection: Connection = Connection()) -> None:
    """Confirm that the time of the server's store is right, although it jumped ahead."""
    _call_worker(connection, "worker/confirm-time")


def worker_status(*, connection: Connection = Connection()) -> None:
    """Show whether the worker of the server is running."""
    _call_worker(connection, "worker/status")


def _call_worker(connection: Connection, operation: str) -> None:
    with connect(connection) as remote:
        answer = remote.call(operation, {})
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.console import facts_table, open_console

    facts = {name.replace("_", " "): _fact(value) for name, value in answer["worker_status"].items()}
    with open_console() as console:
        console.print(_sentence(answer["worker_status"]))
        console.print(facts_table(facts))


def _sentence(status: Mapping[str, Any]) -> str:
    sentence = f"The worker is {one_line(status['state'])}"
    if status["state"] == "stopping" and status["delivering"]:
        sentence += f"; runs that are still active on this node: {status['delivering']}"
    return f"{sentence}."


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def list_nodes(*, connection: Connection = Connection()) -> None:
    """List the nodes seen within the last day."""
    with connect(connection) as remote:
        answer = remote.call("node/list", {})
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import show_nodes

    show_nodes(answer["nodes"])


def list_audit(
    *,
    schedule: Annotated[str | None, Parameter(show_default=False, help="Only changes of this schedule, by id.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List changes and who made them."""
    with connect(connection) as remote:
        answer = read_pages(remote, "audit/list", present(schedule_id=schedule), entries="entries", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_audit_entries

    show_audit_entries(answer["entries"], more_entries(answer, limit))
