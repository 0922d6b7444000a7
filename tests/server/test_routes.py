"""Every canonical route over a real socket: status, headers and document."""

import re
import threading
from contextlib import ExitStack

import pytest
from starlette.routing import Match

from noonmark.operations.schedules import RESERVED_IDS
from noonmark.operations.table import OPERATIONS
from noonmark.server.app import HEALTH_THREADS
from noonmark.server.routes import ROUTES
from tests.embedded.waiting import SOON, eventually
from tests.server.live_server import GREET, NOON, serving


@pytest.fixture(scope="module")
def served():
    with serving(begins=True) as server:
        yield server


def test_every_path_finds_the_route_that_trying_all_of_them_finds(served):
    router = served.app.router
    for path in [re.sub(r"{[^}]*}", "x", route.path) for route in router.routes]:
        for asked in (path, f"{path}/", f"{path}/x", f"/x{path}", f"/under{path}"):
            scope = {"type": "http", "path": asked, "method": "GET", "root_path": "/under"}
            tried = [route for route in router.routes if route.matches(scope)[0] is Match.FULL]
            found = router.find(scope)
            assert found is None or found[0] is tried[0], asked
            assert found is not None or asked != path, "its own path is found without trying all"


def one_of(served, schedule_id):
    return served.client.get(f"/schedules/{schedule_id}").json()


