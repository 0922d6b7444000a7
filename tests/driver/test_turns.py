"""Turns of agents: one at a time in a session, and none where there is no session."""

import json
from dataclasses import replace

import pytest

from noonmark.core.agents.session import Message, Mob, Role, Session, SessionState, member_session
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.delivery import MissingTargetPolicy
from noonmark.core.policies.overlap import Allow, Queue, Skip
from noonmark.core.reasons import Reason
from noonmark.core.targets.mob import MobFlowTarget, MobForkTarget, MobMemberTarget, MobSpawnTarget
from noonmark.core.targets.session import (
    OnDemandSessionTarget,
    PromptAction,
    SessionSpec,
    SessionTarget,
    SessionType,
)
from noonmark.core.triggers import EventTrigger
from noonmark.ports.sessions import Turn
from tests.driver.rig import Rig

SPEC, PROMPT = SessionSpec(model="test"), PromptAction(prompt="go")
DESK = Session(tenant="acme", session_id="desk", user="ada", spec=SPEC)
QUIET = {"trigger": EventTrigger("none")}
CREW = Mob(tenant="acme", mob_id="crew", user="ada", document={"members": [{"member_id": "writer", "model": "test"}]})


def target(session_id="desk", kind=SessionType.EXACT):
    return SessionTarget(type=kind, session_id=session_id, action=PROMPT)


@pytest.fixture
def rig():
    rig = Rig(routes=("session", "mob", "workflow"))
    rig.store.store.put_session(DESK)
    return rig


def shift(rig):
    rig.claim_once()
    return rig.admit_once()


def test_two_schedules_take_turns_in_a_session(rig):
    first = rig.create("first", target=target(), overlap_policy=Queue(), **QUIET)
    second = rig.create("second", target=target(kind=SessionType.RESUMABLE), overlap_policy=Allow(), **QUIET)
    elsewhere = rig.create("elsewhere", target=OnDemandSessionTarget(create=SPEC, action=PROMPT), **QUIET)
    occurrence = rig.add(first, "a")
    assert shift(rig).started == 1
    two = rig.add(second, "b")
    rig.advance(SECOND)
    three = rig.add(second, "c")
    other = rig.add(elsewhere, "d")
    shift(rig)
    assert rig.row(other).phase is Phase.DISPATCHING
    assert {rig.row(each).waiting_for for each in (two, three)} == {Reason.TARGET_BUSY}
    for ended, following in ((occurrence, two), (two, three)):
        [given] = [each for each in rig.target.given if each.occurrence.id == ended.id]
        rig.target.end(given)
        rig.settle_once()
        shift(rig)
        assert rig.row(ended).phase is Phase.COMPLETED
        assert rig.row(following).phase is Phase.DISPATCHING


def test_a_busy_session_is_skipped_where_the_policy_skips(rig):
    first = rig.create("first", target=target(), **QUIET)
    second = rig.create("second", target=target(), overlap_policy=Skip(), **QUIET)
    rig.add(first, "a")
    shift(rig)
    skipped = rig.add(second, "b")
    assert shift(rig).ended == 1
    row = rig.row(skipped)
    assert (row.phase, row.reason) == (Phase.SKIPPED, Reason.TARGET_BUSY)


@pytest.mark.parametrize(
    ("named", "facts"),
    [
        (target("nobody"), {"session": "nobody"}),
        (target("nobody", SessionType.RESUMABLE), {"session": "nobody"}),
        (target("old"), {"session": "old", "state": "archived"}),
        (target("old", SessionType.RESUMABLE), None),
        (MobMemberTarget(mob_id="gang", member_id="writer", content="go"), {"mob": "gang"}),
        (MobMemberTarget(mob_id="crew", member_id="reader", content="go"), {"mob": "crew", "member": "reader"}),
        (MobMemberTarget(mob_id="crew", member_id="writer", content="go"), None),
        (MobFlowTarget(mob_id="crew", flow_id="news"), {"mob": "crew", "flow": "news"}),
    ],
)
def test_what_does_not_exist_is_missing(rig, named, facts):
    store = rig.store.store
    store.put_session(Session(tenant="acme", session_id="old", user="ada", spec=SPEC, state=SessionState.ARCHIVED))
    member = Session(tenant="acme", session_id=member_session("crew", "writer"), user="ada", spec=SPEC, mob_id="crew")
    store.put_mob(CREW, [member])
    schedule = rig.create("one", target=named, missing_target_policy=MissingTargetPolicy.SKIP, **QUIET)
    occurrence = rig.add(schedule, "a")
    shift(rig)
    row = rig.row(occurrence)
    if facts is None:
        assert row.phase is Phase.DISPATCHING
    else:
        assert (row.phase, row.reason) == (Phase.SKIPPED, Reason.TARGET_MISSING)
        assert json.loads(row.detail) == facts


def test_the_leader_prunes_messages_by_age_and_size():
    rig = Rig(routes=("session",), keep_messages_for=60 * SECOND, session_bytes=400)
    store = rig.store.store
    store.put_session(DESK)
    rig.lead_once()
    rig.create("one", target=target(), overlap_policy=Queue(), **QUIET)
    schedule = store.find("acme", "schedule-of-one").schedule
    for number in range(3):
        given = rig.started(schedule, f"{number}").occurrence
        turn = Turn(tenant="acme", session_id="desk", occurrence_id=given.id, fence=given.fence)
        store.begin_turn(turn, [Message(role=Role.USER, parts=({"type": "text", "text": "x" * 200},))])
        rig.target.end(rig.target.given[-1])
        rig.settle_once()
    rig.prune_once()
    assert [one.number for one in store.messages("acme", "desk", 9)] == [3]
    rig.advance(61 * SECOND)
    rig.lead_once()
    rig.prune_once()
    assert store.messages("acme", "desk", 9) == []


@pytest.mark.parametrize(
    "named",
    [
        MobSpawnTarget(mob_id="crew", member_id="scout", prompt="go"),
        MobForkTarget(mob_id="crew", source_member_id="writer", member_id="scout", prompt="go"),
        MobFlowTarget(mob_id="crew", flow_id="news"),
    ],
    ids=lambda one: str(one.type),
)
def test_the_name_of_a_helper_and_a_flow_are_busy_while_they_run(rig, named):
    rig.store.store.put_mob(replace(CREW, document={**CREW.document, "flows": {"news": {"steps": []}}}), [])
    rows = []
    for name in ("first", "second"):
        schedule = rig.create(name, target=named, overlap_policy=Skip(), **QUIET)
        rows.append(rig.add(schedule, name))
        shift(rig)
    assert rig.row(rows[0]).phase is Phase.DISPATCHING
    assert (rig.row(rows[1]).phase, rig.row(rows[1]).reason) == (Phase.SKIPPED, Reason.TARGET_BUSY)
