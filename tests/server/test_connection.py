"""What a connection writes: an answer of known length in one piece, a stream as it comes."""

import h11
import pytest

from noonmark.server.transport.connection import StrictConnection

REQUEST = b"%s / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def asked(method=b"GET"):
    """A connection that has received a request."""
    connection = StrictConnection()
    connection.receive_data(REQUEST % method)
    assert isinstance(connection.next_event(), h11.Request)
    return connection


def test_a_head_of_known_length_goes_out_with_its_body():
    connection = asked()
    head = h11.Response(status_code=200, headers=[("Content-Length", "4")])
    assert connection.send(head) == b""
    written = connection.send(h11.Data(data=b"text"))
    assert written.startswith(b"HTTP/1.1 200")
    assert written.endswith(b"\r\n\r\ntext")
    assert connection.send(h11.EndOfMessage()) == b""
    assert connection.produced == len(written)


@pytest.mark.parametrize("body", [(h11.Data(data=b""), h11.EndOfMessage()), (h11.EndOfMessage(),)])
def test_a_head_without_a_body_goes_out_at_the_end(body):
    connection = asked(b"HEAD")
    assert connection.send(h11.Response(status_code=200, headers=[("Content-Length", "4")])) == b""
    written = b"".join(connection.send(event) for event in body)
    assert written.startswith(b"HTTP/1.1 200")
    assert written.endswith(b"\r\n\r\n")
    assert connection.produced == len(written)


def test_the_head_of_a_stream_does_not_wait_for_what_comes_later():
    connection = asked()
    head = connection.send(h11.Response(status_code=200, headers=[("Content-Type", "text/event-stream")]))
    assert head.startswith(b"HTTP/1.1 200")
    assert b"data: 1" in connection.send(h11.Data(data=b"data: 1\n\n"))


def test_the_next_answer_of_a_connection_begins_anew():
    connection = asked()
    for number in range(2):
        if number:
            connection.start_next_cycle()
            connection.receive_data(REQUEST % b"GET")
            assert isinstance(connection.next_event(), h11.Request)
        assert isinstance(connection.next_event(), h11.EndOfMessage)
        connection.send(h11.Response(status_code=200, headers=[("Content-Length", "1")]))
        assert connection.send(h11.Data(data=b"x")).count(b"HTTP/1.1") == 1
        connection.send(h11.EndOfMessage())
