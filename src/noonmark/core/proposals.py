"""Proposals: schedules, and changes of schedules, that wait for somebody's approval.

A proposed schedule is a record of its own until it is decided, not a row among the schedules. So nothing plans it,
nothing subscribes for it, and a node of an older version does not know it. A proposed change names the revision that it
is based on, while the schedule runs on.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.schedule import BY_ITSELF, AuditEntry, Schedule, restore_schedule

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.lineage import Lineage
    from noonmark.core.schedule import Owner


class ProposedAction(StrEnum):
    """What is proposed."""

    CREATE = "create"
    UPDATE = "update"
    RESUME = "resume"
    DELETE = "delete"


@frozen(kw_only=True)
class Proposal:
    """Something that waits for a decision; there is at most one for each schedule."""

    proposal_id: str
    action: ProposedAction
    uid: str
    """The schedule; of a proposed one, the uid that it will have."""
    schedule_id: str
    name: str | None = None
    owner: Owner
    """To whom the schedule belongs, or will belong."""
    document: dict[str, Any] = field(default_factory=dict, hash=False)
    """The whole declaration of a new schedule, or the fields that an update changes."""
    base_revision: int | None = None
    """The revision that a change was proposed for."""
    source: str
    by: str
    """The user who proposed it."""
    key_id: str | None = None
    is_agent: bool = False
    reason: str | None = None
    proposed: Micros
    expires: Micros
    lineage: Lineage | None = None

    def schedule(self) -> Schedule:
        """The proposed schedule; its document was checked when it was proposed."""
        return Schedule(
            uid=self.uid,
            schedule_id=self.schedule_id,
            owner=self.owner,
            declaration=restore_schedule(self.document),
            revision=1,
            phase=SchedulePhase.PROPOSED,
            source=self.source,
            created=self.proposed,
            updated=self.proposed,
            lineage=self.lineage,
        )


def why_not_decided(proposal: Proposal, *, user: str, key_id: str | None, is_agent: bool) -> str | None:
    """Why a caller may not approve a proposal; None if it may.

    A person may approve a proposal of their own agent. What a person proposed, another one approves.
    """
    if is_agent:
        return "a person decides; the key of an agent cannot"
    is_same_key = key_id is not None and key_id == proposal.key_id
    if is_same_key or (user == proposal.by and not proposal.is_agent):
        return "somebody else decides: nobody approves their own proposal"
    return None


def expiry_note(proposal: Proposal, *, now: Micros) -> AuditEntry:
    """The audit entry of a proposal that nobody decided in time."""
    return AuditEntry(
        at=now,
        caller=BY_ITSELF,
        operation="schedule/deny",
        schedule_id=proposal.schedule_id,
        uid=proposal.uid,
        revision_before=proposal.base_revision,
        revision_after=proposal.base_revision,
        reason=f"the proposal to {proposal.action} expired",
    )
