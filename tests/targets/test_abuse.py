"""Answers that are meant to do harm: each ends in time, is read no further than it is kept, and leaves nothing open."""

import json
import tracemalloc

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.json_values import json_problem
from noonmark.core.run import Outcome
from tests.embedded.waiting import eventually
from tests.targets.receiving import calling, receiving
from tests.targets.rogue import AT_ONCE, ENDLESS, SLOW, Deaf, rogue

MEGABYTE = 1_000_000
COMPLETED, FAILED = Outcome.COMPLETED, Outcome.FAILED
MEANS = {
    "endless": (COMPLETED, None),
    "endless_chunks": (FAILED, "the answer has more than 524,288 bytes"),
    "endless_headers": (FAILED, "what it said is not HTTP"),
    "endless_interim": (FAILED, "the answer has more than 524,288 bytes"),
    "endless_garbage": (FAILED, "the connection broke"),
    "long_header": (FAILED, "the connection broke"),
    "bomb": (COMPLETED, None),
    "other_bomb": (COMPLETED, None),
    "bomb_in_disguise": (COMPLETED, None),
    "too_short": (FAILED, "the connection broke"),
    "too_long": (COMPLETED, None),
    "two_lengths": (FAILED, "the connection broke"),
    "no_length": (FAILED, "the connection broke"),
    "huge_length": (FAILED, "the connection broke"),
    "huge_chunk": (FAILED, "the connection broke"),
    "many_headers": (COMPLETED, None),
    "length_and_chunks": (FAILED, "the connection broke"),
    "bad_chunks": (FAILED, "the connection broke"),
    "other_protocol": (FAILED, "the connection broke"),
    "garbage": (FAILED, "the connection broke"),
    "nothing": (FAILED, "the connection broke"),
    "status_only": (FAILED, "the connection broke"),
    "status_beyond": (FAILED, "the server answered 999"),
}


@pytest.fixture(scope="module")
def server():
    with rogue() as server:
        yield server


@pytest.fixture(scope="module")
def caller():
    with calling() as caller:
        caller.call("http://127.0.0.1:1/")  # whatever it takes to send one is loaded then
        yield caller


def busy_lines(caller):
    """Connections that are neither hung up nor ready for another request."""
    return [one for one in caller.target._exchanges._guarded.connections if not one.is_idle()]


@pytest.fixture(autouse=True)
def memory():
    """So much more memory at the most, whatever was answered."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * MEGABYTE


@pytest.mark.parametrize("name", [*ENDLESS, *AT_ONCE])
def test_what_is_said_without_measure_or_sense_is_read_no_further_than_it_is_kept(caller, server, name):
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
def test_what_comes_bit_by_bit_is_cut_off_in_time(caller, server, name):
    delivered = caller.call(f"http://{server.url}/{name}?token=hidden", timeout_seconds=0.2)
    assert delivered.outcome is Outcome.TIMED_OUT
    assert delivered.error == f"http://{server.url} had not answered in full after 0.2 s"
    assert delivered.ended - delivered.started >= SECOND // 5
    assert busy_lines(caller) == []


def test_a_handshake_that_never_ends_is_cut_off_and_hung_up_on(caller):
    with rogue(Deaf) as server:
        delivered = caller.call(f"https://{server.url}/", timeout_seconds=0.2)
        assert delivered.outcome is Outcome.TIMED_OUT
        assert eventually(lambda: len(server.heard) == 2 and server.heard[1] == b"")
    assert busy_lines(caller) == []


@pytest.fixture(scope="module")
def receiver():
    with receiving() as receiver:
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
def test_a_body_is_kept_as_json_only_where_it_is(caller, receiver, body, kind, kept):
    receiver.answers.append((200, body, {"Content_Type": kind}))
    result = caller.call(f"{receiver.url}/next").result
    assert result["body"] == kept
    assert json_problem(result) is None


LARGE = {"bytes": b"\xff" * 60_000, "escapes": b"\x1b" * 60_000, "json": b'{"a":"' + b"x" * 10_000_000 + b'"}'}


@pytest.mark.parametrize("body", LARGE.values(), ids=list(LARGE))
def test_what_is_too_large_or_grows_when_it_is_kept_is_cut_to_its_size(caller, receiver, body):
    receiver.answers.append((200, body, {"Content_Type": "application/json", "ETag": "\x1b" * 900}))
    result = caller.call(f"{receiver.url}/next").result
    size = len(json.dumps(result["body"], ensure_ascii=False).encode())
    assert 65_536 * 2 / 3 < size <= 65_536 + 2
    assert result["body_cut"] is True
    assert len(result["headers"]["etag"]) == 1_000
    assert result["headers"]["etag"].isprintable()
