"""The stream of changes: what it says, to whom, and when it ends."""

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.server.web import changes, stream
from tests.embedded.waiting import eventually
from tests.server.event_stream import streaming
from tests.server.live_server import Keyed, bearer, new_key, serving
from tests.server.test_routes import problem


@pytest.fixture(scope="module")
def served():
    with serving(keyed=True) as server:
        yield server


def no_streams(served, tenant):
    """Whether no client listens for the changes of a tenant."""
    hub = served.app.state.hub
    return not any(channel.subscriptions for view, channel in hub._channels.items() if view.tenant == tenant)


def test_it_tells_of_an_operation_and_of_nothing_else(served):
    key = new_key(served.service, tenant="told")
    client = Keyed(served.client, key)
    with streaming(served.url, key) as events:
        assert events.response.headers["content-type"].startswith("text/event-stream")
        assert events.response.headers["cache-control"] == "no-store"
        start = int(events.last)
        client.get("/schedules")
        schedule_id = served_schedule(client)
        first = events.next()
        assert first == ("change", start + 1, {"schedules", "occurrences"}, {schedule_id}, False)
        assert client.post("/schedules/nowhere/pause").status_code == 404
        client.post("/events", json={"event_type": "x"})
        assert events.next() == ("change", start + 2, {"events"}, set(), False)
        client.post(
            "/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "schedule/run", "params": {"schedule_id": schedule_id}}
        )
        assert events.next() == ("change", start + 3, {"occurrences", "runs"}, {schedule_id}, False)


def served_schedule(client, **fields):
    document = {
        "trigger": {"type": "cron", "expression": "@yearly"},
        "target": {"target_kind": "function", "function": "greet"},
    }
    answer = client.post("/schedules", json=document | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["schedule_id"]


def test_changes_of_a_moment_are_one_message(served):
    key = new_key(served.service, tenant="busy")
    client, clock = Keyed(served.client, key), SystemClock()
    with streaming(served.url, key) as events:
        began = clock.monotonic()
        created = {served_schedule(client) for _ in range(60)}
        told = events.until(
            lambda events: (
                any(one.more for one in events) or created <= set().union(*(one.schedule_ids for one in events))
            )
        )
        passed = (clock.monotonic() - began) / SECOND
        assert len(told) <= passed / changes.PACE + 2
        assert all(len(one.schedule_ids) <= changes.MAX_IDS for one in told)


def test_a_client_that_comes_back_learns_what_it_missed(served):
    key = new_key(served.service, tenant="back")
    client = Keyed(served.client, key)
    with streaming(served.url, key) as events:
        first = served_schedule(client)
        events.about(first, "schedules")
        last = events.last
    eventually(lambda: no_streams(served, "back"))
    missed = {served_schedule(client) for _ in range(3)}
    with streaming(served.url, key, last=last) as events:
        told = events.until(lambda events: missed <= set().union(*(one.schedule_ids for one in events)))
        assert {one.kind for one in told} == {"change"}
        assert first not in told[0].schedule_ids
        newest = events.last
    with streaming(served.url, key, last=newest) as events:  # nothing was missed
        client.post("/events", json={"event_type": "x"})
        assert events.next()[:3] == ("change", int(newest) + 1, {"events"})


@pytest.mark.parametrize("last", ["1", "99999999999999999999", "x", "9007199254740991"])
def test_a_client_that_was_away_too_long_reads_everything_again(served, last):
    with streaming(served.url, served.key, last=last) as events:
        opening = events.last
        reset = events.next()
        assert (reset.kind, str(reset.counter)) == ("reset", opening)


def test_messages_that_are_no_longer_kept_mean_a_reset(monkeypatch):
    monkeypatch.setattr(changes, "HISTORY", 2)
    monkeypatch.setattr(changes, "PACE", 0.0)
    with serving() as server:
        with streaming(server.url) as events:
            last = events.last
            for _ in range(4):
                server.client.post("/events", json={"event_type": "x"})
                events.next()
            newest = events.last
        with streaming(server.url, last=last) as events:
            assert events.next().kind == "reset"
        with streaming(server.url, last=int(newest) - 1) as events:
            assert events.next().kind == "change"


def test_tenants_learn_nothing_of_each_other(served):
    blue, red = (new_key(served.service, tenant=one) for one in ("blue", "red"))
    with streaming(served.url, blue) as in_blue, streaming(served.url, red) as in_red:
        start = int(in_red.last)
        theirs = served_schedule(Keyed(served.client, blue))
        in_blue.about(theirs, "schedules")
        ours = served_schedule(Keyed(served.client, red))
        told = in_red.next()
        assert (told.counter, told.schedule_ids) == (start + 1, {ours})
        assert Keyed(served.client, served.key).post("/worker/stop").status_code == 200
        Keyed(served.client, red).post("/events", json={"event_type": "x"})
        assert in_red.next()[1:3] == (start + 2, {"events"})
    with streaming(served.url, served.key, **{"Noonmark-Tenant": "red"}) as events:
        served_schedule(Keyed(served.client, red))
        assert "schedules" in events.next().topics
        Keyed(served.client, served.key).post("/worker/stop")
        assert events.next().topics == {"nodes"}


def test_users_who_see_their_own_only_learn_of_their_own_only():
    with serving(keyed=True, visibility="owner") as server:
        ann, bob = (new_key(server.service, tenant="t", user=one, scopes="read,write,run") for one in ("ann", "bob"))
        boss = Keyed(server.client, new_key(server.service, tenant="t"))
        with streaming(server.url, ann) as events:
            start = int(events.last)
            theirs = served_schedule(Keyed(server.client, bob))
            boss.post(f"/schedules/{theirs}/pause")
            ours = served_schedule(Keyed(server.client, ann))
            told = events.next()
            assert (told.counter, told.schedule_ids) == (start + 1, {ours})
            boss.post(f"/schedules/{ours}/pause")
            assert events.next()[1:4] == (start + 2, {"schedules", "occurrences"}, {ours})


def test_it_ends_when_its_key_is_revoked(served):
    key = new_key(served.service, tenant="gone")
    with streaming(served.url, key) as events:
        assert served.client.post(f"/keys/{key.rpartition('_')[0]}/revoke").status_code == 200
        while (one := events.next()) is not None:
            assert one.topics == {"keys"}


def test_it_ends_when_its_key_is_revoked_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "CHECK_SECONDS", 0.1)
    store = f"sqlite:///{tmp_path / 'one.db'}"
    with serving(store, keyed=True) as server, serving(store) as other, streaming(server.url, server.key) as events:
        answer = other.client.post(f"/keys/{server.key.rpartition('_')[0]}/revoke", headers=bearer(server.key))
        assert answer.status_code == 200, answer.text
        while (one := events.next()) is not None:
            assert one.topics == {"keys"}


