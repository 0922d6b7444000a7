"""Sessions and mobs: who sees them, what is sent to them, and what keeps them from being deleted."""

from dataclasses import replace

import pytest

from noonmark.core.agents.session import Message, Role, Session, schedule_session
from noonmark.core.agents.turns import turn_limits
from noonmark.core.api_key import Scope
from noonmark.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSchedule,
    KeyReused,
    MissingScope,
    NotAllowed,
    NotFound,
)
from noonmark.core.occurrence import in_force
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Delivered, settle
from noonmark.core.targets.session import SessionSpec
from noonmark.operations.remote_turns import end_turn
from noonmark.ports.sessions import Turn
from noonmark.testing.conformance.bench import start
from tests.operations.harness import EVERY_MINUTE, FOREIGN, LOCAL, Harness

ADA, BOB = (
    replace(LOCAL, owner=Owner(tenant="default", user=user), name=user, is_root=False, sees_own_only=True)
    for user in ("ada", "bob")
)
WRITER = {"member_id": "writer", "model": "test", "role": "editor"}
FLOW = {"steps": [{"id": "draft", "member_id": "writer", "prompt": "Go."}]}


@pytest.fixture
def harness():
    return Harness()


def target(session_id, kind="exact_session"):
    action = {"type": "prompt", "prompt": "go"}
    return {"target_kind": "session", "type": kind, "session_id": session_id, "action": action}


def begin(harness, occurrence_id, session_id, *messages):
    """Start a turn by hand, as a node does; returns it."""
    store = harness.service.store
    now = store.clock()
    [claim] = store.claim("n", ["session"], now=now, until=now, limit=9, lease=10**9, only=occurrence_id)
    [admitted] = store.admit([start(claim)], now=now, lease=10**9)
    fence = admitted.occurrence.fence
    turn = Turn(tenant="default", session_id=session_id, occurrence_id=occurrence_id, fence=fence)
    assert store.begin_turn(turn, messages) is not None
    return turn


def say(role, text):
    return Message(role=role, parts=({"type": "text", "text": text},), data={"of": "the host"})


def test_a_session_is_created_with_its_specification(harness):
    answer = harness("session/create", session_id="desk", model="test", labels={"a": "b"}, max_tokens=9)
    assert (answer["session_id"], answer["state"], answer["model"], answer["max_tokens"]) == ("desk", "idle", "test", 9)
    assert (answer["owner"], answer["labels"]) == ({"tenant": "default", "user": "local"}, {"a": "b"})
    assert (answer["message_count"], answer["cost_usd"], answer["usage"]["total_tokens"]) == (0, 0, 0)
    assert harness("session/get", session_id="desk") == answer
    assert harness("session/create", model="test")["session_id"] == "fresh0001"
    with pytest.raises(Conflict):
        harness("session/create", session_id="desk", model="test")
    for session_id in ("schedule:x", "mob:crew:writer"):
        with pytest.raises(InvalidRequest):
            harness("session/create", session_id=session_id, model="test")
    entries = harness("audit/list")["entries"]
    assert [(one["operation"], one["reason"]) for one in entries] == [
        ("session/create", "session fresh0001"),
        ("session/create", "session desk"),
    ]


def test_users_who_see_their_own_see_no_sessions_of_others(harness):
    harness("session/create", caller=ADA, session_id="hers", model="test")
    harness("mob/create", caller=ADA, mob_id="crew", members=[WRITER])
    assert [one["session_id"] for one in harness("session/list", caller=ADA, label="a=b")["sessions"]] == []
    assert harness("session/list", caller=BOB)["sessions"] == harness("mob/list", caller=BOB)["mobs"] == []
    assert len(harness("session/list", owner="ada")["sessions"]) == 2
    assert harness("session/list", caller=FOREIGN)["sessions"] == []
    for caller in (BOB, FOREIGN):
        for name, arguments in (
            ("session/get", {"session_id": "hers"}),
            ("session/messages", {"session_id": "hers"}),
            ("session/send", {"session_id": "hers", "prompt": "hi"}),
            ("session/archive", {"session_id": "hers"}),
            ("session/delete", {"session_id": "hers"}),
            ("mob/get", {"mob_id": "crew"}),
            ("mob/delete", {"mob_id": "crew"}),
        ):
            with pytest.raises(NotFound):
                harness(name, caller=caller, **arguments)
    with pytest.raises(NotAllowed):
        harness("session/list", caller=BOB, owner="ada")
    with pytest.raises(MissingScope):
        harness("session/send", caller=replace(LOCAL, scopes={Scope.READ}), session_id="hers", prompt="hi")


