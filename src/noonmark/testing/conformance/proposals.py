"""Proposals: nothing plans them, one decision ends them, and what agents make is counted in its transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.api_key import Scope
from noonmark.core.errors import Conflict, QuotaExceeded
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.lineage import AgentLimits, Lineage, fingerprint
from noonmark.core.planner import first_plan
from noonmark.core.proposals import Proposal, ProposedAction
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.system_events import SystemEvent, of_proposal
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import ScheduleFilter
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.testing.conformance.bench import Bench

EVENTS = (SystemEvent.SCHEDULE_PROPOSED, SystemEvent.SCHEDULE_APPROVED, SystemEvent.SCHEDULE_DENIED)
MADE = Lineage(
    depth=2,
    session_id="talk",
    schedule_id="schedule-of-parent",
    tool_call_id="call-1",
    parent="parent",
    chain=("session:first", "schedule:schedule-of-parent", "session:talk"),
    fingerprint="f" * 32,
    agent="key nm_live_aaaaaa",
    scopes=(Scope.PROPOSE, Scope.READ),
)


def _new(uid: str = "new", **changes: Any) -> Proposal:
    values: dict[str, Any] = {
        "proposal_id": uid,
        "action": ProposedAction.CREATE,
        "uid": uid,
        "schedule_id": f"schedule-of-{uid}",
        "owner": Owner(tenant="acme", user="ada"),
        "document": factories.declaration().to_document(),
        "source": "test",
        "by": "ada",
        "key_id": "nm_live_aaaaaa",
        "is_agent": True,
        "proposed": NOW,
        "expires": NOW + MINUTE,
        "lineage": replace(MADE, fingerprint=uid),
    }
    return Proposal(**values | changes)


def _change(schedule: Schedule, **changes: Any) -> Proposal:
    values: dict[str, Any] = {
        "action": ProposedAction.UPDATE,
        "schedule_id": schedule.schedule_id,
        "owner": schedule.owner,
        "document": {"description": "another"},
        "base_revision": schedule.revision,
        "lineage": None,
        "reason": "better",
    }
    return _new(schedule.uid, **values | {"proposal_id": "change"} | changes)


def _note(operation: str, reason: str | None = None) -> AuditEntry:
    return AuditEntry(at=NOW, caller="bob", operation=operation, reason=reason)


def _put(bench: Bench, proposal: Proposal, most: int = 9) -> bool:
    return bench.store.put_proposal(proposal, most=most, note=_note("schedule/create"))


def _approval(bench: Bench, proposal: Proposal) -> Plan:
    schedule = replace(proposal.schedule(), phase=SchedulePhase.ACTIVE, created=bench.now, updated=bench.now)
    plan = first_plan(schedule, lookahead=LOOKAHEAD)
    return replace(plan, proposal=proposal.proposal_id, note=_note("schedule/approve", "fine"))


def _refusal(ask: Callable[[], object]) -> object:
    """What a refusal says: the limit that is reached, or its message."""
    try:
        ask()
    except QuotaExceeded as error:
        return error.limit
    except Conflict as error:
        return error.message
    return None


def _operations(bench: Bench) -> list[str]:
    return [entry.operation for entry in reversed(bench.store.audit_entries("acme", 99))]


@case
def a_proposed_schedule_is_stored_and_never_planned(bench: Bench) -> None:
    proposal = _new(name="hourly", reason="asked for")
    assert _put(bench, proposal)
    assert bench.store.proposal("acme", proposal.schedule_id) == proposal
    assert bench.store.proposal("elsewhere", proposal.schedule_id) is None
    bench.advance(60 * MINUTE)
    assert bench.store.plannable(bench.now, 9) == []
    assert (bench.store.find("acme", proposal.schedule_id), bench.store.find_uid("new")) == (None, None)
    assert (bench.store.count_schedules("acme"), bench.store.schedules("acme", limit=9)) == (0, [])
    assert _operations(bench) == ["schedule/create"]


@case
def there_is_one_proposal_for_each_schedule(bench: Bench) -> None:
    schedule = bench.create("job")
    first = _change(schedule)
    assert _put(bench, first)
    assert not _put(bench, _change(schedule, proposal_id="second"))
    assert bench.store.proposal("acme", schedule.schedule_id) == first
    assert _put(bench, _new())
    assert not _put(bench, _new("other", schedule_id="schedule-of-new"))
    assert not _put(bench, _new("other", schedule_id=schedule.schedule_id))
    assert len(_operations(bench)) == 2
    # The id of a deleted schedule is free again, and so is the proposal about it.
    assert bench.store.change("job", lambda snapshot, now: edits.delete(snapshot, now=now))
    again = bench.create("again", schedule_id=schedule.schedule_id)
    assert _put(bench, _change(again, proposal_id="third"))


@case
def a_user_has_a_limited_number_of_proposals(bench: Bench) -> None:
    assert _put(bench, _new("a"), most=2)
    assert _put(bench, _new("b"), most=2)
    assert _refusal(lambda: _put(bench, _new("c"), most=2)) == {
        "name": "proposals",
        "scope": "user",
        "value": 2,
        "used": 2,
    }
    assert bench.store.proposal("acme", "schedule-of-c") is None
    assert _put(bench, _new("d", by="bob"), most=2)


@case
def proposals_are_listed_oldest_first(bench: Bench) -> None:
    bob = Owner(tenant="acme", user="bob")
    for uid, at, owner in (("b", 0, None), ("a", 0, None), ("c", 5, bob), ("d", 9, None)):
        assert _put(bench, _new(uid, proposed=NOW + at, **{} if owner is None else {"owner": owner}))
    assert _put(bench, _new("e", owner=Owner(tenant="elsewhere", user="ada")))
    listed = [one.uid for one in bench.store.proposals("acme", 9)]
    assert listed == ["a", "b", "c", "d"]
    page = bench.store.proposals("acme", 2)
    rest = bench.store.proposals("acme", 9, after=(page[-1].proposed, page[-1].schedule_id))
    assert [one.uid for one in rest] == ["c", "d"]
    assert [one.uid for one in bench.store.proposals("acme", 9, user="bob")] == ["c"]


@case
def an_approved_schedule_is_planned_from_then_on(bench: Bench) -> None:
    proposal = _new()
    assert _put(bench, proposal)
    bench.advance(5 * MINUTE + SECOND)
    plan = _approval(bench, proposal)
    assert bench.store.create([plan]) == [True]
    stored = bench.store.find("acme", proposal.schedule_id)
    assert stored is not None
    assert (stored.schedule.phase, stored.schedule.lineage) == (SchedulePhase.ACTIVE, replace(MADE, fingerprint="new"))
    assert stored.next_due == NOW + 6 * MINUTE
    assert bench.store.proposal("acme", proposal.schedule_id) is None
    assert bench.store.create([plan]) == [False]
    assert _operations(bench) == ["schedule/create", "schedule/approve"]


@case
def a_denied_schedule_is_a_deleted_one(bench: Bench) -> None:
    proposal = _new()
    assert _put(bench, proposal)
    bench.create("taker", schedule_id="taken")
    denied = edits.denial(proposal, now=bench.now, note=_note("schedule/deny", "no"))
    assert bench.store.create([denied]) == [True]
    assert bench.store.find("acme", proposal.schedule_id) is None
    stored = bench.store.find("acme", proposal.schedule_id, deleted=True)
    assert stored is not None
    assert (stored.schedule.phase, stored.schedule.deleted) == (SchedulePhase.DELETED, bench.now)
    assert bench.store.occurrences("new") == []
    assert bench.store.create([denied]) == [False]
    assert bench.store.create([_approval(bench, proposal)]) == [False]
    [listed] = bench.store.schedules("acme", limit=9, deleted=True)
    assert listed.schedule.uid == "new"
    # The id is free again.
    bench.create("later", schedule_id=proposal.schedule_id)


@case
def a_change_decides_its_proposal_once(bench: Bench) -> None:
    schedule = bench.create("job")
    assert _put(bench, _change(schedule))

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        declared = replace(snapshot.schedule.declaration, description="another")
        plan = edits.edit(snapshot, declared, now=now, lookahead=LOOKAHEAD)
        return replace(plan, proposal="change", note=_note("schedule/approve"))

    assert bench.store.change("job", decide)
    assert bench.store.proposal("acme", schedule.schedule_id) is None
    assert not bench.store.change("job", decide)
    assert _operations(bench) == ["schedule/create", "schedule/approve"]


@case
def a_denied_change_leaves_the_schedule_as_it_is(bench: Bench) -> None:
    schedule = bench.create("job")
    assert _put(bench, _change(schedule))
    denied = _note("schedule/deny")
    assert not bench.store.deny_change("acme", schedule.schedule_id, "another", note=denied)
    assert bench.store.deny_change("acme", schedule.schedule_id, "change", note=denied)
    assert not bench.store.deny_change("acme", schedule.schedule_id, "change", note=denied)
    stored = bench.store.find_uid("job")
    assert stored is not None
    assert stored.schedule == schedule
    assert _operations(bench) == ["schedule/create", "schedule/deny"]


@case
def a_proposal_without_a_decision_expires(bench: Bench) -> None:
    schedule = bench.create("job")
    assert _put(bench, _change(schedule))
    assert _put(bench, _new())
    assert _put(bench, _new("longer", expires=NOW + 2 * MINUTE))
    bench.advance(MINUTE - 1)
    assert bench.store.expire_proposals(now=bench.now, limit=9) == 0
    bench.advance(1)
    assert bench.store.expire_proposals(now=bench.now, limit=9) == 2
    assert [one.uid for one in bench.store.proposals("acme", 9)] == ["longer"]
    gone = bench.store.find("acme", "schedule-of-new", deleted=True)
    assert gone is not None
    assert gone.schedule.phase is SchedulePhase.DELETED
    [entry] = bench.store.audit_entries("acme", 9, schedule_id="schedule-of-new")
    assert (entry.operation, entry.caller, entry.reason) == (
        "schedule/deny", "noonmark", "the proposal to create expired",
    )  # fmt: skip
    stored = bench.store.find_uid("job")
    assert stored is not None
    assert stored.schedule.phase is SchedulePhase.ACTIVE


@case
def proposals_emit_events(bench: Bench) -> None:
    bench.create("listener", trigger=EventTrigger([str(one) for one in EVENTS]))
    asked, refused = _new(), _new("refused")
    assert _put(bench, asked)
    assert _put(bench, refused)
    assert bench.store.create([_approval(bench, asked)]) == [True]
    denied = _note("schedule/deny", "no")
    assert bench.store.create([edits.denial(refused, now=bench.now, note=denied)]) == [True]
    emitted = [replace(one, emitted=0) for one in reversed(bench.store.events("acme", 9))]
    proposed, approved, denial = EVENTS
    assert emitted == [
        of_proposal(proposed, asked, by="bob", reason=None, at=NOW),
        of_proposal(proposed, refused, by="bob", reason=None, at=NOW),
        of_proposal(approved, asked, by="bob", reason="fine", at=NOW),
        of_proposal(denial, refused, by="bob", reason="no", at=NOW),
    ]


def _made(bench: Bench, uid: str, *, most: int | None = 2, user: str = "ada", **changes: Any) -> None:
    """Create a schedule as an agent in a run of the parent does."""
    schedule = factories.schedule(uid, created=bench.now, owner=Owner(tenant="acme", user=user))
    schedule = replace(schedule, lineage=replace(MADE, **{"fingerprint": uid} | changes))
    limits = None if most is None else AgentLimits(max_children=most)
    plan = replace(first_plan(schedule, lookahead=LOOKAHEAD), agent_limits=limits)
    assert bench.store.create([plan]) == [True]


@case
def lineage_is_stored_with_the_schedule(bench: Bench) -> None:
    _made(bench, "child")
    bench.create("plain")
    stored = bench.store.find_uid("child")
    assert stored is not None
    assert stored.schedule.lineage == replace(MADE, fingerprint="child")
    wanted = ScheduleFilter(fingerprint="child")
    assert [one.schedule.uid for one in bench.store.schedules("acme", limit=9, wanted=wanted)] == ["child"]
    # An edit keeps it, with the fingerprint of what the schedule does now.
    declared = replace(stored.schedule.declaration, max_runs=5)
    assert bench.store.change(
        "child", lambda snapshot, now: edits.edit(snapshot, declared, now=now, lookahead=LOOKAHEAD)
    )
    edited = bench.store.find_uid("child")
    assert edited is not None
    assert edited.schedule.lineage is not None
    assert edited.schedule.lineage.chain == MADE.chain
    assert edited.schedule.lineage.fingerprint not in (None, "child")


@case
def the_children_of_a_schedule_are_counted(bench: Bench) -> None:
    _made(bench, "a")
    _made(bench, "b")
    assert _refusal(lambda: _made(bench, "c")) == {"name": "children", "scope": "schedule", "value": 2, "used": 2}
    assert bench.store.find_uid("c") is None
    _made(bench, "d", parent="another")
    _made(bench, "e", most=None)
    for uid in "ae":
        assert bench.store.change(uid, lambda snapshot, now: edits.delete(snapshot, now=now))
    _made(bench, "f")


@case
def a_chain_that_is_too_long_by_now_is_refused(bench: Bench) -> None:
    """Limits may have changed between a proposal and its approval."""
    assert "may be 3 deep, and this one would be 4" in str(_refusal(lambda: _made(bench, "deep", depth=4)))
    _made(bench, "by-nobody", most=None, depth=4)


@case
def an_agent_creates_no_clone(bench: Bench) -> None:
    _made(bench, "first", most=9, fingerprint="same")
    _made(bench, "of-bob", most=9, fingerprint="same", user="bob")
    clone = _refusal(lambda: _made(bench, "clone", most=9, fingerprint="same", parent=None))
    assert "'schedule-of-first'" in str(clone)
    assert bench.store.change("first", lambda snapshot, now: edits.delete(snapshot, now=now))
    _made(bench, "again", most=9, fingerprint="same")


@case
def an_agent_proposes_no_clone(bench: Bench) -> None:
    """What is planned and what is proposed counts, in the transaction that stores the proposal."""
    assert _put(bench, _new("first"))
    same = replace(MADE, fingerprint="first")
    assert "'schedule-of-first'" in str(_refusal(lambda: _put(bench, _new("clone", lineage=same))))
    assert "'schedule-of-first'" in str(_refusal(lambda: _made(bench, "clone", fingerprint="first")))
    assert _put(bench, _new("of-bob", lineage=same, owner=Owner(tenant="acme", user="bob")))
    assert _put(bench, _new("elsewhere", lineage=same, owner=Owner(tenant="other", user="ada")))
    assert _put(bench, _new("by-a-person", lineage=None))
    # Its own proposal stands in nobody's way.
    plan = replace(_approval(bench, _new("first")), agent_limits=AgentLimits())
    assert bench.store.create([plan]) == [True]
    assert "'schedule-of-first'" in str(_refusal(lambda: _put(bench, _new("clone", lineage=same))))
    changed = _change(bench.create("job"), lineage=same)
    assert "'schedule-of-first'" in str(_refusal(lambda: _put(bench, changed)))


@case
def an_agent_edits_no_schedule_into_a_clone(bench: Bench) -> None:
    first, other = factories.declaration(), factories.declaration(trigger=EventTrigger("seen"))
    digest = fingerprint(first.to_document())
    _made(bench, "first", most=9, fingerprint=digest)
    for uid in ("own", "plain"):
        schedule = replace(factories.schedule(uid, created=bench.now), declaration=other)
        lineage = replace(MADE, fingerprint=fingerprint(other.to_document())) if uid == "own" else None
        plan = first_plan(replace(schedule, lineage=lineage), lookahead=LOOKAHEAD)
        assert bench.store.create([plan]) == [True]

    def edit(uid: str, declared: Declaration, limits: AgentLimits | None) -> bool:
        def decide(snapshot: Snapshot, now: Micros) -> Plan:
            plan = edits.edit(snapshot, declared, now=now, lookahead=LOOKAHEAD)
            return replace(plan, agent_limits=limits)

        return bench.store.change(uid, decide)

    for uid in ("own", "plain"):
        assert "'schedule-of-first'" in str(_refusal(lambda uid=uid: edit(uid, first, AgentLimits())))  # type: ignore[misc]
        assert edit(uid, replace(other, description="as before"), AgentLimits())
        assert edit(uid, first, None)
        assert edit(uid, replace(first, description="a clone by a person"), AgentLimits())
