"""`noonmark preview` and `noonmark check`: what a trigger or a schedule document would do."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.inputs import parse_json, read_document
from noonmark.cli.local_zone import document_note, flag_zone, local_zone, machine_note
from noonmark.cli.options import AsJson, Connection
from noonmark.cli.output import EXIT_INVALID, print_errors, print_json, print_line, printable
from noonmark.cli.parameters import Parameter
from noonmark.cli.render.fires import Upcoming, preview_trigger
from noonmark.clocks import SystemClock
from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule, InvalidTrigger, Problem
from noonmark.core.instants import from_micros, parse_instant, to_micros
from noonmark.core.json_values import shown
from noonmark.core.policies.window import last_window_warning
from noonmark.core.triggers import parse_trigger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from noonmark.core.schedule import Declaration

MAX_COUNT = 1_000
CHECK_COUNT = 3
"""How many fires `noonmark check` shows."""


def preview(
    *expressions: Annotated[str, Parameter(help='Cron expressions, each in quotes: "30 2 * * *".')],
    timezone: Annotated[
        str | None, Parameter(help="IANA time zone of the expressions; default: this machine's.")
    ] = None,
    count: Annotated[int, Parameter(help=f"How many fires, 1 to {MAX_COUNT:,}.")] = 5,
    after: Annotated[str | None, Parameter(help="The start: 2026-10-24T00:00:00Z; default: now.")] = None,
    key: Annotated[str, Parameter(help="The key that H in an expression hashes.", show_default=False)] = "",
    trigger_json: Annotated[str | None, Parameter(help="A trigger document instead of expressions.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the next fires of cron expressions, or of any trigger."""
    if not 1 <= count <= MAX_COUNT:
        raise InvalidTrigger(f"must be from 1 to {MAX_COUNT:,}, not {shown(count)}", field="--count")
    now = SystemClock().now().replace(microsecond=0)
    start = now if after is None else _instant(after)
    document = _trigger_document(expressions, timezone, trigger_json)
    note = document_note(document) if trigger_json is not None else _machine_note(timezone)
    upcoming = preview_trigger(parse_trigger(document, now=now, key=key), after=start, count=count)
    _show_upcoming(upcoming, note, now=now, as_json=as_json)


def _show_upcoming(upcoming: Upcoming, note: str | None, *, now: datetime, as_json: bool) -> None:
    if as_json:
        print_json(upcoming.to_document() | present(timezone_note=note))
        return
    from noonmark.cli.render.fires import show_upcoming

    show_upcoming(upcoming, now=now)
    if note is not None:
        print_line(note)


def _machine_note(timezone: str | None) -> str | None:
    """Say which zone expressions without --timezone have."""
    return machine_note(local_zone()) if timezone is None else None


def _trigger_document(expressions: tuple[str, ...], timezone: str | None, trigger_json: str | None) -> object:
    if trigger_json is None:
        return _cron_document(expressions, timezone)
    if expressions:
        raise InvalidTrigger("conflicts with expressions: give one of them", field="--trigger-json")
    if timezone is not None:
        raise InvalidTrigger("belongs in the document of --trigger-json", field="--timezone")
    return parse_json(trigger_json, field="--trigger-json")


def _cron_document(expressions: tuple[str, ...], timezone: str | None) -> dict[str, object]:
    if not expressions:
        raise InvalidTrigger('give a cron expression in quotes, such as "30 2 * * *", or --trigger-json')
    if len(expressions) > 1 and not any(" " in text or text.startswith("@") for text in expressions):
        raise InvalidTrigger('put the expression in quotes, such as "30 2 * * *"; otherwise the shell splits it')
    document: dict[str, object] = {"type": "cron", "timezone": flag_zone() if timezone is None else timezone}
    return document | ({"expression": expressions[0]} if len(expressions) == 1 else {"crons": list(expressions)})


def _instant(text: str) -> datetime:
    try:
        return from_micros(parse_instant(text))
    except ValueError as error:
        raise InvalidTrigger(str(error), field="--after") from None


