"""API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.redis.schema.accounts import API_KEYS
from noonmark.stores.sql.api_keys import key_values, readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.api_key import ApiKey
    from noonmark.core.instants import Micros
    from noonmark.stores.redis.transactions.transaction import Transaction

_REVOKED, _USED = API_KEYS.columns.index("revoked"), API_KEYS.columns.index("used")


def are_there(transaction: Transaction) -> bool:
    """Whether there has ever been a key; a damaged one counts."""
    return transaction.client.size(API_KEYS.name) > 0


def add(transaction: Transaction, key: ApiKey, *, most: int) -> bool:
    """Store a key; False if its id is taken, or its tenant has too many."""
    records = transaction.records(API_KEYS)
    if records.look_up("by_id", key.key_id) is not None or records.count("active", [key.tenant]) >= most:
        return False
    _insert(transaction, key)
    return True


def find(transaction: Transaction, key_id: str) -> ApiKey | None:
    """The key with that id."""
    values = transaction.records(API_KEYS).look_up("by_id", key_id)
    keys = [] if values is None else readable([values[1:]])
    return keys[0] if keys else None


def page(transaction: Transaction, tenant: str | None, limit: int, after: tuple[Micros, str] | None) -> list[ApiKey]:
    """The keys of a tenant, or of all, by creation time and id."""
    index, partition = ("by_creation", []) if tenant is None else ("of_tenant", [tenant])
    keys = transaction.records(API_KEYS).find(index, partition, after=after, limit=limit)
    return readable([values[1:] for values in keys])


def revoke(transaction: Transaction, key_id: str, *, at: Micros, successor: ApiKey | None) -> ApiKey | None:
    """Revoke a key, and store the one that replaces it; None if that is impossible."""
    records = transaction.records(API_KEYS)
    values, key = records.look_up("by_id", key_id), find(transaction, key_id)
    if values is None or key is None:
        return None
    if successor is not None:
        if key.revoked is not None or records.look_up("by_id", successor.key_id) is not None:
            return None
        _insert(transaction, successor)
    key = key.revoke(at)
    records.put((*values[:_REVOKED], key.revoked, *values[_REVOKED + 1 :]))
    return key


def use(transaction: Transaction, used: Mapping[str, Micros]) -> None:
    """Store when keys were last used."""
    records = transaction.records(API_KEYS)
    stored = records.look_up_many("by_id", [(key_id,) for key_id in used])
    for (key_id,), values in stored.items():
        if values[_USED] is None or values[_USED] < used[str(key_id)]:
            records.put((*values[:_USED], used[str(key_id)], *values[_USED + 1 :]))


def _insert(transaction: Transaction, key: ApiKey) -> None:
    [number] = transaction.numbers("api_keys", 1)
    transaction.records(API_KEYS).add((number, *key_values(key)))
