"""What only the ledger or only the engine has, and what becomes of it."""

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest

from noonmark import Retry
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.core.targets import parse_target
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from noonmark.operations.target_policy import target_warnings
from noonmark.targets.temporal import worker
from noonmark.targets.temporal.client import EngineClient, EngineUnavailable
from noonmark.targets.temporal.documents import Order
from noonmark.targets.temporal.settings import END, EngineAddress
from tests.targets.temporal import work
from tests.targets.temporal.rig import FUNCTION, Rig, function, until
from tests.targets.temporal.test_engine import begun

pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")

ONCE = "at_most_once"


def start(rig, occurrence_id):
    """Start a workflow that no node has asked for."""
    address = rig.engine.address
    order = Order(occurrence_id, 1, 1, FUNCTION, address.task_queue, address.heartbeat)
    rig.server.run(EngineClient(address).start(order))


def listed(rig, count):
    """The comparison, once Temporal lists so many workflows: it does so a moment after they have begun."""
    return until(lambda: (found := rig.compare()).running == count and found)


def test_a_workflow_without_an_occurrence_is_an_orphan_and_ends_on_command(server, tmp_path):
    rig = Rig(server, tmp_path)
    start(rig, "occ_of_another_store")
    found = listed(rig, 1)
    assert [one.workflow_id for one in found.unknown] == ["occ_of_another_store/1"]
    assert (found.ended, found.lost, found.counts()) == ([], [], {"workflows": 1, "occurrences": 0})
    assert rig.compare("cancel_ended") == 0
    assert rig.status("occ_of_another_store") == "RUNNING", "nobody has asked for its end"
    assert rig.compare("terminate_unknown") == 1
    assert rig.closed("occ_of_another_store") == "TERMINATED"


def test_a_workflow_whose_occurrence_has_ended_is_cancelled(server, tmp_path):
    rig = Rig(server, tmp_path)
    occurrence_id = rig.run(function("add"))
    start(rig, occurrence_id)
    assert rig.store.cancel(occurrence_id)
    found = listed(rig, 1)
    assert [one.occurrence_id for one in found.ended] == [occurrence_id]
    assert rig.compare("cancel_ended") == 1
    with rig.worker():
        assert rig.closed(occurrence_id) == "CANCELED"
    assert rig.occurrence(occurrence_id).phase is Phase.CANCELLED


def test_an_occurrence_whose_workflow_is_gone_is_an_orphan_and_fails_on_command(server, tmp_path):
    rig = Rig(server, tmp_path)
    with rig.node():
        occurrence_id = rig.run(function("add"))
        rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
        assert listed(rig, 1).counts() == {"workflows": 0, "occurrences": 0}
        rig.end_workflow(occurrence_id)
        found = rig.compare()
        assert [one.id for one in found.lost] == [occurrence_id]
        assert found.to_document()["orphan_occurrences"][0]["workflow_id"] == f"{occurrence_id}/1"
        assert rig.occurrence(occurrence_id).phase is Phase.AWAITING_COMPLETION
        assert rig.compare("fail_lost") == 1
        assert rig.compare().counts() == {"workflows": 0, "occurrences": 0}
    ended = rig.occurrence(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.FAILED, Reason.FAILED)
    assert "its workflow is gone" in rig.runs(occurrence_id)[0].error


def test_the_leader_ends_them_by_its_policy_and_they_are_retried(server, tmp_path):
    rig = Rig(server, tmp_path, orphans=END)
    with rig.node() as node:
        occurrence_id = rig.run(function("add"), retries=Retry(1, backoff=0.1))
        rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
        rig.end_workflow(occurrence_id)
        until(lambda: node.loop.driver.node.leads)
        target = node.loop.driver.node.runtime.target
        # Temporal lists it as running for a moment longer.
        until(lambda: target.reconcile() or rig.occurrence(occurrence_id).attempt == 2)
        with rig.worker():
            assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    assert "occurrences" in rig.engine.counts.orphans
    assert [run.outcome for run in rig.runs(occurrence_id)] == [Outcome.COMPLETED, Outcome.FAILED]


