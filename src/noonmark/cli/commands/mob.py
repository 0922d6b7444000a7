"""`noonmark mob`: create, show and delete mobs."""

from __future__ import annotations

from typing import Annotated

from noonmark.cli.options import Connection, Limit, Reason
from noonmark.cli.output import print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.cli.schedule_files import read_one
from noonmark.core.documents import present

MobId = Annotated[str, Parameter(help="The id of the mob.")]


def create(
    file: Annotated[str, Parameter(help="A .yaml, .json or .toml file with a mob, or - for standard input.")],
    /,
    *,
    connection: Connection = Connection(),
) -> None:
    """Create a mob from a file: its id, its members and its flows. Each member gets a session."""
    document = read_one(file, "a mob")
    with connect(connection) as remote:
        answer = remote.call("mob/create", document)
    names = ", ".join(member["member_id"] for member in answer["members"])
    print_answer(answer, f"Created mob {answer['mob_id']} with {names}.", as_json=connection.as_json)


def list_mobs(*, limit: Limit = 100, connection: Connection = Connection()) -> None:
    """List mobs by id."""
    with connect(connection) as remote:
        answer = read_pages(remote, "mob/list", {}, entries="mobs", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.sessions import show_mobs
    from noonmark.cli.render.tables import more_entries

    show_mobs(answer["mobs"], more_entries(answer, limit))


def show(mob_id: MobId, /, *, connection: Connection = Connection()) -> None:
    """Show a mob: its members and its flows."""
    with connect(connection) as remote:
        mob = remote.call("mob/get", {"mob_id": mob_id})
    if connection.as_json:
        print_json(mob)
        return
    from noonmark.cli.render.sessions import show_mob

    show_mob(mob)


def delete(mob_id: MobId, /, *, reason: Reason = None, connection: Connection = Connection()) -> None:
    """Delete a mob, unless schedules name it. The sessions of its members are archived."""
    with connect(connection) as remote:
        answer = remote.call("mob/delete", present(mob_id=mob_id, reason=reason))
    print_answer(answer, f"Deleted mob {answer['mob_id']}.", as_json=connection.as_json)
