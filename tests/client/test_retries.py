"""Lines that go wrong: what is asked again, what is not, and what whoever asked is told."""

import socket

import pytest

from noonmark import NoonmarkError, NotFound, QuotaExceeded, StoreUnavailable, Unreachable
from noonmark.client import transport
from tests.client.scripted_proxy import CLIENTS, DROP, HANG, LOSE, PASS, ScriptedProxy, canned
from tests.server.live_server import GREET, NOON, serving

NEW = {"trigger": NOON, "target": GREET}
UNAVAILABLE = canned(
    "503 Service Unavailable",
    b'{"code": "store_unavailable", "detail": "the store is away", "request_id": "r"}',
    "application/problem+json",
)
HTML = b"<h1>It works!</h1>"


@pytest.fixture(scope="module")
def served():
    with serving() as served:
        yield served


@pytest.fixture
def proxy(served):
    proxy = ScriptedProxy(served.port)
    yield proxy
    proxy.close()


@pytest.fixture(params=CLIENTS)
def client(request, proxy, monkeypatch):
    monkeypatch.setattr(transport, "FIRST_WAIT", 0.001)
    with CLIENTS[request.param](proxy.url) as client:
        yield client


class TestAskedAgain:
    @pytest.mark.parametrize(
        "trouble", [LOSE, DROP, UNAVAILABLE, canned("502 Bad Gateway", HTML, "text/html")], ids=repr
    )
    def test_what_is_only_looked_at(self, client, proxy, trouble):
        proxy.script = [trouble, trouble]
        assert client.health()["status"]
        assert len(proxy.requests) == 3

    @pytest.mark.parametrize("trouble", [LOSE, DROP, UNAVAILABLE], ids=repr)
    def test_what_is_created_is_created_once(self, client, proxy, served, trouble):
        before = served.client.get("/schedules/count").json()["count"]
        proxy.script = [trouble, trouble]
        schedule = client.create(**NEW)
        assert served.client.get(f"/schedules/{schedule.schedule_id}").json()["revision"] == 1
        assert served.client.get("/schedules/count").json()["count"] == before + 1
        [key] = set(proxy.headers("idempotency-key"))
        proxy.requests.clear()
        assert client.create(**NEW).schedule_id != schedule.schedule_id
        assert proxy.headers("idempotency-key") != [key]

    def test_one_run_one_event_and_one_backfill_come_of_each(self, client, proxy, served):
        schedule_id = client.create(**NEW, schedule_id=f"once-{type(client).__name__}").schedule_id
        proxy.requests.clear()
        proxy.script = [LOSE, PASS, LOSE, PASS, LOSE]
        run = client.run_now(schedule_id)
        event_id = client.emit("lost", {"n": 1})
        filled = client.backfill(schedule_id, "2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z")
        response = served.client.get(f"/schedules/{schedule_id}/occurrences").json()["occurrences"]
        wanted = {run.occurrence_id, *(row.occurrence_id for row in filled.occurrences)}
        assert {row["occurrence_id"] for row in response if row["origin"] != "trigger"} == wanted
        assert len(wanted) == 3
        answer = served.client.get("/events?event_type=lost").json()["events"]
        assert [row["event_id"] for row in answer].count(event_id) == 1
        assert len(proxy.requests) == 6

    def test_by_name_it_is_the_same(self, client, proxy, served):
        before = served.client.get("/schedules/count").json()["count"]
        proxy.script = [LOSE]
        client.call("schedule/create", NEW)
        assert served.client.get("/schedules/count").json()["count"] == before + 1
        assert len({body["params"]["idempotency_key"] for body in proxy.bodies()}) == 1
        assert len(proxy.requests) == 2

    def test_what_is_the_same_when_it_is_done_twice(self, client, proxy):
        schedule_id = client.create(**NEW).schedule_id
        for change, phase in ((client.pause, "paused"), (client.resume, "active"), (client.delete, "deleted")):
            proxy.script = [LOSE]
            assert change(schedule_id).phase == phase

    def test_whatever_was_refused_with_a_time_to_come_again(self, client, proxy):
        schedule_id = client.create(**NEW).schedule_id
        proxy.requests.clear()
        proxy.script = [canned("429 Too Many Requests", b"{}", Retry_After="0")]
        assert client.update(schedule_id, name="later").name == "later"
        assert len(proxy.requests) == 2

    def test_three_times_and_no_more(self, client, proxy):
        proxy.script = [UNAVAILABLE] * 5
        with pytest.raises(StoreUnavailable, match="the store is away"):
            client.get("x")
        assert len(proxy.requests) == 3


