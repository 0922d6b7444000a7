"""Documents of other schedulers are translated, and so are the results of their work."""

from itertools import count

import pytest

from noonmark.core.budgets.spend import Usage
from noonmark.core.errors import InvalidSchedule, NotFound, Problem
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.operations.service import Service
from noonmark.server.dialects import cron_service
from noonmark.server.problems import rename_fields
from tests.driver.rig import Rig
from tests.server.live_server import hosting
from tests.server.test_routes import problem


def test_errors_use_the_field_names_of_the_client():
    names = {"trigger": "when", "trigger.expression": "cron", "target.inputs": "given"}
    problems = [
        Problem("trigger.expression", "no"),
        Problem("trigger.dst.gap", "no"),
        Problem("target.inputs[3]", "no"),
        Problem("triggers", "no"),
    ]
    error = rename_fields(InvalidSchedule("no", field="trigger.expression", problems=problems), names)
    assert error.field == "cron"
    assert [one.field for one in error.problems] == ["cron", "when.dst.gap", "given[3]", "triggers"]
    assert rename_fields(NotFound("no", field="other"), names).field == "other"


def test_a_schedule_that_the_cron_service_cannot_express_is_not_translated():
    document = {"trigger": {"type": "interval"}, "target": {"target_kind": "workflow"}}
    assert cron_service.to_document(document) is None
    assert cron_service.to_document({**document, "trigger": None}) is None
    assert cron_service.to_document({"trigger": {"expression": "* * * * *"}, "target": {"target_kind": "http"}}) is None


class Bench:
    """A server over a store whose tasks end as the test says."""

    def __init__(self, server, rig):
        self.client, self.rig = server.client, rig

    def make(self, **changes):
        body = {"name": "t", "cron_expression": "0 9 * * *", "task_query": "What is new?", **changes}
        return self.client.post("/api/v1/schedules", json=body).json()["schedule_id"]

    def begin(self, schedule_id):
        """An occurrence that has begun, later than any other; gives its id and its assignment."""
        self.rig.advance(SECOND)
        occurrence_id = self.client.post(f"/schedules/{schedule_id}/run", json={"overlap": "allow"}).json()[
            "occurrence_id"
        ]
        self.rig.claim_once()
        self.rig.admit_once()
        return occurrence_id, self.rig.target.given[-1]

    def end(self, assignment, outcome=Outcome.COMPLETED, **changes):
        self.rig.advance(SECOND)
        self.rig.target.end(assignment, outcome, **changes)
        self.rig.settle_once()

    def accept(self, assignment, **fields):
        """The target has taken it, and will tell its end later."""
        now = self.rig.world.now
        self.rig.target.report(assignment, Accepted(started=now, accepted=now, **fields))
        self.rig.settle_once()


@pytest.fixture(scope="module")
def bench():
    rig, numbers = Rig(routes=("task",)), count(1)
    service = Service(store=rig.store.store, lookahead=2 * SECOND, fresh_id=lambda: f"fresh{next(numbers):06}")
    with hosting(service) as server:
        yield Bench(server, rig)


def test_runs_are_paged_with_their_cost(bench):
    schedule_id = bench.make()
    usage = Usage(model="m", provider="p", input_tokens=900, cost=250_000_000)
    ends = [
        (
            Outcome.COMPLETED,
            {"result": "much", "usage": usage},
        ),
        (Outcome.FAILED, {"error": "the model was away"}),
        (Outcome.TIMED_OUT, {}),
        (Outcome.CANCELLED, {}),
    ]
    for outcome, changes in ends:
        bench.end(bench.begin(schedule_id)[1], outcome, **changes)
    bench.begin(schedule_id)
    path = f"/api/v1/schedules/{schedule_id}"
    answer = bench.client.get(f"{path}/runs").json()
    assert (answer["total_count"], answer["page"], answer["page_size"]) == (5, 1, 20)
    assert [one["status"] for one in answer["runs"]] == ["RUNNING", "CANCELLED", "FAILED", "FAILED", "COMPLETED"]
    first = answer["runs"][-1]
    assert (first["result"], first["total_tokens"], first["total_cost_usd"]) == ("much", 900, 0.25)
    assert (first["query"], first["error_message"]) == ("What is new?", None)
    assert answer["runs"][3]["error_message"] == "the model was away"
    assert answer["runs"][0]["duration_ms"] is None
    second = bench.client.get(f"{path}/runs?page=2&page_size=2").json()
    assert (second["runs"], second["total_count"]) == (answer["runs"][2:4], 5)
    counted = bench.client.get(path).json()
    assert (counted["total_runs"], counted["successful_runs"], counted["failed_runs"]) == (3, 1, 2)
    assert counted["last_run_at"]


