"""Encrypted secrets, and the key of the store itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.secret import Secret
from noonmark.stores import own_key
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.stores.sql.session import Session, Values

NAMES = ("tenant", "name", "hosts", "sealed", "created", "updated", "programs")
_COLUMNS = ("name", "hosts", "sealed", "created", "updated", "programs")
_SELECTED = ", ".join(_COLUMNS)
_JUDGE = RowCheck("secrets", _COLUMNS)
_ALL = f"(SELECT {_SELECTED} FROM secrets WHERE tenant = ? ORDER BY name)"
_SOME = f"SELECT {_SELECTED} FROM secrets WHERE tenant = ? AND name IN EACH(text) ORDER BY name"
_COUNT = "SELECT count(*) FROM secrets WHERE tenant = ?"
_REMOVE = "DELETE FROM secrets WHERE tenant = ? AND name = ?"
NOBODY = ""
"""The owner of the key of the store: no tenant has this name."""
_OWN = "SELECT sealed FROM secrets WHERE tenant = ? AND name = 'own'"
_DRAW = """
    INSERT INTO secrets (tenant, name, hosts, sealed, created, updated) VALUES (?, 'own', '[]', ?, ?, ?)
    ON CONFLICT (tenant, name) DO NOTHING
"""


def put(session: Session, tenant: str, secret: Secret, *, most: int) -> Secret | None:
    """Store a secret, in place of one of the same name; None if it is new and there are too many."""
    secrets = some(session, tenant, [secret.name])
    if secrets:
        secret = replace(secret, created=secrets[0].created)
    elif session.query(_COUNT, tenant)[0][0] >= most:
        return None
    session.put("secrets", NAMES, [secret_values(tenant, secret)], key=2)
    return secret


def secret_values(tenant: str, secret: Secret) -> Values:
    """The columns of a secret."""
    return (
        tenant, secret.name, json.dumps(secret.hosts), secret.sealed, secret.created, secret.updated,
        json.dumps(secret.programs),
    )  # fmt: skip


def every(session: Session, tenant: str) -> list[Secret]:
    """The secrets of a tenant, by name."""
    return readable(session.gather(_SELECTED, _ALL, tenant))


def some(session: Session, tenant: str, names: Collection[str]) -> list[Secret]:
    """Those that have one of the names, by name."""
    return readable(session.query(_SOME, tenant, list(names)))


def delete(session: Session, tenant: str, name: str) -> Secret | None:
    """Delete a secret and return it."""
    secrets = some(session, tenant, [name])
    if secrets:
        session.execute(_REMOVE, tenant, name)
    return secrets[0] if secrets else None


def find_own_key(session: Session) -> bytes | None:
    """The key of the store; None until it is first needed."""
    rows = session.query(_OWN, NOBODY)
    return own_key.read(rows[0][0]) if rows else None


def draw_own_key(session: Session) -> bytes:
    """Store a new key of the store, unless there is one; returns the stored key."""
    now = session.now()
    session.execute(_DRAW, NOBODY, own_key.draw().hex(), now, now)
    [(stored,)] = session.query(_OWN, NOBODY)
    return own_key.read(stored)


def readable(rows: Sequence[Values]) -> list[Secret]:
    """The secrets that can be read, of `NAMES` without the tenant.

    A damaged one counts as not set, since its allowed hosts are unknown.
    """
    secrets = []
    for columns in rows:
        name, hosts, sealed, created, updated, programs = columns
        if _JUDGE.problems(columns) or (bound := _texts(hosts)) is None or (granted := _texts(programs)) is None:
            continue
        secrets.append(
            Secret(name=name, hosts=bound, sealed=sealed, created=created, updated=updated, programs=granted)
        )
    return secrets


def _texts(text: str) -> tuple[str, ...] | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(read, list) and all(isinstance(one, str) for one in read)
    return tuple(read) if is_list else None