def check(
    file: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            show_default=False,
            help="A JSON file with one schedule document; - reads stdin.",
        ),
    ] = None,
    /,
    *,
    cron: Annotated[
        tuple[str, ...],
        Parameter(negative=(), show_default=False, help="A cron expression instead of a file, in quotes; repeatable."),
    ] = (),
    timezone: Annotated[
        str | None, Parameter(show_default=False, help="IANA time zone of the expressions; default: this machine's.")
    ] = None,
    server: Annotated[
        str | None,
        Parameter(show_default=False, help="Also ask this server, as create does."),
    ] = None,
    store: Annotated[
        str | None, Parameter(show_default=False, help="Ask this store instead: sqlite:///noonmark.db.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check a schedule document, or cron expressions, and describe it."""
    from noonmark.core.schedule import parse_schedule

    if file is not None and file.startswith("--"):
        raise InvalidSchedule(f"unknown option {file}")
    if (file is None) == (not cron):
        raise InvalidSchedule("give a file, or a cron expression with --cron")
    now = SystemClock().now().replace(microsecond=0)
    if file is None:
        trigger = parse_trigger(_cron_document(cron, timezone), now=now)
        upcoming = preview_trigger(trigger, after=now, count=CHECK_COUNT)
        _show_upcoming(upcoming, _machine_note(timezone), now=now, as_json=as_json)
        return 0
    if timezone is not None:
        raise InvalidSchedule("belongs in the document", field="--timezone")
    try:
        document = read_document(file)
        declaration = parse_schedule(document, now=now)
    except InvalidSchedule as error:
        _report(error.problems, file=file, as_json=as_json)
        return EXIT_INVALID
    upcoming = _upcoming(declaration, now)
    note = document_note(document.get("trigger"))
    if server is not None or store is not None:
        problems, warnings = _ask(document, Connection(server=server, store=store))
        if problems:
            _report(problems, file=file, as_json=as_json)
            return EXIT_INVALID
        upcoming = replace(upcoming, warnings=warnings)
    if as_json:
        print_json({"valid": True, "problems": []} | upcoming.to_document() | present(timezone_note=note))
        return 0
    from noonmark.cli.render.summary import show_valid_schedule

    show_valid_schedule(declaration, upcoming, now=now)
    if note is not None:
        print_line(note)
    return 0


def _ask(document: dict[str, Any], connection: Connection) -> tuple[list[Problem], list[str]]:
    """Why a server would refuse a schedule, and what may surprise about it there."""
    from noonmark.cli.remote import connect

    with connect(connection) as remote:
        [check] = remote.call("schedule/check", {"schedules": [document]})["checks"]
    return [Problem(one["field"], one["detail"], one["code"]) for one in check["problems"]], check["warnings"]


def _report(problems: Sequence[Problem], *, file: str, as_json: bool) -> None:
    if as_json:
        documents = [{"field": each.field, "message": each.message, "code": each.code} for each in problems]
        print_json({"valid": False, "problems": documents})
        return
    for problem in problems:
        sys.stdout.write(printable(f"{problem.field or 'document'}: {problem.message} [{problem.code}]") + "\n")
    sys.stdout.flush()
    print_errors([f"{file}: {len(problems)} {'problem' if len(problems) == 1 else 'problems'}"])


def _upcoming(declaration: Declaration, now: datetime) -> Upcoming:
    if declaration.trigger is not None:
        upcoming = preview_trigger(declaration.trigger, after=now, count=CHECK_COUNT)
        warning = last_window_warning(declaration.window, declaration.trigger, now=to_micros(now))
        return upcoming if warning is None else replace(upcoming, warnings=[*upcoming.warnings, warning])
    upstreams = " and ".join(upstream.schedule_id for upstream in declaration.depends_on)
    return Upcoming(text=f"After {upstreams}", warnings=[], fires=[], after=now, count=0, zone="UTC")