def test_the_first_key_ends_the_streams_that_had_none(monkeypatch):
    monkeypatch.setattr(changes, "CHECK_SECONDS", 0.1)
    with serving() as server, streaming(server.url) as events:
        new_key(server.service, opens_store=True)
        assert events.next() is None


def told_by_another_process(store):
    """A change that a second server makes is found by the first."""
    with serving(store) as server, serving(store) as other, streaming(server.url) as events:
        schedule_id = other.create()["schedule_id"]
        events.about(schedule_id, "schedules", "occurrences")
        other.client.post("/events", json={"event_type": "x"})
        events.until(lambda events: "events" in events[-1].topics)


def test_what_another_process_writes_to_a_file_is_found(tmp_path):
    told_by_another_process(f"sqlite:///{tmp_path / 'one.db'}")


def test_what_another_process_writes_to_postgresql_is_found(database):
    told_by_another_process(database.url)


def test_the_number_of_streams_is_limited():
    with serving(max_streams=2) as server, streaming(server.url):
        with streaming(server.url):
            answer = server.client.get("/stream")
            problem(answer, 503, "server_busy")
            assert int(answer.headers["retry-after"]) > 0
        eventually(lambda: server.app.state.hub.open == 1)
        with streaming(server.url):
            pass


def test_silence_is_filled_with_comments(monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT", 0.01)
    with serving() as server, streaming(server.url) as events:
        assert events.block() == {"": ""}
        server.client.post("/events", json={"event_type": "x"})
        assert events.next().topics == {"events"}


def test_it_needs_a_key_and_its_scope(served):
    assert served.client.get("/stream", headers={"Authorization": ""}).status_code == 401
    assert (
        served.client.get("/stream", headers=bearer(new_key(served.service, tenant="t", scopes="run"))).status_code
        == 403
    )
    assert served.client.head("/stream").headers["content-type"].startswith("text/event-stream")
    problem(served.client.get("/stream?topic=x"), 400, "invalid_request", "topic")


def test_more_changes_than_fit_mean_a_reset(monkeypatch):
    monkeypatch.setattr(changes, "MAX_INBOX", 3)
    with serving() as server, streaming(server.url) as events:
        server.app.state.hub._put(
            [changes.Change(topics=frozenset({changes.Topic.EVENTS}), tenant=str(one)) for one in range(4)]
        )
        assert events.next().kind == "reset"
