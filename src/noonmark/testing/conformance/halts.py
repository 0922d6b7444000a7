"""Halts: what a store does not start any more, and what it asks to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import Busy, Claim, End, Place, refused
from noonmark.core.agents.session import Session
from noonmark.core.halt import Halt
from noonmark.core.ids import manual
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.lineage import Lineage
from noonmark.core.occurrence import Overrides, Parent
from noonmark.core.planner import first_plan
from noonmark.core.policies import overlap
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry
from noonmark.core.settlement import Suspended, settle
from noonmark.core.targets import WorkflowTarget
from noonmark.core.targets.session import OnDemandSessionTarget, PromptAction, SessionSpec, SessionTarget, SessionType
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold, start

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


PROMPT, SPEC = PromptAction(prompt="Go on."), SessionSpec(model="test")
ON_DEMAND = OnDemandSessionTarget(create=SPEC, action=PROMPT)


def _halt(bench: Bench, halt_id: str = "h1", **changes: Any) -> Halt:
    return Halt(halt_id=halt_id, at=bench.now, by="ada", **{"tenant": "acme", **changes})


def _is_halted(bench: Bench, claim: Claim) -> Occurrence:
    """A start that meets a halt, and what is decided about it."""
    busy = bench.admit(start(claim))
    assert isinstance(busy, Busy), busy
    assert busy.place is Place.HALT
    return bench.decide(refused(claim, busy))


@case
def what_is_halted_does_not_start_and_goes_on_when_it_is_lifted(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "claimed")
    claim = bench.claim_one()
    note = AuditEntry(at=bench.now, caller="ada", operation="halt/set", reason="a loop")
    assert bench.store.set_halt(_halt(bench, reason="a loop"), most=9, note=note) == 0
    skipped = _is_halted(bench, claim)
    assert (skipped.phase, skipped.reason) == (Phase.SKIPPED, Reason.HALTED)
    assert '"halt_reason": "a loop"' in skipped.detail
    later = bench.create_quiet("uid-2", schedule_id="later")  # made after the halt
    bench.add(later, "a")
    assert _is_halted(bench, bench.claim_one()).reason is Reason.HALTED
    assert bench.store.halts("acme") == bench.store.halts() == [_halt(bench, reason="a loop")]
    assert bench.store.halts("other") == []
    assert bench.store.lift_halt("other", "h1") is None
    lifted = bench.store.lift_halt("acme", "h1", note=replace(note, operation="halt/lift"))
    assert lifted == _halt(bench, reason="a loop")
    assert bench.store.lift_halt("acme", "h1") is None
    assert bench.run(schedule, "next").phase is Phase.DISPATCHING
    assert bench.row(skipped).phase is Phase.SKIPPED
    assert [entry.operation for entry in bench.store.audit_entries("acme", 9)] == ["halt/lift", "halt/set"]


@case
def a_halt_covers_its_tenant_and_its_labels(bench: Bench) -> None:
    fast = bench.create_quiet("uid-1", schedule_id="fast", labels={"team": "blue", "tier": "1"})
    slow = bench.create_quiet("uid-2", schedule_id="slow", labels={"team": "blue"})
    assert bench.store.set_halt(_halt(bench, labels={"team": "blue", "tier": "1"}), most=9) == 0
    assert bench.store.set_halt(_halt(bench, "h2", tenant="other"), most=9) == 0
    bench.add(fast, "a")
    assert _is_halted(bench, bench.claim_one()).reason is Reason.HALTED
    assert bench.run(slow, "b").phase is Phase.DISPATCHING
    assert bench.store.set_halt(_halt(bench), most=9) is None  # the id is taken
    assert bench.store.set_halt(_halt(bench, "h3"), most=1) is None  # there are as many as may be
    assert [halt.halt_id for halt in bench.store.halts()] == ["h1", "h2"]


@case
def what_runs_is_asked_to_stop(bench: Bench) -> None:
    covered = bench.create_quiet("uid-1", schedule_id="covered", labels={"team": "blue"})
    other = bench.create_quiet("uid-2", schedule_id="other")
    running, others = bench.run(covered, "a"), bench.run(other, "b")
    accepted = bench.create_quiet("uid-3", schedule_id="accepted", labels={"team": "blue"})
    awaiting = bench.run(accepted, "c")
    deadline = bench.now + 10 * LEASE
    waits = {"phase": Phase.AWAITING_COMPLETION, "reason": Reason.ACCEPTED, "deadline": deadline}
    assert bench.settle(awaiting, **waits)
    assert bench.store.set_halt(_halt(bench, labels={"team": "blue"}), most=9) == 2
    renewal = bench.store.renew([hold(running), hold(others)], now=bench.now, lease=LEASE)
    assert renewal.stop == {running.id: Reason.HALTED}
    assert [(one.id, one.stop) for one in bench.store.overdue(now=bench.now, limit=9)] == [(awaiting.id, Reason.HALTED)]
    assert bench.store.set_halt(_halt(bench, "h2", labels={"team": "blue"}), most=9) == 0  # they were asked
    retried = bench.retry(running, bench.now)
    assert retried
    cancelled = _is_halted(bench, bench.claim_one())  # what has begun is not skipped
    assert (cancelled.phase, cancelled.reason) == (Phase.CANCELLED, Reason.HALTED)


@case
def a_workflow_run_that_has_begun_starts_once_more_to_end(bench: Bench) -> None:
    schedule = bench.create_quiet(target=WorkflowTarget(workflow_id="flow"))
    bench.add(schedule, "a")
    [claim] = bench.claim(routes=[WorkflowTarget.route])
    occurrence = bench.start(claim)
    assert bench.retry(occurrence, bench.now)
    assert bench.store.set_halt(_halt(bench), most=9) == 0  # it waits for its next attempt
    [claim] = bench.claim(routes=[WorkflowTarget.route])
    again = bench.start(claim)
    assert (again.phase, again.stop) == (Phase.DISPATCHING, Reason.HALTED)
    assert bench.store.lift_halt("acme", "h1") is not None
    waits = Suspended(
        started=bench.now, ended=bench.now, until=bench.now, waiting_for=Reason.STEP_PENDING, open_steps=frozenset()
    )
    assert bench.store.settle([settle(again, schedule, waits, node="node-a")]) == [True]  # it undoes something
    [claim] = bench.claim(routes=[WorkflowTarget.route])
    again = bench.start(claim)
    assert bench.settle(again, phase=Phase.CANCELLED, reason=Reason.HALTED)
    assert '"halted_by": "ada"' in bench.row(again).detail


@case
def what_it_stops_says_who_halted_it_though_it_was_lifted(bench: Bench) -> None:
    running, lost, accepted, done = (
        bench.run(bench.create_quiet(name, schedule_id=name), "a") for name in ("running", "lost", "accepted", "done")
    )
    assert bench.store.set_halt(_halt(bench, reason="a loop"), most=9) == 4
    at_work = bench.row(running)
    assert (at_work.phase, at_work.stop) == (Phase.DISPATCHING, Reason.HALTED)
    assert '"halt_reason": "a loop"' in at_work.detail
    assert bench.store.lift_halt("acme", "h1") is not None
    waits = {"phase": Phase.AWAITING_COMPLETION, "reason": Reason.ACCEPTED, "deadline": bench.now + 9 * LEASE}
    assert bench.settle(accepted, **waits)  # it had not seen the request
    cancelled = {"phase": Phase.CANCELLED, "reason": Reason.HALTED, "facts": {"exit_code": 15}}
    assert bench.settle(running, **cancelled)
    assert bench.settle(bench.row(accepted), **cancelled)
    assert bench.settle(done)  # it was quicker
    bench.advance(2 * LEASE)
    claim = bench.claim_one("node-b")
    assert claim.occurrence.id == lost.id
    bench.decide(End(claim=claim, phase=Phase.CANCELLED, reason=Reason.HALTED))
    facts = f'"halt_id": "h1", "halt_reason": "a loop", "halted_at": "{to_text(factories.NOW)}", "halted_by": "ada"'
    assert [bench.row(one).detail for one in (running, accepted)] == [f'{{"exit_code": 15, {facts}}}'] * 2
    assert bench.row(lost).detail == f"{{{facts}}}"
    assert bench.row(done).detail == ""


def _talks_in(session_id: str) -> SessionTarget:
    return SessionTarget(type=SessionType.EXACT, session_id=session_id, action=PROMPT)


def _made(bench: Bench, name: str, *chain: str, **changes: Any) -> Schedule:
    """A schedule that the last of a chain made."""
    schedule = factories.schedule(f"uid-{name}", schedule_id=name, trigger=EventTrigger("seen"), **changes)
    schedule = replace(schedule, lineage=Lineage(depth=1, chain=chain))
    assert bench.store.create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]
    return schedule


@case
def a_halt_of_a_lineage_covers_what_it_made_and_its_sessions(bench: Bench) -> None:
    boss = bench.create_quiet("uid-boss", schedule_id="boss", target=_talks_in("desk"))
    child = _made(bench, "child", "schedule:boss", "session:desk", target=ON_DEMAND)
    grandchild = _made(bench, "grandchild", "schedule:boss", "session:desk", "schedule:child")
    for session_id, maker in (("desk", None), ("made", "child"), ("bosses", "boss"), ("free", "gone")):
        assert bench.store.put_session(
            Session(tenant="acme", session_id=session_id, user="ada", spec=SPEC, schedule_id=maker)
        )
    outsiders = [
        bench.create_quiet(f"uid-{name}", schedule_id=name, target=_talks_in(session_id))
        for name, session_id in (("same-desk", "desk"), ("of-child", "made"), ("of-boss", "bosses"), ("none", "free"))
    ]
    plain = bench.create_quiet("uid-plain", schedule_id="plain")
    everything = [boss, child, grandchild, *outsiders, plain]
    assert _halted(bench, everything, "boss") == ["boss", "child", "grandchild", "of-child", "of-boss"]
    assert _halted(bench, everything, "desk") == ["boss", "child", "grandchild", "same-desk", "of-child", "of-boss"]
    assert _halted(bench, everything, "child") == ["child", "grandchild", "of-child"]
    its_session = "schedule:uid-child"  # which it makes on demand
    assert _halted(bench, everything, its_session) == ["child", "of-child"]
    later = _made(bench, "later", "schedule:child")
    assert _halted(bench, [later], "child") == ["later"]
    assert _halted(bench, [later], "nobody") == []


def _halted(bench: Bench, schedules: list[Schedule], lineage: str) -> list[str]:
    """The ids of the schedules that do not start while a lineage is halted, and whose runs it cancels."""
    store, ids = bench.store, {schedule.uid: schedule.schedule_id for schedule in schedules}
    running = [_begin(bench, schedule, f"{lineage}-1") for schedule in schedules]
    halt = _halt(bench, lineage=lineage)
    stopped = store.set_halt(halt, most=1)
    assert store.halts("acme") == [halt]
    asked = [ids[one.uid] for one in running if bench.row(one).stop is Reason.HALTED]
    assert len(asked) == stopped
    for occurrence in running:
        assert bench.settle(occurrence)
    met = []
    for schedule in schedules:
        bench.add(schedule, f"{lineage}-2")
        [claim] = bench.claim(routes=[schedule.declaration.target.route])
        answer = bench.admit(start(claim))
        if isinstance(answer, Busy):
            met.append(schedule.schedule_id)
            bench.decide(refused(claim, answer))
        else:
            assert bench.settle(bench.row(claim.occurrence))
    assert store.lift_halt("acme", "h1") == halt
    assert met == asked
    return met


def _begin(bench: Bench, schedule: Schedule, key: str) -> Occurrence:
    bench.add(schedule, key)
    [claim] = bench.claim(routes=[schedule.declaration.target.route])
    return bench.start(claim)


@case
def the_steps_of_a_workflow_are_covered_as_its_run_is(bench: Bench) -> None:
    runs = bench.create_quiet(target=WorkflowTarget(workflow_id="flow"), labels={"team": "blue"})
    steps = bench.create_quiet("uid-steps", schedule_id="~steps:flow", overlap_policy=overlap.Allow())
    run = _begin(bench, runs, "a")
    for number, above in enumerate((run.id, run.id, "occ_gone")):
        overrides = Overrides(parent=Parent(occurrence_id=above, step_id="step"))
        step = factories.occurrence(steps, manual(str(number)), nominal=bench.now - 9 + number, overrides=overrides)
        assert bench.store.add([step]) == [True]
    begun, undo, stray = bench.claim()
    step = bench.decide(replace(start(begun), takes_slot=False))
    assert bench.store.set_halt(_halt(bench, labels={"team": "blue"}), most=9) == 2
    assert [bench.row(one).stop for one in (run, step)] == [Reason.HALTED] * 2
    busy = bench.admit(replace(start(undo), takes_slot=False))
    assert isinstance(busy, Busy), busy
    assert busy.place is Place.HALT
    assert bench.decide(replace(start(stray), takes_slot=False)).phase is Phase.DISPATCHING
