"""Strict HTTP/1.1: a request that two parsers could read differently is rejected.

h11 accepts a body with two framings (chunks win), folded headers, lines that end in a bare line feed, trailers, and a
repeated Content-Length. A proxy in front of the server may read each of these differently, which allows request
smuggling. The connection is closed at the first of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import h11
from h11._receivebuffer import ReceiveBuffer

if TYPE_CHECKING:
    from h11._events import Event

MAX_HEAD = 16_384
"""Bytes of the head of a request, and of a chunk header."""
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


class StrictConnection(h11.Connection):
    """The parser of one server connection; it also counts the bytes of its answers."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD)
        self._receive_buffer = _StrictBuffer()
        self.produced = 0
        """Bytes of answers so far."""
        self.error = "malformed HTTP request"
        """Why the request is rejected, once it is."""

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | Event:
        """The next event; RemoteProtocolError if the input is malformed or ambiguous."""
        if self.their_state is not h11.IDLE:
            event = super().next_event()
            if isinstance(event, h11.EndOfMessage) and event.headers:
                raise self._reject("trailers are not allowed")
            return event
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            if (problem := ambiguity(head)) is not None:
                raise self._reject(problem)
        return event

    def _reject(self, message: str) -> h11.RemoteProtocolError:
        self.error = message
        return h11.RemoteProtocolError(message)

    def send_with_data_passthrough(self, event: Event) -> list[bytes] | None:
        """The bytes of an event, in pieces."""
        output = super().send_with_data_passthrough(event)
        self.produced += sum(map(len, output or ()))
        return output


class _StrictBuffer(ReceiveBuffer):
    """Checks line endings between chunks, which h11 does not report."""

    def maybe_extract_next_line(self) -> bytearray | None:
        """The chunk header, once it is complete."""
        line = super().maybe_extract_next_line()
        if line is not None and _BARE.search(line):
            raise h11.RemoteProtocolError("a chunk header does not end with CR LF")
        return line

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """A head or the trailers, once they are complete."""
        if self._data.startswith(b"\n"):
            raise h11.RemoteProtocolError("a line does not end with CR LF")
        return super().maybe_extract_lines()


def ambiguity(head: bytes) -> str | None:
    """What parsers may read differently in the head of a request, which ends with an empty line; None if nothing."""
    if _BARE.search(head):
        return "a line of the head does not end with CR LF"
    request, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(line.startswith((b" ", b"\t")) for line in lines):
        return "a header is folded over several lines"
    fields = [(name.lower(), value) for name, _, value in (line.partition(b":") for line in lines)]
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if lengths and codings:
        return "both Content-Length and Transfer-Encoding are given"
    if len(lengths) > 1 or any(b"," in one for one in lengths):
        return "Content-Length is given more than once"
    if len(codings) > 1:
        return "Transfer-Encoding is given more than once"
    if codings and not request.endswith(b"HTTP/1.1"):
        return "Transfer-Encoding is given, but HTTP/1.0 does not have it"
    return None
