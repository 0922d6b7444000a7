"""Callers of a server that cost little: requests that are written beforehand, on connections that stay open."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.service.jobs import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """A whole request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


@dataclass(slots=True)
class Answers:
    """When each request was sent, and how long its answer took; all of them must have the same status."""

    status: int
    begun: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    answer: bytes = b""
    """The body that came last."""


class Connection(asyncio.Protocol):
    """Sends one request after another, each when the one before is answered and the pause is over."""

    def __init__(self, requests: Iterator[bytes], answers: Answers, pause: float) -> None:
        """Several connections may share the requests, and what is noted."""
        self._requests, self._answers, self._pause = requests, answers, pause
        self._received = b""
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Perhaps the answer is complete."""
        self._received += data
        head, end, body = self._received.partition(_END)
        if not end:
            return
        length = _LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return
        self._answers.took.append(time.perf_counter() - self._sent)
        self._answers.begun.append(self._sent)
        self._answers.answer = body
        self._received = b""
        if head.split(b" ", 2)[1] != b"%d" % self._answers.status:
            self._end(AssertionError(f"a request was answered with {head!r} {body!r}"))
        elif self._pause:
            self._loop.call_later(self._pause, self._send)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if the server closes the connection first."""
        self._end(exc or AssertionError("the server has closed a connection"))

    def _send(self) -> None:
        if self.over.done():
            return
        first = next(self._requests, None)
        if first is None:
            self._end(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(first)

    def _end(self, error: Exception | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)
        self._transport.close()


async def ask(
    port: int, requests: Iterable[bytes], *, connections: int = 1, status: int = 200, pause: float = 0
) -> Answers:
    """Send all requests, as many at a time as there are connections."""
    answers, shared = Answers(status), iter(requests)
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Connection(shared, answers, pause), LOOPBACK, port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.over for _, protocol in made))
    return answers
