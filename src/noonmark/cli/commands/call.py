"""`noonmark call`: any operation by name, for what no other command does."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from noonmark.cli.inputs import parse_json
from noonmark.cli.options import Connection
from noonmark.cli.output import print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown


def call(
    operation: Annotated[str, Parameter(help="The name of the operation, such as occurrence/cancel.")],
    /,
    *,
    arguments_json: Annotated[
        str | None, Parameter(show_default=False, help="The arguments by name, as a JSON object.")
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Call any operation by name and print its answer."""
    arguments = {} if arguments_json is None else parse_json(arguments_json, field="--arguments-json")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"must be an object, not {shown(arguments)}", field="--arguments-json")
    with connect(connection) as remote:
        answer = remote.call(operation, arguments)
    if connection.as_json:
        print_json(answer)
    else:
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
