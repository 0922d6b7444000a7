"""Cycles through a real server's own routes end, as cycles inside the scheduler do."""

import json
import sys
import urllib.request

import pytest

from noonmark.core.causation import MAX_DEPTH
from noonmark.core.signatures import chain_key, chain_proof
from tests.embedded.waiting import FINAL, eventually
from tests.service.server import serving
from tests.targets.http.receiver import Handler, http_receiver

NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
ON_TURN = {"type": "event", "event_type": "turned"}
TURNED = {"event_type": "turned"}
FORWARD = ("noonmark-chain", "content-type", "idempotency-key")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("circles")
    options = ("--store", "sqlite:///circles.db", "--allow-commands", sys.executable)
    with serving(folder, *options) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server):
    yield
    for one in server.get("/schedules").json["schedules"]:
        server.ask("DELETE", f"/schedules/{one['schedule_id']}")


def create(server, name, target, trigger=ON_TURN, **fields):
    body = {"schedule_id": name, "trigger": trigger, "target": target, "overlap_policy": {"type": "allow"}, **fields}
    answer = server.ask("POST", "/schedules", body)
    assert answer.status == 201, answer.text
    return name


def posting(url, body, **fields):
    return {"target_kind": "http", "url": url, "body": body, **fields}


def phases(server, *names):
    """How the occurrences of some schedules stand."""
    answers = [server.get(f"/schedules/{name}/occurrences?limit=1000").json["occurrences"] for name in names]
    return [sorted(one["phase"] for one in each) for each in answers]


def is_quiet(server, names, least):
    """Whether everything has ended and every event was matched; a later event proves it."""
    before = phases(server, *names)
    if sum(map(len, before)) < least or any(phase not in FINAL for each in before for phase in each):
        return False
    server.ask("POST", "/events", {"event_type": "swept"})
    eventually(lambda: phases(server, "sweeper")[0] and set(phases(server, "sweeper")[0]) <= FINAL)
    return phases(server, *names) == before


def circle(server, make, count):
    """So many schedules that answer an event with one of its type; how each has ended when all is quiet."""
    names = [create(server, f"job-{number}", make) for number in range(count)]
    create(server, "sweeper", {"target_kind": "event", "event_type": "heard"}, {"type": "event", "event_type": "swept"})
    assert server.ask("POST", "/events", TURNED).status == 202
    eventually(lambda: is_quiet(server, names, count * count))
    return phases(server, *names)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("way", ["event", "REST", "JSON-RPC", "forwarded"])
