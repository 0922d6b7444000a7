"""Callers with the scope `propose`: what they may do, and what somebody else decides about it."""

from dataclasses import replace

import pytest

from noonmark import Scheduler
from noonmark.core.api_key import Scope
from noonmark.core.errors import (
    Conflict,
    InvalidSchedule,
    MissingScope,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    RevisionConflict,
)
from noonmark.core.instants import DAY_SECONDS
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.lineage import AgentLimits
from noonmark.operations.service import Caller, CallingSession
from noonmark.operations.table import perform
from tests.driver.rig import Wrapped
from tests.embedded.waiting import eventually
from tests.operations.harness import EVERY_MINUTE, LOCAL, REPORT, Harness

AGENT = replace(
    LOCAL,
    owner=replace(LOCAL.owner, user="ada"),
    name="ada",
    key_id="nm_live_agent1",
    scopes=frozenset({Scope.READ, Scope.PROPOSE}),
    is_agent=True,
    is_root=False,
)
ADA = replace(AGENT, key_id="nm_live_ada111", scopes=frozenset({Scope.READ, Scope.WRITE}), is_agent=False)
BOB = replace(ADA, key_id="nm_live_bob111", name="bob", owner=replace(ADA.owner, user="bob"))
DAILY = {"type": "cron", "expression": "0 9 * * *"}
ASKED = {"schedule_id": "asked", "trigger": EVERY_MINUTE, "target": REPORT}


@pytest.fixture
def harness():
    return Harness()


def propose(harness, caller=AGENT, **fields):
    return harness("schedule/create", caller, **{**ASKED, **fields})


def test_a_proposed_schedule_shows_what_it_would_do_and_does_nothing(harness):
    answer = propose(harness)
    assert (answer["phase"], answer["revision"]) == ("proposed", 1)
    assert answer["next_fire_times"][0] == "2026-03-01T12:01:00Z"
    assert answer["proposal"]["action"] == "create"
    assert (answer["proposal"]["by"], answer["proposal"]["agent"]) == ("ada", True)
    assert answer["proposal"]["expires_at_utc"] == "2026-03-08T12:00:00Z"
    harness.pass_by(300)
    assert harness.calls == []
    assert harness("schedule/get", schedule_id="asked")["phase"] == "proposed"
    assert harness("schedule/list")["schedules"] == []
    [listed] = harness("schedule/list", phase="proposed")["schedules"]
    assert listed["schedule_id"] == "asked"
    assert harness("schedule/list", phase="proposed", text="other")["schedules"] == []
    assert harness("schedule/count", phase="proposed") == {"count": 1}
    for refused in ("schedule/pause", "schedule/run", "schedule/occurrences"):
        with pytest.raises(NotFound, match="is proposed, and waits"):
            harness(refused, schedule_id="asked")


def test_an_approved_schedule_runs_from_then_on(harness):
    propose(harness)
    harness.pass_by(90)
    answer = harness("schedule/approve", ADA, schedule_id="asked", comment="fine")
    assert (answer["phase"], answer["owner"]["user"], answer["lineage"]["depth"]) == ("active", "ada", 1)
    harness.pass_by(60)
    assert [str(one.nominal_at) for one in harness.calls] == ["2026-03-01 12:02:00+00:00"]
    entries = harness("audit/list", schedule_id="asked")["entries"]
    assert [(one["operation"], one["caller"], one["reason"]) for one in entries] == [
        ("schedule/approve", "ada", "fine"),
        ("schedule/create", "ada", None),
    ]
    with pytest.raises(NotFound, match="nothing is proposed"):
        harness("schedule/approve", ADA, schedule_id="asked")


def test_a_denied_schedule_is_deleted(harness):
    propose(harness)
    assert harness("schedule/deny", BOB, schedule_id="asked", comment="no")["phase"] == "deleted"
    with pytest.raises(NotFound):
        harness("schedule/get", schedule_id="asked")
    assert harness("schedule/get", schedule_id="asked", include_deleted=True)["phase"] == "deleted"
    propose(harness)


@pytest.mark.parametrize(
    ("proposer", "decider", "message"),
    [
        (AGENT, replace(AGENT, scopes=ADA.scopes), "a person decides"),
        (AGENT, replace(BOB, is_agent=True), "a person decides"),
        (AGENT, replace(BOB, session=CallingSession(session_id="talk")), "a person decides"),
        (replace(AGENT, is_agent=False), ADA, "nobody approves their own"),
        (replace(AGENT, is_agent=False), replace(ADA, key_id=AGENT.key_id), "nobody approves their own"),
    ],
)
def test_users_do_not_approve_their_own_proposals_and_agents_approve_none(harness, proposer, decider, message):
    propose(harness, proposer)
    with pytest.raises(NotAllowed, match=message):
        harness("schedule/approve", decider, schedule_id="asked")
    assert harness("schedule/get", schedule_id="asked")["phase"] == "proposed"


