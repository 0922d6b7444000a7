"""Occurrences that a Temporal workflow carries out, from their start to their end in the ledger."""

import threading
from datetime import timedelta

import pytest

from noonmark import Retry
from noonmark.core.engine import TEMPORAL, workflow_of_run
from noonmark.core.interruption import engine_of
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.operations import occurrences
from noonmark.operations.models.arguments import Cancellation
from noonmark.operations.service import LOCAL, Service
from noonmark.targets.temporal import engine
from noonmark.targets.temporal.client import EngineClient
from noonmark.targets.temporal.documents import Order
from noonmark.testing.conformance.bench import start as started
from tests.targets.temporal import work
from tests.targets.temporal.rig import Rig, function, until

RETRY = Retry(1, backoff=0.1)

# The library of Temporal warns where an activity ends just before it is asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")


def cancel(rig, occurrence_id):
    """Cancel an occurrence as a caller of the server does."""
    service = Service(store=rig.store, lookahead=0, fresh_id=lambda: "id")
    occurrences.cancel(service, LOCAL, Cancellation.read({"occurrence_id": occurrence_id}))


def begun(occurrence_id):
    until(lambda: occurrence_id in work.BEGUN)


def test_a_function_runs_on_a_worker_and_its_result_is_in_the_ledger(rig):
    occurrence_id = rig.run(function("add", 2, b=3))
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason, ended.attempt) == (Phase.COMPLETED, Reason.SUCCEEDED, 1)
    [run] = rig.runs(occurrence_id)
    assert (run.outcome, run.result, run.node) == (Outcome.COMPLETED, 5, "temporal:worker")
    assert rig.closed(occurrence_id) == "COMPLETED"
    assert rig.activities(occurrence_id) == [("deliver", f"{rig.engine.address.task_queue}/function:{work.NAME}")]
    assert [one.phase for one in rig.thread.settled if one.occurrence.id == occurrence_id] == [Phase.COMPLETED]


def test_the_ledger_says_that_the_engine_has_it(rig):
    occurrence_id = rig.run(function("hold", "has it"))
    waiting = rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
    assert engine_of(waiting) == TEMPORAL
    [run] = rig.runs(occurrence_id)
    assert (run.node, run.ended) == ("temporal:node", None)
    assert workflow_of_run(run.occurrence_id, run.attempt, run.node) == f"{occurrence_id}/1"
    assert rig.status(occurrence_id) == "RUNNING"
    work.GATES.setdefault("has it", threading.Event()).set()
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED


def test_what_a_function_reports_to_use_is_in_the_ledger(rig):
    occurrence_id = rig.run(function("spend", 70))
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    assert rig.runs(occurrence_id)[0].usage.total_tokens == 70


def test_results_of_upstreams_that_temporal_would_refuse_are_an_error(rig, monkeypatch):
    monkeypatch.setattr(engine, "MAX_UPSTREAM", 10)
    first = rig.scheduler.schedule(function("note", "first"), "first")
    last = rig.scheduler.schedule(function("note", "last"), "last", depends_on=[first], retries=RETRY)
    [occurrence] = until(lambda: rig.scheduler.occurrences(last))
    ended = rig.ended(occurrence.id)
    assert (ended.phase, ended.attempt) == (Phase.DELIVERY_FAILED, 1)
    assert "the results of its upstreams have" in rig.runs(occurrence.id)[0].error


def test_a_failure_has_its_traceback_and_noonmark_retries(rig):
    occurrence_id = rig.run(function("flaky"), retries=RETRY)
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.attempt) == (Phase.COMPLETED, 2)
    last, first = rig.runs(occurrence_id)
    assert (first.outcome, last.outcome, last.result) == (Outcome.FAILED, Outcome.COMPLETED, 2)
    assert "OSError: away" in first.error
    # One workflow for each attempt, and none is retried by Temporal.
    assert {rig.closed(occurrence_id, attempt) for attempt in (1, 2)} == {"COMPLETED"}
    assert [name for name, _ in rig.activities(occurrence_id, 1)] == ["deliver"]


