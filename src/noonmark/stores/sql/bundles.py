"""Bundles: their records, and their archives in chunks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.errors import NotFound
from noonmark.ports.bundles import Bundle
from noonmark.stores.rules.bundles import check_bytes
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.stores.rules.bundles import Users
    from noonmark.stores.sql.session import Session, Values

COLUMNS = (
    "tenant", "content_id", "bundle_id", "digest", "manifest", "size", "files", "username", "source", "created",
    "pushed", "workflow_version",
)  # fmt: skip
_SELECTED = ", ".join(COLUMNS)
_CHECK = RowCheck("bundles", COLUMNS)
_OF_CONTENT = "SELECT key, pushed FROM bundles WHERE tenant = ? AND content_id = ?"
_BYTES = "SELECT coalesce(sum(size), 0) FROM bundles WHERE tenant = ?"
_BEGIN = "INSERT INTO bundles (key, tenant, content_id, size, created) VALUES (?, ?, ?, 0, ?)"
_GROW = "UPDATE bundles SET size = size + ? WHERE key = ?"
_ADD = "INSERT INTO bundle_chunks (bundle, number, data) VALUES (?, ?, ?)"
_CHUNK = """
    SELECT data FROM bundles CROSS JOIN bundle_chunks ON bundle = bundles.key
    WHERE tenant = ? AND content_id = ? AND number = ?
"""
_SAME = "SELECT key FROM bundles WHERE tenant = ? AND bundle_id = ? AND digest = ? AND pushed IS NOT NULL"
_NEWEST = "SELECT max(pushed) FROM bundles WHERE tenant = ? AND bundle_id = ? AND pushed IS NOT NULL"
_KEEP = """
    UPDATE bundles SET bundle_id = ?, digest = ?, manifest = ?, size = ?, files = ?, username = ?, source = ?,
    pushed = ?, workflow_version = ? WHERE key = ?
"""
_ONE = f"SELECT {_SELECTED} FROM bundles WHERE key = ?"
_FOUND = f"SELECT {_SELECTED} FROM bundles WHERE %s AND pushed IS NOT NULL ORDER BY pushed DESC LIMIT ?"
_PAGE = f"""
    SELECT {_SELECTED} FROM bundles AS one WHERE tenant = ? AND bundle_id > ? AND pushed = (
        SELECT max(pushed) FROM bundles AS other
        WHERE other.tenant = one.tenant AND other.bundle_id = one.bundle_id AND other.pushed IS NOT NULL
    ) ORDER BY bundle_id LIMIT ?
"""
_KEYS = "SELECT key, digest FROM bundles WHERE tenant = ? AND bundle_id = ? AND pushed IS NOT NULL"
_TENANTS = "SELECT DISTINCT tenant FROM bundles WHERE pushed IS NULL AND created < ? OR pushed < ?"
_UNFINISHED = """
    SELECT key FROM bundles WHERE pushed IS NULL AND created < ? AND tenant IN EACH(text) ORDER BY created LIMIT ?
"""
_REPLACED = """
    SELECT key, tenant, digest FROM bundles AS one WHERE pushed < ? AND tenant IN EACH(text) AND EXISTS (
        SELECT 1 FROM bundles AS other
        WHERE other.tenant = one.tenant AND other.bundle_id = one.bundle_id AND other.pushed > one.pushed
    ) ORDER BY pushed LIMIT ?
