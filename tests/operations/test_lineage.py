"""What agents make: a chain that is known, and limits that hold."""

from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, QuotaExceeded
from noonmark.core.ids import manual
from noonmark.core.lineage import AgentLimits
from noonmark.core.occurrence import Overrides
from noonmark.core.occurrence import Parent as OfStep
from noonmark.core.planner import first_plan
from noonmark.core.signatures import chain_key, chain_proof
from noonmark.core.workflows.hidden_schedules import hidden_schedule
from noonmark.operations.service import CallingSession
from noonmark.testing import factories
from tests.operations.harness import EVERY_MINUTE, LOCAL, REPORT, Harness
from tests.operations.test_proposals import AGENT, BOB

WRITER = replace(AGENT, scopes=BOB.scopes)
TALK = CallingSession(session_id="talk", tool_call_id="call-1")
SESSION = replace(LOCAL, session=TALK)


@pytest.fixture
def harness():
    return Harness()


def make(harness, number, caller=WRITER, **fields):
    target = {**REPORT, "args": [number]}
    return harness("schedule/create", caller, **{"trigger": EVERY_MINUTE, "target": target, **fields})


def uid(harness, schedule_id):
    return harness.service.store.find(LOCAL.owner.tenant, schedule_id).schedule.uid


def in_run(harness, parent, **changes):
    """The session in a run of a schedule."""
    return replace(SESSION, session=replace(TALK, schedule_uid=uid(harness, parent), **changes))


def limit(harness, **changes):
    harness.service = replace(harness.service, agent_limits=replace(AgentLimits(), **changes))


def test_people_leave_no_lineage(harness):
    assert "lineage" not in make(harness, 1, LOCAL)
    assert "lineage" not in make(harness, 1, BOB)


def test_a_session_is_named_and_its_chain_grows(harness):
    first = make(harness, 1, SESSION)
    assert first["lineage"] == {
        "session_id": "talk", "schedule_id": None, "tool_call_id": "call-1", "depth": 1, "chain": ["session:talk"],
        "scopes": None,
    }  # fmt: skip
    second = make(harness, 2, in_run(harness, first["schedule_id"], session_id="child"))
    chain = ["session:talk", f"schedule:{first['schedule_id']}", "session:child"]
    assert (second["lineage"]["depth"], second["lineage"]["chain"]) == (2, chain)
    assert harness("schedule/get", schedule_id=second["schedule_id"])["lineage"] == second["lineage"]


def test_a_step_of_a_workflow_belongs_to_the_schedule_of_its_run(harness):
    """Otherwise each workflow would begin a new chain, which no limit and no halt of the first session reaches."""
    store = harness.service.store
    outer = store.find("default", make(harness, 1, SESSION, schedule_id="outer")["schedule_id"]).schedule
    run = store.occurrence(harness("schedule/run", schedule_id="outer")["occurrence_id"])
    hidden = hidden_schedule("~steps:flow", uid="steps", owner=outer.owner, source="test", now=outer.created)
    assert store.create([first_plan(hidden, lookahead=1)]) == [True]
    proofs = {}
    for above in (run.id, "occ_pruned"):
        parent = Overrides(parent=OfStep(occurrence_id=above, step_id="ask"))
        step = factories.occurrence(hidden, manual(above), overrides=parent)
        assert store.add([step]) == [True]
        proofs[above] = chain_proof(chain_key(store.own_key(), "default"), occurrence_id=step.id)
    inner = make(harness, 2, replace(LOCAL, chain=proofs[run.id]))["lineage"]
    assert (inner["depth"], inner["chain"]) == (2, ["session:talk", "schedule:outer"])
    stray = make(harness, 3, replace(LOCAL, chain=proofs["occ_pruned"]))["lineage"]
    assert (stray["depth"], stray["chain"]) == (1, ["schedule:~steps:flow"])


def test_nesting_ends_at_the_limit(harness):
    caller, collected = SESSION, []
    for number in range(3):
        collected.append(make(harness, number, caller)["schedule_id"])
        caller = in_run(harness, collected[-1])
    with pytest.raises(Conflict, match="may be 3 deep, and this one would be 4"):
        make(harness, 9, caller)


def test_the_children_of_a_schedule_are_limited(harness):
    limit(harness, max_children=2)
    parent = make(harness, 0, LOCAL)["schedule_id"]
    caller = in_run(harness, parent)
    for number in (1, 2):
        make(harness, number, caller)
    with pytest.raises(QuotaExceeded, match=f"runs of {parent} have made 2"):
        make(harness, 3, caller)
    make(harness, 4, SESSION)


def test_an_agent_creates_a_limited_number_in_an_hour(harness):
    limit(harness, per_hour=3)
    for number in range(3):
        make(harness, number)
    with pytest.raises(QuotaExceeded, match="3 schedules an hour, and has; try again in"):
        make(harness, 9)
    with pytest.raises(QuotaExceeded):
        make(harness, 9, AGENT)  # a proposal counts too
    make(harness, 9, BOB)
    make(harness, 9, replace(WRITER, key_id="nm_live_another"))
    harness.clock.advance(1_201)
    make(harness, 10)


def test_what_comes_of_an_agent_counts_for_its_hour(harness):
    """Else each session that its schedules make would have an hour of its own."""
    limit(harness, per_hour=3)
    first = make(harness, 0)["schedule_id"]
    second = make(harness, 1, in_run(harness, first, session_id="a"))["schedule_id"]
    make(harness, 2, in_run(harness, second, session_id="b"))
    for caller in (WRITER, in_run(harness, first, session_id="c"), in_run(harness, second)):
        with pytest.raises(QuotaExceeded, match="3 schedules an hour"):
            make(harness, 3, caller)
    plain = make(harness, 4, LOCAL)["schedule_id"]
    for number in (5, 6, 7):
        make(harness, number, in_run(harness, plain, session_id=f"helper-{number}"))
    with pytest.raises(QuotaExceeded, match="3 schedules an hour"):
        make(harness, 8, in_run(harness, plain, session_id="helper-8"))
    make(harness, 9, SESSION)


@pytest.mark.parametrize("caller", [WRITER, AGENT], ids=["writes", "proposes"])
def test_a_clone_is_refused_with_the_id_of_the_first(harness, caller):
    first = make(harness, 1, caller)["schedule_id"]
    with pytest.raises(Conflict, match=f"'{first}' has the same target and trigger"):
        make(harness, 1, caller, name="another name", trigger={**EVERY_MINUTE, "start_at_utc": "2026-05-01T00:00:00Z"})
    make(harness, 1, BOB)
    make(harness, 1, caller, trigger={"type": "interval", "every_seconds": 61})


def test_what_an_agent_makes_ends_by_default(harness):
    assert make(harness, 1)["trigger"]["end_at_utc"] == "2026-03-31T12:00:00Z"
    own = {**EVERY_MINUTE, "end_at_utc": "2027-01-01T00:00:00Z"}
    made = make(harness, 2, SESSION, trigger=own)
    assert made["trigger"]["end_at_utc"] == "2027-01-01T00:00:00Z"
    assert "end_at_utc" not in make(harness, 3, LOCAL)["trigger"]
    edited = harness(
        "schedule/update", SESSION, schedule_id=made["schedule_id"], trigger={"type": "interval", "every_seconds": 9}
    )
    assert edited["trigger"]["end_at_utc"] == "2026-03-31T12:00:00Z"
    limit(harness, lifetime=None)
    assert "end_at_utc" not in make(harness, 4)["trigger"]
