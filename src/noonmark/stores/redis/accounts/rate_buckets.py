"""The token buckets of rate limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND
from noonmark.stores.redis.schema.accounts import RATE_BUCKETS

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.stores.redis.transactions.transaction import Transaction

STORED_FOR: Micros = 3_600 * SECOND
"""A bucket that has been full for so long is deleted."""
MOST_DELETED = 10


def take(transaction: Transaction, name: str, limit: RateLimit, wanted: int) -> Taken:
    """Take as many of the wanted tokens as a bucket has; one that is not stored, or is damaged, is full."""
    records, now = transaction.records(RATE_BUCKETS), transaction.now()
    stored = records.get(name)
    full_at = stored[1] if stored is not None and type(stored[1]) is int else None
    taken = limit.take(full_at, wanted, now=now)
    if taken.granted:
        records.put((name, taken.full_at))
        for values in records.find("by_age", before=(now - STORED_FOR,), limit=MOST_DELETED, hint=True):
            records.delete(values[0])
    return taken
