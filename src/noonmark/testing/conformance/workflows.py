"""Workflows: versions, the steps of runs, what ends a step elsewhere, and suspended runs that go on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.causation import Reaction
from noonmark.core.errors import Conflict, QuotaExceeded
from noonmark.core.event import Event
from noonmark.core.halt import Halt
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Overrides, Parent, in_force
from noonmark.core.planner import first_plan
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.quotas import Quota, Resource
from noonmark.core.quotas import Scope as Whose
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.settlement import Accepted, Delivered, Suspended, settle
from noonmark.core.system_events import SystemEvent
from noonmark.core.targets import BundleTarget, FunctionTarget, WorkflowTarget
from noonmark.core.triggers import EventTrigger
from noonmark.core.workflows.definition import MAX_RESULT
from noonmark.core.workflows.run import Compensation, StepPhase, StepRecord, WorkflowRun
from noonmark.ports.records import OccurrenceFilter
from noonmark.ports.workflows import (
    ApprovalRequest,
    ApprovalState,
    EventWait,
    StepWrites,
    UsedKind,
    WorkflowVersion,
)
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

ETL = WorkflowVersion(
    tenant="acme",
    workflow_id="etl",
    document={"workflow_id": "etl", "steps": [{"id": "load", "target": {"target_kind": "function"}}]},
    digest="one",
    source="http",
    created=NOW,
    user="ada",
)
NOTE = AuditEntry(at=NOW, caller="ada", operation="workflow/create")
WORKFLOW = WorkflowTarget(workflow_id="etl")
RUNNING = StepRecord(step_id="load", phase=StepPhase.RUNNING, attempt=1, started=NOW, is_external=True)
DONE = StepRecord(step_id="read", phase=StepPhase.COMPLETED, attempt=1, started=NOW, ended=NOW, result={"rows": 3})


def _create(bench: Bench, uid: str = "uid-1", **changes: Any) -> Schedule:
    return bench.create_quiet(uid, target=WORKFLOW, **changes)


def _resume(bench: Bench, node: str = "node-a") -> Occurrence:
    """Claim the one workflow run that can be claimed, and start it."""
    [claim] = bench.claim(node, routes=["workflow"])
    return bench.start(claim)


def _begin(bench: Bench, of: Schedule | None = None, key: str = "a", *steps: StepRecord) -> Occurrence:
    """Start a workflow run, with some steps."""
    bench.add(_create(bench) if of is None else of, key)
    occurrence = _resume(bench)
    run = WorkflowRun(occurrence_id=occurrence.id, workflow_id="etl", version=1, inputs={"day": 1}, started=bench.now)
    assert _write(bench, occurrence, run=run, steps=steps)
    return occurrence


def _write(bench: Bench, occurrence: Occurrence, **fields: Any) -> bool:
    [done] = bench.store.commit_steps([StepWrites(occurrence_id=occurrence.id, fence=occurrence.fence, **fields)])
    return done


def _steps(bench: Bench, occurrence: Occurrence) -> list[StepRecord]:
    found = bench.store.workflow_run(occurrence.id)
    assert found is not None
    return found[1]


def _step(bench: Bench, occurrence: Occurrence, step_id: str = "load") -> StepRecord:
    [found] = [step for step in _steps(bench, occurrence) if step.step_id == step_id]
    return found


def _hidden(bench: Bench, uid: str = "steps", schedule_id: str = "~steps:etl") -> Schedule:
    return bench.create_quiet(uid, schedule_id=schedule_id, overlap_policy=overlap.Allow())


def _child(of: Schedule, parent: Occurrence, key: str = "c", index: int | None = None) -> Occurrence:
    """An occurrence for the step `load` of a run."""
    step = Parent(occurrence_id=parent.id, step_id="load", index=index)
    return factories.occurrence(of, manual(key), overrides=Overrides(parent=step))


def _start_child(bench: Bench) -> Occurrence:
    [claim] = bench.claim("node-b")
    return bench.decide(replace(start(claim), takes_slot=False))


def _suspend(
    bench: Bench, occurrence: Occurrence, *open_steps: str, until: int | None = None, reason: Reason | None = None
) -> bool:
    return bench.store.settle([_suspension(bench, occurrence, *open_steps, until=until, reason=reason)]) == [True]


def _suspension(
    bench: Bench, occurrence: Occurrence, *open_steps: str, until: int | None = None, reason: Reason | None = None
) -> Any:
    suspended = Suspended(
        started=bench.now,
        ended=bench.now,
        until=until,
        waiting_for=reason or Reason.STEP_PENDING,
        open_steps=frozenset((step, None) for step in open_steps),
    )
    stored = bench.store.find_uid(occurrence.uid)
    assert stored is not None
    return settle(occurrence, stored.schedule, suspended, node="node-a")


def _is_claimable(bench: Bench) -> bool:
    """Whether a node could resume a workflow run now; the claim is given back."""
    claims = bench.claim("node-c", routes=["workflow"])
    bench.store.release([hold(one.occurrence) for one in claims])
    return bool(claims)


# Versions


@case
def versions_of_a_workflow_are_numbered_and_never_change(bench: Bench) -> None:
    store = bench.store
    first = store.put_workflow(ETL, note=NOTE)
    assert first == replace(ETL, version=1)
    assert store.put_workflow(replace(ETL, created=NOW + 1, user="bob"), note=NOTE) == first
    second = store.put_workflow(replace(ETL, digest="two", document={"steps": []}))
    assert second is not None
    assert second.version == 2
    assert store.workflow("acme", "etl") == second
    assert store.workflow("acme", "etl", 1) == first
    assert store.put_workflow(ETL) == replace(ETL, version=3), "only the newest is compared"
    assert store.put_workflow(ETL, version_number=1) == first
    with suppress(Conflict):
        raise AssertionError(store.put_workflow(replace(ETL, digest="new"), version_number=2))
    ahead = store.put_workflow(replace(ETL, digest="new"), version_number=7)
    assert ahead is not None
    assert [one.version for one in store.workflow_versions("acme", "etl", 9)] == [7, 3, 2, 1]
    assert [one.version for one in store.workflow_versions("acme", "etl", 2, before=7)] == [3, 2]
    assert store.put_workflow(replace(ETL, digest="next")) == replace(ETL, digest="next", version=8)
    assert store.workflow("other", "etl") is None
    assert store.workflow("acme", "etl", 99) is None
    assert [note.operation for note in store.audit_entries("acme", 9)] == ["workflow/create"] * 2


@case
def workflows_are_listed_by_id_with_their_newest_version(bench: Bench) -> None:
    for name in ("b", "c", "a"):
        for number in (1, 2):
            bench.store.put_workflow(replace(ETL, workflow_id=name, digest=str(number)))
    bench.store.put_workflow(replace(ETL, tenant="other", workflow_id="z"))
    assert bench.store.delete_workflow("acme", "b") == []
    assert [(one.workflow_id, one.version) for one in bench.store.workflows("acme", 9)] == [("a", 2), ("c", 2)]
    assert [one.workflow_id for one in bench.store.workflows("acme", 1, after="a")] == ["c"]
    assert bench.store.put_workflow(replace(ETL, workflow_id="d"), most=2, note=NOTE) is None
    assert bench.store.audit_entries("acme", 9) == []
    assert bench.store.put_workflow(replace(ETL, workflow_id="c", digest="3"), most=2) is not None


@case
def a_deleted_workflow_is_hidden_and_its_numbers_go_on(bench: Bench) -> None:
    store = bench.store
    store.put_workflow(ETL)
    store.put_workflow(replace(ETL, digest="two"))
    assert store.delete_workflow("acme", "etl", note=NOTE) == []
    assert store.delete_workflow("acme", "etl", note=NOTE) is None
    assert store.workflow("acme", "etl") is None
    assert store.workflows("acme", 9) == store.workflow_versions("acme", "etl", 9) == []
    assert store.workflow("acme", "etl", 1, deleted=True) == replace(ETL, version=1, deleted=NOW)
    assert len(store.audit_entries("acme", 9)) == 1
    third = store.put_workflow(replace(ETL, digest="two"))
    assert third == replace(ETL, digest="two", version=3)
    assert store.put_workflow(ETL, version_number=1) == replace(ETL, version=1), "it is there again"
    assert [one.version for one in store.workflow_versions("acme", "etl", 9)] == [3, 1]


@case
def a_workflow_that_a_schedule_names_is_not_deleted(bench: Bench) -> None:
    store = bench.store
    store.put_workflow(ETL)
    named = [_create(bench, uid) for uid in ("two", "one")]
    bench.create_quiet("bundled", target=BundleTarget(bundle_id="etl"))
    bench.create_quiet("runs", schedule_id="~workflow:etl", target=WORKFLOW)
    _create(bench, "foreign", owner=Owner(tenant="other", user="ada"))
    ids = sorted(one.schedule_id for one in named)
    assert store.delete_workflow("acme", "etl", note=NOTE) == ids
    assert store.workflow("acme", "etl") is not None
    assert store.audit_entries("acme", 9) == []
    assert store.schedules_using("acme", UsedKind.WORKFLOW, "etl", 1) == ids[:1]
    assert store.schedules_using("acme", UsedKind.BUNDLE, "etl", 9) == ["schedule-of-bundled"]
    snapshot = bench.snapshot(named[0])
    changed = replace(snapshot.schedule.declaration, target=FunctionTarget(function="work"))
    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
    assert store.schedules_using("acme", UsedKind.WORKFLOW, "etl", 9) == [named[1].schedule_id]
    snapshot = bench.snapshot(named[0])
    changed = replace(snapshot.schedule.declaration, target=WorkflowTarget(workflow_id="other"))
    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
    assert store.schedules_using("acme", UsedKind.WORKFLOW, "other", 9) == [named[0].schedule_id]
    assert bench.commit(edits.delete(bench.snapshot(named[1]), now=bench.now))
    assert store.delete_workflow("acme", "etl") == []


# Steps


@case
def steps_are_written_as_long_as_the_fence_holds(bench: Bench) -> None:
    occurrence = _begin(bench)
    found = bench.store.workflow_run(occurrence.id)
    assert found is not None
    assert found == (
        WorkflowRun(occurrence_id=occurrence.id, workflow_id="etl", version=1, inputs={"day": 1}, started=NOW),
        [],
    )
    full = StepRecord(
        step_id="each",
        phase=StepPhase.FAILED,
        attempt=2,
        started=NOW,
        ended=NOW + 5,
        result=[{"a": None}],
        error="it \ud800 failed",
        ready=NOW + 7,
        sequence=4,
        count=2,
        child="occ_1",
        compensation=Compensation.RUNNING,
    )
    elements = [replace(RUNNING, step_id="each", index=index) for index in (1, 0)]
    assert _write(bench, occurrence, steps=[RUNNING, *elements, full, DONE])
    stored = replace(full, error=_steps(bench, occurrence)[0].error)
    assert _steps(bench, occurrence) == [stored, elements[1], elements[0], RUNNING, DONE]
    again = replace(elements[0], phase=StepPhase.COMPLETED, ended=NOW, result=False)
    closing = replace(found[0], closing={"outcome": "failed"}, attempt=2)
    assert _write(bench, occurrence, run=closing, steps=[again])
    changed = bench.store.workflow_run(occurrence.id)
    assert changed == (closing, [stored, elements[1], again, RUNNING, DONE])
    late = StepWrites(occurrence_id=occurrence.id, fence=occurrence.fence - 1, steps=[replace(DONE, step_id="late")])
    unknown = replace(late, occurrence_id="nothing")
    assert bench.store.commit_steps([late, unknown, replace(late, fence=occurrence.fence)]) == [False, False, True]
    assert bench.settle(occurrence)
    assert not _write(bench, occurrence, steps=[replace(DONE, step_id="later")])
    assert {step.step_id for step in _steps(bench, occurrence)} == {"each", "late", "load", "read"}
    assert bench.store.workflow_run("nothing") is None
    assert bench.store.commit_steps([]) == []


@case
def many_runs_are_written_together_each_by_its_own_fence(bench: Bench) -> None:
    runs = [_begin(bench, _create(bench, f"uid-{number}")) for number in range(6)]
    assert bench.settle(runs[2])
    writes = [StepWrites(occurrence_id=one.id, fence=one.fence, steps=[DONE]) for one in runs]
    writes[1] = replace(writes[1], waits=[EventWait(step_id="load", event_types=("paid",))])
    writes[3] = replace(writes[3], fence=99)
    assert bench.store.commit_steps(writes) == [True, True, False, False, True, True]
    assert [len(_steps(bench, one)) for one in runs] == [1, 1, 0, 0, 1, 1]


@case
def several_writes_about_one_run_are_carried_out_in_their_order(bench: Bench) -> None:
    occurrence = _begin(bench)
    first = StepWrites(occurrence_id=occurrence.id, fence=occurrence.fence, steps=[RUNNING])
    waits = replace(first, waits=[EventWait(step_id="load", event_types=("paid",))])
    assert bench.store.commit_steps([waits, replace(first, cancelled=["load"])]) == [True, True]
    _emit(bench, "e1")
    assert _step(bench, occurrence) == RUNNING
    assert bench.store.commit_steps([replace(first, clears=True), replace(first, steps=[DONE])]) == [True, True]
    assert _steps(bench, occurrence) == [RUNNING, DONE]


@case
def a_run_that_begins_anew_forgets_its_steps(bench: Bench) -> None:
    occurrence, other = (_begin(bench, _create(bench, uid), "a", RUNNING, DONE) for uid in ("one", "two"))
    request = ApprovalRequest(approval_id="ok", step_id="load", message="?", expires=NOW + MINUTE)
    assert _write(bench, occurrence, approvals=[request])
    assert _write(bench, occurrence, clears=True, steps=[replace(DONE, attempt=2)])
    assert _steps(bench, occurrence) == [replace(DONE, attempt=2)]
    assert _steps(bench, other) == [RUNNING, DONE]
    [approval] = bench.store.approvals("acme", 9)
    assert (approval.state, approval.decided) == (ApprovalState.CANCELLED, NOW)


@case
def the_end_of_a_step_resets_the_losses_of_its_run(bench: Bench) -> None:
    occurrence = _begin(bench)
    bench.advance(LEASE)
    again = _resume(bench, "node-b")
    assert bench.row(occurrence).losses == 1
    assert not _write(bench, occurrence, steps=[DONE])
    assert _write(bench, again, steps=[RUNNING])
    assert bench.row(occurrence).losses == 1
    assert _write(bench, again, steps=[DONE])
    assert bench.row(occurrence).losses == 0
    bench.advance(LEASE)
    last = _resume(bench, "node-c")
    assert _write(bench, last, steps=[DONE], waits=[EventWait(step_id="load", event_types=("paid",))])
    assert bench.row(occurrence).losses == 0


# Children


@case
def a_child_that_completes_ends_its_step(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    elements = [replace(RUNNING, index=index) for index in (None, 0, 1)]
    children = [_child(steps, occurrence, str(index), index) for index in (None, 0, 1)]
    assert _write(bench, occurrence, steps=elements, children=children)
    assert bench.store.known([child.id for child in children]) == {child.id for child in children}
    assert _write(bench, occurrence, children=children), "they are known, and stay"
    assert bench.store.open_steps([occurrence.id]) == {}
    claims = {claim.occurrence.id: claim for claim in bench.claim("node-b")}
    started = bench.decide(replace(start(claims[children[2].id]), takes_slot=False))
    bench.advance(1)
    run = replace(bench.settlement(started).run, result={"rows": [1]})
    assert bench.settle(started, run=run)
    ended = replace(elements[2], phase=StepPhase.COMPLETED, ended=bench.now, result={"rows": [1]})
    assert _steps(bench, occurrence) == [*elements[:2], ended]
    assert bench.store.open_steps([occurrence.id, "nothing"]) == {occurrence.id: [ended]}
    assert bench.row(occurrence).phase is Phase.DISPATCHING
    assert _write(bench, occurrence, steps=[elements[2]]), "its node has not looked since"
    assert _write(bench, occurrence, steps=[elements[2]], cancelled=["other"])
    assert _steps(bench, occurrence)[2] == ended
    undone = replace(ended, phase=StepPhase.COMPENSATED)
    assert _write(bench, occurrence, steps=[undone])
    assert _steps(bench, occurrence)[2] == undone


@case
def a_child_that_does_not_complete_fails_its_step(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    elements = [replace(RUNNING, index=index) for index in range(3)]
    children = [_child(steps, occurrence, str(index), index) for index in range(3)]
    assert _write(bench, occurrence, steps=elements, children=children)
    assert bench.store.cancel(children[0].id)
    claims = {claim.occurrence.id: claim for claim in bench.claim("node-b")}
    failed = bench.decide(replace(start(claims[children[1].id]), takes_slot=False))
    again = bench.decide(replace(start(claims[children[2].id]), takes_slot=False))
    run = replace(bench.settlement(failed).run, outcome=Outcome.FAILED, error="Traceback\n  line\nValueError: no\n")
    assert bench.settle(failed, run=run, phase=Phase.FAILED, reason=Reason.ATTEMPTS_EXHAUSTED)
    assert bench.retry(again, NOW + MINUTE)
    found = _steps(bench, occurrence)
    assert [step.phase for step in found] == [StepPhase.FAILED, StepPhase.FAILED, StepPhase.RUNNING]
    assert found[0].error == f"{children[0].id} ended as cancelled/cancelled: {Reason.CANCELLED.sentence}"
    assert found[1].error == f"{failed.id} ended as failed/attempts_exhausted: ValueError: no"


@case
def the_end_of_a_child_that_is_not_awaited_changes_nothing(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    orphan = replace(
        _child(steps, occurrence, "x"), overrides=Overrides(parent=Parent(occurrence_id="gone", step_id="load"))
    )
    own = replace(RUNNING, is_external=False)
    assert _write(bench, occurrence, steps=[own], children=[_child(steps, occurrence), orphan])
    claims = bench.claim("node-b")
    for claim in claims:
        assert bench.settle(bench.decide(replace(start(claim), takes_slot=False)))
    assert _steps(bench, occurrence) == [own]
    late = _child(steps, occurrence, "late")
    assert _write(bench, occurrence, steps=[replace(own, phase=StepPhase.CANCELLED, is_external=True)], children=[late])
    assert bench.settle(_start_child(bench))
    assert _step(bench, occurrence).phase is StepPhase.CANCELLED


@case
def a_child_of_an_earlier_attempt_does_not_end_the_step(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    earlier, current = _child(steps, occurrence, "1"), _child(steps, occurrence, "2")
    assert _write(bench, occurrence, steps=[replace(RUNNING, child=earlier.id)], children=[earlier])
    started = _start_child(bench)
    again = replace(RUNNING, child=current.id)
    assert _write(bench, occurrence, steps=[again], children=[current], clears=True)
    assert bench.settle(started)
    assert _steps(bench, occurrence) == [again]
    assert bench.settle(_start_child(bench))
    assert _step(bench, occurrence).phase is StepPhase.COMPLETED


@case
def a_child_whose_result_is_too_large_fails_the_step(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    assert _write(bench, occurrence, steps=[RUNNING], children=[_child(steps, occurrence)])
    child = _start_child(bench)
    settlement = bench.settlement(child)
    assert settlement.run is not None
    assert bench.settle(child, run=replace(settlement.run, result="x" * MAX_RESULT))
    step = _step(bench, occurrence)
    assert (step.phase, step.result) == (StepPhase.FAILED, None)
    assert step.error is not None
    assert f"at most {MAX_RESULT:,}" in step.error


@case
def a_child_has_its_own_terms(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    own = Overrides(
        overlap_policy=overlap.Allow(),
        concurrency=Concurrency("gpu", 2),
        target=FunctionTarget(function="other", kwargs={"day": 1}),
        timeout=5 * SECOND,
        retry_policy=RetryPolicy(max_attempts=3),
        window=Window(duration=MINUTE, end_action=EndAction.CANCEL),
        parent=Parent(occurrence_id=occurrence.id, step_id="load", index=3, depth=2),
    )
    child = replace(_child(steps, occurrence), overrides=own, route="function:other")
    assert _write(bench, occurrence, steps=[RUNNING], children=[child])
    assert bench.row(child).overrides == own
    assert bench.claim() == []
    [claim] = bench.claim(routes=["function:other"])
    assert claim.occurrence.overrides == own
    declared = in_force(claim.schedule, claim.occurrence).declaration
    assert (declared.target, declared.timeout, declared.retry_policy) == (own.target, own.timeout, own.retry_policy)
    assert (declared.window, declared.concurrency) == (own.window, own.concurrency)
    bench.store.release([hold(claim.occurrence)])
    snapshot = bench.snapshot(steps)
    changed = replace(snapshot.schedule.declaration, target=WORKFLOW)
    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.row(child).route == "function:other"


# Suspended runs


@case
def a_suspended_run_keeps_its_slot_and_no_place_and_is_no_attempt(bench: Bench) -> None:
    limit = Concurrency("gpu", 1)
    schedule = _create(bench, concurrency=limit)
    other = _create(bench, "uid-2", concurrency=limit)
    occurrence = _begin(bench, schedule, "a", RUNNING)
    bench.add(other, "b")
    [claim] = bench.claim("node-b", routes=["workflow"])
    bench.decide(Wait(claim=claim, waiting_for=Reason.CONCURRENCY_LIMIT))
    bench.advance(1)
    assert _suspend(bench, occurrence, "load", until=NOW + MINUTE)
    row = bench.row(occurrence)
    assert (row.phase, row.reason, row.waiting_for) == (Phase.PENDING, Reason.SUSPENDED, Reason.STEP_PENDING)
    assert (row.attempt, row.holds_slot, row.node, row.started, row.due) == (0, True, None, None, occurrence.due)
    [run] = bench.store.occurrence_runs(occurrence.id)
    assert (run.outcome, run.ended) == (Outcome.SUSPENDED, bench.now)
    [claim] = bench.claim(routes=["workflow"])
    assert claim.occurrence.uid == other.uid, "what it held is free"
    assert bench.settle(bench.start(claim))
    assert bench.store.next_time(["workflow"]) == NOW + MINUTE
    assert not _is_claimable(bench)
    bench.advance(MINUTE)
    again = _resume(bench, "node-b")
    assert (again.id, again.attempt, again.fence > occurrence.fence) == (occurrence.id, 1, True)
    assert bench.stored(schedule).counters.admitted == 0
    assert bench.settle(again)
    assert bench.stored(schedule).counters.successful == 1


@case
def an_end_after_the_suspension_wakes_the_run(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    assert _write(bench, occurrence, steps=[RUNNING], children=[_child(steps, occurrence)])
    child = _start_child(bench)
    assert _suspend(bench, occurrence, "load")
    bench.advance(1)
    assert bench.store.next_time(["workflow"]) is None
    assert not _is_claimable(bench)
    assert bench.settle(child)
    assert bench.store.next_time(["workflow"]) == bench.now
    assert _resume(bench).id == occurrence.id
    assert _step(bench, occurrence).phase is StepPhase.COMPLETED


@case
def an_end_before_the_suspension_is_not_lost(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    assert _write(
        bench, occurrence, steps=[RUNNING, replace(RUNNING, step_id="other")], children=[_child(steps, occurrence)]
    )
    assert bench.settle(_start_child(bench))
    bench.advance(1)
    assert _suspend(bench, occurrence, "other", "load", until=NOW + MINUTE)
    assert bench.store.next_time(["workflow"]) == bench.now
    assert _resume(bench).id == occurrence.id


@case
def an_end_that_its_node_knows_does_not_keep_a_run_from_waiting(bench: Bench) -> None:
    occurrence, steps = _begin(bench), _hidden(bench)
    assert _write(
        bench, occurrence, steps=[RUNNING, replace(RUNNING, step_id="other")], children=[_child(steps, occurrence)]
    )
    assert bench.settle(_start_child(bench))
    assert _suspend(bench, occurrence, "other", "unknown")
    assert not _is_claimable(bench)


@case
def an_end_and_a_suspension_in_one_call_wake_the_run_in_either_order(bench: Bench) -> None:
    for number, is_first in enumerate((True, False)):
        occurrence = _begin(bench, _create(bench, f"uid-{number}"))
        steps = _hidden(bench, f"steps-{number}", f"~steps:{number}")
        assert _write(bench, occurrence, steps=[RUNNING], children=[_child(steps, occurrence)])
        both = [bench.settlement(_start_child(bench)), _suspension(bench, occurrence, "load")]
        assert bench.store.settle(both if is_first else both[::-1]) == [True, True]
        assert bench.settle(_resume(bench))


@case
def a_pause_does_not_hold_a_suspended_run_and_a_deletion_does_not_end_it(bench: Bench) -> None:
    schedule, steps = _create(bench), _hidden(bench)
    bench.add_event(schedule, "a")
    occurrence = _resume(bench)
    assert _write(bench, occurrence, steps=[RUNNING], children=[_child(steps, occurrence)])
    assert _suspend(bench, occurrence, "load")
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    assert bench.settle(_start_child(bench))
    again = _resume(bench)
    assert _suspend(bench, again, until=bench.now + 1)
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert bench.row(occurrence).phase is Phase.PENDING
    bench.advance(1)
    last = _resume(bench)
    assert _suspend(bench, last, until=bench.now)
    assert bench.settle(_resume(bench))
    assert bench.row(occurrence).phase is Phase.COMPLETED


@case
def a_cancelled_suspended_run_is_resumed_to_be_stopped(bench: Bench) -> None:
    for number, stop in enumerate((bench.store.cancel, bench.store.request_stop)):
        schedule = _create(bench, f"uid-{number}")
        occurrence = _begin(bench, schedule, "a", RUNNING)
        assert _suspend(bench, occurrence, "load", until=NOW + MINUTE)
        assert bench.store.activities([schedule.uid])[0].delivering == (occurrence.id,), "it is in flight"
        assert stop(occurrence.id)
        row = bench.row(occurrence)
        assert (row.phase, row.stop) == (Phase.PENDING, Reason.CANCELLED)
        [claim] = bench.claim(routes=["workflow"])
        assert stop(occurrence.id), "a node has just claimed it"
        assert claim.occurrence.stop is Reason.CANCELLED
        again = bench.start(claim)
        assert _suspend(bench, again, until=NOW + MINUTE), "it was not seen"
        assert (bench.row(occurrence).stop, _is_claimable(bench)) == (Reason.CANCELLED, True)
        assert bench.settle(_resume(bench), phase=Phase.CANCELLED, reason=Reason.CANCELLED)
        assert bench.store.activities([schedule.uid])[0].delivering == ()


def _accept(bench: Bench, occurrence: Occurrence) -> Occurrence:
    """Let an engine accept a workflow run."""
    stored = bench.store.find_uid(occurrence.uid)
    assert stored is not None
    taken = Accepted(started=bench.now, accepted=bench.now, deadline=bench.now + MINUTE, engine="temporal")
    assert bench.store.settle([settle(occurrence, stored.schedule, taken, node="node-a")]) == [True]
    return bench.row(occurrence)


@case
def an_engine_that_has_accepted_a_run_writes_its_steps_under_the_fence(bench: Bench) -> None:
    occurrence = _accept(bench, _begin(bench, None, "a", RUNNING))
    assert occurrence.phase is Phase.AWAITING_COMPLETION
    assert _write(bench, occurrence, steps=[replace(RUNNING, phase=StepPhase.COMPLETED, ended=bench.now)])
    assert _step(bench, occurrence, RUNNING.step_id).phase is StepPhase.COMPLETED
    assert not _write(bench, replace(occurrence, fence=occurrence.fence + 1), steps=[RUNNING])
    assert bench.settle(occurrence)
    assert not _write(bench, occurrence, steps=[RUNNING]), "it has ended"


@case
def a_run_that_was_asked_to_stop_is_delivered_again_when_it_is_handed_back(bench: Bench) -> None:
    """It undoes its completed steps, and then ends itself."""
    occurrence = _begin(bench, _create(bench), "a", RUNNING)
    assert bench.store.request_stop(occurrence.id)
    assert bench.settle(occurrence, phase=Phase.PENDING, reason=Reason.LEASE_LOST, retry_at=bench.now, attempt=0)
    assert bench.row(occurrence).phase is Phase.PENDING
    assert _resume(bench, "node-b").id == occurrence.id


@case
def a_run_that_an_engine_has_accepted_is_asked_to_stop_and_ends_itself(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = _accept(bench, _begin(bench, schedule, "a", RUNNING))
    assert not bench.store.cancel(occurrence.id)
    assert bench.store.request_stop(occurrence.id)
    asked = bench.row(occurrence)
    assert (asked.phase, asked.stop, asked.deadline) == (
        Phase.AWAITING_COMPLETION,
        Reason.CANCELLED,
        occurrence.deadline,
    )
    assert bench.store.overdue(now=bench.now, limit=9) == [], "it may have something to undo"
    assert bench.settle(asked, phase=Phase.CANCELLED, reason=Reason.CANCELLED)


@case
def a_halt_lets_a_run_that_an_engine_has_accepted_end_itself(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = _accept(bench, _begin(bench, schedule, "a", RUNNING))
    halt = Halt(halt_id="h", tenant=schedule.owner.tenant, by="me", at=bench.now)
    assert bench.store.set_halt(halt, most=9) == 1
    asked = bench.row(occurrence)
    assert (asked.phase, asked.stop, asked.deadline) == (
        Phase.AWAITING_COMPLETION,
        Reason.HALTED,
        occurrence.deadline,
    )


@case
def a_newer_occurrence_asks_a_suspended_run_for_the_slot(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = _begin(bench, schedule, "a", RUNNING)
    assert _suspend(bench, occurrence, "load")
    bench.add_event(schedule, "b")
    [claim] = bench.claim(routes=["workflow"])
    bench.decide(Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=True, cancel_grace=5))
    row = bench.row(occurrence)
    assert (row.phase, row.stop, row.deadline) == (Phase.PENDING, Reason.REPLACED, NOW + 5)
    again = _resume(bench)
    assert again.id == occurrence.id
    assert bench.settle(again, phase=Phase.CANCELLED, reason=Reason.REPLACED)
    assert _resume(bench).id == claim.occurrence.id


@case
def an_edit_of_its_limits_does_not_wake_a_suspended_run(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = _begin(bench, schedule, "a", RUNNING)
    assert _suspend(bench, occurrence, "load")
    snapshot = bench.snapshot(schedule)
    changed = replace(snapshot.schedule.declaration, concurrency=Concurrency("gpu", 1))
    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
    assert not _is_claimable(bench)
    assert bench.row(occurrence).waiting_for is Reason.STEP_PENDING


@case
def a_suspended_run_waits_and_is_not_to_start(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = _begin(bench, schedule, "a", RUNNING)
    two = _begin(bench, _create(bench, "uid-2"), "b", RUNNING)
    assert _suspend(bench, occurrence, "load", reason=Reason.APPROVAL)
    assert _suspend(bench, two, "load", until=NOW + MINUTE)
    work = bench.store.workload(now=bench.now, limit=9)
    assert {row.id for row in work.waiting.occurrences} == {occurrence.id, two.id}
    assert (work.upcoming.count, work.due.count) == (0, 0)
    assert bench.store.backlog(bench.now, 9).waiting == 2
    assert bench.store.count_waiting("acme") == 0
    assert bench.stored(schedule).next_due is None
    bench.advance(MINUTE)
    assert bench.store.backlog(bench.now, 9).waiting == 1
    assert [row.id for row in bench.store.workload(now=bench.now, limit=9).due.occurrences] == [two.id]


# Waits and approvals


def _emit(bench: Bench, event_id: str, event_type: str = "paid", tenant: str = "acme", **fields: Any) -> None:
    """Emit an event and match all there are."""
    event = Event(event_type=event_type, emitted=0, event_id=event_id, **{"payload": {"order": 7}} | fields)
    assert bench.store.emit(tenant, [event]) == [True]
    _match(bench)


def _match(bench: Bench) -> None:
    assert all(bench.store.commit_reactions([Reaction(audience=one) for one in bench.store.unmatched(100)]))


def _waiting(bench: Bench, key: str = "a", *types: str, **filters: object) -> Occurrence:
    """A suspended run that waits for an event."""
    occurrence = _begin(bench, _create(bench, f"uid-{key}"), key)
    wait = EventWait(step_id="load", event_types=types or ("paid",), filters=filters)
    assert _write(bench, occurrence, steps=[RUNNING], waits=[wait])
    assert _suspend(bench, occurrence, "load")
    return occurrence


@case
def an_event_ends_the_wait_that_it_matches(bench: Bench) -> None:
    seven, eight, both = (
        _waiting(bench, "7", order=7),
        _waiting(bench, "8", order=8),
        _waiting(bench, "b", "paid", "sent"),
    )
    _emit(bench, "other", "seen")
    _emit(bench, "elsewhere", tenant="other")
    assert not _is_claimable(bench)
    bench.advance(1)
    _emit(bench, "e1", source="shop")
    ended = _step(bench, seven)
    told = {"event_id": "e1", "event_type": "paid", "source": "shop", "payload": {"order": 7}}
    assert (ended.phase, ended.ended, ended.result) == (StepPhase.COMPLETED, bench.now, told)
    assert _step(bench, eight) == RUNNING
    resumed = [bench.start(claim) for claim in bench.claim(routes=["workflow"])]
    assert {one.id for one in resumed} == {seven.id, both.id}
    _emit(bench, "e2", "sent")
    assert _step(bench, both).result == told, "the first event has ended it"
    _emit(bench, "e3", payload={"order": 8})
    assert _resume(bench).id == eight.id


@case
def waits_are_distinguished_by_any_kind_of_filter(bench: Bench) -> None:
    ada, gt, several, sender, wrong = (
        _waiting(bench, "ada", **{"customer.name": "Ada", "order": 7}),
        _waiting(bench, "gt", order={"gt": 6}),
        _waiting(bench, "several", order=[7, 8]),
        _waiting(bench, "sender", source="shop"),
        _waiting(bench, "wrong", order={"near": 7}),
    )
    events = [
        Event(event_type="paid", emitted=0, event_id=f"e{number}", source=source, payload=payload)
        for number, (source, payload) in enumerate(
            [("desk", {"order": 6, "customer": {"name": "Ada"}}), ("shop", {"order": 1}), ("desk", {"order": 7.0})]
        )
    ]
    assert all(bench.store.emit("acme", events))
    _match(bench)
    ended = {one.id: _step(bench, one).result for one in (ada, gt, several, sender, wrong)}
    told = {run: result["event_id"] for run, result in ended.items() if result is not None}
    assert told == {gt.id: "e2", several.id: "e2", sender.id: "e1"}
    _emit(bench, "e3", payload={"order": 7, "customer": {"name": "Ada"}})
    assert _step(bench, ada).result["event_id"] == "e3"


@case
def an_event_from_before_the_wait_does_not_end_it(bench: Bench) -> None:
    early = Event(event_type="paid", emitted=0, event_id="early")
    assert bench.store.emit("acme", [early, replace(early, event_id="burst")]) == [True, True]
    occurrence = _waiting(bench)
    _match(bench)
    assert _step(bench, occurrence) == RUNNING
    _emit(bench, "late")
    assert _step(bench, occurrence).result["event_id"] == "late"


@case
def a_dropped_wait_and_that_of_an_ended_run_are_over(bench: Bench) -> None:
    occurrence, two = (_begin(bench, _create(bench, uid), "a", RUNNING) for uid in ("one", "two"))
    wait = EventWait(step_id="load", event_types=("paid",))
    assert _write(bench, occurrence, waits=[wait])
    assert _write(bench, occurrence, cancelled=["load", "other"])
    assert _write(bench, two, steps=[DONE], waits=[wait])
    assert bench.settle(two, phase=Phase.FAILED, reason=Reason.FAILED)
    _emit(bench, "e1")
    assert _step(bench, occurrence) == RUNNING
    assert _steps(bench, two) == [replace(RUNNING, phase=StepPhase.CANCELLED, ended=NOW), DONE]


@case
def a_system_event_is_emitted_for_a_step_that_waits_for_it(bench: Bench) -> None:
    occurrence = _waiting(bench, "a", str(SystemEvent.COMPLETED))
    assert bench.settle(bench.run(bench.create_quiet("plain"), "x"))
    _match(bench)
    assert _step(bench, occurrence).result["payload"]["schedule_id"] == "schedule-of-plain"
    assert bench.settle(bench.run(bench.create_quiet("another"), "y"))
    assert len(bench.store.events("acme", 9)) == 1, "nobody waits for another one"


def _ask(bench: Bench, occurrence: Occurrence, approval_id: str = "ok", step_id: str = "load") -> None:
    request = ApprovalRequest(approval_id=approval_id, step_id=step_id, message="Ship?", expires=NOW + MINUTE)
    assert _write(bench, occurrence, steps=[replace(RUNNING, step_id=step_id)], approvals=[request])


@case
def an_approval_is_decided_once_and_wakes_its_run(bench: Bench) -> None:
    occurrence, two = (_begin(bench, _create(bench, uid)) for uid in ("one", "two"))
    _ask(bench, occurrence)
    _ask(bench, two, "no")
    assert _suspend(bench, occurrence, "load", until=NOW + MINUTE, reason=Reason.APPROVAL)
    bench.advance(5)
    decided = bench.store.decide_approval("acme", "ok", approved=True, by="ada", comment="go")
    assert decided == bench.store.approval("acme", "ok")
    assert decided is not None
    assert (decided.state, decided.by, decided.comment) == (ApprovalState.APPROVED, "ada", "go")
    assert (decided.requested, decided.decided, decided.occurrence_id) == (NOW, NOW + 5, occurrence.id)
    step = _step(bench, occurrence)
    assert (step.phase, step.result) == (StepPhase.COMPLETED, {"approved": True, "by": "ada", "comment": "go"})
    assert _resume(bench).id == occurrence.id
    assert bench.store.decide_approval("acme", "ok", approved=False, by="bob") == decided
    denied = bench.store.decide_approval("acme", "no", approved=False, by="bob", comment=None)
    assert denied is not None
    assert denied.state is ApprovalState.DENIED
    assert (_step(bench, two).phase, _step(bench, two).error) == (StepPhase.FAILED, "denied by bob")
    assert bench.store.decide_approval("other", "ok", approved=True, by="eve") is None
    assert bench.store.decide_approval("acme", "unknown", approved=True, by="ada") is None


@case
def an_approval_expires_or_is_cancelled_with_its_step(bench: Bench) -> None:
    occurrence = _begin(bench)
    for step in ("a", "b", "c", "d"):
        _ask(bench, occurrence, step, step)
    assert _write(bench, occurrence, cancelled=["a"])
    assert _write(bench, occurrence, steps=[replace(RUNNING, step_id="b", phase=StepPhase.CANCELLED)])
    cancelled = bench.store.decide_approval("acme", "b", approved=True, by="ada")
    assert cancelled is not None
    assert (cancelled.state, cancelled.by) == (ApprovalState.CANCELLED, None)
    bench.advance(MINUTE)
    expired = bench.store.decide_approval("acme", "c", approved=True, by="ada")
    assert expired is not None
    assert expired.state is ApprovalState.EXPIRED
    assert _step(bench, occurrence, "c").phase is StepPhase.RUNNING
    assert _write(bench, occurrence, cancelled=["d"])
    states = {found.approval_id: found.state for found in bench.store.approvals("acme", 9)}
    assert states == {
        "a": ApprovalState.CANCELLED,
        "b": ApprovalState.CANCELLED,
        "c": ApprovalState.EXPIRED,
        "d": ApprovalState.EXPIRED,
    }


@case
def approvals_are_listed_and_known_ones_stay(bench: Bench) -> None:
    occurrence = _begin(bench)
    for approval_id in ("b", "a"):
        _ask(bench, occurrence, approval_id)
    bench.advance(1)
    _ask(bench, occurrence, "c")
    _ask(bench, occurrence, "a")
    assert [found.approval_id for found in bench.store.approvals("acme", 9)] == ["c", "b", "a"]
    assert [found.approval_id for found in bench.store.approvals("acme", 1, before=(NOW + 1, "c"))] == ["b"]
    assert bench.store.decide_approval("acme", "b", approved=True, by="ada") is not None
    pending = bench.store.approvals("acme", 9, state=ApprovalState.PENDING)
    assert [found.approval_id for found in pending] == ["c", "a"]
    assert bench.store.approvals("other", 9) == []
    assert bench.settle(occurrence)
    assert bench.store.approvals("acme", 9, state=ApprovalState.PENDING) == []


# Lists, hidden schedules and pruning


@case
def workflow_runs_are_listed_latest_start_first(bench: Bench) -> None:
    first = _begin(bench, _create(bench, "one"))
    bench.advance(1)
    second, third = sorted((_begin(bench, _create(bench, uid)) for uid in ("two", "three")), key=lambda one: one.id)
    other = replace(_run(bench, second), workflow_id="other")
    assert _write(bench, second, run=other)
    assert bench.settle(first)
    _begin(bench, _create(bench, "foreign", owner=Owner(tenant="other", user="ada")))

    def listed(limit: int = 9, **wanted: Any) -> list[str]:
        return [run.occurrence_id for run, _ in bench.store.workflow_runs("acme", limit, **wanted)]

    assert listed() == [third.id, second.id, first.id]
    assert listed(1) == [third.id]
    assert listed(before=(NOW + 1, third.id)) == [second.id, first.id]
    assert listed(workflow_id="etl") == [third.id, first.id]
    assert listed(phases=[Phase.COMPLETED, Phase.FAILED]) == [first.id]
    [(run, row)] = bench.store.workflow_runs("acme", 9, workflow_id="other")
    assert (run, row) == (other, bench.row(second))


@case
def a_run_that_somebody_asked_for_is_listed_before_it_begins(bench: Bench) -> None:
    hidden = _hidden(bench, "runs", "~workflow:etl")
    target = WorkflowTarget(workflow_id="etl", version=3, inputs={"n": 1})
    own = Overrides(target=target)
    asked = factories.occurrence(hidden, manual("a"), overrides=own)
    of_step = replace(own, parent=Parent(occurrence_id="occ_1", step_id="load"))
    child = factories.occurrence(hidden, manual("b"), overrides=of_step)
    assert bench.store.add([asked, child]) == [True, True]
    [(run, row)] = bench.store.workflow_runs("acme", 9, workflow_id="etl", phases=[Phase.PENDING])
    assert (run.version, run.inputs, run.started, run.has_begun) == (3, {"n": 1}, NOW, False)
    assert row.id == asked.id
    assert bench.store.workflow_run(asked.id) == (run, [])
    assert bench.store.workflow_run(child.id) is None
    assert bench.store.cancel(asked.id)
    [(_, row)] = bench.store.workflow_runs("acme", 9)
    assert row.phase is Phase.CANCELLED


def _run(bench: Bench, occurrence: Occurrence) -> WorkflowRun:
    found = bench.store.workflow_run(occurrence.id)
    assert found is not None
    return found[0]


@case
def a_hidden_schedule_is_found_by_its_ids_and_in_no_list(bench: Bench) -> None:
    store, hidden = bench.store, _hidden(bench)
    assert store.tenants(9) == []
    running, due, failed = (bench.add(hidden, key) for key in "abc")
    claims = {claim.occurrence.id: claim for claim in bench.claim()}
    started = {one.id: bench.decide(replace(start(claims[one.id]), takes_slot=False)) for one in (running, failed)}
    assert bench.fail(started[failed.id])
    store.release([hold(claims[due.id].occurrence)])
    assert store.schedules("acme", limit=9) == []
    assert store.count_schedules("acme") == store.count_waiting("acme") == 0
    assert store.search("acme", OccurrenceFilter(), 9).occurrences == []
    assert store.search("acme", OccurrenceFilter(phases=frozenset({Phase.FAILED})), 9).occurrences == []
    work = store.workload(now=bench.now, limit=9)
    assert (work.running.count, work.due.count) == (0, 0)
    quota = Quota(Resource.SCHEDULES, Whose.USER, 1)
    plans = [
        replace(first_plan(factories.schedule(uid, schedule_id=name), lookahead=LOOKAHEAD), quotas=(quota,))
        for uid, name in (("x", "~x"), ("y", "plain"), ("z", "~z"))
    ]
    assert store.create(plans) == [True] * 3
    with suppress(QuotaExceeded):
        plan = replace(first_plan(factories.schedule("w"), lookahead=LOOKAHEAD), quotas=(quota,))
        raise AssertionError(store.create([plan]))
    assert store.tenants(9) == ["acme"]
    assert [one.schedule.schedule_id for one in store.schedules("acme", limit=9)] == ["plain"]
    assert bench.stored(hidden).schedule == hidden
    assert store.find_uid(hidden.uid) is not None
    assert {row.id for row in store.occurrences(hidden.uid)} == {running.id, due.id, failed.id}
    assert bench.commit(edits.delete(bench.snapshot(hidden), now=bench.now))
    assert store.schedules("acme", limit=9, deleted=True) == []
    deleted = store.find("acme", "~steps:etl", deleted=True)
    assert deleted is not None
    assert deleted.schedule.phase is SchedulePhase.DELETED


@case
def runs_without_a_schedule_are_listed_among_occurrences_and_steps_are_not(bench: Bench) -> None:
    shown = {}
    for schedule_id in ("~workflow:etl", "~bundle:etl", "~steps:etl", "~trusted-steps:etl"):
        hidden = _hidden(bench, schedule_id, schedule_id)
        shown[schedule_id] = bench.add(hidden, "failed"), bench.add(hidden, "running")
        claims = {claim.occurrence.id: claim for claim in bench.claim()}
        failed, _ = (bench.decide(replace(start(claims[one.id]), takes_slot=False)) for one in shown[schedule_id])
        assert bench.fail(failed)
    of_runs = [shown["~workflow:etl"], shown["~bundle:etl"]]
    for phase, place in ((Phase.FAILED, 0), (Phase.DISPATCHING, 1)):
        found = bench.store.search("acme", OccurrenceFilter(phases=frozenset({phase})), 9).occurrences
        assert {row.id for row in found} == {rows[place].id for rows in of_runs}
    for tenant in ("acme", None):
        running = bench.store.workload(now=bench.now, limit=9, tenant=tenant).running
        assert {row.id for row in running.occurrences} == {rows[1].id for rows in of_runs}


@case
def hidden_schedules_and_children_emit_no_system_events(bench: Bench) -> None:
    bench.create("listener", trigger=EventTrigger([str(SystemEvent.COMPLETED), str(SystemEvent.SCHEDULE_CREATED)]))
    occurrence, steps = _begin(bench), _hidden(bench)
    assert _write(bench, occurrence, steps=[RUNNING], children=[_child(steps, occurrence)])
    assert bench.settle(_start_child(bench))
    runs = bench.create_quiet("runs", schedule_id="~workflow:etl", overlap_policy=overlap.Allow())
    assert bench.settle(bench.run(runs, "x"))
    told = [(event.event_type, event.payload["schedule_id"]) for event in bench.store.events("acme", 9)]
    created = [(SystemEvent.SCHEDULE_CREATED, f"schedule-of-{uid}") for uid in ("uid-1", "listener")]
    assert told == [(SystemEvent.COMPLETED, "~workflow:etl"), *created]


@case
def what_a_run_has_left_is_pruned_with_it(bench: Bench) -> None:
    bench.store.put_workflow(ETL)
    bench.store.put_workflow(replace(ETL, digest="two"))
    bench.store.put_workflow(replace(ETL, digest="three"))
    occurrence = _begin(bench, None, "a", DONE)
    _ask(bench, occurrence)
    assert _write(bench, occurrence, waits=[EventWait(step_id="load", event_types=("paid",))])
    assert bench.settle(occurrence)
    assert bench.store.delete_workflow("acme", "etl") is not None
    snapshot = bench.snapshot(replace(factories.schedule("uid-1"), uid="uid-1"))
    assert bench.commit(edits.delete(snapshot, now=bench.now))
    assert bench.store.delete_workflow("acme", "etl") == []
    bench.advance(5)
    assert bench.store.prune(before=NOW, keep=9, limit=9) == 0
    assert bench.store.workflow("acme", "etl", 2, deleted=True) is not None
    assert bench.store.prune(before=bench.now, keep=9, limit=9) == 1
    assert bench.store.workflow_run(occurrence.id) is None
    assert bench.store.approvals("acme", 9) == []
    assert bench.store.workflow_runs("acme", 9) == []
    assert bench.store.prune(before=bench.now, keep=9, limit=9) == 0
    found = [bench.store.workflow("acme", "etl", number, deleted=True) for number in (1, 2, 3)]
    assert [one is None for one in found] == [True, True, False], "the highest number is remembered"


@case
def an_earlier_failure_of_a_run_leaves_no_open_steps(bench: Bench) -> None:
    occurrence, other = (_begin(bench, _create(bench, uid), "a", RUNNING) for uid in ("one", "two"))
    stored = bench.store.find_uid(occurrence.uid)
    assert stored is not None
    delivered = Delivered(outcome=Outcome.FAILED, started=NOW, ended=NOW)
    assert bench.store.settle([settle(occurrence, stored.schedule, delivered, node="node-a")]) == [True]
    assert _step(bench, occurrence).phase is StepPhase.CANCELLED
    assert _step(bench, other) == RUNNING
