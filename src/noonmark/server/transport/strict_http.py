"""HTTP/1.1 without leniency: a head that two readers could understand differently is refused.

The parser below takes a body that is framed twice (the chunks win), folded lines, lines that end in a bare line feed,
headers after the chunks, and a length that is said again. A proxy in front of the server may read each of these in
another way, and whoever sends them makes it see other requests than the server does. So the connection ends with the
first of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import h11
from h11._receivebuffer import ReceiveBuffer

if TYPE_CHECKING:
    from h11._events import Event

MAX_HEAD = 16_384
"""Bytes of the head of a request, and of the line before a chunk."""
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


class StrictConnection(h11.Connection):
    """The parser of one connection of a server, which also counts what it has put out."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        super().__init__(h11.SERVER, MAX_HEAD)
        self._receive_buffer = _Lines()
        self.produced = 0
        """Bytes of answers so far."""
        self.refusal = "this is no request of HTTP/1.1"
        """What was wrong with what has come, once something was."""

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | Event:
        """What has come next; RemoteProtocolError for what is not HTTP, or is not plain."""
        if self.their_state is not h11.IDLE:
            event = super().next_event()
            if isinstance(event, h11.EndOfMessage) and event.headers:
                raise self._refuse("headers come after the chunks")
            return event
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            if (wrong := ambiguity(head)) is not None:
                raise self._refuse(wrong)
        return event

    def _refuse(self, why: str) -> h11.RemoteProtocolError:
        self.refusal = why
        return h11.RemoteProtocolError(why)

    def send_with_data_passthrough(self, event: Event) -> list[bytes] | None:
        """The bytes of an event, piece by piece."""
        output = super().send_with_data_passthrough(event)
        self.produced += sum(map(len, output or ()))
        return output


class _Lines(ReceiveBuffer):
    """What has come, in lines. The parser tells nobody how those between the chunks ended, so they are judged here."""

    def maybe_extract_next_line(self) -> bytearray | None:
        """The line before a chunk, when all of it is there."""
        line = super().maybe_extract_next_line()
        if line is not None and _BARE.search(line):
            raise h11.RemoteProtocolError("the line before a chunk ends in something else than CR LF")
        return line

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """A head, or what follows the last chunk, when all of it is there."""
        if self._data.startswith(b"\n"):
            raise h11.RemoteProtocolError("a line ends in something else than CR LF")
        return super().maybe_extract_lines()


def ambiguity(head: bytes) -> str | None:
    """What readers may understand differently in the head of a request, which ends with an empty line; if anything."""
    if _BARE.search(head):
        return "a line of the head ends in something else than CR LF"
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
        return "Transfer-Encoding is given, and HTTP/1.0 has none"
    return None
