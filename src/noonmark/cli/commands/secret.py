"""`noonmark secret`: secrets for requests and programs. Values are read from stdin or a file and never printed."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Annotated

from noonmark.cli.inputs import read_bytes
from noonmark.cli.options import AsJson, Connection, Texts
from noonmark.cli.output import one_line, print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest
from noonmark.core.secret import MAX_VALUE, secret_name

Name = Annotated[str, Parameter(help="The name of the secret: letters, digits, -, _ and .")]


def set_secret(
    name: Name,
    /,
    *,
    host: Annotated[
        Texts,
        Parameter(
            help="A host that may receive it: api.example.com, api.example.com:8443, *.example.com; prefix http://"
            " for plain http; repeatable."
        ),
    ] = (),
    program: Annotated[
        Texts,
        Parameter(
            help="A program that may get it in its environment: the name or path that a command starts with, or"
            " bundle:NAME; repeatable."
        ),
    ] = (),
    value_file: Annotated[
        str | None, Parameter(show_default=False, help="A file with the value; default: standard input.")
    ] = None,
    value: Annotated[
        str | None,
        Parameter(
            show_default=False,
            allow_leading_hyphen=True,
            help="The value itself. Other users of this machine can see it, and your shell may record it.",
        ),
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Store a secret for headers of requests to the given hosts, or for given programs. Replaces the one of that name.

    The value is read from standard input; on a terminal it is not shown.
    """
    if not host and not program:
        message = "is required: a host that may receive it, such as api.example.com; or give --program"
        raise InvalidRequest(message, field="--host")
    if value is not None and value_file is not None:
        raise InvalidRequest("conflicts with --value: give one of them", field="--value-file")
    try:
        secret_name(name)
    except ValueError as error:  # before the prompt repeats the name, which may be the secret itself by mistake
        raise InvalidRequest(str(error), field="name") from None
    secret = _read_value(name, value_file) if value is None else value
    with connect(connection) as remote:
        bound = {"hosts": list(host)} | present(programs=list(program) or None)
        answer = remote.call("secret/set", {"name": name, "value": secret, **bound})
    sentence = f"Stored secret {answer['name']} for {', '.join([*answer['hosts'], *answer['programs']])}."
    print_answer(answer, sentence, as_json=connection.as_json)


def _read_value(name: str, value_file: str | None) -> str:
    """Read the value, without the end of its last line."""
    if value_file is None and sys.stdin.isatty():
        return getpass(f"Value of {one_line(name)}: ")
    field = "standard input" if value_file is None else "--value-file"
    text = read_bytes(value_file, MAX_VALUE + 3, field=field).decode("utf-8", errors="replace")
    return text.removesuffix("\n").removesuffix("\r")


def list_secrets(*, connection: Connection = Connection()) -> None:
    """List the names and hosts of secrets; values are never shown."""
    with connect(connection) as remote:
        answer = remote.call("secret/list", {})
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import show_secrets

    show_secrets(answer["secrets"])


def delete_secret(name: Name, /, *, connection: Connection = Connection()) -> None:
    """Delete a secret. Requests that need it are no longer sent, and say why."""
    with connect(connection) as remote:
        answer = remote.call("secret/delete", {"name": name})
    sentence = f"Deleted secret {answer['name']}; requests that need it are no longer sent."
    print_answer(answer, sentence, as_json=connection.as_json)


def generate_key(*, as_json: AsJson = False) -> None:
    """Generate a key for the setting secret_key. Anyone with the key and the store can read every secret."""
    from noonmark.secret_cipher import fresh_key

    key = fresh_key()
    print_answer({"secret_key": key}, key, as_json=as_json)


def signing_key(*, connection: Connection = Connection()) -> None:
    """Print the key that signs requests, for their receivers. Anyone with the key can sign requests.

    With --store, it is the key of a server with the settings found here.
    """
    with connect(connection) as remote:
        answer = remote.call("signing/key", {})
    if connection.as_json:
        print_json(answer)
    else:
        sys.stdout.write(f"{answer['signing_key']}\n")  # exactly as it is
