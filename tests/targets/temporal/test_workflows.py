"""Noonmark workflows whose steps are activities: by the same rules as on a node, and on any worker."""

import threading

import pytest

from noonmark import Retry
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.workflows.run import StepPhase
from noonmark.ports.workflows import ApprovalState
from tests.targets.temporal import work
from tests.targets.temporal.rig import FUNCTION, Rig, function, until
from tests.targets.temporal.test_engine import begun, cancel
from tests.workflow_store import put_workflow

# The library of Temporal warns where an activity ends just before it is asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")

ENDED_EARLY = ("CANCELED", "COMPLETED")
"""The node cancels the workflow, or its worker was first to notice."""
LISTED = "{{steps.list.result}}"


def step(step_id, target, *after, **fields):
    return {"id": step_id, "depends_on": list(after), "target": target, **fields}


def run(rig, workflow_id, steps, **options):
    put_workflow(rig.store, {"workflow_id": workflow_id, "steps": steps})
    return rig.run({"target_kind": "workflow", "workflow_id": workflow_id}, **options)


def phases(rig, occurrence_id):
    _, records = rig.store.workflow_run(occurrence_id)
    return {one.step_id if one.index is None else f"{one.step_id}.{one.index}": one.phase for one in records}


def test_each_step_is_an_activity_and_gets_the_results_before_it(rig):
    steps = [
        step("first", function("add", 1, 1)),
        step("list", function("items")),
        step("each", function("note", "{{item}}{{steps.first.result}}"), "list", "first", for_each=LISTED),
        {"id": "pause", "depends_on": ["first"], "wait": {"seconds": 0.2}},
        step("last", function("note", "{{steps.each.result}}"), "each", "pause"),
        step("never", function("note", "never"), "first", when={"steps.first.result": 3}),
    ]
    occurrence_id = run(rig, "all", steps)
    ended = rig.ended(occurrence_id)
    assert ended.phase is Phase.COMPLETED
    [last] = rig.runs(occurrence_id)
    assert last.result["each"] == ["a2", "b2", "c2"]
    assert last.result["last"] == ["a2", "b2", "c2"]
    assert phases(rig, occurrence_id)["never"] is StepPhase.SKIPPED
    assert rig.closed(occurrence_id) == "COMPLETED"
    names = [name for name, _ in rig.activities(occurrence_id)]
    assert names[-1] == "settle"


def test_what_steps_report_to_use_counts_for_the_run(rig):
    occurrence_id = run(rig, "spends", [step(f"s{tokens}", function("spend", tokens)) for tokens in (30, 40)])
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    assert rig.runs(occurrence_id)[0].usage.total_tokens == 70


def test_a_long_run_goes_on_with_an_empty_history(rig):
    names = [f"s{number}" for number in range(8)]
    steps = [step(name, function("note", name), *names[:place][-1:]) for place, name in enumerate(names)]
    occurrence_id = run(rig, "long", steps)
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    assert [text for text, by in work.CALLS if by.startswith(occurrence_id)] == names, "each step once"
    assert rig.closed(occurrence_id) == "COMPLETED"
    assert rig.workflow(occurrence_id).raw_description.workflow_execution_info.first_run_id != (
        rig.workflow(occurrence_id).run_id
    )


def test_a_failed_step_is_retried_and_what_was_done_is_undone(rig):
    steps = [
        step("made", function("note", "made"), compensate=function("note", "undone {{steps.made.result}}")),
        step("flaky", function("flaky"), "made", retry={"max_attempts": 2, "backoff_seconds": 0.1}),
        step("fails", function("fail"), "flaky"),
    ]
    occurrence_id = run(rig, "undone", steps)
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.FAILED, Reason.FAILED)
    step_phases = phases(rig, occurrence_id)
    assert (step_phases["made"], step_phases["fails"]) == (StepPhase.COMPENSATED, StepPhase.FAILED)
    assert [text for text, by in work.CALLS if by.startswith(occurrence_id)] == ["made", "undone made"]
    [failed] = rig.runs(occurrence_id)
    assert "step 'fails' failed" in failed.error


def test_another_attempt_goes_on_with_what_was_completed(rig):
    steps = [step("once", function("note", "once")), step("fails", function("fail"), "once")]
    occurrence_id = run(rig, "again", steps, retries=Retry(1, backoff=0.1))
    assert (rig.ended(occurrence_id).phase, rig.occurrence(occurrence_id).attempt) == (Phase.FAILED, 2)
    assert len([text for text, by in work.CALLS if by.startswith(occurrence_id)]) == 1
    assert {rig.closed(occurrence_id, attempt) for attempt in (1, 2)} == {"COMPLETED"}


