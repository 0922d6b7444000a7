"""`noonmark call`: any operation by its name, for what no other command does."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from cyclopts import Parameter

from noonmark.cli.documents import parse_json
from noonmark.cli.options import USUAL_PLACE, Where
from noonmark.cli.output import print_json
from noonmark.cli.remote import connected
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown


def call(
    operation: Annotated[str, Parameter(help="Its name, such as occurrence/cancel.")],
    /,
    *,
    arguments_json: Annotated[
        str | None, Parameter(show_default=False, help="Its arguments by name, as a JSON object.")
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Do any operation by its name, and print its answer."""
    arguments = {} if arguments_json is None else parse_json(arguments_json, field="--arguments-json")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"must be an object, not {shown(arguments)}", field="--arguments-json")
    with connected(place) as remote:
        answer = remote.call(operation, arguments)
    if place.as_json:
        print_json(answer)
    else:
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