class TestAskedOnce:
    @pytest.mark.parametrize("trouble", [LOSE, DROP, UNAVAILABLE, canned("504 Gateway Timeout")], ids=repr)
    def test_a_change_that_may_have_been_made(self, client, proxy, trouble):
        schedule_id = client.create(**NEW).schedule_id
        for change in (
            lambda: client.update(schedule_id, name="x"),
            lambda: client.complete("o"),
            lambda: client.fail("o"),
            lambda: client.cancel("o"),
            lambda: client.call("occurrence/fail", {"occurrence_id": "o"}),
        ):
            proxy.requests.clear()
            proxy.script = [trouble]
            with pytest.raises(StoreUnavailable if trouble is UNAVAILABLE else Unreachable) as caught:
                change()
            assert len(proxy.requests) == 1
            if trouble in (LOSE, DROP):
                assert "may or may not have been performed" in str(caught.value)

    def test_what_was_refused_permanently(self, client, proxy):
        with pytest.raises(NotFound):
            client.get("nowhere")
        quota = b'{"code": "quota_exceeded", "detail": "ten are enough"}'
        proxy.script = [canned("429 Too Many Requests", quota), canned("429 -", quota, Retry_After="3600")]
        for _ in range(2):
            with pytest.raises(QuotaExceeded, match="ten are enough"):
                client.create(**NEW)
        assert len(proxy.requests) == 3


class TestNobodyThere:
    def test_no_server_at_all(self, client):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        for kind in CLIENTS.values():
            with kind(f"http://127.0.0.1:{port}") as lonely:
                for ask in (lonely.health, lambda lonely=lonely: lonely.update("x", name="y")):
                    with pytest.raises(Unreachable, match=f"cannot connect to http://127.0.0.1:{port} .*serve"):
                        ask()

    def test_a_server_that_does_not_answer_in_time(self, proxy):
        proxy.script = [HANG] * 4
        for kind in CLIENTS.values():
            with kind(proxy.url, timeout=0.05) as hasty, pytest.raises(Unreachable, match="Timeout"):
                hasty.cancel("x")
        assert len(proxy.requests) == 2

    @pytest.mark.parametrize(
        "answer",
        [
            canned("200 OK", HTML, "text/html"),
            canned("200 OK", b"[" * 100_000),
            canned("200 OK", b"[]"),
            canned("200 OK", b"null"),
            canned("200 OK", b'{"schedule_id": 7}'),
            canned("200 OK"),
            canned("404 Not Found", HTML, "text/html"),
            canned("302 Found", b"", Location="http://127.0.0.1:1/"),
            canned("500 Internal Server Error", b'{"detail": 7}'),
        ],
        ids=lambda answer: repr(answer[9:60]),
    )
    def test_something_else_is_there(self, client, proxy, answer):
        proxy.script = [answer]
        with pytest.raises(NoonmarkError) as caught:
            client.get("x")
        assert type(caught.value) is NoonmarkError
        assert len(proxy.requests) == 1
        assert len(str(caught.value)) < 300

    def test_what_the_environment_says_of_proxies_is_not_meant_for_it(self, served, monkeypatch):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.delenv("NO_PROXY", raising=False)
        for kind in CLIENTS.values():
            with kind(served.url) as client:
                assert client.health()["status"]


def test_a_file_that_does_not_come_whole_is_not_there(client, proxy, tmp_path):
    there = tmp_path / "back.bin"
    there.write_bytes(b"before")
    proxy.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", DROP]
    for _ in range(2):
        with pytest.raises(Unreachable):
            client.download("upl_0", there)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("back.bin", b"before")]
