"""Proposals: the schedule that is proposed, who may approve it, and what becomes of one that is denied or expires."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.lineage import Lineage
from noonmark.core.planner import Snapshot
from noonmark.core.proposals import Proposal, ProposedAction, expiry_note, why_not_decided
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.system_events import SystemEvent, of_proposal
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW

PROPOSED = Proposal(
    proposal_id="p1",
    action=ProposedAction.CREATE,
    uid="u1",
    schedule_id="nightly",
    name="Nightly",
    owner=Owner(tenant="acme", user="ada"),
    document=factories.declaration().to_document(),
    source="rest",
    by="ada",
    key_id="k1",
    is_agent=True,
    proposed=NOW,
    expires=NOW + MINUTE,
    lineage=Lineage(depth=1, session_id="s"),
)
NOTE = AuditEntry(at=NOW, caller="bob", operation="schedule/deny")


def test_a_proposed_schedule_is_read_from_its_document():
    schedule = PROPOSED.schedule()
    assert schedule.declaration == factories.declaration()
    assert (schedule.phase, schedule.revision, schedule.created) == (SchedulePhase.PROPOSED, 1, NOW)
    assert schedule.lineage == PROPOSED.lineage


@pytest.mark.parametrize(
    ("of_agent", "who", "why"),
    [
        (True, {"user": "ada", "key_id": "k2", "is_agent": True}, "a person decides"),
        (True, {"user": "bob", "key_id": None, "is_agent": True}, "a person decides"),
        (True, {"user": "ada", "key_id": "k1", "is_agent": False}, "somebody else decides"),
        (False, {"user": "ada", "key_id": "k2", "is_agent": False}, "somebody else decides"),
        (True, {"user": "ada", "key_id": "k2", "is_agent": False}, None),
        (True, {"user": "local", "key_id": None, "is_agent": False}, None),
        (False, {"user": "bob", "key_id": "k3", "is_agent": False}, None),
    ],
)
def test_who_may_approve(of_agent, who, why):
    answer = why_not_decided(replace(PROPOSED, is_agent=of_agent), **who)
    assert answer is why is None or answer.startswith(why)


def test_a_denied_schedule_is_deleted_and_never_planned():
    plan = edits.denial(PROPOSED, now=NOW + 5, note=NOTE)
    denied = plan.snapshot.schedule
    assert (denied.phase, denied.deleted, denied.updated) == (SchedulePhase.DELETED, NOW + 5, NOW + 5)
    assert (plan.plan_at, plan.planned, plan.exhausted) == (None, (), True)
    assert (plan.proposal, plan.note) == ("p1", NOTE)


def test_what_expired_is_on_record():
    note = expiry_note(replace(PROPOSED, action=ProposedAction.DELETE, base_revision=3), now=NOW)
    assert (note.caller, note.operation, note.reason) == (
        "noonmark", "schedule/deny", "the proposal to delete expired",
    )  # fmt: skip
    assert (note.uid, note.revision_before, note.revision_after) == ("u1", 3, 3)


def test_the_event_of_a_proposal_says_what_a_message_needs():
    event = of_proposal(SystemEvent.SCHEDULE_PROPOSED, PROPOSED, by="ada", reason=None, at=NOW)
    assert (event.event_type, event.source) == ("schedule.proposed", "noonmark")
    assert event.payload == {
        "schedule_id": "nightly",
        "schedule_name": "Nightly",
        "user": "ada",
        "proposal_id": "p1",
        "action": "create",
        "base_revision": None,
        "proposed_by": "ada",
        "proposed_at": "2030-03-17T17:47:00Z",
        "expires_at": "2030-03-17T17:48:00Z",
        "by": "ada",
        "reason": None,
        "at": "2030-03-17T17:47:00Z",
        "depth": 1,
        "chain": ["nightly"],
    }


@pytest.mark.parametrize("stamped", [True, False])
def test_an_edit_stamps_what_an_agent_made_anew(stamped):
    lineage = Lineage(depth=1, fingerprint="old" if stamped else None)
    schedule = replace(factories.schedule(), lineage=lineage)
    declared = factories.declaration(max_runs=3)
    plan = edits.edit(Snapshot(schedule=schedule, watermark=NOW), declared, now=NOW, lookahead=0)
    assert (plan.schedule.lineage == lineage) is not stamped
    assert plan.schedule.lineage.depth == 1
