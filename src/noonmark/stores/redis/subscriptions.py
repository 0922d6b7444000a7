"""Subscriptions as records: which schedules subscribe to which events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.filters.index import NONE, is_fields, known_before
from noonmark.stores.redis.schema.schedules import EVENT_LISTENERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from noonmark.stores.redis.transactions.client import Question
    from noonmark.stores.redis.transactions.ordered import Value
    from noonmark.stores.redis.transactions.transaction import Transaction
    from noonmark.stores.rules.unit_of_work import ListenerQuestion, Subscription, Topic

_BY_OWN = "by_discriminator"


def subscribed(transaction: Transaction, topics: Collection[Topic]) -> set[Topic]:
    """Those topics that a schedule of the tenant listens for."""
    records = transaction.records(EVENT_LISTENERS)
    transaction.preload(questions(transaction, topics))
    return {
        (tenant, event_type)
        for tenant, event_type in topics
        if records.find_keys(_BY_OWN, (tenant,), prefix=(event_type,), limit=1)
    }


def questions(transaction: Transaction, topics: Collection[Topic]) -> list[Question]:
    """What `subscribed` asks."""
    records = transaction.records(EVENT_LISTENERS)
    return [records.question(_BY_OWN, (tenant,), prefix=(event_type,), limit=1) for tenant, event_type in topics]


def tenants(transaction: Transaction, event_type: str) -> set[str]:
    """The tenants in which a schedule listens for an event type."""
    return {str(one) for one in _distinct(transaction, "by_type", (), (event_type,))}


def fields_of(transaction: Transaction, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
    """The fields of the discriminators of all listeners, for each event type; they are few."""
    return {
        event_type: [
            fields
            for fields in _distinct(transaction, _BY_OWN, (tenant,), (event_type,))
            if isinstance(fields, str) and fields != NONE.fields and is_fields(fields)
        ]
        for event_type in types
    }


def listeners(
    transaction: Transaction, tenant: str, questions: Sequence[ListenerQuestion], limit: int
) -> list[list[int]]:
    """The keys of the first schedules that each question is about."""
    records = transaction.records(EVENT_LISTENERS)
    ranges = [((one.event_type, *one.own), (one.after,)) for one in questions]
    transaction.preload(
        records.question(_BY_OWN, (tenant,), prefix=prefix, after=after, limit=limit) for prefix, after in ranges
    )
    found = [records.find_keys(_BY_OWN, (tenant,), prefix=prefix, after=after, limit=limit) for prefix, after in ranges]
    return [[schedule for schedule, _ in keys] for keys in found]


def add(transaction: Transaction, rows: Sequence[tuple[int, str, Subscription]]) -> None:
    """Store subscriptions of schedules, each with its key and tenant."""
    records = transaction.records(EVENT_LISTENERS)
    records.put_many([(key, event_type, tenant, *known_before(own), *own) for key, tenant, (event_type, own) in rows])


def delete(transaction: Transaction, schedule: int) -> None:
    """Delete the subscriptions of a schedule."""
    records = transaction.records(EVENT_LISTENERS)
    for key in records.find_keys("of_schedule", (schedule,)):
        records.delete(*key)


def _distinct(
    transaction: Transaction, index: str, partition: Sequence[Value], prefix: Sequence[Value]
) -> Iterator[Value]:
    """The different values that follow a prefix in an index, each by one step in it: there may be many listeners."""
    records, after = transaction.records(EVENT_LISTENERS), None
    while found := records.entries(index, partition, prefix=prefix, after=after, limit=1):
        value = found[0][len(prefix)]
        yield value
        after = (value,)
