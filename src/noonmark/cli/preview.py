"""`noonmark preview`: when a trigger fires next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from noonmark.cli.documents import parse_json
from noonmark.cli.output import print_json
from noonmark.cli.upcoming import look_ahead
from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidTrigger
from noonmark.core.instants import from_micros, parse_instant
from noonmark.core.json_values import shown
from noonmark.core.triggers import parse_trigger

if TYPE_CHECKING:
    from datetime import datetime

MAX_COUNT = 1_000


def preview(
    *expressions: Annotated[str, Parameter(help='Cron expressions, each in quotes: "30 2 * * *".')],
    timezone: Annotated[str | None, Parameter(help="IANA zone of the expressions; UTC unless given.")] = None,
    count: Annotated[int, Parameter(help=f"How many fires, 1 to {MAX_COUNT:,}.")] = 5,
    after: Annotated[str | None, Parameter(help="Where to start: 2026-10-24T00:00:00Z; now unless given.")] = None,
    key: Annotated[str, Parameter(help="What H in an expression hashes.", show_default=False)] = "",
    trigger_json: Annotated[str | None, Parameter(help="A trigger document, instead of expressions.")] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.", show_default=False)] = False,
) -> None:
    """Show the next fires of cron expressions, or of any trigger."""
    if not 1 <= count <= MAX_COUNT:
        raise InvalidTrigger(f"must be from 1 to {MAX_COUNT:,}, not {shown(count)}", field="--count")
    now = SystemClock().now().replace(microsecond=0)
    start = now if after is None else _instant(after)
    trigger = parse_trigger(_document(expressions, timezone, trigger_json), now=now, key=key)
    upcoming = look_ahead(trigger, after=start, count=count)
    if as_json:
        print_json(upcoming.to_document())
        return
    from noonmark.cli.show import show_upcoming  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_upcoming(upcoming, now=now)


def _document(expressions: tuple[str, ...], timezone: str | None, trigger_json: str | None) -> object:
    if trigger_json is None:
        return _cron_document(expressions, timezone)
    if expressions:
        raise InvalidTrigger("give either expressions or a document, not both", field="--trigger-json")
    if timezone is not None:
        raise InvalidTrigger("belongs inside the document of --trigger-json", field="--timezone")
    return parse_json(trigger_json, field="--trigger-json")


def _cron_document(expressions: tuple[str, ...], timezone: str | None) -> dict[str, object]:
    if not expressions:
        raise InvalidTrigger('give a cron expression in quotes, such as "30 2 * * *", or --trigger-json')
    if len(expressions) > 1 and not any(" " in text or text.startswith("@") for text in expressions):
        raise InvalidTrigger('put the expression in quotes, such as "30 2 * * *", or the shell takes it apart')
    document: dict[str, object] = {"type": "cron", "timezone": timezone}
    return document | ({"expression": expressions[0]} if len(expressions) == 1 else {"crons": list(expressions)})


def _instant(text: str) -> datetime:
    try:
        return from_micros(parse_instant(text))
    except ValueError as error:
        raise InvalidTrigger(str(error), field="--after") from None