def test_a_cancelled_occurrence_cancels_its_workflow(rig):
    occurrence_id = rig.run(function("hold", "cancelled"))
    rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
    begun(occurrence_id)
    cancel(rig, occurrence_id)
    assert rig.occurrence(occurrence_id).phase is Phase.AWAITING_COMPLETION, "its worker ends it"
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    assert rig.closed(occurrence_id) in ("CANCELED", "COMPLETED")
    [run] = rig.runs(occurrence_id)
    assert (run.outcome, run.node) == (Outcome.CANCELLED, "temporal:worker")


def test_what_a_cancelled_function_has_used_is_in_the_ledger(rig):
    occurrence_id = rig.run(function("spend_and_hold", 70, "never opened"))
    begun(occurrence_id)
    cancel(rig, occurrence_id)
    assert rig.ended(occurrence_id).phase is Phase.CANCELLED
    assert rig.runs(occurrence_id)[0].usage.total_tokens == 70


def test_a_workflow_that_is_cancelled_in_temporal_cancels_its_occurrence(rig):
    occurrence_id = rig.run(function("hold", "elsewhere"))
    rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
    begun(occurrence_id)
    rig.end_workflow(occurrence_id, how="cancel")
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    assert rig.closed(occurrence_id) == "CANCELED"


def test_a_timeout_ends_it_on_both_sides(rig):
    occurrence_id = rig.run(function("hold", "times out"), timeout=timedelta(seconds=1.5))
    ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.TIMED_OUT, Reason.TIMED_OUT)
    assert rig.closed(occurrence_id) == "COMPLETED"


def test_what_is_cancelled_before_a_worker_has_it_does_not_begin(server, tmp_path):
    rig = Rig(server, tmp_path)
    with rig.node():
        occurrence_id = rig.run(function("note", "too late"))
        rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
        cancel(rig, occurrence_id)
        with rig.worker():
            ended = rig.ended(occurrence_id)
            assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.CANCELLED)
            assert rig.closed(occurrence_id) in ("CANCELED", "COMPLETED")
    assert rig.occurrence(occurrence_id) == ended
    assert not [one for one in work.CALLS if one[0] == "too late"]


def test_what_may_run_once_does_not_begin_again_when_its_worker_stops(server, tmp_path):
    rig = Rig(server, tmp_path)
    with rig.node():
        with rig.worker():
            occurrence_id = rig.run(function("hold", "once"), delivery="at_most_once", retries=RETRY)
            rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
            begun(occurrence_id)
        with rig.worker("temporal:second"):
            ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason, ended.attempt) == (Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN, 1)
    assert work.BEGUN.count(occurrence_id) == 1


def test_what_its_worker_leaves_begins_again_on_another_one_and_the_log_says_so(server, tmp_path, caplog):
    rig = Rig(server, tmp_path)
    with rig.node(), rig.worker() as first:
        occurrence_id = rig.run(function("hold", "left"))
        begun(occurrence_id)
        first.stop()
        assert "begins again" not in caplog.text
        with rig.worker("temporal:second"):
            until(lambda: work.BEGUN.count(occurrence_id) == 2)
            work.GATES.setdefault("left", threading.Event()).set()
            assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    assert f"{occurrence_id} begins again here: the worker that had it was lost or stopped" in caplog.text
    assert [run.node for run in rig.runs(occurrence_id)] == ["temporal:second"]


