"""Every operation through both clients, on a real server: what comes back is typed, and errors are errors."""

import inspect
import subprocess
import sys
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import (
    Conflict,
    CronTrigger,
    IntervalTrigger,
    InvalidRequest,
    InvalidSchedule,
    InvalidTrigger,
    KeyReused,
    MethodNotFound,
    NoonmarkError,
    NotFound,
    OnceTrigger,
    RevisionConflict,
    TriggerNeverFires,
)
from noonmark.client import AsyncClient, Client, Counters, Owner, Schedule, requests
from noonmark.operations.models import answers
from noonmark.operations.models.answers import read
from noonmark.operations.table import OPERATIONS
from tests.client.scripted_proxy import CLIENTS
from tests.embedded.waiting import eventually
from tests.server.live_server import GREET, NOON, serving

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def served():
    with serving(begins=True) as served:
        yield served


@pytest.fixture(params=CLIENTS)
def client(request, served):
    with CLIENTS[request.param](served.url) as client:
        yield client


def create(client, **fields):
    return client.create(**{"trigger": NOON, "target": GREET, **fields})


class TestSchedules:
    def test_what_is_created_is_a_value_with_instants(self, client):
        schedule = create(client, name="greet", labels={"team": "ops"}, trigger=CronTrigger("0 12 * * *"))
        assert isinstance(schedule, Schedule)
        assert (schedule.name, schedule.phase, schedule.revision, schedule.labels) == (
            "greet",
            "active",
            1,
            {"team": "ops"},
        )
        assert (schedule.owner, schedule.counters) == (
            Owner(tenant="default", user="local"),
            Counters(total=0, successful=0, failed=0, missed=0, skipped=0),
        )
        assert schedule.next_run_at == schedule.next_fire_times[0]
        assert schedule.next_run_at.utcoffset() == timedelta(0)
        assert (schedule.next_run_at.hour, len(schedule.next_fire_times), schedule.deleted_at_utc) == (12, 5, None)
        assert schedule.document["overlap_policy"] == "skip"
        assert client.get(schedule.schedule_id) == schedule

    def test_declared_again_it_is_the_same(self, client):
        one = client.upsert(schedule_id="declared", trigger=NOON, target=GREET)
        assert client.upsert(schedule_id="declared", trigger=NOON, target=GREET).revision == one.revision
        other = client.upsert(schedule_id="declared", trigger=IntervalTrigger(60), target=GREET)
        assert other.revision == one.revision + 1

    def test_a_change_names_the_revision_it_was_made_for(self, client):
        schedule_id = create(client, name="a name", description="words").schedule_id
        changed = client.update(schedule_id, expected_revision=1, trigger={"type": "interval", "every_seconds": 60})
        assert (changed.revision, changed.name, changed.trigger["type"]) == (2, "a name", "interval")
        with pytest.raises(RevisionConflict) as refused:
            client.update(schedule_id, expected_revision=1, trigger=NOON)
        assert refused.value.field == "expected_revision"
        taken_back = client.update(schedule_id, name=None, description=None)
        assert (taken_back.name, taken_back.description, taken_back.revision) == (None, "", 2)

    def test_steered_and_written_down(self, client):
        schedule_id = create(client).schedule_id
        assert client.pause(schedule_id, reason="a holiday & more").phase == "paused"
        assert client.resume(schedule_id).phase == "active"
        assert client.delete(schedule_id, reason="no longer & never again").phase == "deleted"
        with pytest.raises(NotFound):
            client.get(schedule_id)
        assert client.get(schedule_id, include_deleted=True).deleted_at_utc is not None
        entries = list(client.audit(schedule_id=schedule_id, page_size=3))
        assert [(entry.operation, entry.reason) for entry in entries] == [
            ("schedule/delete", "no longer & never again"),
            ("schedule/resume", None),
            ("schedule/pause", "a holiday & more"),
            ("schedule/create", None),
        ]

    def test_all_pages_are_gone_through(self, client):
        label = f"pages-{type(client).__name__}"
        names = [create(client, name=f"n{number}", labels={label: "a=b&c", "x": ""}).name for number in range(5)]
        create(client, labels={label: "other"})
        asked = {"labels": {label: "a=b&c", "x": ""}, "phase": ["active", "paused"], "kind": "cron"}
        for size in (None, 1, 2, 5, 1_000):
            assert [one.name for one in client.list(**asked, page_size=size)] == names
        assert [one.name for one in client.list(**asked, newest_first=True, page_size=2)] == names[::-1]
        assert client.count(**asked) == 5
        assert list(client.list(labels={label: "nobody"})) == []

    def test_previews(self, client):
        schedule_id = create(client).schedule_id
        after = datetime(2026, 3, 27, tzinfo=UTC)
        wanted = [datetime(2026, 3, 27, 11, tzinfo=UTC), datetime(2026, 3, 28, 11, tzinfo=UTC)]
        for what in (schedule_id, NOON, CronTrigger("0 12 * * *", timezone="Europe/Stockholm")):
            seen = client.preview(what, after=after, count=2)
            assert (seen.fires, "12:00" in seen.description, seen.warnings) == (wanted, True, [])
        hashed = {"type": "cron", "expression": "H H * * *"}
        assert len({tuple(client.preview(hashed, key=key).fires) for key in ("a", "b", "c")}) > 1


