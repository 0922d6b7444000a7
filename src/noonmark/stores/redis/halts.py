"""Halts as records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.redis.schema.schedules import HALTS
from noonmark.stores.sql.halts import halt_values, to_halt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.halt import Halt
    from noonmark.stores.redis.transactions.client import Question
    from noonmark.stores.redis.transactions.transaction import Transaction
    from noonmark.stores.sql.halts import Report


def read(transaction: Transaction, report: Report, tenant: str | None) -> list[Halt]:
    """The halts of a tenant, or of all, oldest first."""
    records = transaction.records(HALTS)
    halts = records.find("by_time") if tenant is None else records.find("of_tenant", (tenant,))
    return [to_halt(values, report) for values in halts]


def questions(transaction: Transaction, tenants: Iterable[str]) -> list[Question]:
    """What `read` asks of each of some tenants."""
    return [transaction.records(HALTS).question("of_tenant", (tenant,)) for tenant in tenants]


def add(transaction: Transaction, halt: Halt) -> None:
    """Store a halt."""
    transaction.records(HALTS).put(halt_values(halt))


def delete(transaction: Transaction, halt: Halt) -> None:
    """Delete a halt."""
    transaction.records(HALTS).delete(halt.tenant, halt.halt_id)
