"""Workflows over HTTP, on a real server with a node that runs their steps."""

import pytest

from noonmark.client import Client
from noonmark.core.lifecycle import FINAL
from tests.cli.runner import call
from tests.embedded.waiting import eventually
from tests.server.live_server import bearer, new_key, serving

FETCH = {"target_kind": "function", "function": "fetch"}
DOUBLE = {"target_kind": "function", "function": "double"}
BREAK = {"target_kind": "function", "function": "fail"}
SALES = {
    "workflow_id": "sales",
    "inputs": {"day": {"type": "string"}, "least": 1},
    "steps": [
        {"id": "fetch", "target": FETCH, "input": {"day": "{{ inputs.day }}"}},
        {
            "id": "tell",
            "depends_on": ["fetch"],
            "target": {"target_kind": "event", "event_type": "sales.told"},
            "input": {"day": "{{ steps.fetch.result.day }}"},
        },
        {
            "id": "double",
            "depends_on": ["fetch"],
            "target": DOUBLE,
            "input": {"n": "{{ item }}"},
            "for_each": "{{ steps.fetch.result.rows }}",
        },
        {"id": "never", "depends_on": ["fetch"], "target": BREAK, "when": {"steps.fetch.result.day": "never"}},
    ],
}
ASKS = {
    "workflow_id": "asks",
    "steps": [
        {"id": "ask", "approval": {"message": "Go on?"}},
        {"id": "double", "depends_on": ["ask"], "target": DOUBLE, "input": {"n": 21}},
    ],
}
BREAKS = {
    "workflow_id": "breaks",
    "steps": [{"id": "fetch", "target": FETCH}, {"id": "boom", "depends_on": ["fetch"], "target": BREAK}],
}
LAUNCHED = {
    "workflow_id": "launched",
    "inputs": {"scheduled_for": {"type": "string"}},
    "steps": [
        {
            "id": "fetch",
            "target": FETCH,
            "input": {"day": "{{ payload.user_id }} at {{ inputs.scheduled_for }}"},
        }
    ],
}


FETCHED = []


def fetch(day="today"):
    FETCHED.append(day)
    return {"day": day, "rows": [1, 2, 3]}


def double(n):
    return 2 * n


def fail():
    raise ValueError("no rows today")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    store = f"sqlite:///{tmp_path_factory.mktemp('workflows') / 'noonmark.db'}"
    with serving(store, begins=True, keyed=True) as server:
        for name, function in (("fetch", fetch), ("double", double), ("fail", fail)):
            server.service.worker.scheduler.register_function(name, function)
        for definition in (SALES, ASKS, BREAKS, LAUNCHED):
            answer = server.client.post("/workflows", json=definition)
            assert (answer.status_code, answer.json()["version"]) == (201, 1), answer.text
        yield server