class TestRuns:
    def test_a_run_from_its_beginning_to_its_reasons(self, client):
        schedule_id = create(client).schedule_id
        added = client.run_now(schedule_id, payload="world", overlap="allow")
        assert (added.schedule_id, added.payload) == (schedule_id, "world")
        done = eventually(lambda: (seen := client.occurrence(added.occurrence_id)).phase == "completed" and seen)
        assert done in list(client.occurrences(schedule_id, phase="completed", page_size=1))
        assert done not in list(client.occurrences(schedule_id, include_terminal=False))
        [run] = client.runs(schedule_id, page_size=1)
        assert (run.outcome, run.result, run.ended_at_utc >= run.started_at_utc) == ("completed", "hello world", True)
        assert client.run(run.run_id) == run
        assert client.occurrence_runs(added.occurrence_id) == [run]
        explained = client.explain(added.occurrence_id)
        assert (explained.occurrence_id, explained.phase, len(explained.steps) > 3) == (
            added.occurrence_id,
            "completed",
            True,
        )
        assert client.explain_at(schedule_id, done.nominal_at_utc + HOUR).summary.endswith(".")
        for end in (client.complete, client.fail, client.cancel):
            with pytest.raises(Conflict):
                end(added.occurrence_id)

    def test_the_same_key_is_the_same_run(self, client):
        schedule_id = create(client).schedule_id
        assert len({client.run_now(schedule_id, key="k").occurrence_id for _ in range(3)}) == 1
        assert len({client.run_now(schedule_id, overlap="allow").occurrence_id for _ in range(3)}) == 3

    def test_past_times_are_run_again(self, client):
        now = datetime(2026, 3, 1, tzinfo=UTC)
        start = {"type": "interval", "every_seconds": 3_600, "start_at_utc": "2026-02-01T00:00:00Z"}
        schedule_id = create(client, trigger=start).schedule_id
        tried = client.backfill(schedule_id, now - 2 * HOUR, now, dry_run=True)
        assert (tried.backfill_id, tried.count) == (None, 3)
        assert [row.nominal_at_utc for row in tried.occurrences] == [now - 2 * HOUR, now - HOUR, now]
        done = client.backfill(schedule_id, "2026-02-28T22:00:00Z", "2026-03-01T00:00:00Z", concurrency=2, key="b1")
        assert (done.backfill_id, done.count) == ("b1", 3)

    def test_what_waits_is_cancelled(self, client):
        unserved = create(client, target={"target_kind": "workflow", "workflow_id": "nobody"}).schedule_id
        waiting = next(client.occurrences(unserved, phase="pending"))
        assert client.cancel(waiting.occurrence_id, reason="never mind").phase == "cancelled"


