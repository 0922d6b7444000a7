"""Ambiguous requests are rejected, and the connection is closed."""

import json
import socket
from contextlib import suppress

import pytest

from tests.embedded.waiting import SOON
from tests.service.server import serving

EVENT = b'{"event_type":"smuggled"}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENT), EVENT)
NEXT = (
    b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n" + EVENT
)
REFUSED = {
    "a length and chunks": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
    "chunks and a length": (b"Transfer-Encoding: chunked\r\nContent-Length: 25\r\n", CHUNKED),
    "other cases": (b"content-LENGTH: 25\r\ntransfer-ENCODING: chunked\r\n", CHUNKED),
    "two lengths that differ": (b"Content-Length: 25\r\nContent-Length: 5\r\n", EVENT),
    "the same length twice": (b"Content-Length: 25\r\nContent-Length: 25\r\n", EVENT),
    "a list of lengths": (b"Content-Length: 25, 25\r\n", EVENT),
    "a length with a sign": (b"Content-Length: +25\r\n", EVENT),
    "a length in hex": (b"Content-Length: 0x19\r\n", EVENT),
    "chunks twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
    "an unknown coding": (b"Transfer-Encoding: xchunked\r\n", CHUNKED),
    "a coding before chunks": (b"Transfer-Encoding: gzip, chunked\r\n", CHUNKED),
    "a blank before the colon": (b"Transfer-Encoding : chunked\r\n", CHUNKED),
    "a folded header": (b"X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: 25\r\n", EVENT),
    "a folded length": (b"Content-Length:\r\n 25\r\n", EVENT),
    "a bare line feed": (b"X-A: b\nContent-Length: 25\r\n", EVENT),
    "a bare carriage return": (b"X-A: b\rContent-Length: 25\r\n", EVENT),
    "an end in bare line feeds": (b"Content-Length: 25\r\n\n", EVENT),
    "NUL": (b"X-A: \0\r\nContent-Length: 25\r\n", EVENT),
    "a chunk with a sign": (b"Transfer-Encoding: chunked\r\n", CHUNKED.replace(b"19", b"+19", 1)),
    "a chunk that is longer than it says": (b"Transfer-Encoding: chunked\r\n", CHUNKED.replace(b"19", b"18", 1)),
    "a chunk that ends in a line feed": (b"Transfer-Encoding: chunked\r\n", CHUNKED.replace(b"19\r\n", b"19\n", 1)),
    "a line feed in the extension of a chunk": (
        b"Transfer-Encoding: chunked\r\n",
        CHUNKED.replace(b"19\r\n", b"19;a\nb\r\n", 1),
    ),
    "a carriage return in the extension of a chunk": (
        b"Transfer-Encoding: chunked\r\n",
        CHUNKED.replace(b"19\r\n", b"19;a\rb\r\n", 1),
    ),
    "a carriage return in the extension of the last chunk": (
        b"Transfer-Encoding: chunked\r\n",
        CHUNKED.replace(b"0\r\n\r\n", b"0;a\rb\r\n\r\n", 1),
    ),
    "a line feed after the last chunk": (
        b"Transfer-Encoding: chunked\r\n",
        CHUNKED.replace(b"0\r\n\r\n", b"0\r\n\n", 1),
    ),
    "headers after the chunks": (
        b"Transfer-Encoding: chunked\r\n",
        CHUNKED.replace(b"0\r\n\r\n", b"0\r\nX-A: b\n\n", 1),
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("framing"), "--no-worker", "--store", "memory://") as running:
        yield running


def heard(server, sent):
    """Everything that is answered, until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), SOON) as line:
        line.sendall(sent)
        found = b""
        with suppress(ConnectionResetError):
            while more := line.recv(65_536):
                found += more
        return found


def post(headers, body, version=b"1.1"):
    head = b"POST /events HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\n" % version
    return head + headers + b"\r\n" + body


def events(server):
    return server.get("/events?event_type=smuggled").json["events"]


@pytest.mark.parametrize(("headers", "body"), REFUSED.values(), ids=REFUSED)
def test_ambiguous_requests_are_rejected(server, headers, body):
    said = heard(server, post(headers, body) + NEXT)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in said.lower()
    document = json.loads(said.partition(b"\r\n\r\n")[2])
    assert (document["code"], document["status"], bool(document["request_id"])) == ("invalid_request", 400, True)
    assert events(server) == []


def test_chunks_are_rejected_in_http_1_0(server):
    said = heard(server, post(b"Transfer-Encoding: chunked\r\n", CHUNKED, b"1.0"))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert events(server) == []


def test_a_bad_chunk_after_the_answer_ends_the_connection_quietly(server):
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    with socket.create_connection(("127.0.0.1", server.port), SOON) as line:
        line.sendall(head)
        said = b""
        while not said.endswith(b"}"):
            said += line.recv(65_536)
        assert said.startswith(b"HTTP/1.1 404 ")
        line.sendall(b"garbage\r\n" + NEXT)
        with suppress(ConnectionResetError):
            assert line.recv(65_536) == b""
    assert events(server) == []
    assert "Traceback" not in server.log


@pytest.mark.parametrize(
    ("headers", "body"),
    [(b"Content-Length: 25\r\n", EVENT), (b"Transfer-Encoding: chunked\r\n", CHUNKED)],
    ids=["a length", "chunks"],
)
def test_unambiguous_requests_are_accepted(server, headers, body):
    said = heard(server, post(b"Connection: close\r\n" + headers, body.replace(b"smuggled", b"straight")))
    assert said.startswith(b"HTTP/1.1 202 ")
