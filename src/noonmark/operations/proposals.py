"""Proposals: what callers with the scope `propose` ask for, and what others decide about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.changes import differences
from noonmark.core.edits import denial
from noonmark.core.errors import Conflict, InvalidSchedule, NotAllowed, NotFound
from noonmark.core.ids import default_id
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.lineage import fingerprint
from noonmark.core.proposals import Proposal, ProposedAction, why_not_decided
from noonmark.core.schedule import declare_again, parse_schedule
from noonmark.operations import schedule_edits, schedules
from noonmark.operations.lineages import count_new, lineage_of, lineage_of_change, with_default_end
from noonmark.operations.models.arguments import ExpectedSchedule
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.schedule_edits import Expected
from noonmark.operations.secrets import check_secrets
from noonmark.operations.serializers import read_page, text
from noonmark.operations.service import schedule_quotas
from noonmark.operations.target_policy import check_declaration, with_bundle_needs
from noonmark.ports.records import ScheduleFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lineage import AgentLimits, Lineage
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.operations.models.arguments import (
        Deletion,
        OneSchedule,
        PageOfProposals,
        ProposalDecision,
        ScheduleAction,
    )
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule

MAX_ALIKE = 20
"""How many schedules of the same name are compared with a proposed one."""


def propose_schedule(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Propose a schedule. The same request with the same idempotency key returns the schedule it has proposed."""
    document, owner, key = schedules.split(service, caller, arguments)
    now, uid = service.store.clock(), service.fresh_uid()
    if document.get("enabled") is False:
        raise InvalidSchedule(
            "is not for proposals: a proposed schedule is active once it is approved", field="enabled"
        )
    if key is not None:
        check_secrets(service.store, owner.tenant, schedules.parse(service, caller, document, now=now, key="").target)
        uid = schedules.uid_for(service, owner, key, document, now=now)
    schedule_id = str(document.get("schedule_id") or default_id(uid))
    pending = service.store.proposal(owner.tenant, schedule_id)
    if pending is not None and pending.uid == uid:
        return proposed_document(service, pending, now=now)
    if service.store.find_uid(uid) is not None:
        return schedules.created_before(service, owner, uid, document, now=now)
    document = with_default_end(service, caller, document, now=now)
    declaration = schedules.parse(service, caller, document, now=now, key=schedule_id)
    check_secrets(service.store, owner.tenant, declaration.target)
    lineage = lineage_of(service, caller, declaration)
    count_new(service, caller, lineage)
    proposal = Proposal(
        proposal_id=f"prp_{uid}",
        action=ProposedAction.CREATE,
        uid=uid,
        schedule_id=schedule_id,
        name=declaration.name,
        owner=owner,
        document=declaration.to_document(),
        lineage=lineage,
        **_author(service, caller, now=now),
    )
    note = caller.audit()(None, proposal.schedule(), now=now)
    if service.store.put_proposal(proposal, most=service.agent_limits.max_proposals, note=note):
        return proposed_document(service, proposal, now=now)
    pending = service.store.proposal(owner.tenant, schedule_id)
    if pending is None or pending.uid != uid:  # else a copy of the request has come first
        raise Conflict(f"there is a schedule {schedule_id!r} already, or it is proposed", field="schedule_id")
    return proposed_document(service, pending, now=now)