class TestTheRest:
    def test_events_are_kept_once_under_their_id(self, client):
        kind = f"told.by.{type(client).__name__}"
        ids = [client.emit(kind, {"n": number}, source="here") for number in range(3)]
        assert [client.emit(kind, {"n": 9}, event_id="own-" + kind) for _ in range(2)] == ["own-" + kind] * 2
        kept = list(client.events(event_type=kind, page_size=2))
        assert [one.event_id for one in kept] == ["own-" + kind, *ids[::-1]]
        assert (kept[-1].payload, kept[-1].source, kept[-1].emitted_at.tzinfo) == ({"n": 0}, "here", UTC)

    def test_the_server_itself(self, client):
        assert client.health()["status"]
        # One that was stopped and started again has another name.
        node = eventually(lambda: next((one for one in client.nodes() if one.is_alive), None))
        assert ("function:greet" in node.routes, node.left_at_utc) == (True, None)
        assert client.worker_status().status == "running"
        assert client.worker_stop().status == "stopped"
        assert client.worker_start().worker_status["running"]

    def test_any_operation_by_its_name(self, client):
        answer = client.call("schedule/create", {"trigger": NOON, "target": GREET, "name": "by name"})
        assert client.call("schedule/get", {"schedule_id": answer["schedule_id"]})["name"] == "by name"
        assert client.call("node/list")["nodes"]


class TestErrors:
    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            (InvalidTrigger, {"trigger": {"type": "cron", "expression": "x"}}),
            (TriggerNeverFires, {"trigger": {"type": "cron", "expression": "0 0 30 2 *"}}),
            (InvalidSchedule, {"target": {"target_kind": "nothing"}}),
            (InvalidSchedule, {"name": "", "max_runs": 0, "target": {}}),
            (InvalidRequest, {"user_id": 7}),
        ],
    )
    def test_they_are_those_of_the_operation(self, client, kind, fields):
        with pytest.raises(kind) as over_rest:
            create(client, **fields)
        with pytest.raises(kind) as over_rpc:
            client.call("schedule/create", {"trigger": NOON, "target": GREET, **fields})
        first, second = over_rest.value, over_rpc.value
        assert type(first) is type(second) is kind
        assert (first.message, first.field, first.problems) == (second.message, second.field, second.problems)
        assert first.field
        assert len(first.problems) >= ("max_runs" in fields) + 1
        assert "request" in first.__notes__[0]

    def test_other_kinds(self, client):
        with pytest.raises(NotFound, match="there is no schedule 'nowhere'"):
            client.get("nowhere")
        with pytest.raises(InvalidRequest):
            list(client.list(phase="asleep"))
        with pytest.raises(MethodNotFound):
            client.call("schedule/explode")
        create(client, schedule_id=f"taken-{type(client).__name__}")
        with pytest.raises(Conflict):
            create(client, schedule_id=f"taken-{type(client).__name__}")
        key = f"key-{type(client).__name__}"
        assert create(client, idempotency_key=key) == create(client, idempotency_key=key)
        with pytest.raises(KeyReused):
            create(client, idempotency_key=key, name="another")

    @pytest.mark.parametrize("one", ["", ".", "..", None, 7])
    def test_an_id_that_would_lead_elsewhere_is_not_sent(self, client, one):
        with pytest.raises(InvalidRequest) as refused:
            client.pause(one)
        assert refused.value.field == "schedule_id"

    @pytest.mark.parametrize("one", ["../worker/stop", "a/b", "a?b=1", "a#b", "a%2fb", "é", "a\r\nb", " "])
    def test_an_id_stays_one_part_of_the_path(self, client, one):
        with pytest.raises((InvalidRequest, NotFound)):
            client.pause(one)
        assert client.worker_status().status == "running"

    @pytest.mark.parametrize(
        "payload", [float("nan"), {1, 2}, object(), "\ud800"], ids=["NaN", "a set", "an object", "half a character"]
    )
    def test_invalid_json_is_not_sent(self, client, payload):
        with pytest.raises(InvalidSchedule):
            client.emit("t", payload)

    @pytest.mark.parametrize("url", ["127.0.0.1:8001", "ftp://a", "http://", "", None, "http://a:port"])
    def test_an_address_that_is_none_is_refused_at_once(self, url):
        for kind in (Client, AsyncClient):
            with pytest.raises(InvalidRequest) as refused:
                kind(url)
            assert refused.value.field == "base_url"


