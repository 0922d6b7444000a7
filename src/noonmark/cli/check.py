"""`noonmark check`: whether a schedule document is sound, and what it would do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from noonmark.cli import exits
from noonmark.cli.documents import read_document
from noonmark.cli.output import complain, print_json, printable
from noonmark.cli.summary import facts
from noonmark.cli.upcoming import Upcoming, look_ahead
from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidSchedule
from noonmark.core.schedule import parse_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from noonmark.core.errors import Problem
    from noonmark.core.schedule import Declaration

COUNT = 3


def check(
    file: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="A JSON file with one schedule document; - reads stdin.")
    ],
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.", show_default=False)] = False,
) -> int:
    """Check a schedule document, and say in words what it does."""
    if file.startswith("--"):
        raise InvalidSchedule(f"there is no such option: {file}")
    now = SystemClock().now().replace(microsecond=0)
    try:
        declaration = parse_schedule(read_document(file), now=now)
    except InvalidSchedule as error:
        _report(error.problems, file=file, as_json=as_json)
        return exits.INVALID
    upcoming = _look_ahead(declaration, now)
    if as_json:
        print_json({"valid": True, "problems": []} | upcoming.to_document())
        return 0
    from noonmark.cli.show import show_schedule  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_schedule(declaration.name or "The schedule", upcoming, {"Fires": upcoming.text} | facts(declaration), now=now)
    return 0


def _report(problems: Sequence[Problem], *, file: str, as_json: bool) -> None:
    if as_json:
        told = [{"field": each.field, "message": each.message, "code": each.code} for each in problems]
        print_json({"valid": False, "problems": told})
        return
    for each in problems:
        sys.stdout.write(printable(f"{each.field or 'document'}: {each.message} [{each.code}]") + "\n")
    sys.stdout.flush()
    complain([f"{file}: {len(problems)} {'problem' if len(problems) == 1 else 'problems'}"])


def _look_ahead(declaration: Declaration, now: datetime) -> Upcoming:
    if declaration.trigger is not None:
        return look_ahead(declaration.trigger, after=now, count=COUNT)
    upstreams = " and ".join(upstream.schedule_id for upstream in declaration.depends_on)
    return Upcoming(text=f"After {upstreams}", warnings=[], fires=[], after=now, count=0, zone="UTC")
