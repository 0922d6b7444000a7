"""The documents of sessions and mobs."""

import pytest

from noonmark.core.agents.mobs import MAX_FLOWS, parse_session, read_new_mob
from noonmark.core.errors import InvalidRequest
from noonmark.core.targets.mob import ToolAccess, ToolAccessPolicy
from noonmark.core.workflows.flows import flow_problems

ONLY_SEARCH = {"type": "allow_list", "value": ["search"]}
WRITER = {"member_id": "writer", "model": "test", "role": "editor", "labels": {"a": "b"}}
CREW = {"mob_id": "crew", "members": [WRITER, {"member_id": "reader", "model": "test"}]}
FLOW = {"steps": [{"id": "draft", "member_id": "writer", "prompt": "Go."}]}


def test_a_session_is_read_with_its_specification():
    session = parse_session({"session_id": "desk", "model": "test", "tool_access_policy": ONLY_SEARCH})
    assert (session.session_id, session.spec.model) == ("desk", "test")
    assert session.tool_access_policy == ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("search",))
    assert parse_session({"model": "test"}).session_id is None


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({}, ["model"]),
        ({"session_id": "a b", "surprise": 1}, ["session_id", "model", "surprise"]),
        ({"session_id": "schedule:x", "model": "test"}, ["session_id"]),
        ({"session_id": "mob:x:y", "model": "test"}, ["session_id"]),
        ([], ["", "model"]),
    ],
)
def test_everything_wrong_with_a_session_is_said_at_once(document, fields):
    with pytest.raises(InvalidRequest) as caught:
        parse_session(document)
    assert [problem.field for problem in caught.value.problems] == fields


def test_a_mob_has_sessions_for_its_members():
    new, problems = read_new_mob({**CREW, "flows": {"news": FLOW}})
    assert problems == []
    mob = new.to_mob("acme", "ada")
    assert (mob.tenant, mob.mob_id, mob.user) == ("acme", "crew", "ada")
    assert mob.document == {"members": CREW["members"], "flows": {"news": FLOW}}
    writer, reader = new.sessions("acme", "ada")
    assert (writer.session_id, writer.mob_id, writer.member_id, writer.role) == (
        "mob:crew:writer",
        "crew",
        "writer",
        "editor",
    )
    assert writer.spec.labels == {"a": "b"}
    assert (reader.session_id, reader.role, reader.tool_access_policy) == ("mob:crew:reader", None, None)
    limited, _ = read_new_mob({"mob_id": "m", "members": [{**WRITER, "tool_access_policy": ONLY_SEARCH}]})
    assert limited.to_mob("acme", "ada").document == {"members": [{**WRITER, "tool_access_policy": ONLY_SEARCH}]}


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({}, ["mob_id", "members"]),
        ({"mob_id": "a:b", "members": 1, "surprise": 1}, ["mob_id", "members", "surprise"]),
        ({"mob_id": "m", "members": [1, {"member_id": "x"}]}, ["members[0]", "members[1].model"]),
        ({"mob_id": "m", "members": [WRITER, WRITER]}, ["members[1].member_id"]),
        ({"mob_id": "m", "members": [{**WRITER, "more": 1}]}, ["members[0].more"]),
        ({**CREW, "flows": {"a b": FLOW, "news": 1}}, ["flows", "flows.news"]),
        ({**CREW, "flows": {str(number): FLOW for number in range(MAX_FLOWS + 1)}}, ["flows"]),
    ],
)
def test_everything_wrong_with_a_mob_is_said_at_once(document, fields):
    assert [problem.field for problem in read_new_mob(document)[1]] == fields


@pytest.mark.parametrize(
    ("steps", "fields"),
    [
        (FLOW["steps"], []),
        ([{"id": "ask", "approval": {"message": "Go on?"}}], []),
        (None, ["steps"]),
        ([1], ["steps"]),
        ([{"id": "draft", "member_id": "nobody", "prompt": "Go."}], ["steps[0].member_id"]),
        ([{"id": "draft", "member_id": [], "prompt": "Go."}], ["steps[0].member_id", "steps[0].member_id"]),
        ([{"id": "draft", "member_id": "writer"}], ["steps[0].prompt"]),
        ([{"id": "draft", "member_id": "writer", "prompt": "Go.", "depends_on": ["x"]}], ["steps[0].depends_on[0]"]),
        (
            [{"id": "draft", "member_id": "writer", "prompt": "Go.", "target": {}, "more": 1}],
            ["steps[0].target", "steps[0].more"],
        ),
    ],
)
def test_a_flow_is_checked_as_a_workflow(steps, fields):
    problems = flow_problems("crew", {"news": {"steps": steps}}, {"writer"})
    assert [problem.field for problem in problems] == [f"flows.news.{field}" for field in fields]