def test_a_run_waits_for_events_approvals_and_children(rig):
    steps = [
        {"id": "event", "wait": {"event_type": "paid"}},
        {"id": "approved", "approval": {"message": "Go on?"}},
        step("child", {"target_kind": "event", "event_type": "shipped"}),
        step("last", function("note", "all of it"), "event", "approved", "child"),
    ]
    occurrence_id = run(rig, "waits", steps)
    rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
    [approval] = until(lambda: rig.store.approvals("default", 10, state=ApprovalState.PENDING))
    rig.store.decide_approval("default", approval.approval_id, approved=True, by="me")
    rig.scheduler.emit("paid", {})
    ended = rig.ended(occurrence_id)
    assert ended.phase is Phase.COMPLETED
    assert set(phases(rig, occurrence_id).values()) == {StepPhase.COMPLETED}
    # A worker serves no events here, so the step was an occurrence of its own, on the node.
    _, records = rig.store.workflow_run(occurrence_id)
    assert [one.step_id for one in records if one.child is not None] == ["child"]


def test_an_inner_workflow_is_a_workflow_of_its_own(rig):
    put_workflow(rig.store, {"workflow_id": "inner", "steps": [step("deep", function("note", "deep"))]})
    occurrence_id = run(rig, "outer", [step("inner", {"target_kind": "workflow", "workflow_id": "inner"})])
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    _, [record] = rig.store.workflow_run(occurrence_id)
    assert record.result == {"deep": "deep"}
    assert rig.closed(record.child) == "COMPLETED"


def test_a_cancelled_run_stops_its_steps_and_undoes_others(rig):
    steps = [
        step("made", function("note", "made it"), compensate=function("note", "undone it")),
        step("holds", function("hold", "never"), "made"),
    ]
    occurrence_id = run(rig, "cancelled", steps)
    begun(f"{occurrence_id}/holds")
    rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
    cancel(rig, occurrence_id)
    assert rig.occurrence(occurrence_id).phase is Phase.AWAITING_COMPLETION, "it has something to undo"
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    step_phases = phases(rig, occurrence_id)
    assert (step_phases["made"], step_phases["holds"]) == (StepPhase.COMPENSATED, StepPhase.CANCELLED)
    assert rig.closed(occurrence_id) in ENDED_EARLY


def test_a_run_that_only_waits_notices_that_it_is_cancelled(rig):
    occurrence_id = run(rig, "sleeps", [{"id": "wait", "wait": {"seconds": 3600}}])
    rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
    until(lambda: rig.store.workflow_run(occurrence_id))
    cancel(rig, occurrence_id)
    assert rig.ended(occurrence_id).phase is Phase.CANCELLED
    assert rig.closed(occurrence_id) in ENDED_EARLY


def test_steps_spread_over_workers(rig):
    """Two steps hold until both have begun on another worker too: the first worker takes one at a time."""
    gates = ["one", "two"]
    steps = [step(gate, function("hold", gate)) for gate in gates]
    with rig.worker("temporal:second"):
        occurrence_id = run(rig, "spread", steps)
        for gate in gates:
            begun(f"{occurrence_id}/{gate}")
            work.GATES.setdefault(gate, threading.Event()).set()
        assert rig.ended(occurrence_id).phase is Phase.COMPLETED


def test_an_unknown_workflow_does_not_start(rig):
    occurrence_id = rig.run({"target_kind": "workflow", "workflow_id": "missing"})
    assert rig.ended(occurrence_id).reason is Reason.TARGET_MISSING


def test_targets_and_results_may_exceed_what_temporal_takes_at_once(server, tmp_path):
    """A turn starts 2.9 MB of filled-in targets, and another one ends 2.5 MB of results; the limit is 2 MB."""
    rig = Rig(server, tmp_path)
    steps = [
        step("list", function("large")),
        step("wide", function("count", *[LISTED] * 4), "list", for_each=list(range(12)), concurrency=12),
        step("each", function("large", "large"), "wide", for_each=list(range(64)), concurrency=64),
    ]
    with rig.node(), rig.worker(routes=[FUNCTION]):
        with rig.worker("temporal:turns"):
            occurrence_id = run(rig, "large", steps)
            until(lambda: any(one.startswith(f"{occurrence_id}/each") for one in work.BEGUN))
        work.GATES.setdefault("large", threading.Event()).set()
        until(lambda: [one.activity_type.name for one in rig.pending(occurrence_id)] == ["advance"])
        with rig.worker("temporal:turns"):
            ended = rig.ended(occurrence_id)
            assert rig.closed(occurrence_id) == "COMPLETED"
    assert ended.phase is Phase.COMPLETED
    _, records = rig.store.workflow_run(occurrence_id)
    assert [one.result for one in records if one.step_id == "wide" and one.index is not None] == [2_400] * 12
    assert [len(one.result) for one in records if one.step_id == "each" and one.index is not None] == [600] * 64
