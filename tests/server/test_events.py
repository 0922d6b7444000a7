"""Events over HTTP: they trigger schedules over every transport, and repeated deliveries count once."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from noonmark import Scheduler
from noonmark.client import Client
from tests.cli.runner import call
from tests.embedded.waiting import eventually
from tests.server.live_server import GREET, serving

PREFIX = {"path": {"prefix": "/datasets/"}}
COMBINED = {"source": "desk", "path": {"contains": ".jsonl"}, "kind": ["dataset", "eval"]}
EVENTS = [
    ({"path": "/datasets/eval.jsonl", "bucket": "local"}, "cli"),
    ({"path": "/datasets/eval.jsonl", "kind": "eval"}, "desk"),
    ({"path": "/elsewhere/eval.jsonl", "kind": "dataset"}, "desk"),
    ({"path": "/datasets/eval.csv", "kind": "dataset"}, "desk"),
    ({"path": "/elsewhere/eval.jsonl", "kind": "other"}, "desk"),
    ({"kind": "eval"}, "desk"),
]
MATCHED = {"prefix": [0, 1, 3], "combined": [1, 2]}
"""Which of the events each of the filters matches."""
CLIENTS, TIMES = 10, 10


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    store = f"sqlite:///{tmp_path_factory.mktemp('events') / 'events.db'}"
    with serving(store, begins=True) as server:
        yield server


class ByCommand:
    def __init__(self, served):
        self.there = ("--server", served.url, "--json")

    def create(self, kind, filters):
        asked = ("--function", "greet", "--event", kind, "--filter-json", json.dumps(filters))
        return call("trigger", "create", *asked, *self.there).json["schedule_id"]

    def emit(self, kind, payload, source):
        call("event", "emit", kind, "--payload-json", json.dumps(payload), "--source", source, *self.there)


class ByRest:
    def __init__(self, served):
        self.served = served

    def create(self, kind, filters):
        trigger = {"type": "event", "event_type": kind, "filters": filters}
        return self.served.create(trigger=trigger, target=GREET)["schedule_id"]

    def emit(self, kind, payload, source):
        body = {"event_type": kind, "payload": payload, "source": source}
        assert self.served.client.post("/events", json=body).status_code == 202


class ByClient:
    def __init__(self, served):
        self.url = served.url

    def create(self, kind, filters):
        trigger = {"type": "event", "event_type": kind, "filters": filters}
        with Client(self.url) as client:
            return client.create(trigger=trigger, target=GREET).schedule_id

    def emit(self, kind, payload, source):
        with Client(self.url) as client:
            client.emit(kind, payload, source=source)


@pytest.mark.parametrize("door", [ByCommand, ByRest, ByClient])
def test_documented_filters_match_the_same_events_over_every_transport(served, door):
    by, kind = door(served), f"file_uploaded.{door.__name__}"
    made = {"prefix": by.create(kind, PREFIX), "combined": by.create(kind, COMBINED)}
    for payload, source in EVENTS:
        by.emit(kind, payload, source)
    with Client(served.url) as client:
        for name, schedule_id in made.items():
            wanted = MATCHED[name]
            eventually(lambda one=schedule_id, wanted=wanted: len(completed(client, one)) == len(wanted))
            asked = client.match_events(schedule_id=schedule_id)
            assert [one.matches for one in asked.events[::-1]] == [number in wanted for number in range(len(EVENTS))]
            assert (asked.checked, asked.matched) == (len(EVENTS), len(wanted))


def test_documented_filters_match_the_same_events_in_a_program():
    heard = {"prefix": [], "combined": []}
    with Scheduler() as scheduler:
        for name, filters in (("prefix", PREFIX), ("combined", COMBINED)):
            scheduler.on_event("file_uploaded", filters)(
                lambda context, name=name: heard[name].append(context.payload["number"])
            )
        for number, (payload, source) in enumerate(EVENTS):
            scheduler.emit("file_uploaded", {**payload, "number": number}, source=source)
        eventually(lambda: heard == MATCHED)


def completed(client, schedule_id):
    return list(client.occurrences(schedule_id, phase="completed"))


def emit_again_and_again(urls, kind):
    """The same event from many clients at once, many times each."""

    def send(number):
        with Client(urls[number % len(urls)]) as client:
            return {client.emit(kind, {"n": 1}, event_id=f"{kind}-1") for _ in range(TIMES)}

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert set().union(*pool.map(send, range(CLIENTS))) == {f"{kind}-1"}


def settled(url, kind, made):
    """What came of it, after an event that was emitted later has been worked off."""
    with Client(url) as client:
        client.emit(kind, {"n": 2}, event_id=f"{kind}-2")
        eventually(lambda: len(completed(client, made)) >= 2)
        return [one.origin for one in client.occurrences(made)][::-1], len(list(client.events(event_type=kind)))


def test_an_event_that_is_delivered_a_hundred_times_is_one_run(served):
    schedule_id = served.create(trigger={"type": "event", "event_type": "again"})["schedule_id"]
    emit_again_and_again([served.url], "again")
    assert settled(served.url, "again", schedule_id) == (["event:again-1", "event:again-2"], 2)


def test_two_servers_that_share_a_database_start_one_run(database):
    with serving(database.url, begins=True) as server, serving(database.url, begins=True) as other:
        schedule_id = server.create(trigger={"type": "event", "event_type": "again"})["schedule_id"]
        emit_again_and_again([server.url, other.url], "again")
        assert settled(other.url, "again", schedule_id) == (["event:again-1", "event:again-2"], 2)


def test_an_id_that_was_used_for_another_event_is_a_conflict(served):
    def emit(**body):
        answer = served.client.post("/events", json={"event_id": "reused", **body})
        assert answer.status_code == 202
        return answer.json()

    first = {"event_type": "used", "payload": {"n": 1}}
    assert emit(**first) == emit(**first) == {"event_id": "reused"}
    assert emit(**first, source="elsewhere") == {"event_id": "reused"}
    for other in ({**first, "payload": {"n": 2}}, {**first, "event_type": "other"}, {"event_type": "used"}):
        assert emit(**other) == {"event_id": "reused", "duplicate": True}
    [kept] = served.client.get("/events?event_type=used").json()["events"]
    assert (kept["payload"], kept["source"]) == ({"n": 1}, "rest")
