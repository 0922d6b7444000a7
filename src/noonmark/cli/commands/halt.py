"""`noonmark halt` and `noonmark unhalt`: stop everything at once, and go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from noonmark.cli.inputs import parse_pair
from noonmark.cli.options import Connection, Text, Texts
from noonmark.cli.output import print_answer, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect
from noonmark.cli.render.top import halt_sentence
from noonmark.core.documents import present

if TYPE_CHECKING:
    from collections.abc import Sequence

Labels = Annotated[Texts, Parameter(help="Only schedules with this label, as name=value; repeatable.")]
Lineage = Annotated[Text, Parameter(help="Only this session or schedule, and what it made, directly or not, as an id.")]
Tenant = Annotated[Text, Parameter(help="The tenant; another one than yours needs a key of tenant '*', or --store.")]
Reason = Annotated[Text, Parameter(help="The reason, for the audit log and the occurrences.")]


def halt(
    *,
    tenant: Tenant = None,
    label: Labels = (),
    lineage: Lineage = None,
    reason: Reason = None,
    list_: Annotated[
        bool, Parameter(name="--list", negative=(), show_default=False, help="Only list the halts.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Halt all schedules of the tenant, or those with some labels or a lineage.

    Nothing starts, and running occurrences are cancelled.

    It applies on every node, and to schedules created later, until `noonmark unhalt`.
    """
    with connect(_of_tenant(connection, tenant)) as remote:
        if list_:
            answer = remote.call("halt/list", {})
        else:
            answer = remote.call("halt/set", present(labels=_labels(label), lineage=lineage, reason=reason))
    if connection.as_json:
        print_json(answer)
    elif list_:
        for line in [halt_sentence(one) for one in answer["halts"]] or ["Nothing is halted."]:
            print_line(line)
    else:
        count = answer["stopped"]
        stopped = f"{count} running {'occurrence is' if count == 1 else 'occurrences are'} asked to stop"
        print_answer(answer, f"{halt_sentence(answer)} {stopped}.", as_json=False)


def unhalt(
    halt_id: Annotated[
        Text, Parameter(help="The halt; default: those of exactly these labels or this lineage.")
    ] = None,
    /,
    *,
    tenant: Tenant = None,
    label: Labels = (),
    lineage: Lineage = None,
    reason: Reason = None,
    connection: Connection = Connection(),
) -> None:
    """Lift a halt. Skipped fires stay skipped."""
    with connect(_of_tenant(connection, tenant)) as remote:
        named = present(halt_id=halt_id, labels=_labels(label), lineage=lineage)
        answer = remote.call("halt/lift", named | present(reason=reason))
    lifted = ", ".join(one["halt_id"] for one in answer["lifted"])
    print_answer(answer, f"Lifted {lifted}.", as_json=connection.as_json)


def _of_tenant(connection: Connection, tenant: str | None) -> Connection:
    return connection if tenant is None else replace(connection, as_tenant=tenant)


def _labels(pairs: Sequence[str]) -> dict[str, str] | None:
    return dict(parse_pair(pair, "=", "--label") for pair in pairs) or None
