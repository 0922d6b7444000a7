"""`noonmark doctor`: whether a store is sound, which of its rows are damaged, and what to do about them."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from noonmark.cli.exits import FAILED
from noonmark.cli.options import USUAL_PLACE, Where
from noonmark.cli.output import one_line, print_json
from noonmark.cli.remote import connected
from noonmark.core.documents import present


def doctor(
    *,
    rows: Annotated[
        int | None, Parameter(show_default=False, help="How many rows to look at; 100,000 unless given.")
    ] = None,
    place: Where = USUAL_PLACE,
) -> int:
    """Look whether a store is sound, row by row, and whether clocks agree; changes nothing."""
    with connected(place) as remote:
        answer = remote.call("doctor", present(rows=rows))
    if place.as_json:
        print_json(answer)
    else:
        for one in answer["checks"]:
            sys.stdout.write(f"{one['check']:<8}{one['status']:<9}{one_line(one['detail'])}\n")
        for one in answer["damaged_rows"]:
            where = one_line(f"{one['table']} {one['key']}, {one['column']}: {one['problem']}")
            sys.stdout.write(f"\n{where}\n    {one_line(one['advice'])}\n")
    return 0 if answer["status"] == "ok" else FAILED