def start(served, workflow_id, **body):
    answer = served.client.post(f"/workflows/{workflow_id}/runs", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["workflow_run_id"]


def ended(served, run_id):
    """A run once it has ended."""

    def look():
        answer = served.client.get(f"/workflow-runs/{run_id}").json()
        return answer if answer["phase"] in FINAL else None

    return eventually(look)


def results(run):
    return {(step["step_id"], step["index"]): (step["phase"], step["result"]) for step in run["steps"]}


def test_steps_pass_on_what_they_return(served):
    run = ended(served, start(served, "sales", inputs={"day": "monday"}, key="monday"))
    assert run["phase"] == "completed", run
    assert run["inputs"] == {"day": "monday", "least": 1}
    steps = results(run)
    assert steps["fetch", None] == ("completed", {"day": "monday", "rows": [1, 2, 3]})
    assert steps["tell", None][0] == "completed"
    answer = served.client.get("/events?event_type=sales.told").json()["events"]
    assert {"day": "monday"} in [event["payload"] for event in answer]
    assert steps["double", None] == ("completed", [2, 4, 6])
    assert [steps["double", index] for index in range(3)] == [("completed", 2), ("completed", 4), ("completed", 6)]
    assert steps["never", None] == ("skipped", None)
    assert run["result"]["double"] == [2, 4, 6]
    assert all(step["started_at_utc"] and step["ended_at_utc"] for step in run["steps"] if step["phase"] == "completed")
    again = served.client.post("/workflows/sales/runs", json={"inputs": {"day": "monday"}, "key": "monday"})
    assert (again.status_code, again.json()) == (202, run)
    listed = served.client.get("/workflow-runs?workflow_id=sales&phase=completed").json()["workflow_runs"]
    assert run["workflow_run_id"] in [one["workflow_run_id"] for one in listed]


def test_explain_says_which_step_failed_and_why(served):
    run = ended(served, start(served, "breaks"))
    assert (run["phase"], results(run)["boom", None][0]) == ("failed", "failed")
    explained = served.client.get(f"/occurrences/{run['workflow_run_id']}/explain").json()
    assert explained["summary"].count("step 'boom' failed: ValueError: no rows today") == 1
    assert explained["summary"].count("no rows today") == 1
    output = served.client.get(f"/runs/{run['workflow_run_id']}-1/output").text
    assert ('"rows"' in output, output.endswith("\nstep 'boom' failed: ValueError: no rows today\n")) == (True, True)
    assert "noonmark.hidden" not in str(explained)
    [facts] = [step["facts"] for step in explained["steps"] if step["rule"] == "runs"]
    assert facts["steps"] == {"completed": 1, "failed": 1}
    assert facts["failed_steps"][0]["step_id"] == "boom"


def test_a_failed_run_runs_again_from_the_step_that_failed(served):
    old = ended(served, start(served, "breaks"))["workflow_run_id"]
    before = len(FETCHED)
    again = served.client.post(f"/occurrences/{old}/redrive").json()["occurrence_id"]
    run = ended(served, again)
    assert (run["workflow_id"], run["version"], run["phase"]) == ("breaks", 1, "failed")
    assert {step["step_id"]: step["phase"] for step in run["steps"]} == {"fetch": "completed", "boom": "failed"}
    assert len(FETCHED) == before


@pytest.mark.parametrize(
    ("verb", "phase", "state"), [("approve", "completed", "approved"), ("deny", "failed", "denied")]
)
def test_somebody_decides_on_any_surface(served, verb, phase, state):
    run_id = start(served, "asks")

    def asked():
        answer = served.client.get("/approvals").json()["approvals"]
        return next((one for one in answer if one["workflow_run_id"] == run_id), None)

    approval = eventually(asked)
    assert (approval["workflow_id"], approval["step_id"], approval["message"]) == ("asks", "ask", "Go on?")

    def suspended():
        answer = served.client.get(f"/workflow-runs/{run_id}").json()
        return answer if answer["waiting_for"] == "approval" else None

    waiting = eventually(suspended)
    assert (waiting["steps"][0]["waiting_for"], waiting["steps"][0]["approval_id"]) == (
        "approval",
        approval["approval_id"],
    )
    explained = served.client.get(f"/occurrences/{run_id}/explain").json()["summary"]
    assert "step `ask` waits for an approval until" in explained
    path = f"/approvals/{approval['approval_id']}"
    agent = new_key(served.service, scopes="run", agent=True)
    assert served.client.post(f"{path}/{verb}", headers=bearer(agent)).status_code == 403
    decided = served.client.post(f"{path}/{verb}", json={"comment": "as agreed"})
    assert (decided.status_code, decided.json()["state"], decided.json()["comment"]) == (200, state, "as agreed")
    assert served.client.post(f"{path}/{verb}").json() == decided.json()
    other = {"approve": "deny", "deny": "approve"}[verb]
    assert served.client.post(f"{path}/{other}").status_code == 409
    run = ended(served, run_id)
    assert run["phase"] == phase
    [entry] = [one for one in served.client.get("/audit").json()["entries"] if run_id in (one["reason"] or "")][:1]
    assert entry["operation"] == f"approval/{verb}"


def test_a_cancelled_run_says_so_for_each_step(served):
    run_id = start(served, "asks")
    eventually(lambda: served.client.get(f"/workflow-runs/{run_id}").json()["waiting_for"] == "approval")
    served.client.post(f"/workflow-runs/{run_id}/cancel", json={"reason": "never mind"})
    run = ended(served, run_id)
    assert (run["phase"], {step["phase"] for step in run["steps"]}) == ("cancelled", {"cancelled"})
    approvals = served.client.get("/approvals?state=cancelled").json()["approvals"]
    assert run_id in [one["workflow_run_id"] for one in approvals]


@pytest.mark.parametrize(("policy", "phase"), [("mark_misfired", "misfired"), ("skip", "skipped")])
def test_a_schedule_of_a_workflow_that_does_not_exist_follows_its_missing_target_policy(served, policy, phase):
    body = {
        "trigger": {"type": "once", "delay_seconds": 0},
        "target": {"target_kind": "workflow", "workflow_id": f"nobody-{policy}"},
        "missing_target_policy": policy,
    }
    answer = served.client.post("/schedules", json=body).json()
    assert answer["warnings"] == [f"there is no workflow `nobody-{policy}`; it must be created before this is due"]

    def occurrence():
        response = served.client.get(f"/schedules/{answer['schedule_id']}/occurrences").json()["occurrences"]
        return next((one for one in response if one["phase"] in FINAL), None)

    result = eventually(occurrence)
    assert (result["phase"], result["reason"]) == (phase, "target_missing")


LAUNCH = "/run-launcher/start?workflow_id={}&version=1&user_id=user456&scheduled_for=2024-01-01T00:00:00Z"


def test_the_launcher_of_the_cron_service_runs_a_workflow(served):
    unknown = served.client.post(LAUNCH.format("nowhere") + "&idempotency_key=a")
    assert (unknown.status_code, unknown.json()["field"]) == (404, "workflow_id")
    path = LAUNCH.format("launched") + "&idempotency_key=abc123"
    first = served.client.post(path).json()
    assert first["message"] in ("Workflow started", "Workflow completed")  # it may be quicker than the answer
    assert (first["workflow_id"], first["version"]) == ("launched", 1)
    run = ended(served, first["run_id"])
    assert run["phase"] == "completed", run
    assert run["result"]["fetch"]["day"] == "user456 at 2024-01-01T00:00:00Z"
    again = served.client.post(path).json()
    assert (again["run_id"], again["message"], again["phase"]) == (first["run_id"], "Workflow completed", "completed")
    reads = bearer(new_key(served.service, scopes="read,write"))
    assert served.client.post(path, headers=reads).status_code == 403


def test_a_failed_run_without_a_schedule_is_seen_and_runs_again_with_the_others(served):
    run = ended(served, start(served, "breaks"))
    there = ("--server", served.url, "--key", served.key)
    for words in (("failures",), ("top", "--once")):
        shown = call(*words, *there)
        assert (shown.code, "workflow breaks" in shown.out, "ValueError: no" in shown.out) == (0, True, True), shown
    [failed] = [
        one
        for one in served.client.get("/occurrences?phase=failed").json()["occurrences"]
        if one["occurrence_id"] == run["workflow_run_id"]
    ]
    assert (failed["schedule_id"], failed["schedule_name"]) == (None, "workflow breaks")
    answer = served.client.post("/occurrences/redrive", json={"phase": ["failed"], "since": failed["completed_at_utc"]})
    [again] = answer.json()["occurrences"]
    assert (again["origin"], again["schedule_name"]) == (f"manual:redrive:{failed['occurrence_id']}", "workflow breaks")
    assert ended(served, again["occurrence_id"])["phase"] == "failed"


def test_nothing_hidden_is_in_any_list(served):
    ended(served, start(served, "breaks"))
    for path in (
        "/schedules?limit=1000",
        "/schedules?include_deleted=true",
        "/schedules/count",
        "/triggers",
        "/occurrences",
        "/occurrences?phase=failed",
        "/workload",
        "/audit",
        "/doctor",
        "/limits",
    ):
        answer = served.client.get(path)
        assert (answer.status_code, "~workflow" in answer.text, "~steps" in answer.text) == (200, False, False), path
    there = ("--server", served.url, "--api-key", served.key)
    for words in (("schedule", "list"), ("failures",), ("top", "--once"), ("export",), ("audit", "list")):
        done = call(*words, *there[:2], "--key", served.key)
        assert (done.code, "~workflow" in done.out) == (0, False), done


def test_the_client_has_all_of_it(served):
    with Client(served.url, key=served.key) as client:
        assert client.create_workflow(SALES).version == 1
        run = client.run_workflow("sales", {"day": "friday"})
        eventually(lambda: client.workflow_run(run.workflow_run_id).phase == "completed")
        found = client.workflow_run(run.workflow_run_id)
        assert [step.step_id for step in found.steps if step.index is None] == ["fetch", "tell", "double", "never"]
        assert found.steps[0].started_at_utc.tzinfo is not None
        assert "sales" in [one.workflow_id for one in client.workflows()]
