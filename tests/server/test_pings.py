"""Pings over HTTP: no key, any body, every usual method, no token in a log."""

import logging

import httpx2
import pytest

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
        found = server.client.get(f"/schedules/{created['schedule_id']}/occurrences").json()["occurrences"]
        return any(one["phase"] == "awaiting_completion" for one in found)

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
    assert "MARK" not in caplog.text


def test_an_error_in_a_ping_is_logged_without_its_token(server, caplog, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr("noonmark.operations.pings.receive", broken)
    with httpx2.Client(base_url=server.url) as client:
        assert client.post("/ping/abc-123").status_code == 500
    assert "POST '/ping/***' failed" in caplog.text or 'POST "/ping/***" failed' in caplog.text
    assert "abc-123" not in caplog.text
