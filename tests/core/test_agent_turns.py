"""Which session a turn talks in, which key it holds, and what it cannot do without."""

from dataclasses import replace

import pytest

from noonmark.core.agents.session import Mob, Session, SessionState, step_session, task_session
from noonmark.core.agents.turns import (
    agent_target,
    asks_for_remote,
    is_flow_key,
    is_helper,
    missing,
    needed_mob,
    needed_session,
    reservation_id,
    session_of,
    spoken_session,
    turn_limits,
)
from noonmark.core.policies.limits import KeyLimit
from noonmark.core.reasons import Reason
from noonmark.core.targets import FunctionTarget, TaskTarget
from noonmark.core.targets.mob import (
    HelperBackend,
    HelperOptions,
    MobFlowTarget,
    MobForkTarget,
    MobMemberTarget,
    MobSpawnTarget,
)
from noonmark.core.targets.session import (
    OnDemandSessionTarget,
    PromptAction,
    SessionSpec,
    SessionTarget,
    SessionType,
)

PROMPT, SPEC = PromptAction(prompt="go"), SessionSpec(model="test")
EXACT = SessionTarget(type=SessionType.EXACT, session_id="desk", action=PROMPT)
RESUMABLE = SessionTarget(type=SessionType.RESUMABLE, session_id="desk", action=PROMPT)
ON_DEMAND = OnDemandSessionTarget(create=SPEC, action=PROMPT)
BOUND = OnDemandSessionTarget(create=SPEC, action=PROMPT, bound_session_id="desk")
MEMBER = MobMemberTarget(mob_id="crew", member_id="writer", content="go")
FLOW = MobFlowTarget(mob_id="crew", flow_id="news")
SPAWN = MobSpawnTarget(mob_id="crew", member_id="scout", prompt="go")
FORK = MobForkTarget(mob_id="crew", source_member_id="writer", member_id="scout", prompt="go")
CREW = Mob(
    tenant="acme", mob_id="crew", user="ada", document={"members": [{"member_id": "writer"}], "flows": {"news": {}}}
)
EMPTY = Mob(tenant="acme", mob_id="crew", user="ada", document={"members": []})
IDLE = Session(tenant="acme", session_id="desk", user="ada", spec=SPEC)
ARCHIVED = Session(tenant="acme", session_id="desk", user="ada", spec=SPEC, state=SessionState.ARCHIVED)


@pytest.mark.parametrize(
    ("target", "key", "session", "mob"),
    [
        (EXACT, "session:desk\n", "desk", None),
        (RESUMABLE, "session:desk\n", "desk", None),
        (ON_DEMAND, "session:schedule:uid-1\n", None, None),
        (BOUND, "session:desk\n", None, None),
        (MEMBER, "session:mob:crew:writer\n", "mob:crew:writer", "crew"),
        (SPAWN, "session:mob:crew:scout\n", None, "crew"),
        (FORK, "session:mob:crew:scout\n", None, "crew"),
        (FLOW, "flow:crew:news\n", None, "crew"),
    ],
)
def test_a_turn_holds_a_key_and_needs_what_it_names(target, key, session, mob):
    assert turn_limits(target, "uid-1") == (KeyLimit(key, 1, Reason.TARGET_BUSY),)
    named = session_of(target, "uid-1")
    assert key == ("flow:crew:news\n" if named is None else f"session:{named}\n")
    assert is_flow_key(key) is (named is None)
    assert (needed_session(target), needed_mob(target)) == (session, mob)
    assert agent_target(target) is target


def test_the_key_of_a_schedule_is_not_that_of_a_flow():
    assert not is_flow_key("flow:crew:news")


def test_other_targets_hold_no_key():
    target = FunctionTarget(function="tidy")
    assert agent_target(target) is None
    assert turn_limits(target, "uid-1") == ()


@pytest.mark.parametrize(
    ("target", "session", "mob", "expected"),
    [
        (EXACT, IDLE, None, None),
        (EXACT, None, None, {"session": "desk"}),
        (EXACT, ARCHIVED, None, {"session": "desk", "state": "archived"}),
        (RESUMABLE, ARCHIVED, None, None),
        (RESUMABLE, None, None, {"session": "desk"}),
        (ON_DEMAND, None, None, None),
        (MEMBER, IDLE, CREW, None),
        (MEMBER, IDLE, None, {"mob": "crew"}),
        (MEMBER, None, CREW, {"mob": "crew", "member": "writer"}),
        (MEMBER, IDLE, EMPTY, {"mob": "crew", "member": "writer"}),
        (FLOW, None, CREW, None),
        (FLOW, None, EMPTY, {"mob": "crew", "flow": "news"}),
        (SPAWN, None, CREW, None),
        (SPAWN, None, None, {"mob": "crew"}),
        (FORK, None, CREW, None),
        (FORK, None, EMPTY, {"mob": "crew", "member": "writer"}),
    ],
)
def test_what_a_target_lacks(target, session, mob, expected):
    assert missing(target, session, mob) == expected


def test_the_session_of_a_task_is_its_own():
    assert task_session("daily", "occ_1") == "schedule:daily:occ_1"


def test_the_session_of_a_step_is_its_own_too():
    assert step_session("occ_1") == "step:occ_1"


@pytest.mark.parametrize(
    ("target", "session"),
    [
        (EXACT, "desk"),
        (ON_DEMAND, "schedule:uid-1"),
        (MEMBER, "mob:crew:writer"),
        (SPAWN, "mob:crew:scout:occ_1"),
        (FORK, "mob:crew:scout:occ_1"),
        (FLOW, None),
        (TaskTarget(query="why"), "schedule:steps:wf:occ_1"),
        (FunctionTarget(function="f"), None),
    ],
)
def test_an_occurrence_talks_in_a_session(target, session):
    found = spoken_session(target, uid="uid-1", schedule_id="~steps:wf", occurrence_id="occ_1")
    assert found == session
    assert is_helper(target) is (target in (SPAWN, FORK))


def test_a_run_at_a_remote_host_reserves_under_one_id_at_a_time():
    assert [reservation_id("occ_1", number) for number in (1, 2)] == ["occ_1/first", "occ_1/2"]


@pytest.mark.parametrize(
    ("target", "is_so"),
    [
        (TaskTarget(query="why"), False),
        (TaskTarget(query="why", context={"execution_target": "daemon", "agent_name": "ops"}), True),
        (SPAWN, False),
        (replace(SPAWN, options=HelperOptions(backend=HelperBackend.EXTERNAL)), True),
        (MEMBER, False),
        (EXACT, False),
    ],
)
def test_some_targets_ask_for_the_remote_host(target, is_so):
    assert asks_for_remote(target) is is_so