def propose_update(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Propose to change some fields of a schedule, which runs on as it is until somebody decides."""
    changes = dict(arguments)
    precondition = ExpectedSchedule.read({name: changes.pop(name, None) for name in ExpectedSchedule.fields()})
    schedules.check_changes(changes)
    if "enabled" in changes:
        raise InvalidSchedule("is not for proposals: pause the schedule, or propose to resume it", field="enabled")
    stored = schedule_edits.find_for(caller, service.store, precondition.schedule_id)
    changes = with_bundle_needs(service.store, stored.schedule.owner.tenant, changes)
    now = service.store.clock()
    changes = with_default_end(service, caller, changes, now=now)
    expected = Expected(precondition.expected_revision, precondition.expected_updated_at_utc)
    declaration = _declared(service, caller, stored.schedule, changes, now=now)
    check_secrets(service.store, stored.schedule.owner.tenant, declaration.target)
    if declaration == stored.schedule.declaration:
        raise Conflict("the proposal would change nothing")
    lineage = lineage_of_change(caller, stored.schedule.declaration, declaration)
    return _propose_change(service, caller, stored, ProposedAction.UPDATE, expected, changes=changes, lineage=lineage)


def propose_resume(service: Service, caller: Caller, arguments: ScheduleAction) -> dict[str, Any]:
    """Propose to resume a paused schedule."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    if stored.schedule.phase is not SchedulePhase.PAUSED:
        raise Conflict(f"the schedule is {stored.schedule.phase}, so there is nothing to resume")
    return _propose_change(
        service, caller, stored, ProposedAction.RESUME, schedules.expected_of(arguments), reason=arguments.reason
    )


def propose_deletion(service: Service, caller: Caller, arguments: Deletion) -> dict[str, Any]:
    """Propose to delete a schedule; what the same user proposed and nobody decided yet is withdrawn at once."""
    pending = service.store.proposal(caller.owner.tenant, arguments.schedule_id)
    if pending is not None and pending.action is ProposedAction.CREATE and pending.by == caller.name:
        return _deny(service, caller, pending, arguments.reason or "withdrawn")
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    return _propose_change(
        service, caller, stored, ProposedAction.DELETE, schedules.expected_of(arguments), reason=arguments.reason
    )


def _propose_change(  # noqa: PLR0913 - each is a part of the request
    service: Service,
    caller: Caller,
    stored: StoredSchedule,
    action: ProposedAction,
    expected: Expected,
    *,
    changes: Mapping[str, Any] | None = None,
    lineage: Lineage | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    schedule, now = stored.schedule, service.store.clock()
    expected.check(schedule)
    proposal = Proposal(
        proposal_id=f"prp_{service.fresh_id()}",
        action=action,
        uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        name=schedule.declaration.name,
        owner=schedule.owner,
        document=dict(changes or {}),
        base_revision=schedule.revision,
        reason=reason,
        lineage=lineage,
        **_author(service, caller, now=now),
    )
    note = caller.audit(f"proposed to {action}" if reason is None else f"proposed to {action}: {reason}")
    most = service.agent_limits.max_proposals
    if not service.store.put_proposal(proposal, most=most, note=note(schedule, schedule, now=now)):
        raise Conflict("another proposal about this schedule waits for a decision", field="schedule_id")
    document = schedules.document_of(service, stored, now=now)
    return document | {"proposal": proposal_document(service, proposal, stored, now=now)}


def _author(service: Service, caller: Caller, *, now: Micros) -> dict[str, Any]:
    return {
        "source": caller.source,
        "by": caller.name,
        "key_id": caller.key_id,
        "is_agent": caller.acts_as_agent,
        "proposed": now,
        "expires": now + service.agent_limits.proposal_lifetime,
    }


def _declared(
    service: Service, caller: Caller, schedule: Schedule, changes: Mapping[str, Any], *, now: Micros
) -> Declaration:
    document = schedules.changed(schedule.declaration, changes)
    return check_declaration(service, caller, declare_again(document, schedule, now=from_micros(now)), schedule)


_PLANNED = frozenset({SchedulePhase.ACTIVE, SchedulePhase.PAUSED})


def approve(service: Service, caller: Caller, arguments: ProposalDecision) -> dict[str, Any]:
    """Approve a proposal: it takes effect now, and the schedule is planned."""
    proposal = _find(service, caller, arguments.schedule_id)
    why_not = why_not_decided(proposal, user=caller.name, key_id=caller.key_id, is_agent=caller.acts_as_agent)
    if why_not is not None:
        raise NotAllowed(why_not)
    if proposal.action is ProposedAction.CREATE:
        return _create(service, caller, proposal, arguments.comment)
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    if stored.schedule.uid != proposal.uid:
        raise Conflict("the schedule was deleted, and another has its id; deny the proposal", field="schedule_id")
    return _change(service, caller, stored, proposal, arguments.comment)


def deny(service: Service, caller: Caller, arguments: ProposalDecision) -> dict[str, Any]:
    """Deny a proposal: a proposed schedule is deleted, any other stays unchanged."""
    proposal = _find(service, caller, arguments.schedule_id)
    if caller.acts_as_agent:
        raise NotAllowed("a person decides; the key of an agent cannot")
    return _deny(service, caller, proposal, arguments.comment)


def _create(service: Service, caller: Caller, proposal: Proposal, comment: str | None) -> dict[str, Any]:
    now = service.store.clock()
    # As it was shown: times are absolute. One that has nothing left to fire is refused.
    declared = parse_schedule(proposal.document, now=from_micros(now), key=proposal.schedule_id)
    schedule = schedule_edits.new_schedule(
        check_declaration(service, caller, declared, None),
        uid=proposal.uid,
        schedule_id=proposal.schedule_id,
        owner=proposal.owner,
        source=proposal.source,
        now=now,
        lineage=proposal.lineage,
    )
    plan = schedule_edits.create(
        service.store,
        schedule,
        lookahead=service.lookahead,
        audit=caller.audit(comment),
        quotas=schedule_quotas(service, replace(caller, owner=proposal.owner)),
        # What held when it was proposed need not hold now.
        agent_limits=_limits(service, proposal),
        proposal=proposal.proposal_id,
    )
    if plan is None:
        raise Conflict("the proposal was decided by somebody else, or its id is taken by now", field="schedule_id")
    return schedules.with_ping_url(service, schedule, schedules.written(service, schedule))


def _change(
    service: Service, caller: Caller, stored: StoredSchedule, proposal: Proposal, comment: str | None
) -> dict[str, Any]:
    store, uid, audit = service.store, stored.schedule.uid, caller.audit(comment)
    expected, decided = Expected(proposal.base_revision), proposal.proposal_id
    if proposal.action is ProposedAction.UPDATE:

        def read(schedule: Schedule, now: Micros) -> Declaration:
            expected.check(schedule)
            return _declared(service, caller, schedule, proposal.document, now=now)

        edited = schedule_edits.declare(
            store,
            uid,
            read,
            lookahead=service.lookahead,
            audit=audit,
            quotas=schedule_quotas(service, caller),
            proposal=decided,
            agent_limits=_limits(service, proposal),
            scopes=None if proposal.lineage is None else proposal.lineage.granted,
        )
    elif proposal.action is ProposedAction.RESUME:
        edited = schedule_edits.resume(
            store, uid, lookahead=service.lookahead, audit=audit, expected=expected, proposal=decided
        )
    else:
        edited = schedule_edits.delete(store, uid, audit, expected=expected, proposal=decided)
    # Where the schedule was as proposed already, nothing was written; the proposal ends all the same.
    note = caller.audit("it was as proposed already")(edited, edited, now=store.clock())
    store.deny_change(proposal.owner.tenant, proposal.schedule_id, decided, note=note)
    return schedules.written(service, edited)


def _limits(service: Service, proposal: Proposal) -> AgentLimits | None:
    """The limits of what was proposed, if an agent did it."""
    return service.agent_limits if proposal.is_agent else None


def _deny(service: Service, caller: Caller, proposal: Proposal, comment: str | None) -> dict[str, Any]:
    store, now = service.store, service.store.clock()
    if proposal.action is ProposedAction.CREATE:
        note = caller.audit(comment)(None, proposal.schedule(), now=now)
        [is_done] = store.create([denial(proposal, now=now, note=note)])
    else:
        stored = store.find_uid(proposal.uid)
        schedule = None if stored is None else stored.schedule
        note = caller.audit(comment)(schedule, schedule, now=now)
        is_done = store.deny_change(proposal.owner.tenant, proposal.schedule_id, proposal.proposal_id, note=note)
    if not is_done:
        raise Conflict("the proposal was decided by somebody else", field="schedule_id")
    stored = store.find_uid(proposal.uid)
    if stored is None:
        raise NotFound(f"there is no schedule {proposal.schedule_id!r}", field="schedule_id")
    return schedules.document_of(service, stored, now=now)


def list_proposals(service: Service, caller: Caller, arguments: PageOfProposals) -> dict[str, Any]:
    """List the proposals about schedules, which wait for somebody's decision, oldest first."""
    user, now = caller.owner.user if caller.sees_own_only else None, service.store.clock()

    def fetch(count: int, last: Proposal | None) -> list[Proposal]:
        after = arguments.cursor if last is None else (last.proposed, last.schedule_id)
        return service.store.proposals(caller.owner.tenant, count, after=after, user=user)

    def serialize(page: Sequence[Proposal]) -> list[dict[str, Any]]:
        return [_shown(service, one, now=now) for one in page]

    entries, end = read_page(arguments.limit, fetch, serialize)
    return {
        "proposals": entries,
        "next_cursor": None if end is None else write_cursor(end.proposed, end.schedule_id),
    }


def get_proposal(service: Service, caller: Caller, arguments: OneSchedule) -> dict[str, Any]:
    """Get the proposal for a schedule, with its changes."""
    return _shown(service, _find(service, caller, arguments.schedule_id), now=service.store.clock())


def _find(service: Service, caller: Caller, schedule_id: str) -> Proposal:
    proposal = service.store.proposal(caller.owner.tenant, schedule_id)
    if proposal is None or not caller.sees_owner(proposal.owner):
        raise NotFound(f"nothing is proposed for the schedule {schedule_id!r}", field="schedule_id")
    return proposal


def _shown(service: Service, proposal: Proposal, *, now: Micros) -> dict[str, Any]:
    stored = None if proposal.action is ProposedAction.CREATE else service.store.find_uid(proposal.uid)
    return proposal_document(service, proposal, stored, now=now)


def proposed_document(service: Service, proposal: Proposal, *, now: Micros) -> dict[str, Any]:
    """A proposed schedule: its document, next fires, warnings and forecast, and who proposed it."""
    document = schedules.proposed_schedule(service, proposal, now=now)
    return document | {"proposal": proposal_document(service, proposal, None, now=now)}


def proposal_document(
    service: Service, proposal: Proposal, stored: StoredSchedule | None, *, now: Micros
) -> dict[str, Any]:
    """A proposal, with what it would change."""
    changes, conflicts = _changes(service, proposal, stored, now=now)
    return {
        "proposal_id": proposal.proposal_id,
        "schedule_id": proposal.schedule_id,
        "schedule_name": proposal.name,
        "action": str(proposal.action),
        "base_revision": proposal.base_revision,
        "by": proposal.by,
        "agent": proposal.is_agent,
        "reason": proposal.reason,
        "proposed_at_utc": text(proposal.proposed),
        "expires_at_utc": text(proposal.expires),
        "changes": changes,
        "conflicts": conflicts,
    }


def _changes(
    service: Service, proposal: Proposal, stored: StoredSchedule | None, *, now: Micros
) -> tuple[list[dict[str, Any]], list[str]]:
    """What would change, and what speaks against it."""
    if proposal.action is ProposedAction.CREATE:
        return [], _alike(service, proposal)
    if stored is None or stored.schedule.phase is SchedulePhase.DELETED:
        return [], ["the schedule was deleted"]
    schedule, conflicts = stored.schedule, list[str]()
    if schedule.revision != proposal.base_revision:
        conflicts.append(f"the schedule has revision {schedule.revision} by now, not {proposal.base_revision}")
    if proposal.action is not ProposedAction.UPDATE:
        after = SchedulePhase.ACTIVE if proposal.action is ProposedAction.RESUME else SchedulePhase.DELETED
        return [{"field": "phase", "before": str(schedule.phase), "after": str(after)}], conflicts
    try:
        document = schedules.changed(schedule.declaration, proposal.document)
        declared = declare_again(document, schedule, now=from_micros(now))
    except InvalidSchedule as error:  # it no longer fits what the schedule has become
        return [], [*conflicts, *(f"{one.field}: {one.message}" for one in error.problems)]
    fields = differences("", schedule.declaration.to_document(), declared.to_document())
    return [{"field": one.field, "before": one.before, "after": one.after} for one in fields], conflicts


def _alike(service: Service, proposal: Proposal) -> list[str]:
    """Schedules that do the same as a proposed one at the same times, or have its name."""
    declared, tenant = proposal.schedule().declaration, proposal.owner.tenant
    digest = fingerprint(declared.to_document())
    wanted = [ScheduleFilter(phases=_PLANNED, fingerprint=digest)]
    if declared.name is not None:
        wanted.append(ScheduleFilter(phases=_PLANNED, name=declared.name))
    alike = {
        stored.schedule.schedule_id: stored.schedule
        for one in wanted
        for stored in service.store.schedules(tenant, limit=MAX_ALIKE, wanted=one)
    }
    return [
        f"the schedule {schedule_id!r} has the same "
        + ("target and trigger" if fingerprint(schedule.declaration.to_document()) == digest else "name")
        for schedule_id, schedule in alike.items()
    ]
