"""Agents behind a real server: this process and a remote host side by side, and work that ends by a callback."""

import socket

import pytest

from tests.embedded.waiting import FINAL, eventually
from tests.service.server import serving
from tests.targets.agent.scripted_host import ANSWER, hosting

ACCEPTED = (202, {}, {"Noonmark-Callback": "accepted"})
REMOTE_TASK = {
    "target_kind": "task",
    "query": "Why?",
    "context": {"execution_target": "daemon", "agent_name": "ops"},
}
NOW = {"type": "once", "delay_seconds": 0}


@pytest.fixture(scope="module")
def host():
    with hosting() as running:
        yield running


@pytest.fixture(scope="module")
def server(host, tmp_path_factory):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    options = ("--agents", f"embedded,{host.url}", "--agent-model", "test", "--public-url", f"http://127.0.0.1:{port}")
    with serving(tmp_path_factory.mktemp("agents"), *options, port=port) as running:
        yield running


def create(server, target, **fields):
    answer = server.ask("POST", "/schedules", {"trigger": NOW, "target": target, **fields})
    assert answer.status == 201, answer.text
    return answer.json["schedule_id"]


def occurrence(server, schedule_id, phases=frozenset(FINAL)):
    """The occurrence of a schedule, when it is in one of these phases."""
    where = f"/schedules/{schedule_id}/occurrences"
    return eventually(
        lambda: next((one for one in server.get(where).json["occurrences"] if one["phase"] in phases), None)
    )


def test_a_task_runs_here_unless_it_names_an_agent_of_the_remote_host(server, host):
    here = create(server, {"target_kind": "task", "query": "Why?"})
    there = create(server, REMOTE_TASK)
    assert occurrence(server, here)["phase"] == occurrence(server, there)["phase"] == "completed"
    texts = [server.get(f"/schedules/{one}/runs").json["runs"][0]["result"]["text"] for one in (here, there)]
    assert texts == ["success (no tool calls)", "Done."]
    sent = {one["schedule_id"]: one["agent"] for one in host.requests("deliver")}
    assert (sent.get(there), here in sent) == ("ops", False)


@pytest.mark.parametrize(
    ("verb", "body", "phase"),
    [
        ("complete", {"result": {"text": "Later."}, "usage": ANSWER["usage"]}, "completed"),
        ("complete", {"result": "Later."}, "completed"),
        ("fail", {"error": "no", "usage": ANSWER["usage"]}, "failed"),
    ],
)
def test_accepted_work_ends_by_a_callback(server, host, verb, body, phase):
    host.answer(ACCEPTED)
    try:
        schedule_id = create(server, REMOTE_TASK, budget={"max_tokens": 5_000, "max_cost_usd": 1})
        waiting = occurrence(server, schedule_id, {"awaiting_completion"})
    finally:
        host.answer((200, ANSWER))
    [(_, headers, _)] = [one for one in host.asked if waiting["occurrence_id"] in one[1]["Idempotency-Key"]]
    path = headers["Noonmark-Callback"].removeprefix(server.url)
    ended = server.ask("POST", f"{path}/{verb}", {**body, "token": headers["Noonmark-Callback-Token"]})
    assert (ended.status, ended.json["phase"]) == (200, phase)
    [run] = server.get(f"/schedules/{schedule_id}/runs").json["runs"]
    session_id = f"schedule:{schedule_id}:{waiting['occurrence_id']}"
    if "usage" in body:
        assert (run["usage"]["total_tokens"], run["usage"]["cost_usd"]) == (100, 0.001)
    else:
        assert run["usage"] is None
    said = [one["role"] for one in server.get(f"/sessions/{session_id}/messages").json["messages"]]
    state = server.get(f"/sessions/{session_id}").json["state"]
    if verb == "complete":
        assert run["result"] == {"session_id": session_id, "text": "Later."}
        assert (said, state) == (["user", "assistant"], "idle")
        used = server.get(f"/sessions/{session_id}").json["usage"]
        assert used["total_tokens"] == (100 if "usage" in body else 0)
    else:
        assert (said, state) == (["user"], "suspended")
    again = server.ask("POST", f"{path}/{verb}", {**body, "token": headers["Noonmark-Callback-Token"]})
    assert again.status == 409