"""


def add_chunk(
    session: Session, tenant: str, content_id: str, number: int, data: bytes, limits: Sequence[Quota]
) -> None:
    """Store a chunk of a push; the first begins it."""
    check_bytes(limits, stored_bytes(session, tenant), len(data))
    rows = session.query(_OF_CONTENT, tenant, content_id)
    if number == 0 and not rows:
        [key] = session.numbers("bundles", 1)
        session.execute(_BEGIN, key, tenant, content_id, session.now())
    elif not rows or rows[0][1] is not None:
        raise NotFound("the push of this bundle was dropped; push it again")
    else:
        key = rows[0][0]
    session.execute(_ADD, key, number, data)
    session.execute(_GROW, len(data), key)


def chunk(session: Session, tenant: str, content_id: str, number: int) -> bytes | None:
    """One chunk of an archive."""
    rows = session.query(_CHUNK, tenant, content_id, number)
    return bytes(rows[0][0]) if rows and isinstance(rows[0][0], bytes | memoryview) else None


def keep(session: Session, bundle: Bundle) -> Bundle | None:
    """Make a push the newest archive of its id; None if it is unknown."""
    rows = session.query(_OF_CONTENT, bundle.tenant, bundle.content_id)
    if not rows or rows[0][1] is not None:
        return None
    key = rows[0][0]
    [(newest,)] = session.query(_NEWEST, bundle.tenant, bundle.bundle_id)
    pushed = session.now() if newest is None else max(session.now(), newest + 1)
    same = session.query(_SAME, bundle.tenant, bundle.bundle_id, bundle.digest)
    if same:
        _remove(session, [key])
        key = same[0][0]
    manifest = json.dumps(bundle.manifest, ensure_ascii=False)
    session.execute(
        _KEEP, bundle.bundle_id, bundle.digest, manifest, bundle.size, bundle.files, bundle.user, bundle.source, pushed,
        bundle.workflow_version, key,
    )  # fmt: skip
    [stored] = readable(session.query(_ONE, key))
    return stored


def drop(session: Session, tenant: str, content_id: str) -> None:
    """Forget a push that is not kept."""
    _remove(session, [key for key, pushed in session.query(_OF_CONTENT, tenant, content_id) if pushed is None])


def find(session: Session, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
    """The newest archive of an id, or with a digest."""
    wanted = {"tenant": tenant, "bundle_id": bundle_id, "digest": digest}
    given = {name: value for name, value in wanted.items() if value is not None}
    rows = session.query(_FOUND % " AND ".join(f"{name} = ?" for name in given), *given.values(), 1)
    return next(iter(readable(rows)), None)


def page(session: Session, tenant: str, limit: int, after: str | None) -> list[Bundle]:
    """The newest archive of each id."""
    return readable(session.query(_PAGE, tenant, after or "", limit))


def versions(session: Session, tenant: str, bundle_id: str, limit: int) -> list[Bundle]:
    """The archives of an id, newest first."""
    return readable(session.query(_FOUND % "tenant = ? AND bundle_id = ?", tenant, bundle_id, limit))


def delete(session: Session, tenant: str, bundle_id: str, users: Users) -> list[str] | None:
    """Delete the archives of an id, unless something uses one; returns the ids of what does."""
    rows = session.query(_KEYS, tenant, bundle_id)
    if not rows:
        return None
    if used := users(tenant, bundle_id, {digest for _, digest in rows}):
        return used
    _remove(session, [key for key, _ in rows])
    return []


def stored_bytes(session: Session, tenant: str) -> int:
    """The bytes of a tenant's archives."""
    return int(session.query(_BYTES, tenant)[0][0])


def prunable_tenants(session: Session, *, before: Micros, unfinished_before: Micros) -> list[str]:
    """The tenants that may have something to prune."""
    return [tenant for (tenant,) in session.query(_TENANTS, unfinished_before, before)]


def prune(
    session: Session,
    tenants: Collection[str],
    users: Users,
    *,
    before: Micros,
    unfinished_before: Micros,
    limit: int,
) -> int:
    """Delete replaced archives of some tenants that nothing uses, and unfinished pushes."""
    keys = [key for (key,) in session.query(_UNFINISHED, unfinished_before, list(tenants), limit)]
    replaced = session.query(_REPLACED, before, list(tenants), limit - len(keys))
    keys += [key for key, tenant, digest in replaced if not users(tenant, None, {digest})]
    _remove(session, keys)
    return len(keys)


def _remove(session: Session, keys: Collection[int]) -> None:
    if keys:
        session.delete("bundle_chunks", "bundle", list(keys))
        session.delete("bundles", "key", list(keys))


def readable(rows: Sequence[Values]) -> list[Bundle]:
    """The bundles that can be read."""
    bundles = []
    for columns in rows:
        tenant, content_id, bundle_id, digest, manifest, size, files, user, source, created, pushed, version = columns
        if _CHECK.problems(columns) or None in (bundle_id, digest, manifest):
            continue
        try:
            document = json.loads(manifest)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            bundles.append(
                Bundle(
                    tenant=tenant,
                    bundle_id=bundle_id,
                    digest=digest,
                    manifest=document,
                    size=size,
                    files=files,
                    content_id=content_id,
                    user=user,
                    source=source,
                    created=created,
                    pushed=pushed,
                    workflow_version=version,
                )
            )
    return bundles
