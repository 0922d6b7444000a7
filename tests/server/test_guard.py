"""The guard: allowed Host and Origin headers, request ids, and unexpected errors."""

import json
import logging

import pytest

from noonmark.operations import nodes, schedules
from noonmark.operations.models.arguments import ScheduleLookup
from tests.server.live_server import serving
from tests.server.test_routes import problem

PATHS = [
    "/schedules",
    "/schedules/x",
    "/health",
    "/health/live",
    "/metrics",
    "/worker/status",
    "/api/v1/schedules",
    "/openapi.json",
    "/nowhere",
]


@pytest.fixture(scope="module")
def served():
    with serving(allowed_hosts=("noonmark.example.org",), public_url="https://time.example.org") as server:
        yield server


def asked(served, host, *, path="/health", **headers):
    """The status of an answer to a request whose headers are just these."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    first = f"GET {path} HTTP/1.1\r\n" + ("" if host is None else f"Host: {host}\r\n")
    return served.send(f"{first}{lines}Connection: close\r\n\r\n".encode("latin-1"))


OURS = [
    "localhost",
    "LocalHost:8001",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.8.9.1",
    "[::1]",
    "[::1]:8001",
    "noonmark.example.org",
    "noonmark.example.org:443",
    "time.example.org",
]
FOREIGN = [
    "evil.example",
    "evil.example:8001",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "evil.example#localhost",
    "0.0.0.0",  # noqa: S104 - nothing is bound to it
    "169.254.169.254",
    "10.0.0.1",
    "[::]",
    "[::2]",
    "localhost:99999999",
    "[::",
    "[",
    "::1",
    "localhost:",
    "http://localhost",
    "%6cocalhost",
    "127.1",
    "0x7f.1",
    "2130706433",
    "localhost,evil.example",
    "xnoonmark.example.org",
    "",
]


@pytest.mark.parametrize("host", OURS)
def test_a_request_to_one_of_its_hosts_is_answered(served, host):
    assert asked(served, host)[0] == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_a_request_to_another_host_is_refused(served, host):
    status, headers, body = asked(served, host)
    assert (status, json.loads(body)["code"]) == (403, "not_allowed")
    assert headers["content-type"] == "application/problem+json"
    assert "access-control-allow-origin" not in headers


def test_a_request_with_two_hosts_or_none_is_refused(served):
    assert asked(served, None)[0] in (400, 403)
    assert asked(served, "localhost\r\nHost: evil.example")[0] in (400, 403)


@pytest.mark.parametrize("path", PATHS)
def test_host_and_origin_are_checked_on_every_route(served, path):
    assert asked(served, "evil.example", path=path)[0] == 403
    assert asked(served, "localhost", path=path, Origin="http://evil.example")[0] == 403
    for method in ("POST", "OPTIONS"):
        answer = served.client.request(method, path, headers={"Origin": "http://evil.example"})
        problem(answer, 403, "not_allowed")


ORIGINS = [
    ("http://localhost:8001", "localhost:8001", 200),
    ("http://localhost", "localhost", 200),
    ("http://localhost:80", "localhost", 200),
    ("https://noonmark.example.org", "noonmark.example.org", 200),
    ("https://time.example.org", "localhost:8001", 200),
    ("http://[::1]:8001", "[::1]:8001", 200),
    ("http://time.example.org", "localhost:8001", 403),
    ("http://localhost:8002", "localhost:8001", 403),
    ("http://127.0.0.1:8001", "localhost:8001", 403),
    ("null", "localhost:8001", 403),
    ("", "localhost:8001", 403),
    ("file://", "localhost:8001", 403),
    ("ftp://localhost:8001", "localhost:8001", 403),
    ("http://localhost:8001/path", "localhost:8001", 403),
    ("http://evil@localhost:8001", "localhost:8001", 403),
    ("http://localhost:8001, http://evil.example", "localhost:8001", 403),
]


@pytest.mark.parametrize(("origin", "host", "status"), ORIGINS)
def test_only_pages_of_the_same_origin_are_allowed(served, origin, host, status):
    assert asked(served, host, Origin=origin)[0] == status


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_cross_site_request_of_a_browser_changes_nothing(served, method, site):
    for path in PATHS:
        for more in ({}, {"Origin": served.url}):
            problem(served.client.request(method, path, headers={"Sec-Fetch-Site": site, **more}), 403, "not_allowed")


@pytest.mark.parametrize(
    ("method", "site"),
    [("POST", "same-origin"), ("POST", "none"), ("GET", "cross-site"), ("HEAD", "same-site"), ("GET", "none")],
)
def test_same_origin_pages_and_links_from_elsewhere_are_served(served, method, site):
    path = "/schedules/preview" if method == "POST" else "/schedules"
    document = {"trigger": {"type": "interval", "every_seconds": 60}} if method == "POST" else None
    answer = served.client.request(method, path, json=document, headers={"Sec-Fetch-Site": site})
    assert answer.status_code == 200


def test_no_other_origin_gets_cors_headers(served):
    for headers in ({}, {"Origin": served.url}):
        answer = served.client.get("/schedules", headers=headers)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("request_id", ["mine", "a-b_c.d:1", "x" * 128])
def test_the_id_of_a_request_is_kept(served, request_id):
    assert served.client.get("/health", headers={"X-Request-Id": request_id}).headers["x-request-id"] == request_id


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 129, "a\x1b[31m", 'a"b', "é", "a,b"])
def test_an_id_that_could_harm_a_log_is_not_kept(served, request_id):
    _, headers, _ = asked(served, "localhost", X_Request_Id=request_id)
    assert headers["x-request-id"]
    assert headers["x-request-id"] != request_id


def test_an_unexpected_error_is_logged_and_not_disclosed(served, monkeypatch, caplog):
    def broken(service, caller, arguments):
        raise RuntimeError("SELECT secret FROM keys")

    monkeypatch.setattr(schedules, "count_schedules", broken)
    monkeypatch.setattr(nodes, "list_nodes", broken)
    with caplog.at_level(logging.ERROR, logger="noonmark.rest"):
        for path in ("/schedules/count", "/nodes", "/api/v1/schedules"):
            answer = served.client.get(path, headers={"X-Request-Id": "find-me"})
            error = problem(answer, 500, "error")
            assert "secret" not in answer.text
            assert "Traceback" not in answer.text
            assert ("error" in error) == path.startswith("/api")
    records = [one for one in caplog.records if one.name == "noonmark.rest"]
    assert [one.request_id for one in records] == ["find-me"] * 3
    assert all("secret" in str(one.exc_info[1]) for one in records)


def test_a_path_with_control_characters_is_logged_harmlessly(served, monkeypatch, caplog):
    def broken(arguments):
        raise RuntimeError

    monkeypatch.setattr(ScheduleLookup, "read", broken)
    with caplog.at_level(logging.INFO, logger="noonmark.rest"):
        assert served.client.get("/schedules/a%0d%0aINFO%1b[31m").status_code == 500
    [record] = [one for one in caplog.records if one.name == "noonmark.rest"]
    assert not set(record.getMessage()) & {"\r", "\n", "\x1b"}


def test_answers_are_not_cached(served):
    for path in ("/schedules", "/nowhere", "/health"):
        assert served.client.get(path).headers["cache-control"] == "no-store"
