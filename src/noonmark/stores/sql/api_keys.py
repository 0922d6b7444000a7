"""API keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.api_key import ApiKey, scopes_of
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session, Values

COLUMNS = (
    "key_id", "digest", "tenant", "username", "scopes", "name", "is_agent", "created", "expires", "revoked", "used",
)  # fmt: skip
_SELECTED = ", ".join(COLUMNS)
_CHECK = RowCheck("api_keys", COLUMNS)
_ANY = "SELECT 1 FROM api_keys LIMIT 1"
_TAKEN = "SELECT 1 FROM api_keys WHERE key_id = ?"
_COUNT = "SELECT count(*) FROM api_keys WHERE tenant = ? AND revoked IS NULL"
_ONE = f"SELECT {_SELECTED} FROM api_keys WHERE key_id = ?"
_PAGE = f"SELECT {_SELECTED} FROM api_keys WHERE %s ORDER BY created, key_id LIMIT ?"
_AFTER = "(created > ? OR (created = ? AND key_id > ?))"
_REVOKE = "UPDATE api_keys SET revoked = ? WHERE key_id = ?"
_USE = "UPDATE api_keys SET used = ? WHERE key_id = ? AND (used IS NULL OR used < ?)"


def are_there(session: Session) -> bool:
    """Whether there has ever been a key; a damaged one counts."""
    return bool(session.query(_ANY))


def add(session: Session, key: ApiKey, *, most: int) -> bool:
    """Store a key; False if its id is taken, or its tenant has too many."""
    if session.query(_TAKEN, key.key_id) or session.query(_COUNT, key.tenant)[0][0] >= most:
        return False
    _insert(session, key)
    return True


def find(session: Session, key_id: str) -> ApiKey | None:
    """The key with that id."""
    keys = readable(session.query(_ONE, key_id))
    return keys[0] if keys else None


def page(session: Session, tenant: str | None, limit: int, after: tuple[Micros, str] | None) -> list[ApiKey]:
    """The keys of a tenant, or of all, by creation time and id."""
    conditions, values = ["1 = 1"], list[object]()
    if tenant is not None:
        conditions, values = ["tenant = ?"], [tenant]
    if after is not None:
        conditions.append(_AFTER)
        values += [after[0], after[0], after[1]]
    return readable(session.query(_PAGE % " AND ".join(conditions), *values, limit))


def revoke(session: Session, key_id: str, *, at: Micros, successor: ApiKey | None) -> ApiKey | None:
    """Revoke a key, and store the one that replaces it; None if that is impossible."""
    key = find(session, key_id)
    if key is None:
        return None
    if successor is not None:
        if key.revoked is not None or session.query(_TAKEN, successor.key_id):
            return None
        _insert(session, successor)
    key = key.revoke(at)
    session.execute(_REVOKE, key.revoked, key_id)
    return key


def use(session: Session, used: Mapping[str, Micros]) -> None:
    """Store when keys were last used; in the order of the ids, so that two nodes do not wait for each other."""
    for key_id, at in sorted(used.items()):
        session.execute(_USE, at, key_id, at)


def _insert(session: Session, key: ApiKey) -> None:
    session.insert("api_keys", COLUMNS, [key_values(key)])


def key_values(key: ApiKey) -> Values:
    """The columns of a key."""
    return (
        key.key_id, key.digest, key.tenant, key.user, json.dumps(sorted(key.scopes)), key.name, int(key.is_agent),
        key.created, key.expires, key.revoked, key.used,
    )  # fmt: skip


def readable(rows: Sequence[Values]) -> list[ApiKey]:
    """The keys that can be read; a damaged one is refused, since it is not known what it may do."""
    keys = []
    for columns in rows:
        if not _CHECK.problems(columns):
            key_id, digest, tenant, user, scopes, name, is_agent, created, expires, revoked, used = columns
            try:
                granted = scopes_of(json.loads(scopes))
            except (ValueError, RecursionError):
                continue
            keys.append(
                ApiKey(
                    key_id=key_id,
                    digest=digest,
                    tenant=tenant,
                    user=user,
                    scopes=granted,
                    name=name,
                    is_agent=bool(is_agent),
                    created=created,
                    expires=expires,
                    revoked=revoked,
                    used=used,
                )
            )
    return keys