def problem(answer, status, code, field=None):
    """The problem document of an answer."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["code"] == code
    assert told["detail"]
    assert told["title"]
    assert told["type"].endswith(code)
    assert told["request_id"] == answer.headers["x-request-id"]
    assert told.get("field") == field
    return told


def test_every_operation_has_a_route():
    assert {route.operation for route in ROUTES} == set(OPERATIONS)


def test_every_argument_of_a_route_is_one_of_its_operation():
    for route in ROUTES:
        known = {*OPERATIONS[route.operation].parameters, "user_id"}
        assert set(route.query) <= known
        assert {route.key} - {None} <= known


def test_a_schedule_is_created_read_changed_and_deleted(served):
    answer = served.client.post("/schedules", json={"name": "noon", "trigger": NOON, "target": GREET})
    document = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/schedules/{document['schedule_id']}"
    tag = f'"1-{answer.json()["updated_at_utc"]}"'
    assert answer.headers["etag"] == tag
    assert document["source"] == "rest"
    read = served.client.get(answer.headers["location"])
    assert (read.status_code, read.headers["etag"], read.json()) == (200, tag, document)
    changed = served.client.patch(answer.headers["location"], json={"trigger": {**NOON, "expression": "0 13 * * *"}})
    assert (changed.status_code, changed.headers["etag"][:3], changed.json()["revision"]) == (200, '"2-', 2)
    gone = served.client.delete(answer.headers["location"], params={"reason": "enough"})
    assert (gone.status_code, gone.json()["phase"]) == (200, "deleted")
    problem(served.client.get(answer.headers["location"]), 404, "not_found", "schedule_id")
    assert (
        served.client.get(answer.headers["location"], params={"include_deleted": "true"}).json()["phase"] == "deleted"
    )


def test_head_gives_what_get_gives_without_the_body(served):
    schedule = served.create()
    answer = served.client.head(f"/schedules/{schedule['schedule_id']}")
    tag = f'"1-{schedule["updated_at_utc"]}"'
    assert (answer.status_code, answer.headers["etag"], answer.content) == (200, tag, b"")
    assert int(answer.headers["content-length"]) > 100


@pytest.mark.parametrize("tag", ['"1"', "*", '"7", "1"', "1"])
def test_a_change_on_condition_of_the_present_revision_is_made(served, tag):
    path = f"/schedules/{served.create()['schedule_id']}"
    answer = served.client.patch(path, json={"max_runs": 3}, headers={"If-Match": tag})
    assert (answer.status_code, answer.json()["revision"]) == (200, 2)
    assert served.client.delete(path, headers={"If-Match": '"2"'}).status_code == 200


@pytest.mark.parametrize("tag", ['"7"', 'W/"1"', '"one"', '""', '"99999999999999999999"'])
@pytest.mark.parametrize(("method", "verb"), [("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")])
def test_a_change_on_condition_of_another_revision_is_refused(served, tag, method, verb):
    path = f"/schedules/{served.create()['schedule_id']}"
    answer = served.client.request(method, f"{path}{verb}", json={}, headers={"If-Match": tag})
    problem(answer, 412, "revision_conflict", "If-Match")
    response = served.client.request(method, f"{path}{verb}", json={"expected_revision": 7})
    problem(response, 409, "revision_conflict", "expected_revision")
    assert served.client.get(path).json()["phase"] == "active"


def test_a_revision_in_the_body_that_is_not_the_present_one_is_a_conflict(served):
    path = f"/schedules/{served.create()['schedule_id']}"
    problem(
        served.client.patch(path, json={"expected_revision": 7, "max_runs": 1}),
        409,
        "revision_conflict",
        "expected_revision",
    )
    refused = served.client.patch(path, json={}, headers={"If-Match": "three"})
    problem(refused, 400, "invalid_request", "If-Match")
    assert 'must be the whole ETag of a schedule, such as "3-' in refused.text.replace("\\", "")
    problem(
        served.client.patch(path, json={"expected_revision": 7}, headers={"If-Match": '"1"'}),
        400,
        "invalid_request",
        "expected_revision",
    )


def test_pause_and_resume_need_no_body(served):
    path = f"/schedules/{served.create()['schedule_id']}"
    paused = served.client.post(f"{path}/pause")
    assert (paused.status_code, paused.json()["phase"], "etag" in paused.headers) == (200, "paused", True)
    assert served.client.post(f"{path}/resume", json={"reason": "go on"}).json()["phase"] == "active"
    problem(served.client.post(f"{path}/pause", json={"because": "x"}), 400, "invalid_request", "because")


def test_a_run_that_is_asked_for_is_accepted_and_can_be_followed(served):
    schedule_id = served.create()["schedule_id"]
    path = f"/schedules/{schedule_id}"
    accepted = served.client.post(f"{path}/run", json={"payload": "you"}, headers={"Idempotency-Key": "one"})
    one = accepted.json()
    assert (accepted.status_code, one["schedule_id"], one["payload"]) == (202, schedule_id, "you")
    again = served.client.post(f"{path}/run", json={"payload": "you", "key": "one"})
    assert again.json()["occurrence_id"] == one["occurrence_id"]
    where = f"/occurrences/{one['occurrence_id']}"
    eventually(lambda: served.client.get(where).json()["phase"] == "completed")
    [run] = served.client.get(f"{where}/runs").json()["runs"]
    assert run["result"] == "hello you"
    assert served.client.get(f"/runs/{run['run_id']}").json() == run
    assert served.client.get(f"{path}/runs", params={"limit": 10}).json() == {"runs": [run], "next_cursor": None}
    listed = served.client.get(f"{path}/occurrences", params={"phase": "completed"}).json()
    assert [found["occurrence_id"] for found in listed["occurrences"]] == [one["occurrence_id"]]
    explained = served.client.get(f"{where}/explain").json()
    assert (explained["phase"], explained["occurrence_id"]) == ("completed", one["occurrence_id"])
    assert {"rule", "decision", "facts"} <= explained["steps"][0].keys()
    assert served.client.get(f"{path}/explain", params={"at": one["nominal_at_utc"]}).json()["summary"]
    problem(served.client.post(f"{where}/complete", json={"result": 1}), 409, "conflict")
    problem(served.client.post(f"{where}/fail"), 409, "conflict")
    problem(served.client.post(f"{where}/cancel", json={"reason": "late"}), 409, "conflict")
    assert one_of(served, schedule_id)["counters"]["successful"] == 1


def test_past_times_are_run_again(served):
    trigger = {"type": "cron", "expression": "0 12 * * *", "start_at_utc": "2026-01-01T00:00:00Z"}
    path = f"/schedules/{served.create(trigger=trigger)['schedule_id']}/backfill"
    asked = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T23:00:00Z"}
    dry = served.client.post(path, json={**asked, "dry_run": True}).json()
    assert (dry["backfill_id"], dry["count"]) == (None, 3)
    wet = served.client.post(path, json=asked)
    assert (wet.status_code, wet.json()["count"]) == (200, 3)
    problem(served.client.post(path), 400, "invalid_request")
    problem(served.client.post(path, json={"from": "2026-01-01T00:00:00Z"}), 400, "invalid_request", "to")


def test_times_are_previewed(served):
    asked = {"trigger": NOON, "count": 2, "after": "2030-01-01T00:00:00Z"}
    bare = served.client.post("/schedules/preview", json=asked).json()
    assert bare["fires"] == ["2030-01-01T11:00:00Z", "2030-01-02T11:00:00Z"]
    assert "12:00" in bare["description"]
    path = f"/schedules/{served.create()['schedule_id']}/preview"
    assert served.client.get(path, params={"count": 2, "after": "2030-01-01T00:00:00Z"}).json() == bare
    # As people type it, without escaping the plus sign.
    assert served.client.get(f"{path}?count=2&after=2030-01-01T01:00:00+01:00").json() == bare


def test_events_are_emitted_once_and_listed(served):
    sent = {"event_type": "file_uploaded", "payload": {"name": "a.csv"}, "event_id": "up-1", "source": "test"}
    for _ in range(2):
        answer = served.client.post("/events", json=sent)
        assert (answer.status_code, answer.json()) == (202, {"event_id": "up-1"})
    listed = served.client.get("/events", params={"event_type": "file_uploaded"}).json()
    assert [one["event_id"] for one in listed["events"]] == ["up-1"]
    problem(served.client.post("/events", json={"payload": {}}), 400, "invalid_request", "event_type")


def test_nodes_and_the_audit_log_are_listed(served):
    schedule_id = served.create()["schedule_id"]
    served.client.post(f"/schedules/{schedule_id}/pause", json={"reason": "a break"}, headers={"X-Request-Id": "mine"})
    entries = served.client.get("/audit", params={"schedule_id": schedule_id}).json()["entries"]
    assert [one["operation"] for one in entries] == ["schedule/pause", "schedule/create"]
    assert (entries[0]["reason"], entries[0]["request_id"]) == ("a break", "mine")
    assert [one["is_alive"] for one in served.client.get("/nodes").json()["nodes"]] == [True]


def test_the_worker_is_stopped_and_started():
    with serving() as server:
        assert server.client.get("/worker/status").json()["status"] == "stopped"
        started = server.client.post("/worker/start")
        assert (started.status_code, started.json()["status"]) == (200, "running")
        assert server.client.post("/worker/stop", json={}).json()["status"] == "stopped"
        problem(server.client.post("/worker/stop", json={"now": True}), 400, "invalid_request", "now")


def test_lists_have_filters_and_pages(served):
    for number in range(5):
        labels = {"team": "lists", "odd": str(number % 2)}
        served.create(name=f"listed {number}", labels=labels, user_id="lister")
    page = {"label": "team=lists", "limit": 2}
    first = served.client.get("/schedules", params=page).json()
    second = served.client.get("/schedules", params={**page, "cursor": first["next_cursor"]}).json()
    last = served.client.get("/schedules", params={**page, "cursor": second["next_cursor"]}).json()
    pages = [first, second, last]
    assert [one["name"] for found in pages for one in found["schedules"]] == [f"listed {number}" for number in range(5)]
    assert last["next_cursor"] is None

    def names(query):
        return {one["name"] for one in served.client.get(f"/schedules?{query}").json()["schedules"]}

    assert names("label=team=lists&label=odd=1") == {"listed 1", "listed 3"}
    assert names("text=listed&kind=periodic&owner=lister&phase=active&newest_first=true&limit=1") == {"listed 4"}
    assert names("user_id=lister&offset=4") == {"listed 4"}
    assert served.client.get("/schedules/count?user_id=lister").json() == {"count": 5}


@pytest.mark.parametrize("schedule_id", RESERVED_IDS)
@pytest.mark.parametrize("path", ["/schedules", "/schedules/upsert"])
def test_an_id_that_no_path_can_address_is_rejected(served, path, schedule_id):
    body = {"schedule_id": schedule_id, "trigger": NOON, "target": GREET}
    problem(served.client.post(path, json=body), 400, "invalid_schedule", "schedule_id")


def test_reserved_path_segments_are_rejected_as_ids():
    words = {route.path.split("/")[2] for route in ROUTES if route.path.startswith("/schedules/")}
    assert {word for word in words if "{" not in word} <= set(RESERVED_IDS)


def test_an_id_that_is_taken_is_a_conflict(served):
    served.create(schedule_id="taken")
    answer = served.client.post("/schedules", json={"schedule_id": "taken", "trigger": NOON, "target": GREET})
    problem(answer, 409, "conflict", "schedule_id")


NOWHERE = ["/", "/schedule", "/schedules/", "/schedules//runs", "/SCHEDULES", "/schedules/x/y/z", "/rpc/", "/redoc"]


@pytest.mark.parametrize("path", NOWHERE)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_not_found(served, path, method):
    problem(served.client.request(method, path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/schedules", "GET, HEAD, POST"),
        ("GET", "/schedules/preview", "POST"),
        ("OPTIONS", "/schedules/x", "DELETE, GET, HEAD, PATCH"),
        ("TRACE", "/health", "GET, HEAD"),
        ("GET", "/worker/start", "POST"),
        ("GET", "/rpc", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
        ("PATCH", "/api/v1/schedules/x", "DELETE, GET, HEAD, PUT"),
    ],
)
def test_another_method_is_rejected_with_the_allowed_ones(served, method, path, allowed):
    answer = served.client.request(method, path)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


def test_json_rpc_is_served_too(served):
    call = {"jsonrpc": "2.0", "id": 1, "method": "schedule/count", "params": {"owner": "nobody"}}
    answer = served.client.post("/rpc", json=call)
    assert (answer.status_code, answer.json()) == (200, {"jsonrpc": "2.0", "result": {"count": 0}, "id": 1})
    call.pop("id")
    assert served.client.post("/rpc", json=call).status_code == 204
    assert served.client.post("/rpc", json={**call, "id": 2, "method": "none"}).json()["error"]["code"] == -32601


class Watched:
    """A process that is asked how it is."""

    def __init__(self):
        self.is_ready = True
        self.asked, self.answers = threading.Semaphore(0), threading.Event()
        self.answers.set()

    def summary(self):
        return {"status": "healthy", "service": "noonmark"}

    def live(self):
        return {"status": "alive"}

    def ready(self):
        self.asked.release()
        self.answers.wait()
        return self.is_ready, {"status": "ready" if self.is_ready else "not_ready"}

    def render(self):
        return b"noonmark_schedules_due 0\n"


def test_health_routes_report_the_state():
    watched = Watched()
    with serving(health=watched, metrics=watched) as server:
        assert server.client.get("/health").json()["service"] == "noonmark"
        assert server.client.get("/health/live").json() == {"status": "alive"}
        assert server.client.get("/health/ready").status_code == 200
        watched.is_ready = False
        answer = server.client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"status": "not_ready"})
        counted = server.client.get("/metrics")
        assert counted.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert counted.text == "noonmark_schedules_due 0\n"
        problem(server.client.get("/health?deep=1"), 400, "invalid_request", "deep")


def test_liveness_does_not_wait_for_readiness():
    watched = Watched()
    with serving(health=watched) as server, ExitStack() as until:
        until.callback(watched.answers.set)
        watched.answers.clear()
        for _ in range(HEALTH_THREADS):
            line = until.enter_context(server.connect())
            line.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert watched.asked.acquire(timeout=SOON)
        for path in ("/health", "/health/live"):
            assert server.client.get(path).status_code == 200


def test_without_metrics_the_route_is_not_found(served):
    problem(served.client.get("/metrics"), 404, "not_found")
    assert served.client.get("/health").json()["status"] == "healthy"
