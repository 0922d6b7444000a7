"""Containment: what a session with restricted tools may schedule."""

import pytest

from noonmark.core.agents.containment import containment_problem, is_restricted, with_policy
from noonmark.core.targets import parse_target
from noonmark.core.targets.mob import ToolAccess, ToolAccessPolicy

READ = ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("read",))
OTHER = ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("read", "write"))
NOT_WRITE = ToolAccessPolicy(type=ToolAccess.DENY_LIST, tools=("write",))
INHERIT = ToolAccessPolicy(type=ToolAccess.INHERIT)
ACTION = {"type": "prompt", "prompt": "Go on."}
SPAWN = {"target_kind": "mob", "type": "spawn_helper", "mob_id": "m", "member_id": "h", "prompt": "Help."}
FORK = {**SPAWN, "type": "fork_helper", "source_member_id": "lead"}
OWN = {"target_kind": "session", "type": "resumable_session", "session_id": "s1", "action": ACTION}
ON_DEMAND = {
    "target_kind": "session",
    "type": "materialize_on_demand_session",
    "create": {"model": "test"},
    "action": ACTION,
}
HTTP = {"target_kind": "http", "url": "https://example.com"}


def carrying(target, policy):
    return {**target, "options": {"tool_access_policy": policy.to_document()}}


@pytest.mark.parametrize(
    ("policy", "target", "problem"),
    [
        (None, ON_DEMAND, None),
        (INHERIT, HTTP, None),
        (READ, OWN, None),
        (READ, {**OWN, "session_id": "s2"}, "can only schedule itself"),
        (READ, ON_DEMAND, "can only schedule itself"),
        (READ, HTTP, "can only schedule itself"),
        (READ, carrying(SPAWN, READ), None),
        (NOT_WRITE, carrying(FORK, NOT_WRITE), None),
        (READ, carrying(FORK, OTHER), "exactly its own"),
        (READ, carrying(SPAWN, INHERIT), "exactly its own"),
        (READ, SPAWN, "exactly its own"),
    ],
)
def test_what_a_session_may_have_scheduled(policy, target, problem):
    found = containment_problem("s1", policy, parse_target(target))
    assert found is None if problem is None else problem in found


@pytest.mark.parametrize(
    ("policy", "target", "stamped"),
    [
        (None, SPAWN, False),
        (INHERIT, SPAWN, False),
        (READ, OWN, False),
        (READ, SPAWN, True),
        (READ, {**FORK, "options": None}, True),
        (READ, {**FORK, "options": {"role_name": "r"}}, True),
        (READ, carrying(SPAWN, INHERIT), True),
        (READ, carrying(SPAWN, OTHER), False),
        (READ, {**SPAWN, "options": "wrong"}, False),
    ],
)
def test_a_helper_without_a_policy_has_that_of_the_session(policy, target, stamped):
    found = with_policy(policy, target)
    if not stamped:
        assert found == target
        return
    assert found["options"] == {**(target.get("options") or {}), "tool_access_policy": policy.to_document()}
    assert containment_problem("s1", policy, parse_target(found)) is None


def test_a_policy_that_inherits_restricts_nothing():
    assert [is_restricted(one) for one in (None, INHERIT, READ, NOT_WRITE)] == [False, False, True, True]
