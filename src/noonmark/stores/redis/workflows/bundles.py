"""Bundles: their records, and their archives in chunks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.errors import NotFound
from noonmark.stores.redis.schema.workflows import BUNDLE_CHUNKS, BUNDLES
from noonmark.stores.rules.bundles import check_bytes
from noonmark.stores.sql.bundles import readable
from noonmark.stores.sql.row_checks import number as whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.ports.bundles import Bundle
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Transaction
    from noonmark.stores.rules.bundles import Users

_SIZE, _PUSHED = BUNDLES.columns.index("size"), BUNDLES.columns.index("pushed")
_DIGEST, _CREATED = BUNDLES.columns.index("digest"), BUNDLES.columns.index("created")
AT_ONCE = 500
"""How many entries are read at a time to find the newest archive of each id."""


def add_chunk(
    transaction: Transaction, tenant: str, content_id: str, number: int, data: bytes, limits: Sequence[Quota]
) -> None:
    """Store a chunk of a push; the first begins it."""
    check_bytes(limits, stored_bytes(transaction, tenant), len(data))
    bundles = transaction.records(BUNDLES)
    record = bundles.look_up("by_content", tenant, content_id)
    if number == 0 and record is None:
        [key] = transaction.numbers("bundles", 1)
        record = (key, tenant, content_id, None, None, None, 0, 0, "", "", transaction.now(), None, None)
        bundles.add(record)
    elif record is None or record[_PUSHED] is not None:
        raise NotFound("the push of this bundle was dropped; push it again")
    chunks = transaction.records(BUNDLE_CHUNKS)
    before = chunks.get(record[0], number)  # somebody missed the answer, and sends it again
    chunks.put((record[0], number, data))
    size = whole_number(record[_SIZE], 0) + len(data) - (0 if before is None else len(before[2]))
    bundles.put((*record[:_SIZE], size, *record[_SIZE + 1 :]))


def chunk(transaction: Transaction, tenant: str, content_id: str, number: int) -> bytes | None:
    """One chunk of an archive."""
    record = transaction.records(BUNDLES).look_up("by_content", tenant, content_id)
    stored = None if record is None else transaction.records(BUNDLE_CHUNKS).get(record[0], number)
    return None if stored is None or not isinstance(stored[2], bytes) else stored[2]


def keep(transaction: Transaction, bundle: Bundle) -> Bundle | None:
    """Make a push the newest archive of its id; None if it is unknown."""
    records, now = transaction.records(BUNDLES), transaction.now()
    record = records.look_up("by_content", bundle.tenant, bundle.content_id)
    if record is None or record[_PUSHED] is not None:
        return None
    others = records.find("by_id", [bundle.tenant, bundle.bundle_id], newest_first=True)
    pushed = max(now, others[0][_PUSHED] + 1) if others else now
    same = next((one for one in others if one[_DIGEST] == bundle.digest), None)
    if same is not None:
        _remove(transaction, [record])
        record = same
    key, tenant, content_id = record[:3]
    stored = (
        key, tenant, content_id, bundle.bundle_id, bundle.digest, json.dumps(bundle.manifest, ensure_ascii=False),
        bundle.size, bundle.files, bundle.user, bundle.source, record[_CREATED], pushed, bundle.workflow_version,
    )  # fmt: skip
    records.put(stored)
    [stored_bundle] = _readable([stored])
    return stored_bundle


def drop(transaction: Transaction, tenant: str, content_id: str) -> None:
    """Forget a push that is not kept."""
    record = transaction.records(BUNDLES).look_up("by_content", tenant, content_id)
    if record is not None and record[_PUSHED] is None:
        _remove(transaction, [record])


def find(transaction: Transaction, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
    """The newest archive of an id, or with a digest."""
    records = transaction.records(BUNDLES)
    if digest is None:
        return next(iter(versions(transaction, tenant, bundle_id or "", 1)), None)
    alike = records.find("by_digest", [tenant, digest], newest_first=True)
    return next((one for one in _readable(alike) if bundle_id in (None, one.bundle_id)), None)


def page(transaction: Transaction, tenant: str, limit: int, after: str | None) -> list[Bundle]:
    """The newest archive of each id."""
    records, newest = transaction.records(BUNDLES), dict[str, int]()
    begin: Values | None = None if after is None else (after,)
    while True:
        entries = records.entries("listed", [tenant], after=begin, limit=AT_ONCE)
        newest.update((bundle_id, key) for bundle_id, _, key in entries)
        if len(entries) < AT_ONCE or len(newest) > limit:
            break
        begin = entries[-1]
    return _readable(records.get_many((key,) for key in list(newest.values())[:limit]).values())


def versions(transaction: Transaction, tenant: str, bundle_id: str, limit: int) -> list[Bundle]:
    """The archives of an id, newest first."""
    return _readable(transaction.records(BUNDLES).find("by_id", [tenant, bundle_id], limit=limit, newest_first=True))


def delete(transaction: Transaction, tenant: str, bundle_id: str, users: Users) -> list[str] | None:
    """Delete the archives of an id, unless something uses one; returns the ids of what does."""
    records = transaction.records(BUNDLES).find("by_id", [tenant, bundle_id])
    if not records:
        return None
    if used := users(tenant, bundle_id, {values[_DIGEST] for values in records}):
        return used
    _remove(transaction, records)
    return []


def stored_bytes(transaction: Transaction, tenant: str) -> int:
    """The bytes of a tenant's archives."""
    return sum(whole_number(size, 0) for size, _ in transaction.records(BUNDLES).entries("sizes", [tenant]))


def prune(transaction: Transaction, users: Users, *, before: Micros, unfinished_before: Micros, limit: int) -> int:
    """Delete replaced archives that nothing uses, and unfinished pushes."""
    records = transaction.records(BUNDLES)
    old = records.find("unfinished", before=(unfinished_before,), limit=limit, hint=True)
    begin: Values | None = None
    while len(old) < limit:
        entries = records.entries("by_push", after=begin, before=(before,), limit=AT_ONCE, hint=True)
        newest = records.find_each(
            "by_id", [(tenant, bundle_id) for _, tenant, bundle_id, _, _ in entries], limit=1, newest_first=True
        )
        for (_, tenant, _, digest, key), [(first,)] in zip(entries, newest, strict=True):
            if len(old) < limit and key != first and not users(tenant, None, {digest}):
                old += records.get_many([(key,)]).values()
        if len(entries) < AT_ONCE:
            break
        begin = entries[-1]
    _remove(transaction, old)
    return len(old)


def _remove(transaction: Transaction, bundles: Iterable[Values]) -> None:
    chunks = transaction.records(BUNDLE_CHUNKS)
    for key, *_ in bundles:
        for chunk_key in chunks.find_keys("of_bundle", [key]):
            chunks.discard(*chunk_key)
        transaction.records(BUNDLES).delete(key)


def _readable(rows: Iterable[Values]) -> list[Bundle]:
    return readable([values[1:] for values in rows])
