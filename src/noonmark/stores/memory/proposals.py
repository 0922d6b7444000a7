"""Proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.rules import proposal_records as rules

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.proposals import Proposal


class ProposalRecords(rules.ProposalRecords):
    """The proposals of all tenants, by tenant and schedule id."""

    def __init__(self) -> None:
        """There are none yet."""
        self._proposals: dict[tuple[str, str], Proposal] = {}

    def find(self, tenant: str, schedule_id: str) -> Proposal | None:
        return self._proposals.get((tenant, schedule_id))

    def count(self, tenant: str, by: str) -> int:
        return sum(one.owner.tenant == tenant and one.by == by for one in self._proposals.values())

    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        for one in self._proposals.values():
            is_same = one.lineage is not None and one.lineage.fingerprint == fingerprint
            if is_same and (one.owner.tenant, one.owner.user) == (tenant, user) and one.schedule_id != besides:
                return one.schedule_id
        return None

    def put(self, proposal: Proposal) -> None:
        self._proposals[proposal.owner.tenant, proposal.schedule_id] = proposal

    def delete(self, tenant: str, schedule_id: str) -> None:
        del self._proposals[tenant, schedule_id]

    def expired(self, now: Micros, limit: int) -> list[Proposal]:
        due = [one for one in self._proposals.values() if one.expires <= now]
        return sorted(due, key=lambda one: one.expires)[:limit]

    def page(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        proposals = [
            one
            for one in self._proposals.values()
            if one.owner.tenant == tenant
            and user in (None, one.owner.user)
            and (after is None or (one.proposed, one.schedule_id) > after)
        ]
        return sorted(proposals, key=lambda one: (one.proposed, one.schedule_id))[:limit]
