"""Hostile responses: each ends in time, is read in part only, and leaves no connection open."""

import json
import tracemalloc

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.json_values import json_problem
from noonmark.core.run import Outcome
from tests.embedded.waiting import eventually
from tests.targets.http.hostile_server import AT_ONCE, ENDLESS, SLOW, SilentHandler, hostile_server
from tests.targets.http.receiver import http_receiver, http_sender

MEGABYTE = 1_000_000
COMPLETED, FAILED = Outcome.COMPLETED, Outcome.FAILED
MEANS = {
    "endless": (COMPLETED, None),
    "endless_chunks": (FAILED, "the response has more than 524,288 bytes"),
    "endless_headers": (FAILED, "what it sent is not HTTP"),
    "endless_interim": (FAILED, "the response has more than 524,288 bytes"),
    "endless_garbage": (FAILED, "connection lost"),
    "long_header": (FAILED, "connection lost"),
    "bomb": (COMPLETED, None),
    "other_bomb": (COMPLETED, None),
    "bomb_in_disguise": (COMPLETED, None),
    "too_short": (FAILED, "connection lost"),
    "too_long": (COMPLETED, None),
    "two_lengths": (FAILED, "connection lost"),
    "no_length": (FAILED, "connection lost"),
    "huge_length": (FAILED, "connection lost"),
    "huge_chunk": (FAILED, "connection lost"),
    "many_headers": (COMPLETED, None),
    "length_and_chunks": (FAILED, "connection lost"),
    "bad_chunks": (FAILED, "connection lost"),
    "other_protocol": (FAILED, "connection lost"),
    "garbage": (FAILED, "connection lost"),
    "nothing": (FAILED, "connection lost"),
    "status_only": (FAILED, "connection lost"),
    "status_beyond": (FAILED, "the server answered 999"),
}


@pytest.fixture(scope="module")
def server():
    with hostile_server() as server:
        yield server


@pytest.fixture(scope="module")
def caller():
    with http_sender() as caller:
        caller.call("http://127.0.0.1:1/")  # whatever it takes to send one is loaded then
        yield caller


def busy_lines(caller):
    """Connections that are neither closed nor idle."""
    return [one for one in caller.target._delivery._guarded_pool.connections if not one.is_idle()]


@pytest.fixture(autouse=True)
def memory():
    """Limit the memory that a response takes."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * MEGABYTE


@pytest.mark.parametrize("name", [*ENDLESS, *AT_ONCE])
def test_malformed_or_endless_responses_are_bounded(caller, server, name):
    delivered = caller.call(f"http://{server.url}/{name}")
    outcome, words = MEANS[name]
    assert delivered.outcome is outcome
    assert delivered.error is None if words is None else words in delivered.error
    assert len(delivered.error or "") < 500
    assert (delivered.error or "").isprintable()
    assert json_problem(delivered.result) is None
    assert len(json.dumps(delivered.result, ensure_ascii=False)) < 66_000
    assert busy_lines(caller) == []


@pytest.mark.parametrize("name", SLOW)
def test_slow_responses_time_out(caller, server, name):
    delivered = caller.call(f"http://{server.url}/{name}?token=hidden", timeout_seconds=0.2)
    assert delivered.outcome is Outcome.TIMED_OUT
    assert delivered.error == f"no complete response from http://{server.url} within 0.2 s"
    assert delivered.ended - delivered.started >= SECOND // 5
    assert busy_lines(caller) == []


def test_endless_tls_handshake_times_out(caller):
    with hostile_server(SilentHandler) as server:
        delivered = caller.call(f"https://{server.url}/", timeout_seconds=0.2)
        assert delivered.outcome is Outcome.TIMED_OUT
        assert eventually(lambda: len(server.heard) == 2 and server.heard[1] == b"")
    assert busy_lines(caller) == []


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.mark.parametrize(
    ("body", "kind", "kept"),
    [
        (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        (b"[" * 60_000, "application/json", "[" * 60_000),
        (b"1" * 6_000, "application/json", "1" * 6_000),
        (b"NaN", "application/json", "NaN"),
        (b'"\\ud800"', "application/json", '"\\ud800"'),
        (b'{"a": "\\u0000"}', "application/json", '{"a": "\\u0000"}'),
        (b'{"a": "\xff"}', "application/json", '{"a": "\ufffd"}'),
        (b'"\\u001b[2J"', "application/json", "\x1b[2J"),
        (b"[9e15" + b",9e15" * 9_999 + b"]", "application/json", "[9e15" + ",9e15" * 9_999 + "]"),
        (b"<b>\xff\x00\x1b[1m</b>", "text/html", "<b>\ufffd\ufffd\x1b[1m</b>"),
        (b"{}", "text/html", "{}"),
    ],
    ids=["json", "deep", "digits", "nan", "surrogate", "nul", "bytes", "escapes", "growing", "html", "disguised"],
)
def test_body_is_stored_as_json_only_if_it_is_json(caller, receiver, body, kind, kept):
    receiver.answers.append((200, body, {"Content_Type": kind}))
    result = caller.call(f"{receiver.url}/next").result
    assert result["body"] == kept
    assert json_problem(result) is None


LARGE = {"bytes": b"\xff" * 60_000, "escapes": b"\x1b" * 60_000, "json": b'{"a":"' + b"x" * 10_000_000 + b'"}'}


@pytest.mark.parametrize("body", LARGE.values(), ids=list(LARGE))
def test_large_bodies_are_cut(caller, receiver, body):
    receiver.answers.append((200, body, {"Content_Type": "application/json", "ETag": "\x1b" * 900}))
    result = caller.call(f"{receiver.url}/next").result
    size = len(json.dumps(result["body"], ensure_ascii=False).encode())
    assert 65_536 * 2 / 3 < size <= 65_536 + 2
    assert result["body_cut"] is True
    assert len(result["headers"]["etag"]) == 1_000
    assert result["headers"]["etag"].isprintable()
