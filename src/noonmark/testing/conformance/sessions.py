"""Sessions: one turn at a time, messages under its fence, what is deleted, and mobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import Busy
from noonmark.core.agents.session import (
    Message,
    Mob,
    Role,
    Session,
    SessionState,
    member_session,
    step_session,
    task_session,
)
from noonmark.core.agents.turns import turn_limits
from noonmark.core.api_key import Scope
from noonmark.core.budgets.budget import Reservation, Reserved
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.policies.limits import KeyLimit
from noonmark.core.policies.overlap import Allow
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry
from noonmark.core.settlement import Suspended, settle
from noonmark.core.targets.mob import MobFlowTarget, MobMemberTarget, ToolAccess, ToolAccessPolicy
from noonmark.core.targets.session import OnDemandSessionTarget, PromptAction, SessionSpec, SessionTarget, SessionType
from noonmark.ports.budgets import Settled
from noonmark.ports.records import Admitted
from noonmark.ports.sessions import Turn
from noonmark.stores.rules.sessions import message_bytes
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold, start
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.targets import Target
    from noonmark.ports.records import LeaseLost
    from noonmark.testing.conformance.bench import Bench

SPEC = SessionSpec(
    model="openai:gpt-5",
    system_prompt="Sei kurz.\x85",
    labels={"team": "ops", "tier": "1"},
    output_schema={"type": "object"},
    additional_instructions=("one", "two"),
)
DESK = Session(
    tenant="acme",
    session_id="desk",
    user="ada",
    spec=SPEC,
    tool_access_policy=ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("search",)),
    scopes=frozenset({Scope.READ, Scope.PROPOSE}),
)
NOTE = AuditEntry(at=NOW, caller="ada", operation="session/create")
CREW = Mob(tenant="acme", mob_id="crew", user="ada", document={"members": [{"member_id": "writer", "model": "test"}]})
FAR = NOW - 10**12
"""Nothing is older."""
LARGE = 10**9


def _say(role: Role, text: str = "hi", **fields: Any) -> Message:
    return Message(role=role, parts=({"type": "text", "text": text},), **fields)


def _turn(occurrence: Occurrence, session_id: str = "desk") -> Turn:
    return Turn(tenant="acme", session_id=session_id, occurrence_id=occurrence.id, fence=occurrence.fence)


def _begin(bench: Bench, key: str = "a", uid: str = "uid-1", session_id: str = "desk") -> Occurrence:
    """Start an occurrence and begin its turn."""
    occurrence = bench.run(bench.create_quiet(uid), key)
    assert bench.store.begin_turn(_turn(occurrence, session_id), [_say(Role.USER)]) is not None
    return occurrence


def _state(bench: Bench, session_id: str = "desk") -> SessionState:
    session = bench.store.session("acme", session_id)
    assert session is not None
    return session.state


def _texts(bench: Bench, **wanted: Any) -> list[str]:
    return [message.parts[0]["text"] for message in bench.store.messages("acme", "desk", 99, **wanted)]


def _use(bench: Bench, uid: str, target: Target) -> str:
    schedule = factories.schedule(uid, target=target)
    assert bench.store.create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]
    return schedule.schedule_id


@case
def a_session_is_found_as_it_was_created(bench: Bench) -> None:
    store = bench.store
    assert store.put_session(DESK, note=NOTE) is True
    assert store.session("acme", "desk") == replace(DESK, created=NOW, updated=NOW)
    assert store.put_session(replace(DESK, user="bob"), note=NOTE) is False
    assert store.session("acme", "nobody") is None
    assert store.session("other", "desk") is None
    assert store.put_session(replace(DESK, session_id="second"), most=1, note=NOTE) is None
    assert store.put_session(replace(DESK, tenant="other"), most=1) is True
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["session/create"]


@case
def sessions_are_listed_latest_first(bench: Bench) -> None:
    store = bench.store
    made = {
        "a": replace(DESK, session_id="a", created=NOW + 1),
        "b": replace(DESK, session_id="b", created=NOW + 2, user="bob", mob_id="crew"),
        "c": replace(
            DESK, session_id="c", created=NOW + 2, spec=SessionSpec(model="test"), state=SessionState.ARCHIVED
        ),
        "d": replace(DESK, session_id="d", created=NOW + 3),
        "x": replace(DESK, session_id="x", tenant="other"),
    }
    for one in made.values():
        assert store.put_session(one) is True

    def ids(limit: int = 9, **wanted: Any) -> str:
        return "".join(one.session_id for one in store.sessions("acme", limit, **wanted))

    assert ids() == "dcba"
    assert ids(2) == "dc"
    assert ids(before=(NOW + 2, "c")) == "ba"
    assert ids(user="bob") == "b"
    assert ids(mob_id="crew") == "b"
    assert ids(state=SessionState.ARCHIVED) == "c"
    assert ids(state=SessionState.IDLE) == "dba"
    assert ids(state=SessionState.ACTIVE) == ""
    assert ids(labels={"team": "ops"}) == "dba"
    assert ids(1, labels={"team": "ops", "tier": "1"}, before=(NOW + 3, "d")) == "b"
    assert ids(labels={"team": "dev"}) == ""


@case
def a_turn_begins_once(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    occurrence = bench.run(bench.create_quiet(), "a")
    turn = _turn(occurrence)
    bench.advance(SECOND)
    begun = store.begin_turn(turn, [_say(Role.USER, "go")])
    assert begun is not None
    assert (begun.state, begun.turn, begun.messages, begun.updated) == (
        SessionState.ACTIVE,
        occurrence.id,
        1,
        NOW + SECOND,
    )
    assert store.begin_turn(turn, [_say(Role.USER, "go")]) == begun
    assert store.session("acme", "desk") == begun
    assert _texts(bench) == ["go"]
    assert store.begin_turn(replace(turn, session_id="nobody"), [_say(Role.USER)]) is None
    assert store.begin_turn(replace(turn, tenant="other"), [_say(Role.USER)]) is None


@case
def a_session_is_active_while_its_turn_is_in_flight(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    first = _begin(bench)
    assert _state(bench) is SessionState.ACTIVE
    assert [one.session_id for one in store.sessions("acme", 9, state=SessionState.ACTIVE)] == ["desk"]
    assert store.sessions("acme", 9, state=SessionState.IDLE) == []
    assert bench.settle(first)
    assert _state(bench) is SessionState.IDLE
    assert store.sessions("acme", 9, state=SessionState.ACTIVE) == []


@case
def messages_are_numbered_and_read_in_pages(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    first = _begin(bench, "a", "uid-1")
    usage = Usage(model="test", input_tokens=3, output_tokens=2, model_calls=1, cost=None)
    answer = _say(Role.ASSISTANT, "one\x00é", data={"kind": "response", "n": [1, None]}, usage=usage)
    numbered = store.append_messages(_turn(first), [answer, _say(Role.TOOL, "two")])
    assert numbered == [
        replace(answer, number=2, at=NOW, occurrence_id=first.id),
        _say(Role.TOOL, "two", number=3, at=NOW, occurrence_id=first.id),
    ]
    assert bench.settle(first)
    second = _begin(bench, "b", "uid-2")
    assert store.messages("acme", "desk", 2, after=1) == numbered
    assert _texts(bench) == ["hi", "one\x00é", "two", "hi"]
    assert _texts(bench, newest_first=True) == ["hi", "two", "one\x00é", "hi"]
    assert _texts(bench, after=1, before=4) == ["one\x00é", "two"]
    assert _texts(bench, occurrence_id=second.id) == ["hi"]
    assert store.messages("acme", "desk", 1, before=4, newest_first=True) == numbered[1:]
    assert store.messages("other", "desk", 9) == store.messages("acme", "nobody", 9) == []
    session = store.session("acme", "desk")
    assert session is not None
    assert (session.messages, session.turn) == (4, second.id)
    assert session.bytes == sum(message_bytes(one) for one in store.messages("acme", "desk", 9))


@case
def a_lost_delivery_appends_nothing(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    lost = _begin(bench)
    bench.advance(LEASE + SECOND)
    [claim] = bench.claim("node-b")
    assert store.append_messages(_turn(lost), [_say(Role.ASSISTANT, "late")]) is None
    taken = bench.start(claim)
    assert taken.fence > lost.fence
    assert store.append_messages(_turn(lost), [_say(Role.ASSISTANT, "late")]) is None
    assert store.begin_turn(_turn(lost)) is None
    assert store.begin_turn(_turn(taken), [_say(Role.USER, "again")]) is not None
    assert store.append_messages(_turn(taken), [_say(Role.ASSISTANT, "in time")]) is not None
    assert _texts(bench) == ["hi", "in time"]
    assert bench.settle(taken)
    assert store.append_messages(_turn(taken), [_say(Role.ASSISTANT, "after the end")]) is None


@case
def a_call_is_settled_with_its_answer_once(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    occurrence = _begin(bench)
    reservation = Reservation(
        call_id="one",
        tenant="acme",
        user="ada",
        schedule_id=occurrence.schedule_id,
        session_id="desk",
        occurrence_id=occurrence.id,
        fence=occurrence.fence,
        model="m",
        provider=None,
        most=Amount(tokens=100, cost=50),
    )
    assert [type(one) for one in store.reserve([reservation])] == [Reserved]
    usage = Usage(model="m", input_tokens=7, output_tokens=3, model_calls=1, cost=4)
    settled = Settled(call_id="one", tenant="acme", usage=usage)
    lost = replace(_turn(occurrence), fence=occurrence.fence + 1)
    assert store.append_messages(lost, [_say(Role.ASSISTANT)], settles=[settled]) is None
    assert store.run_usage(occurrence.id) is None
    for text in ("first", "again"):
        answer = _say(Role.ASSISTANT, text, usage=usage)
        assert store.append_messages(_turn(occurrence), [answer], settles=[settled]) is not None
        session = store.session("acme", "desk")
        assert session is not None
        assert session.usage == store.run_usage(occurrence.id) == usage


@case
def a_step_of_a_run_has_its_own_turn(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    run = bench.run(bench.create_quiet(), "a")
    step = Turn(tenant="acme", session_id="desk", occurrence_id=f"{run.id}/ask", fence=run.fence)
    assert store.begin_turn(step, [_say(Role.USER)]) is not None
    assert _state(bench) is SessionState.ACTIVE
    assert store.begin_turn(replace(step, occurrence_id=f"{run.id}/tell"), [_say(Role.USER)]) is not None
    assert [one.occurrence_id for one in store.messages("acme", "desk", 9)] == [f"{run.id}/ask", f"{run.id}/tell"]
    assert store.append_messages(replace(step, fence=run.fence + 1), [_say(Role.ASSISTANT)]) is None


@case
def a_turn_ends_suspension_and_the_archive(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    assert store.set_session_state("acme", "nobody", SessionState.ARCHIVED, note=NOTE) is None
    for number, state in enumerate((SessionState.SUSPENDED, SessionState.ARCHIVED)):
        changed = store.set_session_state("acme", "desk", state, note=NOTE)
        assert changed is not None
        assert changed.state is state is _state(bench)
        occurrence = _begin(bench, "a", f"uid-{number}")
        assert _state(bench) is SessionState.ACTIVE
        assert bench.settle(occurrence)
        assert _state(bench) is SessionState.IDLE
    occurrence = _begin(bench, "a", "uid-9")
    store.set_session_state("acme", "desk", SessionState.SUSPENDED)
    assert _state(bench) is SessionState.ACTIVE
    assert bench.settle(occurrence, phase=Phase.FAILED, reason=Reason.FAILED)
    assert _state(bench) is SessionState.SUSPENDED
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["session/create"] * 2


@case
def a_session_that_was_archived_in_a_turn_stays_so(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    occurrence = _begin(bench)
    for state in (SessionState.ARCHIVED, SessionState.SUSPENDED):
        store.set_session_state("acme", "desk", state)
    assert bench.settle(occurrence)
    assert _state(bench) is SessionState.ARCHIVED


@case
def a_flow_is_busy_until_its_run_has_ended(bench: Bench) -> None:
    store, target = bench.store, MobFlowTarget(mob_id="crew", flow_id="news")
    inflight = KeyLimit("inflight\n", 1, Reason.TENANT_INFLIGHT_LIMIT)
    keys = (*turn_limits(target, ""), inflight)
    schedule = bench.create_quiet(target=target, overlap_policy=Allow())

    def begin(key: str) -> Admitted | LeaseLost | Busy:
        bench.add(schedule, key)
        [claim] = bench.claim(routes=[target.route])
        return bench.admit(replace(start(claim), takes_slot=False, keys=keys))

    def taken() -> list[int]:
        return [store.count_places("acme", one.name) for one in keys]

    first = begin("a")
    assert isinstance(first, Admitted)
    suspended = Suspended(
        started=bench.now, ended=bench.now, until=None, waiting_for=Reason.STEP_PENDING, open_steps=frozenset()
    )
    assert store.settle([settle(first.occurrence, schedule, suspended, node="node-a")]) == [True]
    assert taken() == [1, 0]
    busy = begin("b")
    assert isinstance(busy, Busy)
    assert busy.key == keys[0]
    assert store.cancel(first.occurrence.id)
    [claim] = [one for one in bench.claim(routes=[target.route]) if one.occurrence.id == first.occurrence.id]
    resumed = bench.decide(replace(start(claim), takes_slot=False, keys=keys))
    assert taken() == [1, 1]
    assert bench.settle(resumed)
    assert taken() == [0, 0]


@case
def a_session_that_schedules_name_is_not_deleted(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    prompt = PromptAction(prompt="go")
    users = [
        _use(bench, "exact", SessionTarget(type=SessionType.EXACT, session_id="desk", action=prompt)),
        _use(bench, "bound", OnDemandSessionTarget(create=SPEC, action=prompt, bound_session_id="desk")),
    ]
    _use(bench, "free", OnDemandSessionTarget(create=SPEC, action=prompt))
    _use(bench, "elsewhere", SessionTarget(type=SessionType.EXACT, session_id="other", action=prompt))
    assert store.delete_session("acme", "desk", note=NOTE) == sorted(users)
    assert store.session("acme", "desk") is not None
    assert store.audit_entries("acme", 9) == []


@case
def a_deleted_session_is_gone(bench: Bench) -> None:
    store = bench.store
    store.put_session(DESK)
    occurrence = _begin(bench)
    assert store.delete_session("other", "desk") is None
    assert store.delete_session("acme", "desk", note=NOTE) == []
    assert store.delete_session("acme", "desk", note=NOTE) is None
    assert store.messages("acme", "desk", 9) == []
    assert store.sessions("acme", 9) == []
    assert store.append_messages(_turn(occurrence), [_say(Role.ASSISTANT)]) is None
    store.put_session(DESK)
    assert store.messages("acme", "desk", 9) == []
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["session/create"]


def _talk(bench: Bench) -> list[Message]:
    """A turn that has ended, with two calls of tools."""
    bench.store.put_session(DESK)
    occurrence = _begin(bench)
    for role in (Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.ASSISTANT):
        bench.advance(SECOND)
        assert bench.store.append_messages(_turn(occurrence), [_say(role, str(role))]) is not None
    assert bench.settle(occurrence)
    return bench.store.messages("acme", "desk", 9)


@case
def old_messages_are_pruned(bench: Bench) -> None:
    store, said = bench.store, _talk(bench)

    def prune(before: int, limit: int = 9) -> int:
        return store.prune_sessions(before=before, max_bytes=LARGE, limit=limit)

    assert prune(said[0].at) == 0
    assert prune(said[0].at + 1) == 1
    assert store.messages("acme", "desk", 9) == said[1:]
    # The answers of tools go with the call.
    assert prune(said[1].at + 1, limit=2) == 0
    assert prune(said[1].at + 1) == len(said[1:4])
    assert store.messages("acme", "desk", 9) == said[4:]
    session = store.session("acme", "desk")
    assert session is not None
    assert (session.messages, session.bytes) == (len(said), message_bytes(said[4]))
    assert prune(bench.now + 1) == 1
    assert store.messages("acme", "desk", 9) == []
    assert store.session("acme", "desk") == replace(session, bytes=0)


@case
def large_sessions_lose_their_oldest_messages(bench: Bench) -> None:
    store, said = bench.store, _talk(bench)
    size = sum(message_bytes(one) for one in said)
    assert store.prune_sessions(before=FAR, max_bytes=size, limit=9) == 0
    assert store.prune_sessions(before=FAR, max_bytes=size - 1, limit=9) == 1
    size -= message_bytes(said[0])
    assert store.prune_sessions(before=FAR, max_bytes=size - 1, limit=9) == len(said[1:4])
    assert store.messages("acme", "desk", 9) == said[4:]


@case
def the_messages_of_an_open_turn_are_kept(bench: Bench) -> None:
    store = bench.store
    _talk(bench)
    occurrence = _begin(bench, "b", "uid-2")
    assert store.prune_sessions(before=bench.now + 1, max_bytes=0, limit=99) > 0
    assert [one.occurrence_id for one in store.messages("acme", "desk", 9)] == [occurrence.id]
    assert bench.retry(occurrence, bench.now + SECOND)
    assert store.prune_sessions(before=bench.now + 1, max_bytes=0, limit=99) == 0
    store.release([hold(occurrence)])
    bench.advance(SECOND)
    assert bench.settle(bench.start(bench.claim_one()))
    assert store.prune_sessions(before=bench.now + 1, max_bytes=0, limit=99) == 1


@case
def sessions_of_ended_tasks_are_pruned(bench: Bench) -> None:
    store = bench.store
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    occurrence = bench.start(bench.claim_one())
    task = task_session(schedule.schedule_id, occurrence.id)
    store.put_session(replace(DESK, session_id=task, schedule_id=schedule.schedule_id))
    store.put_session(replace(DESK, session_id=f"schedule:{schedule.uid}", schedule_id=schedule.schedule_id))
    assert store.begin_turn(_turn(occurrence, task), [_say(Role.USER)]) is not None
    assert store.prune_sessions(before=bench.now + 1, max_bytes=LARGE, limit=9) == 0
    assert bench.settle(occurrence)
    assert store.prune_sessions(before=bench.now, max_bytes=LARGE, limit=9) == 0
    assert store.prune_sessions(before=bench.now + 1, max_bytes=LARGE, limit=1) == 1
    assert store.prune_sessions(before=bench.now + 1, max_bytes=LARGE, limit=9) == 1
    assert [one.session_id for one in store.sessions("acme", 9)] == [f"schedule:{schedule.uid}"]


@case
def sessions_of_ended_steps_are_pruned(bench: Bench) -> None:
    store = bench.store
    steps = replace(DESK, schedule_id="~steps:etl")
    store.put_session(replace(steps, session_id=step_session("occ_1")))
    store.put_session(replace(steps, session_id="chosen"))
    store.put_session(replace(DESK, session_id=step_session("of a schedule"), schedule_id="daily"))
    assert store.prune_sessions(before=bench.now + 1, max_bytes=LARGE, limit=9) == 1
    assert {one.session_id for one in store.sessions("acme", 9)} == {"chosen", "step:of a schedule"}


@case
def a_mob_has_the_sessions_of_its_members(bench: Bench) -> None:
    store = bench.store
    ids = [member_session("crew", name) for name in ("reader", "writer")]
    members = [replace(DESK, session_id=one, mob_id="crew", member_id=one[9:], role="r") for one in ids]
    assert store.put_mob(CREW, members, note=NOTE) is True
    assert store.put_mob(CREW, members, note=NOTE) is False
    assert store.mob("acme", "crew") == replace(CREW, created=NOW, updated=NOW)
    assert store.mob("other", "crew") is None
    assert sorted(one.session_id for one in store.sessions("acme", 9, mob_id="crew")) == ids
    for name in ("a", "z"):
        assert store.put_mob(replace(CREW, mob_id=name), []) is True
    assert [one.mob_id for one in store.mobs("acme", 9)] == ["a", "crew", "z"]
    assert [one.mob_id for one in store.mobs("acme", 1, after="a")] == ["crew"]
    assert store.mobs("other", 9) == []
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["session/create"]


@case
def a_deleted_mob_archives_its_sessions(bench: Bench) -> None:
    store, writer = bench.store, member_session("crew", "writer")
    member = replace(DESK, session_id=writer, mob_id="crew", member_id="writer")
    store.put_mob(CREW, [member])
    occurrence = _begin(bench, session_id=writer)
    assert bench.settle(occurrence)
    user = _use(bench, "asks", MobMemberTarget(mob_id="crew", member_id="writer", content="go"))
    assert store.delete_mob("acme", "crew", note=NOTE) == [user]
    assert store.delete_mob("acme", "nobody") is None
    store.put_mob(replace(CREW, mob_id="unused"), [replace(member, session_id="mob:unused:writer", mob_id="unused")])
    assert store.delete_mob("acme", "unused", note=NOTE) == []
    assert store.mob("acme", "unused") is None
    assert _state(bench, "mob:unused:writer") is SessionState.ARCHIVED
    assert _state(bench, writer) is SessionState.IDLE
    assert len(store.audit_entries("acme", 9)) == 1


@case
def a_new_mob_takes_over_the_sessions_of_a_deleted_one(bench: Bench) -> None:
    store, writer = bench.store, member_session("crew", "writer")
    member = replace(DESK, session_id=writer, mob_id="crew", member_id="writer")
    store.put_mob(CREW, [member])
    assert bench.settle(_begin(bench, session_id=writer))
    before = store.session("acme", writer)
    assert before is not None
    assert store.delete_mob("acme", "crew") == []
    bench.advance(SECOND)
    again = replace(member, spec=SessionSpec(model="test"), role="editor")
    assert store.put_mob(CREW, [again]) is True
    changed = replace(before, spec=again.spec, role="editor", updated=bench.now)
    assert store.session("acme", writer) == changed
    assert len(store.messages("acme", writer, 9)) == 1


@case
def a_new_mob_of_another_user_begins_anew(bench: Bench) -> None:
    store, writer = bench.store, member_session("crew", "writer")
    member = replace(DESK, session_id=writer, mob_id="crew", member_id="writer")
    store.put_mob(CREW, [member])
    assert bench.settle(_begin(bench, session_id=writer))
    assert len(store.messages("acme", writer, 9)) == 1
    assert store.delete_mob("acme", "crew") == []
    assert store.put_mob(replace(CREW, user="bob"), [replace(member, user="bob")]) is True
    begun = store.session("acme", writer)
    assert begun is not None
    assert (begun.user, begun.messages, begun.turn) == ("bob", 0, None)
    assert store.messages("acme", writer, 9) == []
