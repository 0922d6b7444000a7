"""Proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.redis.schema.accounts import PROPOSALS
from noonmark.stores.rules import proposal_records as rules
from noonmark.stores.sql.proposals import proposal_values, readable

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.proposals import Proposal
    from noonmark.stores.redis.schedule_records import ScheduleRecords


class ProposalRecords(rules.ProposalRecords):
    """The proposals of all tenants."""

    def __init__(self, uow: ScheduleRecords) -> None:
        self._records = uow.transaction.records(PROPOSALS)

    def find(self, tenant: str, schedule_id: str) -> Proposal | None:
        values = self._records.get(tenant, schedule_id)
        proposals = [] if values is None else readable([values])
        return proposals[0] if proposals else None

    def count(self, tenant: str, by: str) -> int:
        return self._records.count("by_proposer", [tenant, by])

    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        alike = self._records.find("by_fingerprint", [tenant, user], prefix=[fingerprint], limit=2)
        return next((one.schedule_id for one in readable(alike) if one.schedule_id != besides), None)

    def put(self, proposal: Proposal) -> None:
        self._records.put(proposal_values(proposal))

    def delete(self, tenant: str, schedule_id: str) -> None:
        self._records.delete(tenant, schedule_id)

    def expired(self, now: Micros, limit: int) -> list[Proposal]:
        return readable(self._records.find("by_expiry", until=(now,), limit=limit))

    def page(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        index, partition = ("in_order", [tenant]) if user is None else ("of_user", [tenant, user])
        return readable(self._records.find(index, partition, after=after, limit=limit))