def test_schedules_that_answer_an_event_with_its_own_type_trigger_each_other_once(server, way, count):
    """As many runs as for those that emit it by themselves."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "event/emit", "params": TURNED}
    with http_receiver() as receiver:
        receiver.server_url = server.url
        ways = {
            "event": {"target_kind": "event", "event_type": "turned"},
            "REST": posting(f"{server.url}/events", TURNED),
            "JSON-RPC": posting(f"{server.url}/rpc", call),
            "forwarded": posting(f"{receiver.url}/forward", TURNED),
        }
        ended = circle(server, ways[way], count)
    assert [len(one) for one in ended] == [count] * count
    # Over JSON-RPC a refusal is an answer that HTTP calls a good one.
    assert [one.count("completed") for one in ended] == [count if way == "JSON-RPC" else 1] * count


def forward(self):
    """Another service, which hands on what it was sent, with some of the headers."""
    _, _, headers, body = self.server.receiver.requests[-1]
    kept = {name: value for name, value in headers.items() if name.lower() in FORWARD}
    asked = urllib.request.Request(f"{self.server.receiver.server_url}/events", body, kept)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - likewise
            self.answer(answer.status)
    except urllib.error.HTTPError as error:
        self.answer(error.code)
        error.close()


@pytest.fixture(autouse=True)
def _forwarding(monkeypatch):
    monkeypatch.setattr(Handler, "forward", forward, raising=False)


def test_two_schedules_that_trigger_each_other_run_once(server):
    there, back = {"event_type": "there"}, {"event_type": "back"}
    create(server, "a", posting(f"{server.url}/events", there), {"type": "event", "event_type": "back"})
    create(server, "b", posting(f"{server.url}/events", back), {"type": "event", "event_type": "there"})
    create(server, "sweeper", {"target_kind": "event", "event_type": "heard"}, {"type": "event", "event_type": "swept"})
    server.ask("POST", "/events", back)
    eventually(lambda: is_quiet(server, ["a", "b"], 2))
    assert phases(server, "a", "b") == [["completed"], ["completed"]]


def test_a_schedule_that_requests_its_own_run_ends(server):
    create(server, "again", posting(f"{server.url}/schedules/again/run", {}), NEVER)
    server.ask("POST", "/schedules/again/run", {})
    # Each run may end after the one that it asks for. Pending is the next of its trigger.
    eventually(lambda: phases(server, "again") == [["completed"] * MAX_DEPTH + ["failed", "pending"]])
    [last] = [one for one in server.get("/schedules/again/runs").json["runs"] if one["outcome"] == "failed"]
    assert last["result"]["body"]["detail"] == (
        "it is not run: it would be the last of 17 steps that trigger each other, and at most 16 may"
    )


def test_a_cycle_of_runs_does_not_multiply(server):
    """Otherwise it would end only after 2 to the power of 16 runs."""
    call = {"jsonrpc": "2.0", "method": "schedule/run", "params": {"schedule_id": "doubled"}}
    create(server, "doubled", posting(f"{server.url}/rpc", [{**call, "id": 1}, {**call, "id": 2}]), NEVER)
    server.ask("POST", "/schedules/doubled/run", {})
    eventually(lambda: phases(server, "doubled")[0] == ["completed"] * (MAX_DEPTH + 1) + ["pending"])
    runs = server.get("/schedules/doubled/runs").json["runs"]
    answers = [one["result"]["body"] for one in runs if one["outcome"] == "completed"]
    asked = [[one["result"]["occurrence_id"] for one in each if "result" in one] for each in answers]
    assert sorted((len(each), len(set(each))) for each in asked) == [(0, 0)] + [(2, 1)] * MAX_DEPTH


def test_requests_that_would_multiply_a_cycle_are_rejected(server):
    keyed = {"schedule_id": "keyed", "key": "{{occurrence_id}}-2"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "schedule/run", "params": keyed}
    create(server, "keyed", posting(f"{server.url}/rpc", call), NEVER)
    past = {"from": "2020-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    create(server, "many", posting(f"{server.url}/schedules/many/backfill", past), NEVER)
    for name in ("keyed", "many"):
        server.ask("POST", f"/schedules/{name}/run", {})
    eventually(lambda: phases(server, "keyed", "many") == [["completed", "pending"], ["failed", "pending"]])
    why = [server.get(f"/schedules/{name}/runs").json["runs"][0]["result"]["body"] for name in ("keyed", "many")]
    assert "each run of a circle may request one more" in why[0]["error"]["message"]
    assert "a run of a circle cannot request several" in why[1]["detail"]


PROGRAM = "import sys; from noonmark.client import Client; Client(sys.argv[1]).emit('turned')"


def test_a_cycle_of_programs_that_use_the_client_ends(server):
    target = {"target_kind": "command", "argv": [sys.executable, "-c", PROGRAM, server.url]}
    assert circle(server, target, 2) == [["completed", "failed"]] * 2


def test_an_invalid_chain_header_is_ignored(server):
    create(server, "job", {"target_kind": "event", "event_type": "heard"})
    other = chain_proof(chain_key(bytes(32), "default"), occurrence_id="occ_1")
    for number, proof in enumerate(("", "x", "." * 5_000, "\xff.\xe9", other)):
        answer = server.ask("POST", "/events", TURNED, **{"Noonmark-Chain": proof})
        assert answer.status == 202, answer.text
        eventually(lambda number=number: phases(server, "job") == [["completed"] * (number + 1)])


def test_the_chain_header_of_another_store_is_ignored(server, tmp_path):
    """A request from one server to another is to that one an event from outside, and so is the answer to it."""
    with http_receiver() as receiver, serving(tmp_path, "--store", "sqlite:///other.db") as other:
        create(server, "here", posting(f"{receiver.url}/ok", {}))
        server.ask("POST", "/events", TURNED)
        eventually(lambda: receiver.requests)
        [(_, _, headers, _)] = receiver.requests
        proof = {"Noonmark-Chain": headers["Noonmark-Chain"]}
        create(other, "here", {"target_kind": "event", "event_type": "heard"})
        assert other.ask("POST", "/events", TURNED, **proof).status == 202
        eventually(lambda: phases(other, "here") == [["completed"]])
        # To its own it says that this follows from the schedule itself, which does not hear of it.
        answer = server.ask("POST", "/events", TURNED | {"event_id": "mine"}, **proof)
        assert (answer.status, answer.json) == (202, {"event_id": "mine"})
        create(server, "late", {"target_kind": "event", "event_type": "heard"})
        assert server.ask("POST", "/events", TURNED | {"event_id": "next"}, **proof).status == 202
        eventually(lambda: phases(server, "late") == [["completed"]])
        assert phases(server, "here") == [["completed"]]
        assert json.loads(receiver.requests[0][3]) == {}
