"""`noonmark budget`: what users, schedules, sessions and the tenant may spend."""

from __future__ import annotations

import math
from typing import Annotated

from noonmark.cli.options import Connection, Limit, Number, Text
from noonmark.cli.output import print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown

Scope = Annotated[str, Parameter(help="tenant, user, schedule or session.")]
OwnerId = Annotated[
    str, Parameter(help="The id of the schedule or the session, or the name of the user or the tenant.")
]


def set_budget(  # noqa: PLR0913 - one argument per option
    scope: Scope,
    id_: OwnerId,
    /,
    *,
    max_cost: Annotated[Text, Parameter(help="Dollars that may be spent: 25 or 0.5.")] = None,
    max_tokens: Annotated[Number, Parameter(help="Tokens that may be used.")] = None,
    period: Annotated[str, Parameter(help="day or month, those of UTC, or total.")] = "month",
    soft: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Only warn; by default nothing goes beyond it.")
    ] = False,
    require_approval: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Beyond it, a run waits until somebody approves it."),
    ] = False,
    warn_at: Annotated[Text, Parameter(help="The share at which a warning is emitted; default: 0.8.")] = None,
    when_exhausted: Annotated[
        Text, Parameter(help="skip, pause or pause_until_next_period; default: skip the occurrence.")
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Set what a user, a schedule, a session or the tenant may spend in a period. To top it up, set it higher."""
    arguments = present(
        scope=scope,
        id=id_,
        period=period,
        max_cost_usd=_number(max_cost, "--max-cost"),
        max_tokens=max_tokens,
        hard=False if soft else None,
        require_approval=require_approval or None,
        warning_threshold=_number(warn_at, "--warn-at"),
        when_exhausted=when_exhausted,
    )
    with connect(connection) as remote:
        answer = remote.call("budget/set", arguments)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.usage import budget_sentence

    print_answer(answer, f"Set the budget of {budget_sentence(answer)}.", as_json=False)


def _number(text: str | None, field: str) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRequest(f"must be a number such as 0.5, not {shown(text)}", field=field)
    return number


def list_budgets(
    *,
    scope: Annotated[Text, Parameter(help="Only of this scope: tenant, user, schedule or session.")] = None,
    id_: Annotated[Text, Parameter(name="--id", help="Only of this user, schedule, session or tenant.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List budgets, with bars of their spend."""
    with connect(connection) as remote:
        answer = read_pages(remote, "budget/list", present(scope=scope, id=id_), entries="budgets", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries
    from noonmark.cli.render.usage import show_budgets

    show_budgets(answer["budgets"], more_entries(answer, limit))


def delete_budget(
    scope: Scope,
    id_: OwnerId,
    /,
    *,
    period: Annotated[Text, Parameter(help="day, month or total; default: all of them.")] = None,
    connection: Connection = Connection(),
) -> None:
    """Delete a budget; its spend stays in the reports."""
    with connect(connection) as remote:
        answer = remote.call("budget/delete", present(scope=scope, id=id_, period=period))
    periods = " and ".join(one["period"] for one in answer["deleted"])
    sentence = f"Deleted the budget of {scope} {id_}: {periods}."
    print_answer(answer, sentence, as_json=connection.as_json)