def test_an_agent_passes_on_no_more_than_it_may_do(harness):
    """To sessions and mobs that it creates, and to sessions that it talks to."""
    agent = replace(ADA, is_agent=True, key_id="nm_live_agent1", scopes=frozenset({Scope.READ, Scope.WRITE}))
    harness("session/create", caller=agent, session_id="narrow", model="test", enable_schedule=True)
    harness("mob/create", caller=agent, mob_id="crew", members=[WRITER])
    for session_id in ("narrow", "mob:crew:writer"):
        assert harness.service.store.session("default", session_id).scopes == agent.scopes
    harness("session/create", caller=ADA, session_id="hers", model="test", enable_schedule=True)
    harness("session/create", caller=ADA, session_id="plain", model="test")
    assert harness.service.store.session("default", "hers").scopes is None
    for scopes, beyond in (({Scope.RUN, Scope.PROPOSE}, "read, write"), ({Scope.READ, Scope.RUN}, "write")):
        sender = replace(agent, scopes=frozenset(scopes))
        with pytest.raises(NotAllowed, match=f"may do more than your key, {beyond};"):
            harness("session/send", caller=sender, session_id="hers", prompt="hi")
        harness("session/send", caller=sender, session_id="plain", prompt="hi")
    harness("session/send", caller=replace(agent, scopes=ADA.scopes), session_id="hers", prompt="hi")
    harness("session/send", caller=replace(ADA, scopes=frozenset({Scope.RUN})), session_id="hers", prompt="hi")


def test_a_message_is_a_turn_of_its_own(harness):
    harness("session/create", session_id="desk", model="test")
    sent = harness("session/send", session_id="desk", prompt="hi", key="k")
    assert (sent["phase"], sent["waiting_for"]) == ("pending", None)
    assert harness("session/send", session_id="desk", prompt="hi", key="k")["occurrence_id"] == sent["occurrence_id"]
    with pytest.raises(KeyReused):
        harness("session/send", session_id="desk", prompt="ho", key="k")
    turn = begin(harness, sent["occurrence_id"], "desk", say(Role.USER, "hi"))
    got = harness("session/get", session_id="desk")
    assert (got["state"], got["occurrence_id"]) == ("active", sent["occurrence_id"])
    with pytest.raises(Conflict, match="in flight"):
        harness("session/delete", session_id="desk")
    harness.service.store.append_messages(turn, [say(Role.ASSISTANT, "hello")])
    answer = harness("session/messages", session_id="desk")["messages"]
    assert [(one["number"], one["role"], one["text"]) for one in answer] == [
        (1, "user", "hi"),
        (2, "assistant", "hello"),
    ]
    assert "data" not in answer[0]
    assert [one["number"] for one in harness("session/messages", session_id="desk", after=1)["messages"]] == [2]
    asked = {"session_id": "desk", "limit": 1}
    for newest_first, numbers in ((False, [1, 2]), (True, [2, 1])):
        first = harness("session/messages", **asked, newest_first=newest_first)
        second = harness("session/messages", **asked, newest_first=newest_first, cursor=first["next_cursor"])
        assert [page["messages"][0]["number"] for page in (first, second)] == numbers
        assert second["next_cursor"] is None
    assert harness("schedule/list")["schedules"] == []


def test_a_session_is_kept_from_the_dispatch_of_a_turn_to_its_end(harness):
    harness("session/create", session_id="desk", model="test")
    occurrence_id = harness("session/send", session_id="desk", prompt="hi")["occurrence_id"]
    store = harness.service.store
    now = store.clock()
    [claim] = store.claim("n", ["session"], now=now, until=now, limit=9, lease=10**9, only=occurrence_id)
    keys = turn_limits(in_force(claim.schedule, claim.occurrence).declaration.target, claim.schedule.uid)
    [admitted] = store.admit([replace(start(claim), keys=keys)], now=now, lease=10**9)
    occurrence = admitted.occurrence

    def refused():
        for name in ("session/delete", "session/archive"):
            with pytest.raises(Conflict, match="in flight"):
                harness(name, session_id="desk")

    refused()  # no message is stored yet
    assert harness("session/get", session_id="desk")["message_count"] == 0
    turn = Turn(tenant="default", session_id="desk", occurrence_id=occurrence_id, fence=occurrence.fence)
    assert store.begin_turn(turn, [say(Role.USER, "hi")]) is not None
    refused()
    done = Delivered(outcome=Outcome.COMPLETED, started=now, ended=now)
    assert store.settle([settle(occurrence, claim.schedule, done, node="n")]) == [True]
    assert harness("session/archive", session_id="desk")["state"] == "archived"
    assert harness("session/delete", session_id="desk")["session_id"] == "desk"


