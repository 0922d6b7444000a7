"""The documented schedules of agents are created as they are written, fired over the socket, and carried out."""

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from noonmark import AgentSettings
from noonmark.core.instants import SECOND
from noonmark.core.quotas import Limits
from noonmark.targets.agent.task_instructions import InstructionFiles
from tests.embedded.waiting import FINAL, eventually
from tests.server.live_server import serving
from tests.server.test_documented_rest import table

MODEL = "claude-sonnet-4-6"
SESSION = "01936f8a-7b2c-7000-8000-000000000001"
MOB = {
    "mob_id": "release-triage",
    "members": [{"member_id": "lead", "model": MODEL, "role": "lead"}, {"member_id": "scribe", "model": MODEL}],
    "flows": {
        "triage": {
            "steps": [
                {"id": "look", "member_id": "lead", "prompt": "A {{ inputs.severity }} incident."},
                {
                    "id": "write",
                    "member_id": "scribe",
                    "prompt": "{{ steps.look.result.text }}",
                    "depends_on": ["look"],
                },
            ]
        }
    },
}
LIMITS = Limits(per_user={}, per_tenant={}, min_interval=3_600 * SECOND, max_budget_usd=10)


def repeat(messages, info):
    """Answer with the instructions and what was said last."""
    return ModelResponse(parts=[TextPart(f"{info.instructions or 'Nobody'}: {messages[-1].parts[0].content}")])


@pytest.fixture(scope="module")
def server():
    agents = AgentSettings(models={MODEL: FunctionModel(repeat)}, model=MODEL)
    with serving(begins=True, agents=agents, instructions=InstructionFiles(), limits=LIMITS) as running:
        for path, document in (("/sessions", {"session_id": SESSION, "model": MODEL}), ("/mobs", MOB)):
            answer = running.client.post(path, json=document)
            assert answer.status_code == 201, answer.text
        yield running


def fire(server, schedule_id):
    """Run a schedule now; its occurrence when that has ended."""
    answer = server.client.post(f"/schedules/{schedule_id}/run", json={})
    assert answer.status_code == 202, answer.text
    where = f"/occurrences/{answer.json()['occurrence_id']}"
    return eventually(lambda: (found := server.client.get(where).json())["phase"] in FINAL and found)


def messages(server, session_id):
    """Who said what in a session."""
    answer = server.client.get(f"/sessions/{session_id}/messages").json()["messages"]
    return [(one["role"], one["parts"][0]["text"]) for one in answer]


def documents(*titles):
    return [pytest.param(row["rest"]["body"], id=row["title"]) for row in table("sessions") if row["title"] in titles]


@pytest.mark.parametrize(
    "body", documents("Create a schedule", "Target: exact_session", "Target: resumable_session", "Target: member")
)
def test_a_session_is_told_what_the_document_says(server, body):
    created = server.client.post("/schedules", json=body).json()
    ended = fire(server, created["schedule_id"])
    assert ended["phase"] == "completed", ended
    [run] = server.client.get(f"/schedules/{created['schedule_id']}/runs").json()["runs"]
    assert (run["usage"]["model_calls"], run["usage"]["cost_usd"]) == (1, 0)
    assert run["usage"]["total_tokens"] > 0
    target, action = body["target"], body["target"]["action"]
    told, answer = messages(server, run["result"]["session_id"])[-2:]
    if action["type"] == "event":
        assert told == ("event", 'Event deploy_complete:\n{"environment": "prod"}')
    else:
        assert told == ("user", action.get("prompt") or action["content"])
    who = target.get("create", {}).get("system_prompt", "Nobody")
    assert answer == ("assistant", f"{who}: {told[1]}") == ("assistant", run["result"]["text"])
    if "create" in target:
        shown = server.client.get(f"/schedules/{created['schedule_id']}").json()["target"]
        assert shown["bound_session_id"] == run["result"]["session_id"]
        fire(server, created["schedule_id"])
        assert len(messages(server, shown["bound_session_id"])) == 4


@pytest.mark.parametrize("body", documents("Target: spawn_helper", "Target: fork_helper"))
def test_a_helper_is_waited_for(server, body):
    before = messages(server, "mob:release-triage:lead")
    created = server.client.post("/schedules", json=body).json()
    assert fire(server, created["schedule_id"])["phase"] == "completed"
    [run] = server.client.get(f"/schedules/{created['schedule_id']}/runs").json()["runs"]
    session = server.client.get(f"/sessions/{run['result']['session_id']}").json()
    assert session["state"] == "archived"
    said = messages(server, session["session_id"])
    history = before if body["target"]["type"] == "fork_helper" else []
    assert said[:-2] == history[-20:]
    assert said[-2] == ("user", body["target"]["prompt"])


@pytest.mark.parametrize("body", documents("Target: flow", "The recommended defaults"))
def test_a_flow_is_run(server, body):
    created = server.client.post("/schedules", json=body).json()
    ended = fire(server, created["schedule_id"])
    assert ended["phase"] == "completed", ended
    run = server.client.get(f"/workflow-runs/{ended['occurrence_id']}").json()
    assert (run["workflow_id"], run["inputs"]) == ("mob:release-triage:triage", {"severity": "high"})
    assert run["result"]["write"]["text"] == "Nobody: Nobody: A high incident."


def test_a_missing_target_follows_its_policy(server):
    for policy, phase in (("mark_misfired", "misfired"), ("skip", "skipped")):
        body = {
            "trigger": {"type": "once", "due_at_utc": "2027-04-21T15:00:00Z"},
            "target": {"target_kind": "mob", "type": "flow", "mob_id": "nobody", "flow_id": "triage", "params": None},
            "missing_target_policy": policy,
        }
        ended = fire(server, server.client.post("/schedules", json=body).json()["schedule_id"])
        assert (ended["phase"], ended["reason"]) == (phase, "target_missing")


def test_a_task_is_answered_and_its_run_is_shown_as_documented(server):
    [body] = [row["body"] for row in table("tasks") if row["title"] == "Create"]
    created = server.client.post("/api/v1/schedules", json=body)
    assert created.status_code == 201, created.text
    schedule_id = created.json()["schedule_id"]
    ended = fire(server, schedule_id)
    assert ended["phase"] == "completed", ended
    [run] = server.client.get(f"/api/v1/schedules/{schedule_id}/runs").json()["runs"]
    assert (run["status"], run["query"], run["model_used"]) == ("COMPLETED", body["task_query"], MODEL)
    assert run["total_tokens"] > 0
    assert (run["total_cost_usd"], run["error_message"]) == (0, None)
    assert run["provider"] == "function"
    assert run["duration_ms"] >= 0
    assert run["result"].endswith(f": {body['task_query']}")
    assert "Research depth: quick" in run["result"]
    told, _ = messages(server, f"schedule:{schedule_id}:{ended['occurrence_id']}")
    assert told == ("user", body["task_query"])
    bad = {**body, "name": "bad", "task_context": {"research_strategy": "lazy"}}
    refused = server.client.post("/api/v1/schedules", json=bad)
    assert refused.status_code == 400
    assert "academic, deep, quick, standard" in refused.text
