"""Commands for secrets: a value is read from standard input or a file, and is never printed; only keys are."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from noonmark.cli.options import USUAL_PLACE, Place, Texts, Where
from noonmark.cli.output import one_line, print_json
from noonmark.cli.remote import connected
from noonmark.core.errors import InvalidRequest, NoonmarkError, NotFound
from noonmark.core.secret import MAX_VALUE, secret_name

Name = Annotated[str, Parameter(help="What headers call it: letters, digits, -, _ and .")]


def set_secret(
    name: Name,
    /,
    *,
    host: Annotated[
        Texts,
        Parameter(
            help="A host that may see it: api.example.com, api.example.com:8443, *.example.com; with http:// before it"
            " over plain http; repeatable."
        ),
    ] = (),
    value_file: Annotated[
        str | None, Parameter(show_default=False, help="The file with its value; standard input unless given.")
    ] = None,
    value: Annotated[
        str | None,
        Parameter(
            show_default=False,
            allow_leading_hyphen=True,
            help="The value itself. Others on this machine can see it here, and your shell may keep it.",
        ),
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Keep a secret that requests to some hosts may carry in a header; one of that name gets the new value and hosts.

    The value is read from standard input, on a terminal without showing it.
    """
    if not host:
        raise InvalidRequest("is required: a host that may see it, such as api.example.com", field="--host")
    if value is not None and value_file is not None:
        raise InvalidRequest("cannot stand beside --value: give one of them", field="--value-file")
    try:
        secret_name(name)
    except ValueError as error:  # before it is repeated by a prompt: somebody may have put the secret itself there
        raise InvalidRequest(str(error), field="name") from None
    found = _read_value(name, value_file) if value is None else value
    with connected(place) as remote:
        answer = remote.call("secret/set", {"name": name, "value": found, "hosts": list(host)})
    _tell(place, answer, f"Sealed {answer['name']} for {', '.join(answer['hosts'])}.")


def _read_value(name: str, value_file: str | None) -> str:
    """What is secret; the end of its last line does not belong to it."""
    if value_file is None and sys.stdin.isatty():
        return getpass(f"Value of {one_line(name)}: ")
    try:
        if value_file is None:
            raw = sys.stdin.buffer.read(MAX_VALUE + 3)
        else:
            with Path(value_file).open("rb") as file:
                raw = file.read(MAX_VALUE + 3)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("there is no such file", field="--value-file") from None
    except OSError as error:
        raise NoonmarkError(
            f"cannot be read: {error.strerror}", field="standard input" if value_file is None else "--value-file"
        ) from None
    text = raw.decode("utf-8", errors="replace")
    return text.removesuffix("\n").removesuffix("\r")


def list_secrets(*, place: Where = USUAL_PLACE) -> None:
    """List the secrets: their names, their hosts, and never their values."""
    with connected(place) as remote:
        answer = remote.call("secret/list", {})
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.tables import show_secrets  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_secrets(answer["secrets"])


def delete_secret(name: Name, /, *, place: Where = USUAL_PLACE) -> None:
    """Forget a secret; requests that need it are not sent from then on, and say why."""
    with connected(place) as remote:
        answer = remote.call("secret/delete", {"name": name})
    _tell(place, answer, f"Deleted {answer['name']}; requests that need it are not sent any more.")


def fresh_key(
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), show_default=False, help="Print JSON.")] = False,
) -> None:
    """Print a fresh key for the setting secret_key. Whoever has it, and the store, can read every secret."""
    from noonmark.secret_cipher import fresh_key as make_key  # noqa: PLC0415 - the other commands need no keys

    made = make_key()
    if as_json:
        print_json({"secret_key": made})
    else:
        sys.stdout.write(made + "\n")


def signing_key(*, place: Where = USUAL_PLACE) -> None:
    """Print the key that requests are signed with, for those who receive them. Whoever has it can sign as well.

    With --store it is the one that a server with the settings of this place would sign with.
    """
    with connected(place) as remote:
        answer = remote.call("signing/key", {})
    if place.as_json:
        print_json(answer)
    else:
        sys.stdout.write(f"{answer['signing_key']}\n")


def _tell(place: Place, answer: dict[str, object], sentence: str) -> None:
    if place.as_json:
        print_json(answer)
    else:
        sys.stdout.write(one_line(sentence) + "\n")