def test_a_proposer_neither_decides_nor_runs(harness):
    propose(harness)
    harness.create(schedule_id="job")
    for operation in ("schedule/approve", "schedule/deny", "schedule/run"):
        with pytest.raises(MissingScope):
            harness(operation, AGENT, schedule_id="job")
    with pytest.raises(MissingScope):
        harness("schedule/upsert", AGENT, **ASKED)
    with pytest.raises(MissingScope):
        harness("selection/delete", AGENT, labels={"a": "b"})


def test_a_proposer_may_pause_and_withdraw(harness):
    harness.create(schedule_id="job")
    assert harness("schedule/pause", AGENT, schedule_id="job", reason="odd")["phase"] == "paused"
    propose(harness)
    with pytest.raises(NotFound, match="is proposed"):
        harness("schedule/delete", replace(AGENT, name="eve"), schedule_id="asked")
    assert harness("schedule/delete", AGENT, schedule_id="asked")["phase"] == "deleted"


def test_a_change_is_applied_once_it_is_approved(harness):
    harness.create(schedule_id="job", description="old")
    change = {"schedule_id": "job", "description": "new", "trigger": {"type": "interval", "every_seconds": 30}}
    answer = harness("schedule/update", AGENT, **change)
    assert (answer["description"], answer["revision"], answer["proposal"]["base_revision"]) == ("old", 1, 1)
    changes = {one["field"]: (one["before"], one["after"]) for one in answer["proposal"]["changes"]}
    assert changes["description"] == ("old", "new")
    assert changes["trigger.every_seconds"] == (60, 30)
    assert changes["trigger.end_at_utc"] == (None, "2026-03-31T12:00:00Z")
    with pytest.raises(Conflict, match="another proposal"):
        harness("schedule/delete", AGENT, schedule_id="job")
    harness.pass_by(60)
    assert len(harness.calls) == 1
    [listed] = harness("schedule/proposals")["proposals"]
    assert listed == harness("schedule/proposal", schedule_id="job")
    approved = harness("schedule/approve", BOB, schedule_id="job")
    assert (approved["description"], approved["revision"], approved["trigger"]["every_seconds"]) == ("new", 2, 30)
    assert harness("schedule/proposals")["proposals"] == []


def test_a_schedule_that_moved_is_not_overwritten(harness):
    harness.create(schedule_id="job")
    harness("schedule/update", AGENT, schedule_id="job", max_runs=5)
    harness("schedule/update", schedule_id="job", max_runs=9)
    [listed] = harness("schedule/proposals")["proposals"]
    assert listed["conflicts"] == ["the schedule has revision 2 by now, not 1"]
    with pytest.raises(RevisionConflict):
        harness("schedule/approve", BOB, schedule_id="job")
    assert harness("schedule/deny", BOB, schedule_id="job")["max_runs"] == 9
    with pytest.raises(RevisionConflict):
        harness("schedule/update", AGENT, schedule_id="job", max_runs=5, expected_revision=1)


def test_resuming_and_deleting_are_proposals_too(harness):
    harness.create(schedule_id="job")
    with pytest.raises(Conflict, match="nothing to resume"):
        harness("schedule/resume", AGENT, schedule_id="job")
    harness("schedule/pause", AGENT, schedule_id="job")
    answer = harness("schedule/resume", AGENT, schedule_id="job", reason="it is mended")
    assert answer["phase"] == "paused"
    assert answer["proposal"]["changes"] == [{"field": "phase", "before": "paused", "after": "active"}]
    assert harness("schedule/approve", BOB, schedule_id="job")["phase"] == "active"
    assert harness("schedule/delete", AGENT, schedule_id="job")["phase"] == "active"
    assert harness("schedule/approve", BOB, schedule_id="job")["phase"] == "deleted"


def test_a_change_that_was_made_meanwhile_ends_its_proposal(harness):
    harness.create(schedule_id="job", description="old")
    harness("schedule/update", AGENT, schedule_id="job", description="new")
    harness("schedule/update", schedule_id="job", description="new")
    assert harness("schedule/approve", BOB, schedule_id="job")["description"] == "new"
    assert harness("schedule/proposals")["proposals"] == []


@pytest.mark.parametrize(
    ("operation", "fields", "field"),
    [
        ("schedule/create", {"enabled": False}, "enabled"),
        ("schedule/update", {"enabled": False}, "enabled"),
        ("schedule/create", {"lineage": {"depth": 1}}, "lineage"),
        ("schedule/update", {"proposal": {}}, "proposal"),
    ],
)
def test_what_cannot_be_proposed(harness, operation, fields, field):
    harness.create(schedule_id="job")
    base = ASKED if operation == "schedule/create" else {"schedule_id": "job"}
    with pytest.raises(InvalidSchedule) as refused:
        harness(operation, AGENT, **{**base, **fields})
    assert refused.value.field == field


