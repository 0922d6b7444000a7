"""Helpers of mobs: what they are like, and what a forked one begins with."""

import pytest

from noonmark.core.agents.helpers import Pattern, forked, helper_session, member, new_helper, pattern_of
from noonmark.core.agents.session import Message, Mob, Role, Session, member_session
from noonmark.core.budgets.spend import Usage
from noonmark.core.targets.mob import HelperOptions, MobForkTarget, MobSpawnTarget, ToolAccess, ToolAccessPolicy
from noonmark.core.targets.session import SessionSpec

MOB = Mob(
    tenant="acme",
    mob_id="triage",
    user="ann",
    document={
        "members": [
            {"member_id": "lead", "model": "test"},
            {"member_id": "scribe", "model": "test:2", "role": "writer", "system_prompt": "Write."},
        ]
    },
)
ONLY = ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("read",))
NONE = ToolAccessPolicy(type=ToolAccess.DENY_LIST, tools=("shell",))
INHERIT = ToolAccessPolicy(type=ToolAccess.INHERIT)
LIKE = Session(
    tenant="acme",
    session_id=member_session("triage", "scribe"),
    user="ann",
    spec=SessionSpec(model="test:2", system_prompt="Write.", additional_instructions=("Short.",)),
    tool_access_policy=ONLY,
    role="writer",
)


def spawn(**options):
    return MobSpawnTarget(mob_id="triage", member_id="temp", prompt="Go.", options=HelperOptions(**options))


def fork(**options):
    options = HelperOptions(**options)
    return MobForkTarget(mob_id="triage", source_member_id="lead", member_id="temp", prompt="Go.", options=options)


def test_a_member_is_found_by_its_id():
    assert member(MOB, "scribe")["role"] == "writer"
    assert member(MOB, "writer") is None


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        (spawn(role_name="writer"), Pattern("scribe", has_role=True)),
        (spawn(role_name="scribe"), Pattern("scribe", has_role=True)),
        (spawn(role_name="judge"), Pattern("lead", has_role=False)),
        (spawn(), Pattern("lead", has_role=False)),
        (fork(), Pattern("lead", has_role=True)),
        (fork(role_name="writer"), Pattern("scribe", has_role=True)),
        (fork(role_name="judge"), Pattern("lead", has_role=False)),
    ],
)
def test_a_helper_is_like_a_member(target, pattern):
    assert pattern_of(MOB, target) == pattern


@pytest.mark.parametrize(
    ("options", "has_role", "prompt", "policy", "role"),
    [
        ({}, True, "Write.", ONLY, "writer"),
        ({"tool_access_policy": INHERIT}, True, "Write.", ONLY, "writer"),
        ({"tool_access_policy": NONE}, True, "Write.", NONE, "writer"),
        ({"role_name": "judge"}, False, "Your role is judge.", ONLY, "judge"),
        ({}, False, None, ONLY, "writer"),
    ],
)
def test_a_helper_has_a_session_of_its_own(options, has_role, prompt, policy, role):
    made = new_helper(spawn(**options), Pattern("scribe", has_role=has_role), LIKE, user="ann", occurrence_id="occ_1")
    assert made.session_id == helper_session("triage", "temp", "occ_1") == "mob:triage:temp:occ_1"
    assert (made.spec.model, made.spec.system_prompt) == ("test:2", prompt)
    assert made.spec.additional_instructions == (("Short.",) if has_role else ())
    assert (made.tool_access_policy, made.role) == (policy, role)
    assert (made.tenant, made.user, made.mob_id, made.member_id) == ("acme", "ann", "triage", "temp")


def said(role, *types, number=0):
    return Message(
        role=role, parts=tuple({"type": one, "text": "x"} for one in types), number=number, occurrence_id="o"
    )


TRANSCRIPT = [
    said(Role.USER, "text", number=1),
    said(Role.ASSISTANT, "text", number=2),
    said(Role.EVENT, "text", number=3),
    said(Role.ASSISTANT, "text", "tool_call", number=4),
    said(Role.TOOL, "tool_result", number=5),
    Message(role=Role.ASSISTANT, parts=({"type": "text", "text": "x"},), number=6, usage=Usage(model="m")),
    said(Role.USER, "text", number=7),
    said(Role.ASSISTANT, "tool_call", number=8),
]


@pytest.mark.parametrize(
    ("last", "numbers"),
    [
        (None, range(6)),
        (100, range(6)),
        (6, range(6)),
        (5, range(6)),
        (4, range(2, 6)),
        (3, range(2, 6)),
        (1, range(2, 6)),
    ],
)
def test_a_fork_begins_with_complete_exchanges(last, numbers):
    copied = forked(TRANSCRIPT, last)
    assert [one.parts for one in copied] == [TRANSCRIPT[at].parts for at in numbers]
    assert all((one.number, one.occurrence_id, one.usage) == (0, None, None) for one in copied)


def test_a_fork_of_nothing_is_empty():
    assert forked([], None) == ()
    assert forked(TRANSCRIPT[6:], None) == ()
    # What came before was pruned.
    assert [one.number for one in forked(TRANSCRIPT[1:2], None)] == []
    assert len(forked(TRANSCRIPT[1:], 100)) == 4