def test_an_archived_session_takes_no_messages(harness):
    harness("session/create", session_id="desk", model="test")
    assert harness("session/archive", session_id="desk", reason="done")["state"] == "archived"
    assert harness("session/list", state="archived")["sessions"][0]["session_id"] == "desk"
    with pytest.raises(Conflict, match="archived"):
        harness("session/send", session_id="desk", prompt="hi")
    assert harness("audit/list")["entries"][0]["reason"] == "session desk: done"
    harness("session/delete", session_id="desk")
    assert harness("session/list")["sessions"] == []


def test_what_schedules_name_is_not_deleted(harness):
    harness("session/create", session_id="desk", model="test")
    harness("mob/create", mob_id="crew", members=[WRITER], flows={"news": FLOW})
    asks = harness.create(schedule_id="asks", target=target("desk"))
    flow = {"target_kind": "mob", "type": "flow", "mob_id": "crew", "flow_id": "news"}
    runs = harness.create(schedule_id="runs", target=flow)
    assert asks["warnings"] == runs["warnings"] == []
    with pytest.raises(Conflict, match="asks"):
        harness("session/delete", session_id="desk")
    with pytest.raises(Conflict, match="runs"):
        harness("mob/delete", mob_id="crew")
    with pytest.raises(Conflict, match="crew"):
        harness("session/delete", session_id="mob:crew:writer")
    for schedule_id in ("asks", "runs"):
        harness("schedule/delete", schedule_id=schedule_id)
    harness("session/delete", session_id="desk")
    harness("mob/delete", mob_id="crew")
    assert harness("session/get", session_id="mob:crew:writer")["state"] == "archived"
    harness("session/delete", session_id="mob:crew:writer")


def test_a_mob_has_members_and_flows(harness):
    answer = harness("mob/create", mob_id="crew", members=[WRITER], flows={"news": FLOW})
    assert answer["members"] == [{**WRITER, "session_id": "mob:crew:writer"}]
    assert answer["flows"] == {"news": FLOW}
    assert harness("mob/get", mob_id="crew") == harness("mob/list")["mobs"][0] == answer
    member = harness("session/get", session_id="mob:crew:writer")
    assert (member["mob_id"], member["member_id"], member["role"]) == ("crew", "writer", "editor")
    with pytest.raises(Conflict):
        harness("mob/create", mob_id="crew", members=[WRITER])
    with pytest.raises(InvalidRequest) as refused:
        harness("mob/create", mob_id="m", members=[{"member_id": "a"}], flows={"f": FLOW})
    assert [one.field for one in refused.value.problems] == ["members[0].model", "flows.f.steps[0].member_id"]
    for name in ("a", "z"):
        harness("mob/create", mob_id=name, members=[WRITER])
    first = harness("mob/list", limit=2)
    assert [one["mob_id"] for one in first["mobs"]] == ["a", "crew"]
    assert [one["mob_id"] for one in harness("mob/list", cursor=first["next_cursor"])["mobs"]] == ["z"]


@pytest.mark.parametrize(
    ("named", "warning"),
    [
        (target("desk"), "there is no session `desk`"),
        (target("old"), "the session `old` is archived"),
        (target("old", "resumable_session"), None),
        ({"target_kind": "mob", "type": "flow", "mob_id": "gang", "flow_id": "f"}, "there is no mob `gang`"),
        ({"target_kind": "mob", "type": "flow", "mob_id": "crew", "flow_id": "f"}, "the mob `crew` has no flow `f`"),
        (
            {"target_kind": "mob", "type": "spawn_helper", "mob_id": "crew", "member_id": "scout", "prompt": "go"},
            None,
        ),
        (
            {
                "target_kind": "mob",
                "type": "member",
                "mob_id": "crew",
                "member_id": "reader",
                "action": {"type": "send", "content": "go"},
            },
            "the mob `crew` has no member `reader`",
        ),
    ],
)
def test_a_schedule_says_what_its_target_lacks(harness, named, warning):
    harness("mob/create", mob_id="crew", members=[WRITER])
    harness("session/create", session_id="old", model="test")
    harness("session/archive", session_id="old")
    warnings = harness("schedule/create", trigger=EVERY_MINUTE, target=named)["warnings"]
    assert warnings == ([] if warning is None else [f"{warning}; that must change before this is due"])


