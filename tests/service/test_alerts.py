"""Alerts of a real server: failures, delays and losses reach a real receiver exactly once, even after a crash."""

import json
import signal

import pytest

from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.targets.http.receiver import http_receiver

NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
LEASE = "1"


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


def create(server, name, trigger, target, **fields):
    body = {"schedule_id": name, "name": f"the {name}", "trigger": trigger, "target": target, **fields}
    answer = server.ask("POST", "/schedules", body)
    assert answer.status == 201, answer.text
    return name


def alert(server, receiver, name, event_type, text, filters=None):
    """A schedule that posts a text as soon as something has happened."""
    trigger = {"type": "event", "event_type": event_type, "filters": filters or {}}
    target = {"target_kind": "http", "url": f"{receiver.url}/{name}", "body": {"text": text}}
    return create(server, name, trigger, target)


def posted(receiver, name):
    """What was posted by an alert so far."""
    return [json.loads(body)["text"] for _, path, _, body in list(receiver.requests) if path == f"/{name}"]


def run(server, schedule_id, **body):
    return server.ask("POST", f"/schedules/{schedule_id}/run", body).json["occurrence_id"]


def events(server, event_type):
    return server.get(f"/events?event_type={event_type}").json["events"]


def nodes(server):
    return server.get("/nodes").json["nodes"]


def test_each_alert_is_posted_once(tmp_path, receiver):
    receiver.reset()
    with serving(tmp_path, "--store", "sqlite:///alerts.db") as server:
        failing = {"target_kind": "http", "url": f"{receiver.url}/next"}
        receiver.answers += [(404, b"", {})] * 2
        create(server, "backup", NEVER, failing, labels={"team": "data"}, pause_on_failure=2)
        alert(
            server,
            receiver,
            "failed",
            "occurrence.failed",
            "{{ event.payload.schedule_name }}: {{ event.payload.summary }} {{ event.payload.error }}",
            {"labels.team": "data"},
        )
        alert(server, receiver, "elsewhere", "occurrence.failed", "no", {"labels.team": "shop"})
        alert(server, receiver, "paused", "schedule.paused", "paused after {{ event.payload.failures_in_row }}")
        alert(server, receiver, "created", "schedule.created", "{{ event.payload.schedule_id }}")
        create(server, "another", NEVER, failing)
        first = run(server, "backup")
        eventually(lambda: posted(receiver, "failed"))
        run(server, "backup")
        assert eventually(lambda: posted(receiver, "paused")) == ["paused after 2"]
        assert eventually(lambda: posted(receiver, "created")) == ["another"]
        result = eventually(lambda: len(found := posted(receiver, "failed")) == 2 and found)
        assert all(one.startswith("the backup: The target reported a failure. ") for one in result)
        assert posted(receiver, "elsewhere") == []
        newest, oldest = events(server, "occurrence.failed")
        assert (oldest["source"], oldest["payload"]["occurrence_id"]) == ("noonmark", first)
        [set_off, _] = server.get("/schedules/failed/occurrences").json["occurrences"]
        assert set_off["origin"] == f"event:{newest['event_id']}"
        explained = server.get(f"/occurrences/{set_off['occurrence_id']}/explain").json
        assert newest["event_id"] in json.dumps(explained)
        found = server.ask("POST", "/events/match", {"schedule_id": "created"}).json
        assert [(one["payload"]["schedule_id"], one["why"]) for one in found["events"]] == [
            ("another", None),
            ("created", "chain: it is about this schedule itself, or follows from its own runs"),
        ]
        refused = server.ask("POST", "/events", {"event_type": "occurrence.failed", "source": "noonmark"})
        assert (refused.status, refused.json["code"]) == (400, "invalid_request")
        assert "source" in refused.text
        tried = {"schedule_name": "a try", "summary": "Nothing failed.", "error": "", "labels": {"team": "data"}}
        server.ask("POST", "/events", {"event_type": "occurrence.failed", "payload": tried})
        assert eventually(lambda: "a try: Nothing failed. " in posted(receiver, "failed"))
        assert server.stop() == 0


def test_a_failure_is_reported_although_the_node_was_killed(tmp_path, receiver):
    receiver.reset()
    options = ("--store", "sqlite:///killed.db", "--lease", LEASE)
    with serving(tmp_path, *options, name="first") as server:
        failing = {"target_kind": "http", "url": f"{receiver.url}/silent", "timeout_seconds": 20}
        create(server, "backup", NEVER, failing)
        alert(server, receiver, "failed", "occurrence.failed", "{{ event.payload.occurrence_id }}")
        alert(server, receiver, "lost", "node.lost", "{{ event.payload.node }}")
        occurrence = run(server, "backup")
        eventually(lambda: [path for _, path, _, _ in list(receiver.requests) if path == "/silent"])
        [node] = nodes(server)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    receiver.closing.set()  # from now on it hangs up at once
    with serving(tmp_path, *options, name="second") as server:
        assert eventually(lambda: posted(receiver, "failed")) == [occurrence]
        assert eventually(lambda: posted(receiver, "lost")) == [node["node"]]
        [event] = events(server, "occurrence.failed")
        [lost] = events(server, "node.lost")
        assert (event["payload"]["occurrence_id"], lost["payload"]["node"]) == (occurrence, node["node"])
        assert server.stop() == 0
    assert (posted(receiver, "failed"), posted(receiver, "lost")) == ([occurrence], [node["node"]])
