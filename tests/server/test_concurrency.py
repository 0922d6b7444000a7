"""Concurrent clients: one schedule per key, one winner per revision, and never more than the quota."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.quotas import Limits, Resource
from noonmark.operations import nodes
from noonmark.server.app import API_THREADS
from noonmark.server.handler_threads import HandlerThreads
from noonmark.server.requests import SMALL_BODY
from tests.embedded.waiting import SOON, eventually, together
from tests.server.live_server import GREET, NOON, serving
from tests.server.test_routes import problem


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    url = "memory://" if request.param == "memory" else f"sqlite:///{folder}/noonmark.db"
    limits = Limits(per_user={Resource.TASKS: {"*": 3}}, per_tenant={}, min_interval=3_600 * SECOND, max_budget_usd=10)
    with serving(url, limits=limits) as server:
        yield server


def at_once(served, count, ask):
    """What so many callers get, each by a connection of its own."""
    return together(count, lambda number: ask(served.client, number))


def test_one_key_makes_one_schedule(served):
    body, headers = {"name": "once", "trigger": NOON, "target": GREET}, {"Idempotency-Key": "only-once"}
    answers = at_once(served, 50, lambda client, _: client.post("/schedules", json=body, headers=headers))
    assert {one.status_code for one in answers} == {201}
    assert len({one.json()["schedule_id"] for one in answers}) == 1
    assert len(served.client.get("/schedules", params={"name": "once"}).json()["schedules"]) == 1
    other = served.client.post("/schedules", json={**body, "name": "twice"}, headers=headers)
    problem(other, 409, "idempotency_key_reused", "idempotency_key")
    in_body = served.client.post("/schedules", json={**body, "idempotency_key": "only-once"})
    assert in_body.json()["schedule_id"] == answers[0].json()["schedule_id"]
    both = served.client.post("/schedules", json={**body, "idempotency_key": "other"}, headers=headers)
    problem(both, 400, "invalid_request", "idempotency_key")
    assert served.client.post("/schedules", json=body).json()["schedule_id"] != in_body.json()["schedule_id"]


@pytest.mark.parametrize("by_header", [True, False])
def test_of_changes_to_one_revision_one_wins(served, by_header):
    path = f"/schedules/{served.create()['schedule_id']}"

    def change(client, number):
        body = {"trigger": {**NOON, "expression": f"{number} 13 * * *"}}
        if by_header:
            return client.patch(path, json=body, headers={"If-Match": '"1"'})
        return client.patch(path, json={**body, "expected_revision": 1})

    answers = at_once(served, 8, change)
    assert sorted(one.status_code for one in answers) == [200] + [412 if by_header else 409] * 7
    assert served.client.get(path).json()["revision"] == 2


@pytest.mark.parametrize("body", [{"name": "{}"}, {"labels": {"number": "{}"}}, {"description": "{}"}])
def test_of_changes_that_keep_the_revision_one_wins_too(served, body):
    schedule = served.create()
    path = f"/schedules/{schedule['schedule_id']}"
    tag = served.client.get(path).headers["etag"]

    def change(client, number):
        document = json.loads(json.dumps(body).replace("{}", str(number)))
        return client.patch(path, json=document, headers={"If-Match": tag})

    answers = at_once(served, 8, change)
    assert sorted(one.status_code for one in answers) == [200] + [412] * 7
    [won] = [one for one in answers if one.status_code == 200]
    assert won.headers["etag"] != tag
    assert served.client.get(path).headers["etag"] == won.headers["etag"]


def test_one_upsert_makes_one_schedule(served):
    body = {"workflow_id": "herd", "version": 1, "user_id": "u", "cron_expr": "0 5 * * *"}
    answers = at_once(served, 20, lambda client, _: client.post("/schedules/upsert", json=body))
    assert {(one.status_code, one.json()["schedule_id"], one.json()["revision"]) for one in answers} == {
        (200, answers[0].json()["schedule_id"], 1)
    }


def test_one_key_launches_one_run(served):
    greet = {"id": "greet", "target": {"target_kind": "function", "function": "greet"}}
    served.client.post("/workflows", json={"workflow_id": "launched", "steps": [greet]})
    query = {
        "workflow_id": "launched",
        "version": 1,
        "user_id": "u",
        "scheduled_for": "2024-01-01T00:00:00Z",
        "idempotency_key": "abc123",
    }
    answers = at_once(served, 20, lambda client, _: client.post("/run-launcher/start", params=query))
    assert {(one.status_code, one.json()["run_id"]) for one in answers} == {(200, answers[0].json()["run_id"])}


def test_concurrent_creates_never_exceed_the_quota(served):
    body = {"name": "task", "cron_expression": "0 9 * * *", "task_query": "What is new?", "user_id": "crowd"}
    answers = at_once(served, 20, lambda client, _: client.post("/api/v1/schedules", json=body))
    assert sorted(one.status_code for one in answers) == [201] * 3 + [429] * 17


class CreatesTogether:
    """Keeps the first create of a server waiting until others have come; counts how many are stored at once."""

    def __init__(self, store, others, monkeypatch):
        self.sizes, self._come, self._others = [], [], others
        self._create_each, call_in_group = store.create_each, HandlerThreads.call_in_group

        def count(threads, *call):
            self._come.append(call)
            return call_in_group(threads, *call)

        monkeypatch.setattr(store, "create_each", self.create_each)
        monkeypatch.setattr(HandlerThreads, "call_in_group", count)

    def create_each(self, plans):
        self.sizes.append(len(plans))
        if len(self.sizes) == 1:
            eventually(lambda: len(self._come) == 1 + self._others)
        return self._create_each(plans)


def test_creates_that_come_together_are_stored_together_and_each_has_its_own_answer(served, monkeypatch):
    usual, upstream = {"trigger": NOON, "target": GREET}, served.create()["schedule_id"]
    bodies = [
        *({**usual, "name": f"pooled {number}"} for number in range(5)),
        {**usual, "schedule_id": "taken-together"},
        {**usual, "schedule_id": "taken-together"},
        {**usual, "schedule_id": "after", "depends_on": [{"schedule_id": upstream}]},
        {**usual, "trigger": {"type": "cron", "expression": "0 9 * * * * *"}},
    ]
    creates = CreatesTogether(served.service.store, len(bodies), monkeypatch)

    def ask(client, number):
        body = usual if number == len(bodies) else bodies[number]
        return number, client.post("/schedules", json=body, headers={"X-Request-Id": f"together-{number}"})

    asked = dict(at_once(served, len(bodies) + 1, ask))
    answers = [asked[number] for number in range(len(bodies))]
    assert sum(creates.sizes) == len(bodies), "the document that cannot be read is not stored"
    assert max(creates.sizes) > len(bodies) // 2
    assert [one.headers["X-Request-Id"] for one in answers] == [f"together-{number}" for number in range(len(bodies))]
    assert sorted(one.status_code for one in answers[5:7]) == [201, 409]
    assert [one.status_code for one in (*answers[:5], *answers[7:])] == [*[201] * 6, 400]
    for number, answer in enumerate(answers[:5]):
        created = served.client.get(answer.headers["Location"]).json()
        assert created == answer.json()
        assert created["name"] == f"pooled {number}"


@pytest.mark.parametrize(
    "request_of",
    [
        {"headers": {"Idempotency-Key": "by-header"}},
        {"json": {"idempotency_key": "in-body"}},
        {"json": {"target": {**GREET, "payload": "x" * SMALL_BODY}}},
    ],
    ids=["header", "body", "large"],
)
def test_a_create_with_a_key_or_a_large_body_lets_no_other_wait(served, monkeypatch, request_of):
    monkeypatch.setattr(HandlerThreads, "call_in_group", None)
    body = {"trigger": NOON, "target": GREET, **request_of.get("json", {})}
    answer = served.client.post("/schedules", json=body, headers=request_of.get("headers"))
    assert answer.status_code == 201, answer.text


class ReadsTogether:
    """Keeps the first look-up of a server waiting until others have come; notes the thread of each."""

    def __init__(self, store, others, monkeypatch):
        self.threads, self._come, self._others = [], [], others
        self._find, call_in_turn = store.find, HandlerThreads.call_in_turn

        def count(threads, *call):
            self._come.append(call)
            return call_in_turn(threads, *call)

        monkeypatch.setattr(store, "find", self.find)
        monkeypatch.setattr(HandlerThreads, "call_in_turn", count)

    def find(self, *query, **options):
        self.threads.append(threading.current_thread())
        if len(self.threads) == 1:
            eventually(lambda: len(self._come) == 1 + self._others)
        return self._find(*query, **options)


def test_look_ups_that_come_together_take_turns_and_each_has_its_own_answer(served, monkeypatch):
    schedules = [served.create(name=f"looked up {number}") for number in range(15)]
    ids = [one["schedule_id"] for one in schedules]
    ids.insert(7, "unknown")
    reads = ReadsTogether(served.service.store, 16, monkeypatch)

    def ask(client, number):
        path = f"/schedules/{ids[number % 16]}"
        return number, client.get(path, headers={"X-Request-Id": f"look-up-{number}"})

    asked = dict(at_once(served, 17, ask))
    assert len(reads.threads) == 17
    assert len(set(reads.threads)) < 17 // 2
    assert [asked[number].headers["X-Request-Id"] for number in range(17)] == [f"look-up-{n}" for n in range(17)]
    problem(asked[7], 404, "not_found", "schedule_id")
    found = [asked[number].json()["name"] for number in range(16) if number != 7]
    assert found == [f"looked up {number}" for number in range(15)]


def test_a_slow_read_does_not_hold_up_the_quick_ones(served, monkeypatch):
    entered, opened = threading.Event(), threading.Event()

    def stuck(service, caller, arguments):
        entered.set()
        assert opened.wait(SOON)
        return {"nodes": []}

    monkeypatch.setattr(nodes, "list_nodes", stuck)
    path = f"/schedules/{served.create()['schedule_id']}"
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(served.client.get, "/nodes")
        try:
            assert entered.wait(SOON)
            answers = at_once(served, 16, lambda client, _: client.get(path))
            assert {one.status_code for one in answers} == {200}
            assert served.client.get("/schedules?limit=50").status_code == 200
            assert not slow.done()
        finally:
            opened.set()
        assert slow.result(SOON).status_code == 200


TURNS = {
    "/schedules/{id}": True,
    "/schedules/{id}?include_deleted=true": True,
    "/schedules/{id}/runs?limit=50": True,
    "/schedules/{id}/runs": False,
    "/schedules/{id}/explain": False,
    "/schedules?limit=50": True,
    "/schedules?limit=1&cursor={cursor}": True,
    "/schedules?cursor={cursor}&limit=1": True,
    "/schedules": False,
    "/schedules?limit=51": False,
    "/schedules?limit=50&name=other": False,
    "/schedules?name=other&limit=50": False,
    "/schedules?limit=50&phase=paused": False,
    "/schedules?limit=50&offset=1000": False,
    "/occurrences?limit=50": False,
}


@pytest.mark.parametrize("path", TURNS)
def test_reads_that_may_take_long_let_no_other_wait(served, monkeypatch, path):
    come, call_in_turn = [], HandlerThreads.call_in_turn

    def count(threads, *call):
        come.append(call)
        return call_in_turn(threads, *call)

    schedule_id, _ = (served.create()["schedule_id"] for _ in range(2))
    cursor = served.client.get("/schedules?limit=1").json()["next_cursor"]
    monkeypatch.setattr(HandlerThreads, "call_in_turn", count)
    answer = served.client.get(path.format(id=schedule_id, cursor=cursor))
    assert answer.status_code == 200, answer.text
    assert len(come) == TURNS[path]


def test_a_repeated_request_is_not_rejected_by_the_quota(served):
    body = {"name": "task", "cron_expression": "0 9 * * *", "task_query": "What is new?", "user_id": "full"}
    sent = [
        served.client.post("/api/v1/schedules", json=body, headers={"Idempotency-Key": f"full-{number}"})
        for number in (1, 2, 3, 4, 3)
    ]
    assert [one.status_code for one in sent] == [201, 201, 201, 429, 201]
    assert sent[4].json()["schedule_id"] == sent[2].json()["schedule_id"]


def test_one_event_id_is_one_event(served):
    body = {"event_type": "herd", "event_id": "the-one"}
    answers = at_once(served, 20, lambda client, _: client.post("/events", json=body))
    assert {one.status_code for one in answers} == {202}
    assert len(served.client.get("/events?event_type=herd").json()["events"]) == 1


def test_health_is_answered_while_every_other_request_waits_for_the_store(served, monkeypatch):
    entered, opened = threading.Semaphore(0), threading.Event()

    def stuck(service, caller, arguments):
        entered.release()
        assert opened.wait(SOON)
        return {"nodes": []}

    monkeypatch.setattr(nodes, "list_nodes", stuck)
    with ThreadPoolExecutor(API_THREADS + 10) as pool:
        waiting = [pool.submit(served.client.get, "/nodes") for _ in range(API_THREADS + 10)]
        try:
            for _ in range(API_THREADS):
                assert entered.acquire(timeout=SOON)
            for path in ("/health", "/health/live", "/health/ready"):
                assert served.client.get(path).status_code == 200
            assert not any(one.done() for one in waiting)
        finally:
            opened.set()
        assert {one.result(SOON).status_code for one in waiting} == {200}
