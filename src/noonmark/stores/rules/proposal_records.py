"""Proposals, as the rules see them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.proposals import Proposal


class ProposalRecords(ABC):
    """The proposals of all tenants, as the rules see them."""

    @abstractmethod
    def find(self, tenant: str, schedule_id: str) -> Proposal | None:
        """The proposal about a schedule."""

    @abstractmethod
    def count(self, tenant: str, by: str) -> int:
        """How many proposals of a user are pending."""

    @abstractmethod
    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        """The id of a schedule of that user which a pending proposal gives a fingerprint, besides one."""

    @abstractmethod
    def put(self, proposal: Proposal) -> None:
        """Store a proposal, in place of the one about its schedule."""

    @abstractmethod
    def delete(self, tenant: str, schedule_id: str) -> None:
        """Delete the proposal about a schedule."""

    @abstractmethod
    def expired(self, now: Micros, limit: int) -> list[Proposal]:
        """Proposals that have expired, those that did first."""

    @abstractmethod
    def page(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        """The proposals about schedules of a tenant, or of one user, oldest first, then by the id of the schedule."""
