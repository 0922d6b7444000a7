"""What a store does with proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.proposals import Proposal
    from noonmark.core.schedule import AuditEntry


class ProposalStore(Protocol):
    """The verbs about proposals. A plan with a `proposal` decides one: it is written only while that is pending.

    `core.system_events` lists the events: one is emitted when a proposal is stored, approved or denied.
    """

    def put_proposal(self, proposal: Proposal, *, most: int, note: AuditEntry) -> bool:
        """Store a proposal and an audit entry.

        False, with nothing stored, if there is one about its schedule, or the id of a new schedule is taken.
        QuotaExceeded if the user who proposes has `most` already.
        """

    def proposal(self, tenant: str, schedule_id: str) -> Proposal | None:
        """The pending proposal about a schedule. A damaged one counts as unknown."""

    def proposals(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        """Pending proposals about the schedules of a tenant, or of one of its users, oldest first, then by id.

        `after`, a time and the id of a schedule, continues after that position.
        """

    def deny_change(self, tenant: str, schedule_id: str, proposal_id: str, *, note: AuditEntry) -> bool:
        """Drop a proposed change, and store an audit entry; False if that proposal is not pending."""

    def expire_proposals(self, *, now: Micros, limit: int) -> int:
        """Deny up to `limit` proposals that have expired, which deletes proposed schedules; returns how many."""