class TestShape:
    def test_every_change_is_sent_once_or_known_again_or_the_same_when_done_again(self):
        same_again = {
            "schedule/upsert",
            "schedule/pause",
            "schedule/resume",
            "schedule/delete",
            "selection/pause",
            "selection/resume",
            "selection/delete",
            "selection/label",
            "occurrence/redrive",
            "backfill/pause",
            "backfill/resume",
            "backfill/cancel",
            "workflow/create",
            "session/archive",
            "approval/approve",
            "approval/deny",
            "budget/set",
            "halt/set",
            "halt/lift",
            "secret/set",
            "key/revoke",
            "worker/start",
            "worker/stop",
            "worker/confirm-time",
        }
        keys = {name: one.key for name, one in OPERATIONS.items() if one.key is not None}
        once = {name for name, one in OPERATIONS.items() if not one.is_repeatable}
        assert {name for name, one in OPERATIONS.items() if one.is_change} == {*keys, *once, *same_again}
        assert all(argument in OPERATIONS[name].parameters for name, argument in keys.items())

    def test_the_fields_are_those_of_the_operation(self):
        create, update = OPERATIONS["schedule/create"].parameters, OPERATIONS["schedule/update"].parameters
        assert {*requests.NewFields.__annotations__, "idempotency_key"} == {*create}
        expected = requests.Expected.__annotations__
        assert {*requests.Fields.__annotations__, *expected, "schedule_id"} == {*update}
        assert {*requests.Filters.__annotations__, "label"} == {*OPERATIONS["schedule/count"].parameters}

    def test_both_clients_have_the_same_methods_with_words(self):
        names = {name for name in vars(Client) if not name.startswith("_")}
        assert names == {name for name in vars(AsyncClient) if not name.startswith("_")}
        for name in names - {"close"}:
            one, other = getattr(Client, name), getattr(AsyncClient, name)
            assert one.__doc__ == other.__doc__
            assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters)
            assert next(iter(inspect.signature(one).parameters)) == "self"
        assert inspect.signature(Client.get).return_annotation == "Schedule"
        assert inspect.signature(Client.list).return_annotation == "Iterator[Schedule]"
        assert inspect.signature(AsyncClient.list).return_annotation == "AsyncIterator[Schedule]"
        assert inspect.iscoroutinefunction(AsyncClient.get)

    def test_values_are_frozen_and_take_what_a_newer_server_adds(self):
        kinds = [one for one in vars(answers).values() if isinstance(one, type) and is_dataclass(one)]
        assert all(one.__dataclass_params__.frozen for one in kinds)
        assert read(answers.Progress, {"fraction": 0.5, "message": "", "new": 1}) == answers.Progress(
            fraction=0.5, message=""
        )
        with pytest.raises(NoonmarkError, match="has no 'message'"):
            read(answers.Progress, {"fraction": 1})

    def test_it_is_loaded_when_it_is_imported_and_not_before(self):
        script = "import sys, noonmark; from noonmark import Scheduler; print('httpx2' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda client: client.get(None), "schedule_id"),
        (lambda client: client.get(5), "schedule_id"),
        (lambda client: client.get("c1/runs"), "schedule_id"),
        (lambda client: client.get("\ud800"), "schedule_id"),
        (lambda client: client.cancel(None), "occurrence_id"),
        (lambda client: client.set_secret("a/b", "0123456789", hosts=["example.com"]), "name"),
        (lambda client: client.delete_secret("s3cr3t/0123"), "name"),
        (lambda client: client.run_now("a", key=5), "key"),
        (lambda client: client.run_now("a", key="two\nlines"), "key"),
        (lambda client: client.run_now("a", key="Z\u00fcrich"), "key"),
        (lambda client: client.create(idempotency_key=b"bytes"), "idempotency_key"),
        (lambda client: client.call("event/emit", {"event_type": "e", "payload": 2**70}), "payload"),
        (lambda client: client.explain_at("s", datetime(2030, 1, 1)), "at"),  # noqa: DTZ001 - on purpose
        (lambda client: client.create(trigger=OnceTrigger(datetime(2030, 1, 1)), target=GREET), "trigger.at"),  # noqa: DTZ001
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(client, ask, field):
    with pytest.raises(InvalidRequest) as refused:
        ask(client)
    assert refused.value.field == field
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("made", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout", -1), ("timeout", 0), ("timeout", "5"), ("timeout", float("nan")), ("key", 5), ("tenant", 5)],
)
def test_a_client_with_an_impossible_option_is_not_made(made, option, value):
    with pytest.raises(InvalidRequest) as refused:
        made("http://127.0.0.1:1", **{option: value})
    assert refused.value.field == option
