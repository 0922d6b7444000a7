"""Pings over HTTP: no key, any body, every usual method, no token in a log."""

import logging

import httpx2
import pytest

from noonmark.core.instants import SECOND
from noonmark.server.pings import BURST, MAX_URLS, PingLimiter
from noonmark.server.problems import HttpError
from noonmark.telemetry.logs import _parse_access
from tests.embedded.waiting import eventually
from tests.server.live_server import serving

PING = {"target_kind": "ping", "grace_seconds": 600}


@pytest.fixture(scope="module")
def server():
    with serving(begins=True) as served:
        yield served


@pytest.fixture
def open_url(server):
    """The URL of a schedule that expects a ping now."""
    created = server.create(target=PING)
    server.client.post(f"/schedules/{created['schedule_id']}/run", json={"key": "now"})

    def is_open():
        answer = server.client.get(f"/schedules/{created['schedule_id']}/occurrences").json()["occurrences"]
        return any(one["phase"] == "awaiting_completion" for one in answer)

    eventually(is_open)
    return created["ping_url"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_every_usual_method_pings(server, open_url, method):
    assert server.client.request(method, open_url).status_code == 200
    assert server.client.get(open_url).json()["verdict"] == "unexpected"


def test_a_body_of_any_type_is_the_output(server, open_url):
    answer = server.client.post(f"{open_url}/3?rid=1", content=b"no \xff", headers={"Content-Type": "text/x-log"})
    assert answer.json()["verdict"] == "counted"
    [run] = server.client.get(f"/occurrences/{answer.json()['occurrence_id']}/runs").json()["runs"]
    assert run["result"] == {"ping": "fail", "exit_status": 3, "output": "no \N{REPLACEMENT CHARACTER}"}


@pytest.mark.parametrize("path", ["/ping/none", "/ping/a-b/start", "/ping/a-b/stop", "/ping/", "/ping/a/b/c"])
def test_an_unknown_url_is_not_found(server, path):
    answer = server.client.post(path, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_body_that_is_too_large_is_refused(server, open_url):
    assert server.client.post(open_url, content=b"x" * 2_000_000).status_code == 413


def test_another_site_cannot_ping(server, open_url):
    answer = server.client.post(open_url, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403


def test_no_ping_counts_while_the_time_may_be_wrong(server, open_url):
    server.service.worker.clock_ahead = 10**9
    try:
        assert server.client.post(open_url).status_code == 503
    finally:
        server.service.worker.clock_ahead = None
    assert server.client.post(open_url).json()["verdict"] == "counted"


def test_a_rotation_answers_with_another_url(server, open_url):
    schedule_id = server.client.get(f"{open_url}/start").json()["schedule_id"]
    rotated = server.client.post(f"/schedules/{schedule_id}/ping/rotate").json()["ping_url"]
    assert server.client.get(f"/schedules/{schedule_id}/ping").json()["ping_url"] == rotated != open_url
    assert server.client.post(open_url).status_code == 404


def test_logs_show_no_token():
    arguments = ("127.0.0.1:1", "POST", "/ping/abc-123/start", "1.1", 200)
    event = {"logger": "uvicorn.access", "positional_args": arguments}
    assert _parse_access(logging.getLogger(), "info", event)["path"] == "/ping/***/start"


def test_a_failure_that_a_ping_reports_is_logged_without_its_words(server, open_url, caplog):
    server.client.post(f"{open_url}/fail", content=b"MARK")
    [record] = [one for one in caplog.records if one.name == "noonmark.jobs"]
    assert record.levelno == logging.ERROR
    assert ": its ping said so (failed); `noonmark schedule explain " in record.getMessage()
    assert record.getMessage().endswith(f" {server.service.reach}` says more")
    assert "MARK" not in caplog.text


def test_an_error_in_a_ping_is_logged_without_its_token(server, caplog, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr("noonmark.operations.pings.receive", broken)
    with httpx2.Client(base_url=server.url) as client:
        assert client.post("/ping/abc-123").status_code == 500
    # The client and the web server log addresses too, if another test has left them a lower level.
    records = [record for record in caplog.records if record.name.startswith("noonmark")]
    logged = "\n".join(f"{record.getMessage()}\n{record.exc_text}" for record in records)
    assert "POST '/ping/***' failed" in logged or 'POST "/ping/***" failed' in logged
    assert "abc-123" not in logged


class TestLimits:
    @pytest.fixture
    def limiter(self):
        self.now = 0
        return PingLimiter(lambda: self.now)

    def refused(self, limiter):
        with pytest.raises(HttpError) as refused:
            limiter.take("a")
        return refused.value.status, refused.value.headers["Retry-After"]

    def test_a_url_pings_so_often_at_once_and_then_once_a_second(self, limiter):
        for _ in range(BURST):
            limiter.take("a")
        assert self.refused(limiter) == (429, "1")
        self.now = SECOND // 2
        assert self.refused(limiter) == (429, "1")
        self.now = SECOND
        limiter.take("a")
        assert self.refused(limiter) == (429, "1")
        limiter.take("b")
        self.now += BURST * SECOND
        for _ in range(BURST):
            limiter.take("a")
        assert self.refused(limiter) == (429, "1")

    def test_it_remembers_a_bounded_number_of_urls(self, limiter):
        for number in range(MAX_URLS + 5):
            limiter.take(str(number))
        assert len(limiter._full_at) == MAX_URLS

    def test_a_flood_is_refused_and_does_not_grow_the_store(self, server, open_url):
        answers = [server.client.get(f"{open_url}/start") for _ in range(BURST + 30)]
        refused = [one for one in answers if one.status_code == 429]
        assert len(refused) > 0
        assert refused[0].json()["code"] == "quota_exceeded"
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert {one.json()["verdict"] for one in answers if one.status_code == 200} == {"counted"}
        schedule_id = answers[0].json()["schedule_id"]
        assert len(server.client.get(f"/schedules/{schedule_id}/runs").json()["runs"]) == 1
        events = server.client.get("/events").json()["events"]
        assert [one for one in events if one["payload"].get("schedule_id") == schedule_id] == []
