"""Encrypted secrets, and the key of the store itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.stores import own_key
from noonmark.stores.redis.schema.accounts import SECRETS
from noonmark.stores.sql.secret_store import NOBODY, readable, secret_values

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.secret import Secret
    from noonmark.stores.redis.transactions.transaction import Transaction

_OWN = (NOBODY, "own")
_SEALED = SECRETS.columns.index("sealed")


def put(transaction: Transaction, tenant: str, secret: Secret, *, most: int) -> Secret | None:
    """Store a secret, in place of one of the same name; None if it is new and there are too many."""
    records = transaction.records(SECRETS)
    secrets, stored = some(transaction, tenant, [secret.name]), records.look_up("by_name", tenant, secret.name)
    if secrets:
        secret = replace(secret, created=secrets[0].created)
    elif records.count("of_tenant", [tenant]) >= most:
        return None
    if stored is None:
        [number] = transaction.numbers("secrets", 1)
        records.add((number, *secret_values(tenant, secret)))
    else:
        records.put((stored[0], *secret_values(tenant, secret)))
    return secret


def every(transaction: Transaction, tenant: str) -> list[Secret]:
    """The secrets of a tenant, by name."""
    return readable([values[2:] for values in transaction.records(SECRETS).find("of_tenant", [tenant])])


def some(transaction: Transaction, tenant: str, names: Collection[str]) -> list[Secret]:
    """Those that have one of the names, by name."""
    secrets = transaction.records(SECRETS).look_up_many("by_name", [(tenant, name) for name in sorted(set(names))])
    return readable([secrets[name][2:] for name in sorted(secrets)])


def delete(transaction: Transaction, tenant: str, name: str) -> Secret | None:
    """Delete a secret and return it."""
    records = transaction.records(SECRETS)
    secrets, stored = some(transaction, tenant, [name]), records.look_up("by_name", tenant, name)
    if not secrets or stored is None:
        return None
    records.delete(stored[0])
    return secrets[0]


def find_own_key(transaction: Transaction) -> bytes | None:
    """The key of the store; None until it is first needed."""
    stored = transaction.records(SECRETS).look_up("by_name", *_OWN)
    return None if stored is None else own_key.read(stored[_SEALED])


def draw_own_key(transaction: Transaction) -> bytes:
    """Store a new key of the store, unless there is one; returns the stored key."""
    stored_key = find_own_key(transaction)
    if stored_key is not None:
        return stored_key
    [number] = transaction.numbers("secrets", 1)
    key, now = own_key.draw(), transaction.now()
    transaction.records(SECRETS).add((number, *_OWN, "[]", key.hex(), now, now, "[]"))
    return key