def test_a_change_of_nothing_is_refused(harness):
    harness.create(schedule_id="job", description="same")
    with pytest.raises(Conflict, match="change nothing"):
        harness("schedule/update", AGENT, schedule_id="job", description="same")


def test_the_same_request_proposes_once(harness):
    first = propose(harness, schedule_id=None, idempotency_key="k")
    assert propose(harness, schedule_id=None, idempotency_key="k") == first
    approved = harness("schedule/approve", BOB, schedule_id=first["schedule_id"])
    again = propose(harness, schedule_id=None, idempotency_key="k")
    assert (again["phase"], again["schedule_id"]) == ("active", approved["schedule_id"])


def test_a_copy_of_the_request_gets_what_the_other_proposed_meanwhile(harness):
    service, answers = harness.service, []
    wrapped = Wrapped(service.store)
    harness.service = replace(service, store=wrapped)
    asked = {"trigger": EVERY_MINUTE, "target": REPORT, "idempotency_key": "k"}
    wrapped.meanwhile("put_proposal", lambda: answers.append(perform(service, AGENT, "schedule/create", asked)))
    answers.append(harness("schedule/create", AGENT, **asked))
    assert answers[0] == answers[1]


def test_an_id_is_taken_once(harness):
    harness.create(schedule_id="asked")
    with pytest.raises(Conflict, match="already"):
        propose(harness)
    propose(harness, schedule_id="next", description="x")
    with pytest.raises(Conflict, match="already, or it is proposed"):
        propose(harness, replace(AGENT, is_agent=False), schedule_id="next")


def test_a_conflict_names_the_schedule_that_does_the_same(harness):
    harness.create(schedule_id="job", name="nightly")
    answer = propose(harness, name="nightly")
    assert answer["proposal"]["conflicts"] == ["the schedule 'job' has the same target and trigger"]


def test_a_proposal_expires(harness):
    propose(harness, trigger={"type": "cron", "expression": "0 9 * * *"})
    harness.create(schedule_id="job")
    harness("schedule/update", AGENT, schedule_id="job", max_runs=5)
    harness.clock.advance(7 * DAY_SECONDS)
    assert harness.service.store.expire_proposals(now=harness.service.store.clock(), limit=9) == 2
    assert harness("schedule/get", schedule_id="asked", include_deleted=True)["phase"] == "deleted"
    assert harness("schedule/get", schedule_id="job").get("max_runs") is None


def test_a_time_that_passed_cannot_be_approved(harness):
    propose(harness, trigger={"type": "once", "due_at_utc": "2026-03-01T12:05:00Z"})
    harness.pass_by(3_600)
    with pytest.raises(InvalidSchedule, match="in the past"):
        harness("schedule/approve", BOB, schedule_id="asked")


def test_the_number_of_proposals_is_limited(harness):
    harness.service = replace(harness.service, agent_limits=AgentLimits(max_proposals=1))
    propose(harness)
    with pytest.raises(QuotaExceeded, match="1 proposals of ada are pending"):
        propose(harness, schedule_id="more", target={**REPORT, "args": [1]})


def test_the_proposals_of_other_tenants_and_users_are_unknown(harness):
    propose(harness)
    other = Caller(owner=replace(LOCAL.owner, tenant="elsewhere"), name="eve", source="rest")
    private = replace(BOB, sees_own_only=True)
    for caller in (other, private):
        assert harness("schedule/proposals", caller)["proposals"] == []
        for operation in ("schedule/get", "schedule/proposal", "schedule/approve", "schedule/deny"):
            with pytest.raises(NotFound) as refused:
                harness(operation, caller, schedule_id="asked")
            assert "waits" not in refused.value.message


