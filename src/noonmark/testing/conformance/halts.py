"""Halts: what a store does not start any more, and what it asks to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import Busy, Claim, Place, refused
from noonmark.core.halt import Halt
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry
from noonmark.core.targets import WorkflowTarget
from noonmark.testing.conformance.bench import LEASE, case, hold, start

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.testing.conformance.bench import Bench


def _halt(bench: Bench, halt_id: str = "h1", **changes: Any) -> Halt:  # noqa: ANN401 - its fields
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
