"""`noonmark usage`: what models were used for, what it cost, and what schedules will cost this month."""

from __future__ import annotations

from typing import Annotated

from noonmark.cli.inputs import parse_past
from noonmark.cli.options import Connection, Limit, Text
from noonmark.cli.output import print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect
from noonmark.core.documents import present


def report(  # noqa: PLR0913 - one argument per option
    *,
    by: Annotated[str, Parameter(help="user, schedule, session, model or day.")] = "user",
    since: Annotated[
        Text, Parameter(help="From this instant on, or back from now: 7d; default: this month, in UTC.")
    ] = None,
    until: Annotated[Text, Parameter(help="Before this instant, or back from now; default: now.")] = None,
    user: Annotated[Text, Parameter(help="Only of this user.")] = None,
    schedule: Annotated[Text, Parameter(help="Only of this schedule.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """Report usage and its cost, the most expensive first. `noonmark usage` does the same."""
    arguments = present(
        by=by,
        to=parse_past(until, "--until"),
        user=user,
        schedule_id=schedule,
        limit=limit,
        **{"from": parse_past(since, "--since")},
    )
    with connect(connection) as remote:
        answer = remote.call("usage/report", arguments)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.usage import show_usage

    show_usage(answer)


def forecast(
    schedule_id: Annotated[str | None, Parameter(help="The schedule; default: all with usage lately.")] = None,
    /,
    *,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """Forecast what schedules will cost this month, from their last runs and the fires that are left."""
    with connect(connection) as remote:
        answer = remote.call("usage/forecast", present(schedule_id=schedule_id, limit=limit))
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.usage import show_forecast

    show_forecast(answer)
