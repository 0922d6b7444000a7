"""Proposals: at most one for each schedule; a decision ends it in the transaction that puts it in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.edits import denial
from noonmark.core.errors import InvalidSchedule, QuotaExceeded
from noonmark.core.lineage import refuse_clone
from noonmark.core.proposals import ProposedAction, expiry_note
from noonmark.core.system_events import SystemEvent, of_proposal

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan
    from noonmark.core.proposals import Proposal
    from noonmark.core.schedule import AuditEntry, Owner
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def put(uow: UnitOfWork, proposal: Proposal, *, most: int, note: AuditEntry) -> bool:
    """Store a proposal; False if there is one about its schedule, or the id of a new schedule is taken.

    QuotaExceeded if the user who proposes has too many. Conflict if it is a clone.
    """
    tenant, records = proposal.owner.tenant, uow.proposals
    before = records.find(tenant, proposal.schedule_id)
    # One about a deleted schedule that had this id does not count.
    if before is not None and (before.uid == proposal.uid or ProposedAction.CREATE in {before.action, proposal.action}):
        return False
    if proposal.action is ProposedAction.CREATE and uow.known_ids({(tenant, proposal.schedule_id)})[0]:
        return False
    if proposal.lineage is not None:
        refuse_clones(uow, proposal.owner, proposal.schedule_id, proposal.lineage.fingerprint)
    if (count := records.count(tenant, proposal.by)) >= most:
        raise QuotaExceeded(
            f"{count:,} proposals of {proposal.by} are pending, and the limit is {most:,}; wait for decisions, or"
            " withdraw one",
            limit={"name": "proposals", "scope": "user", "value": most, "used": count},
        )
    records.put(proposal)
    uow.add_audit_entry(tenant, note)
    _publish(uow, SystemEvent.SCHEDULE_PROPOSED, proposal, note)
    return True


def refuse_clones(uow: UnitOfWork, owner: Owner, schedule_id: str, fingerprint: str | None) -> None:
    """Refuse what an agent makes of a schedule if another one of its owner does the same, or is proposed to do it."""
    if fingerprint is None:
        return
    first = uow.find_clone(owner.tenant, owner.user, fingerprint, besides=schedule_id)
    first = first or uow.proposals.find_clone(owner.tenant, owner.user, fingerprint, besides=schedule_id)
    if first is not None:
        raise refuse_clone(first)


def is_pending(uow: UnitOfWork, plan: Plan) -> bool:
    """Whether the proposal that a plan decides, if any, is there to be decided."""
    schedule = plan.snapshot.schedule
    if plan.proposal is None:
        return True
    proposal = uow.proposals.find(schedule.owner.tenant, schedule.schedule_id)
    return proposal is not None and proposal.proposal_id == plan.proposal


def finish(uow: UnitOfWork, plan: Plan, *, approved: bool) -> None:
    """End the proposal that a written plan has decided, if any."""
    if plan.proposal is None or plan.note is None:
        return
    schedule = plan.snapshot.schedule
    proposal = uow.proposals.find(schedule.owner.tenant, schedule.schedule_id)
    if proposal is not None:
        _end(uow, proposal, SystemEvent.SCHEDULE_APPROVED if approved else SystemEvent.SCHEDULE_DENIED, plan.note)


def deny_change(uow: UnitOfWork, tenant: str, schedule_id: str, proposal_id: str, note: AuditEntry) -> bool:
    """Drop a proposed change; its schedule stays as it is. False if the proposal is not pending."""
    proposal = uow.proposals.find(tenant, schedule_id)
    if proposal is None or proposal.proposal_id != proposal_id:
        return False
    _end(uow, proposal, SystemEvent.SCHEDULE_DENIED, note)
    uow.add_audit_entry(tenant, note)
    return True


def expire(uow: UnitOfWork, proposal: Proposal, *, now: Micros) -> Plan | None:
    """End a proposal that nobody decided in time; returns the plan that stores a proposed schedule as deleted."""
    tenant, note = proposal.owner.tenant, expiry_note(proposal, now=now)
    current = uow.proposals.find(tenant, proposal.schedule_id)
    if current is None or current.proposal_id != proposal.proposal_id:
        return None  # decided a moment ago
    if proposal.action is ProposedAction.CREATE:
        try:
            return denial(proposal, now=now, note=note)
        except InvalidSchedule:  # its record is damaged: nothing of it can be kept
            pass
    deny_change(uow, tenant, proposal.schedule_id, proposal.proposal_id, note)
    return None


def _end(uow: UnitOfWork, proposal: Proposal, fact: SystemEvent, note: AuditEntry) -> None:
    uow.proposals.delete(proposal.owner.tenant, proposal.schedule_id)
    _publish(uow, fact, proposal, note)


def _publish(uow: UnitOfWork, fact: SystemEvent, proposal: Proposal, note: AuditEntry) -> None:
    event = of_proposal(fact, proposal, by=note.caller, reason=note.reason, at=note.at)
    uow.system_events.append((proposal.owner.tenant, event))