def test_runs_of_tasks_have_the_ids_of_their_temporal_workflows(bench):
    schedule_id = bench.make(name="engine")
    path = f"/api/v1/schedules/{schedule_id}"
    one, assignment = bench.begin(schedule_id)
    bench.accept(assignment, engine="temporal")
    [run] = bench.client.get(f"{path}/runs").json()["runs"]
    assert (run["workflow_id"], run["status"]) == (f"{one}/1", "RUNNING")
    bench.client.post(f"/occurrences/{one}/complete", json={"result": "done"})
    other, assignment = bench.begin(schedule_id)
    bench.end(assignment, Outcome.COMPLETED)
    runs = bench.client.get(f"{path}/runs").json()["runs"]
    assert [one["workflow_id"] for one in runs][1] == f"{one}/1"
    assert runs[0]["workflow_id"].startswith(f"{other}-")
    assert bench.client.get(path).json()["temporal_schedule_id"] is None


def test_clients_complete_fail_or_cancel_a_pending_occurrence(bench):
    schedule_id = bench.make(name="awaited")
    for verb, body, phase in (
        ("complete", {"result": {"rows": 3}, "usage": {"tokens": 5, "cost_usd": 0.5}}, "completed"),
        ("fail", {"error": "no"}, "failed"),
        ("cancel", {"reason": "not today"}, "cancelled"),
    ):
        one, assignment = bench.begin(schedule_id)
        bench.accept(assignment)
        path = f"/occurrences/{one}"
        assert bench.client.get(path).json()["phase"] == "awaiting_completion"
        answer = bench.client.post(f"{path}/{verb}", json=body)
        assert (answer.status_code, answer.json()["phase"]) == (200, phase)
        problem(bench.client.post(f"{path}/{verb}", json=body), 409, "conflict")
    [run] = bench.client.get(f"{path}/runs").json()["runs"]
    assert run["outcome"] == "cancelled"


def test_a_schedule_of_another_kind_is_invisible_to_the_task_routes(bench):
    body = {"trigger": {"type": "cron", "expression": "@daily"}, "target": {"target_kind": "event", "event_type": "x"}}
    schedule_id = bench.client.post("/schedules", json=body).json()["schedule_id"]
    path = f"/api/v1/schedules/{schedule_id}"
    for answer in (bench.client.get(path), bench.client.put(path, json={"name": "x"}), bench.client.delete(path)):
        problem(answer, 404, "not_found", "schedule_id")
    assert schedule_id not in bench.client.get("/api/v1/schedules?page_size=100").text


def test_a_task_with_another_trigger_is_shown_and_can_get_an_expression(bench):
    body = {
        "name": "every week",
        "trigger": {"type": "interval", "every_seconds": 604_800},
        "target": {"target_kind": "task", "query": "q"},
    }
    path = f"/api/v1/schedules/{bench.client.post('/schedules', json=body).json()['schedule_id']}"
    assert bench.client.get(path).json()["cron_expression"] == ""
    assert bench.client.put(path, json={"cron_expression": "0 9 * * 1"}).status_code == 200
    assert bench.client.get(path).json()["cron_expression"] == "0 9 * * 1"