def test_a_schedule_shows_the_session_that_it_has_created(harness):
    create = {"model": "test"}
    action = {"type": "prompt", "prompt": "go"}
    on_demand = {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": create,
        "action": action,
    }
    harness.create(schedule_id="own", target=on_demand)
    assert harness("schedule/get", schedule_id="own")["target"] == on_demand
    store = harness.service.store
    session_id = schedule_session(store.find("default", "own").schedule.uid)
    session = Session(tenant="default", session_id=session_id, user="local", spec=SessionSpec(model="test"))
    assert store.put_session(session)
    assert harness("schedule/get", schedule_id="own")["target"] == {**on_demand, "bound_session_id": session_id}


def test_the_messages_of_a_deleted_session_end_with_it(harness):
    harness("session/create", caller=ADA, session_id="desk", model="test")
    sent = harness("session/send", caller=ADA, session_id="desk", prompt="hi", key="k")["occurrence_id"]
    harness("session/delete", caller=ADA, session_id="desk")
    ended = harness("occurrence/get", caller=ADA, occurrence_id=sent)
    assert (ended["phase"], ended["reason"]) == ("cancelled", "deleted")
    harness("session/create", caller=BOB, session_id="desk", model="test")
    own = harness("session/send", caller=BOB, session_id="desk", prompt="hi", key="k")["occurrence_id"]
    assert harness("occurrence/get", caller=BOB, occurrence_id=own)["phase"] == "pending"
    with pytest.raises(NotFound):
        harness("occurrence/get", caller=ADA, occurrence_id=own)


def test_a_new_owner_of_a_mob_has_its_own_messages(harness):
    for caller in (ADA, BOB):
        harness("mob/create", caller=caller, mob_id="crew", members=[WRITER])
        sent = harness("session/send", caller=caller, session_id="mob:crew:writer", prompt="hi")["occurrence_id"]
        assert harness("occurrence/get", caller=caller, occurrence_id=sent)["phase"] == "pending"
        harness("mob/delete", caller=caller, mob_id="crew")


def test_a_callback_that_is_repeated_answers_once(harness):
    harness("session/create", session_id="desk", model="test")
    sent = harness("session/send", session_id="desk", prompt="hi")["occurrence_id"]
    begin(harness, sent, "desk", say(Role.USER, "hi"))
    store = harness.service.store
    occurrence = store.occurrence(sent)
    schedule = in_force(store.find_uid(occurrence.uid).schedule, occurrence)
    for _ in range(2):  # as if the end could not be written the first time
        done = Delivered(outcome=Outcome.COMPLETED, started=1, ended=2, result="Done.")
        assert end_turn(store, schedule, occurrence, done, None).result == {"session_id": "desk", "text": "Done."}
    assert [one["text"] for one in harness("session/messages", session_id="desk")["messages"]] == ["hi", "Done."]


def test_nobody_schedules_turns_in_a_session_that_they_do_not_see(harness):
    harness("session/create", caller=ADA, session_id="hers", model="test")
    harness("mob/create", caller=ADA, mob_id="crew", members=[WRITER], flows={"news": FLOW})
    flow = {"target_kind": "mob", "type": "flow", "mob_id": "crew", "flow_id": "news"}
    bound = {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": "test"},
        "action": {"type": "prompt", "prompt": "go"},
        "bound_session_id": "hers",
    }
    for named in (target("hers"), target("hers", "resumable_session"), target("mob:crew:writer"), bound, flow):
        document = {"trigger": EVERY_MINUTE, "target": named}
        with pytest.raises(InvalidSchedule, match="there is no"):
            harness("schedule/create", caller=BOB, **document)
        steps = [{"id": "a", "target": named}]
        with pytest.raises(InvalidSchedule, match="there is no"):
            harness("workflow/create", caller=BOB, workflow_id="w", steps=steps)
        assert harness("schedule/create", caller=ADA, **document)["warnings"] == []
        assert harness("schedule/create", caller=replace(BOB, sees_own_only=False), **document)["warnings"] == []
