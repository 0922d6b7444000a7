"""`noonmark key`, `noonmark login` and `noonmark whoami`: API keys. A new key is printed once."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

from noonmark.cli.credentials import read_key, remove_key, store_key
from noonmark.cli.inputs import parse_duration
from noonmark.cli.options import Connection, OldestLimit, Reason
from noonmark.cli.output import print_answer, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import DEFAULT_SERVER, SERVER_VARIABLE, connect, read_pages
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest

KeyId = Annotated[str, Parameter(help="The id of the key: its public beginning, such as nm_live_ab12cd.")]
Expires = Annotated[
    str | None, Parameter(show_default=False, help="How long the key is valid: 90d, 12h; default: without end.")
]


def create_key(  # noqa: PLR0913 - as the operation
    *,
    scopes: Annotated[
        str, Parameter(help="read, write, run, propose and admin, with commas between; admin includes all.")
    ],
    tenant: Annotated[
        str | None, Parameter(show_default=False, help="The tenant; '*' is all of them. Default: default.")
    ] = None,
    user: Annotated[
        str | None, Parameter(show_default=False, help="The owner of what is made with the key; default: local.")
    ] = None,
    name: Annotated[str | None, Parameter(show_default=False, help="What the key is for.")] = None,
    expires: Expires = None,
    agent: Annotated[
        bool, Parameter(negative=(), show_default=False, help="A program that decides by itself uses it.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Create an API key and print it; it is not shown again.

    The first key is made with --store, --tenant '*' and --scopes admin. From then on every call needs a key.
    """
    request = present(scopes=scopes, tenant=tenant, user=user, name=name, agent=agent or None)
    with connect(connection) as remote:
        answer = remote.call("key/create", request | _lifetime(expires))
    _print_new(answer, connection)


def list_keys(
    *,
    tenant: Annotated[str | None, Parameter(show_default=False, help="Only keys of this tenant.")] = None,
    limit: OldestLimit = 1_000,
    connection: Connection = Connection(),
) -> None:
    """List API keys, without the keys themselves."""
    with connect(connection) as remote:
        answer = read_pages(remote, "key/list", present(tenant=tenant), entries="keys", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import show_keys

    show_keys(answer["keys"])


def revoke_key(key_id: KeyId, /, *, reason: Reason = None, connection: Connection = Connection()) -> None:
    """Revoke an API key; every node refuses it within seconds."""
    with connect(connection) as remote:
        answer = remote.call("key/revoke", present(key_id=_id(key_id), reason=reason))
    print_answer(answer, f"Revoked key {answer['key_id']} of {_owner(answer)}.", as_json=connection.as_json)


def rotate_key(
    key_id: KeyId,
    /,
    *,
    grace: Annotated[
        str | None, Parameter(show_default=False, help="How long the old key stays valid: 1h; default: not at all.")
    ] = None,
    expires: Expires = None,
    reason: Reason = None,
    connection: Connection = Connection(),
) -> None:
    """Replace an API key by a new one on the same terms, and print it; it is not shown again."""
    request = present(key_id=_id(key_id), reason=reason)
    if grace is not None:
        request["grace_seconds"] = parse_duration(grace, field="--grace")
    with connect(connection) as remote:
        answer = remote.call("key/rotate", request | _lifetime(expires))
    _print_new(answer, connection)


def whoami(*, connection: Connection = Connection()) -> None:
    """Show the tenant, the user and the scopes of your key."""
    with connect(connection) as remote:
        answer = remote.call("whoami", {})
    everything = " and all others" if answer["all_tenants"] else ""
    key = "" if answer["key_id"] is None else f", with key {answer['key_id']}"
    sentence = f"{answer['user']} of tenant {answer['tenant']}{everything}: {', '.join(answer['scopes'])}{key}."
    print_answer(answer, sentence, as_json=connection.as_json)


def limits(*, connection: Connection = Connection()) -> None:
    """Show your limits and how much of each is used. Anything not listed is unlimited."""
    with connect(connection) as remote:
        answer = remote.call("limits/get", {})
    if connection.as_json or not answer["limits"]:
        print_answer(answer, "There are no limits.", as_json=connection.as_json)
        return
    for limit in answer["limits"]:
        used = "" if limit["used"] is None else f", {limit['used']:,} used"
        print_line(f"{limit['name']} per {limit['scope']}: {limit['value']:,}{used}")


def login(*, connection: Connection = Connection()) -> None:
    """Store your key of a server, for all commands that call it. The key is read from standard input or --key-file.

    It is checked first, and stored in a file that only you can read.
    """
    if connection.store is not None:
        raise InvalidRequest("needs no key; log in to a server", field="--store")
    key = connection.key or read_key(connection.key_file)
    with connect(replace(connection, key=key, key_file=None)) as remote:
        answer = remote.call("whoami", {})
    server = _server(connection)
    file = store_key(server, key)
    sentence = f"Logged in to {server} as {answer['user']} of tenant {answer['tenant']}; the key is in {file}."
    print_answer({**answer, "server": server, "file": str(file)}, sentence, as_json=connection.as_json)


def logout(*, connection: Connection = Connection()) -> None:
    """Remove your stored key of a server. The key itself stays good until it is revoked."""
    server = _server(connection)
    is_removed = remove_key(server)
    sentence = f"Removed the key of {server}." if is_removed else f"There is no stored key of {server}."
    print_answer({"server": server, "removed": is_removed}, sentence, as_json=connection.as_json)


def _server(connection: Connection) -> str:
    return connection.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER


def _lifetime(expires: str | None) -> dict[str, float]:
    return {} if expires is None else {"expires_in_seconds": parse_duration(expires, field="--expires")}


def _id(given: str) -> str:
    """The id of a key; a whole key in its place is not sent."""
    if len(given) > 40:
        raise InvalidRequest("must be the id of the key, such as nm_live_ab12cd; not the key itself", field="key_id")
    return given


def _owner(key: dict[str, str]) -> str:
    return f"{key['user']} of tenant {key['tenant']}"


def _print_new(answer: dict[str, str], connection: Connection) -> None:
    if connection.as_json:
        print_json(answer)
        return
    scopes = ", ".join(answer["scopes"])
    until = "" if not answer["expires_at_utc"] else f", until {answer['expires_at_utc']}"
    print_line(f"Created key {answer['key_id']} for {_owner(answer)}: {scopes}{until}. It is not shown again:")
    print_line(answer["key"])