def test_what_held_when_it_was_proposed_is_checked_again(harness):
    """Clones, children and depth, since other schedules and other settings may have come in between."""
    writer = replace(AGENT, scopes=ADA.scopes, key_id="nm_live_writer")
    propose(harness)
    parent = harness("schedule/create", ADA, **{**ASKED, "schedule_id": "parent", "target": {**REPORT, "args": ["p"]}})
    uid = harness.service.store.find(LOCAL.owner.tenant, "parent").schedule.uid
    session = replace(AGENT, key_id=None, session=CallingSession(session_id="talk", schedule_uid=uid))
    for number in range(3):
        propose(harness, session, schedule_id=f"child-{number}", target={**REPORT, "args": [number]})
    harness("schedule/update", AGENT, schedule_id="parent", target={**REPORT, "args": [7]})
    harness("schedule/approve", BOB, schedule_id="child-0")
    limits = AgentLimits(max_children=1, max_depth=1)
    harness.service = replace(harness.service, agent_limits=limits)
    with pytest.raises(QuotaExceeded, match="runs of parent have made 1"):
        harness("schedule/approve", BOB, schedule_id="child-1")
    harness.service = replace(harness.service, agent_limits=replace(limits, max_depth=0))
    with pytest.raises(Conflict, match="may be 0 deep, and this one would be 1"):
        harness("schedule/approve", BOB, schedule_id="asked")
    harness.service = replace(harness.service, agent_limits=AgentLimits())
    # What waits for a decision counts as a clone for others, and not for itself.
    with pytest.raises(Conflict, match="'parent' has the same target and trigger"):
        harness("schedule/create", writer, trigger=EVERY_MINUTE, target={**REPORT, "args": [7]})
    harness("schedule/deny", BOB, schedule_id="parent")
    harness("schedule/create", writer, schedule_id="seven", trigger=EVERY_MINUTE, target={**REPORT, "args": [7]})
    with pytest.raises(Conflict, match="'seven' has the same target and trigger"):
        harness("schedule/update", AGENT, schedule_id="parent", target={**REPORT, "args": [7]})
    assert harness("schedule/approve", BOB, schedule_id="asked")["phase"] == "active"
    assert parent["revision"] == harness("schedule/get", schedule_id="parent")["revision"]


def test_an_agent_edits_no_schedule_into_a_clone(harness):
    writer = replace(AGENT, scopes=ADA.scopes)
    harness("schedule/create", writer, **ASKED)
    for owner in (writer, ADA):  # of an agent, and of a person
        other = harness("schedule/create", owner, **{**ASKED, "schedule_id": None, "target": {**REPORT, "args": [1]}})
        with pytest.raises(Conflict, match="'asked' has the same target and trigger"):
            harness("schedule/update", writer, schedule_id=other["schedule_id"], target=REPORT)
        if owner is ADA:
            assert harness("schedule/update", ADA, schedule_id=other["schedule_id"], target=REPORT)["revision"] == 2
        else:
            harness("schedule/delete", ADA, schedule_id=other["schedule_id"])


PERSON = replace(AGENT, is_agent=False)
TALK = {"target_kind": "session", "type": "materialize_on_demand_session", "create": {"model": "test"},
        "action": {"type": "prompt", "prompt": "Go on."}}  # fmt: skip


@pytest.mark.parametrize("proposer", [AGENT, PERSON], ids=["agent", "person"])
def test_an_approved_schedule_says_what_its_sessions_may_do(harness, proposer):
    propose(harness, proposer, target=TALK)
    assert harness("schedule/approve", BOB, schedule_id="asked")["lineage"]["scopes"] == ["propose", "read"]
    harness.create(schedule_id="job")
    harness("schedule/update", proposer, schedule_id="job", description="words")
    assert "lineage" not in harness("schedule/approve", BOB, schedule_id="job")
    harness(
        "schedule/update", proposer, schedule_id="job", target={**TALK, "action": {"type": "prompt", "prompt": "?"}}
    )
    approved = harness("schedule/approve", BOB, schedule_id="job")
    assert (approved["lineage"]["depth"], approved["lineage"]["scopes"]) == (0, ["propose", "read"])


def test_a_running_node_ends_what_nobody_has_decided():
    scheduler = Scheduler()
    try:
        service = replace(scheduler._service(), agent_limits=AgentLimits(proposal_lifetime=1))
        perform(service, LOCAL, "schedule/create", {**ASKED, "schedule_id": "job", "trigger": DAILY})
        perform(service, AGENT, "schedule/create", {**ASKED, "trigger": DAILY})
        perform(service, AGENT, "schedule/delete", {"schedule_id": "job"})
        kept = replace(service, agent_limits=AgentLimits())
        perform(kept, AGENT, "schedule/create", {**ASKED, "schedule_id": "kept", "target": {**REPORT, "args": [1]}})
        scheduler.start()
        eventually(
            lambda: service.store.proposal("default", "job") is service.store.proposal("default", "asked") is None
        )
        assert service.store.find("default", "asked", deleted=True).schedule.phase is SchedulePhase.DELETED
        assert service.store.find("default", "job").schedule.phase is SchedulePhase.ACTIVE
        entries = perform(service, LOCAL, "audit/list", {"schedule_id": "asked"})["entries"]
        assert (entries[0]["operation"], entries[0]["reason"]) == ("schedule/deny", "the proposal to create expired")
    finally:
        scheduler.close()