def test_a_start_that_is_made_again_attaches_and_passes_its_fence_on(server, tmp_path):
    """The node is lost between the start of the workflow and the record of that; the worker has finished meanwhile."""
    rig = Rig(server, tmp_path)
    occurrence_id = rig.run(function("add", 1, 1))
    taken = take_over(rig, occurrence_id)  # fence 2, as if node one had lost fence 1
    with rig.worker():
        start(rig, occurrence_id, fence=taken.fence - 1)
        # Its end is refused: the attempt belongs to another start by now.
        until(lambda: len(rig.activities(occurrence_id)) > 1)
        assert rig.occurrence(occurrence_id).phase is Phase.DISPATCHING
        assert start(rig, occurrence_id, fence=taken.fence) == "attached"
        ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.fence) == (Phase.COMPLETED, taken.fence)
    assert len([run for run in rig.runs(occurrence_id) if run.outcome is Outcome.COMPLETED]) == 1


def test_what_was_delivered_before_another_node_took_over_is_not_delivered_again(server, tmp_path):
    rig = Rig(server, tmp_path)
    occurrence_id = rig.run(function("hold", "taken"))
    first = take_over(rig, occurrence_id, ["one"])
    start(rig, occurrence_id, fence=first.fence)
    with rig.worker():
        begun(occurrence_id)
        second = take_over(rig, occurrence_id, ["two"])
        work.GATES.setdefault("taken", threading.Event()).set()
        until(lambda: "settle" in [name for name, _ in rig.activities(occurrence_id)])
        assert rig.occurrence(occurrence_id).phase is Phase.DISPATCHING, "its end has the fence of a lost node"
        assert start(rig, occurrence_id, fence=second.fence) == "attached"
        ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.fence, ended.losses) == (Phase.COMPLETED, second.fence, 1)
    assert work.BEGUN.count(occurrence_id) == 1
    assert [run.outcome for run in rig.runs(occurrence_id)] == [Outcome.COMPLETED, Outcome.LEASE_LOST]


def test_a_workflow_of_an_attempt_that_is_over_delivers_nothing(server, tmp_path):
    rig = Rig(server, tmp_path)
    occurrence_id = rig.run(function("note", "late"))
    taken = take_over(rig, occurrence_id)
    stored = rig.store.find_uid(taken.uid)
    now = rig.store.clock()
    lost = Delivered(outcome=Outcome.FAILED, started=now, ended=now, error="given up")
    assert rig.store.settle([settle(taken, stored.schedule, lost, node="node")]) == [True]
    start(rig, occurrence_id, fence=taken.fence)
    with rig.worker():
        assert rig.closed(occurrence_id) == "COMPLETED"
    assert [name for name, _ in rig.activities(occurrence_id)] == ["deliver"]
    assert not [one for one in work.CALLS if one[0] == "late"]
    assert rig.occurrence(occurrence_id).phase is Phase.FAILED


def test_an_attempt_whose_workflow_was_terminated_fails_when_it_is_delivered_again(server, tmp_path):
    rig = Rig(server, tmp_path)
    occurrence_id = rig.run(function("add"), retries=RETRY)
    start(rig, occurrence_id, fence=1)
    rig.end_workflow(occurrence_id)
    with rig.running():
        ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.attempt) == (Phase.COMPLETED, 2)
    first = rig.runs(occurrence_id)[-1]
    assert (first.outcome, first.attempt) == (Outcome.FAILED, 1)
    assert "has ended before, as terminated" in first.error


def take_over(rig, occurrence_id, nodes=("one", "two")):
    """The occurrence as the last of some nodes has it, each of which has just started it; all but the last are lost."""
    for node in nodes:
        now = rig.store.clock()
        lease = 60_000_000 if node == "two" else 1
        [claim] = rig.store.claim(
            node, [f"function:{work.NAME}"], now=now, until=now, limit=1, lease=lease, only=occurrence_id
        )
        [answer] = rig.store.admit([started(claim)], now=now, lease=lease)
    return answer.occurrence


def start(rig, occurrence_id, *, fence):
    """Start the workflow of the first attempt, or attach to it, as a node does."""
    address = rig.engine.address
    route = f"function:{work.NAME}"
    order = Order(occurrence_id, 1, fence, route, address.task_queue, address.heartbeat)
    return str(rig.server.run(EngineClient(address).start(order)))