def test_the_engine_is_down_for_a_while(server, tmp_path, monkeypatch):
    """Nothing is lost: what is due meanwhile is started once it is back."""
    monkeypatch.setattr(worker, "CHECK_PAUSE", SECOND // 5)
    rig = Rig(server, tmp_path)
    with rig.running() as thread:
        before = rig.run(function("hold", "before"))
        begun(before)
        server.kill()
        during = rig.run(function("add"))
        unknown = rig.run(function("add"), timeout=timedelta(seconds=1), delivery=ONCE)
        until(lambda: rig.engine.counts.problem)
        assert rig.occurrence(during).phase is Phase.DISPATCHING
        assert rig.ended(unknown).reason is Reason.OUTCOME_UNKNOWN, "it may have been started"
        until(lambda: thread.counts.problem)
        server.start()
        work.GATES.setdefault("before", threading.Event()).set()
        assert (rig.ended(before).phase, rig.ended(during).phase) == (Phase.COMPLETED, Phase.COMPLETED)
        assert rig.engine.counts.problem is None
        until(lambda: thread.counts.problem is None)
    assert [len(rig.runs(one)) for one in (before, during)] == [1, 1]


def test_a_server_that_does_not_answer_is_no_reason_to_end_anything(tmp_path, server):
    rig = Rig(server, tmp_path)
    nowhere = EngineClient(EngineAddress("127.0.0.1", 1))
    for call in (nowhere.is_running("x/1"), nowhere.cancel("x/1"), nowhere.workers()):
        with pytest.raises(EngineUnavailable, match=r"the engine at 127\.0\.0\.1:1 did not answer"):
            rig.server.run(call)
    occurrence_id = rig.run(function("add"))
    assert rig.occurrence(occurrence_id).phase is Phase.PENDING


def test_an_end_that_the_ledger_has_decided_stays(server, tmp_path):
    """The worker finishes after the ledger has given up waiting: its end is refused, and the workflow is over."""
    rig = Rig(server, tmp_path)
    with rig.running() as worker:
        occurrence_id = rig.run(function("hold", "decided"))
        waiting = rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
        begun(occurrence_id)
        stored, now = rig.store.find_uid(waiting.uid), rig.store.clock()
        given_up = Delivered(outcome=Outcome.TIMED_OUT, started=now, ended=now)
        assert rig.store.settle([settle(waiting, stored.schedule, given_up, node="node")]) == [True]
        work.GATES.setdefault("decided", threading.Event()).set()
        rig.closed(occurrence_id)
        assert worker.settled == []
    assert rig.occurrence(occurrence_id).phase is Phase.TIMED_OUT
    assert len(rig.runs(occurrence_id)) == 1


def test_a_start_without_a_connection_is_given_up_in_the_end(tmp_path):
    rig = Rig(SimpleNamespace(url=lambda **_: "temporal://127.0.0.1:1/default"), tmp_path)
    with rig.node():
        occurrence_id = rig.run(function("add"), timeout=timedelta(seconds=1), delivery=ONCE)
        ended = rig.ended(occurrence_id)
    assert (ended.phase, ended.reason) == (Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE), "nothing was sent"
    assert rig.runs(occurrence_id)[0].error == "the engine at 127.0.0.1:1 did not answer: UNAVAILABLE"
    assert rig.engine.counts.starts == {"failed": 1}


def test_what_waits_for_a_worker_says_so(server, tmp_path):
    rig = Rig(server, tmp_path)
    service = Service(
        store=rig.store,
        lookahead=0,
        fresh_id=lambda: "id",
        lacks_workers=lambda route: route in rig.engine.counts.unserved,
    )
    advice = f"start one with `noonmark temporal-worker --routes {FUNCTION}`"
    words = f"no worker of the engine delivers `{FUNCTION}`; {advice}"

    def why(occurrence_id):
        return perform(service, LOCAL, "occurrence/get", {"occurrence_id": occurrence_id})["why"]

    with rig.node():
        occurrence_id = rig.run(function("add"))
        rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
        until(lambda: rig.engine.counts.unserved == {FUNCTION, "workflow"})
        assert target_warnings(service, "default", parse_target(function("add"))) == [words]
        assert why(occurrence_id) == f"It waits: {words}."
    with rig.worker(), rig.node():
        rig.ended(occurrence_id)
        until(lambda: not rig.engine.counts.unserved)
        assert why(occurrence_id) == "The target did the work."
        assert target_warnings(service, "default", parse_target(function("add"))) == []


def test_a_node_that_stops_hands_back_what_it_could_not_start(tmp_path):
    rig = Rig(SimpleNamespace(url=lambda **_: "temporal://127.0.0.1:1/default"), tmp_path)
    with rig.node():
        occurrence_id = rig.run(function("add"))
        rig.in_phase(occurrence_id, Phase.DISPATCHING)
        until(lambda: rig.engine.counts.problem)
        service = Service(
            store=rig.store, lookahead=0, fresh_id=lambda: "id", engine_problem=lambda _: rig.engine.counts.problem
        )
        words = "It waits: the engine at 127.0.0.1:1 did not answer: UNAVAILABLE."
        arguments = {"occurrence_id": occurrence_id}
        assert perform(service, LOCAL, "occurrence/get", arguments)["why"] == words
        assert perform(service, LOCAL, "occurrence/explain", arguments)["summary"].endswith(words)
    handed_back = rig.occurrence(occurrence_id)
    assert (handed_back.phase, handed_back.attempt, handed_back.reason) == (Phase.PENDING, 0, Reason.LEASE_LOST)
