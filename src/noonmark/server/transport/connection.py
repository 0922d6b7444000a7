"""One HTTP connection: it parses strictly and reports to the pool that limits all connections."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, cast

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from noonmark.server.health import PATHS as HEALTH_PATHS
from noonmark.server.problems import PROBLEM, title_of
from noonmark.server.strict_json import write_json
from noonmark.server.transport.connection_pool import address_of

if TYPE_CHECKING:
    from asyncio import Transport

    from h11._events import Event
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from noonmark.server.transport.connection_pool import ConnectionPool


MAX_HEAD = 16_384
"""Bytes of the head of a request, and of a chunk header."""
_MAY_BE_AMBIGUOUS = re.compile(rb"\n(?:[ \t]|content-length|transfer-encoding)", re.IGNORECASE)


class StrictConnection(h11.Connection):
    """The parser of one server connection; it also counts the bytes of its answers."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD)
        self._receive_buffer = _StrictBuffer()
        self.produced = 0
        """Bytes of answers so far."""
        self.error = "malformed HTTP request"
        """Why the request is rejected, once it is."""
        self._head: list[bytes] = []
        """The head of an answer whose body follows at once."""

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
        """The bytes of an event, in pieces. A head of known length goes out with its body, in one system call."""
        output = super().send_with_data_passthrough(event)
        if output is None:
            return None
        if isinstance(event, h11.Response) and _has_length(event):
            self._head = output
            return []
        if self._head:
            output, self._head = self._head + output, []
        self.produced += sum(map(len, output))
        return output


def _has_length(response: h11.Response) -> bool:
    """Whether the length of a body is known before it is sent; a stream may begin much later than its head."""
    return any(name == b"content-length" for name, _ in response.headers)


class _StrictBuffer(ReceiveBuffer):
    """Checks line endings between chunks, which h11 does not report."""

    def maybe_extract_next_line(self) -> bytearray | None:
        """The chunk header, once it is complete."""
        line = super().maybe_extract_next_line()
        if line is not None and _has_bare(line):
            raise h11.RemoteProtocolError("a chunk header does not end with CR LF")
        return line

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """A head or the trailers, once they are complete."""
        if self._data.startswith(b"\n"):
            raise h11.RemoteProtocolError("a line does not end with CR LF")
        return super().maybe_extract_lines()


def _has_bare(text: bytes | bytearray) -> bool:
    """Whether it has a CR or an LF without the other."""
    ends = text.count(b"\r\n")
    return text.count(b"\r") != ends or text.count(b"\n") != ends


def ambiguity(head: bytes) -> str | None:
    """What parsers may read differently in the head of a request, which ends with an empty line; None if nothing."""
    if _has_bare(head):
        return "a line of the head does not end with CR LF"
    if _MAY_BE_AMBIGUOUS.search(head) is None:  # most requests have no body
        return None
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


logger = logging.getLogger("noonmark.rest")
RETRY_AFTER = b"1"
CLOSE = (b"connection", b"close")


class Connection(H11Protocol):
    """A connection of a pool."""

    def __init__(self, pool: ConnectionPool, **options: Any) -> None:
        super().__init__(**options)
        self.conn: StrictConnection = StrictConnection()
        self.app = ConnectionApp(self, self.app)
        self.pool = pool
        self.address, self.is_reserved = "", False
        self.last_received = self.loop.time()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read yet."""
        return self.transport.get_write_buffer_size()

    @property
    def produced(self) -> int:
        """Bytes of answers so far."""
        return self.conn.produced

    @property
    def is_receiving(self) -> bool:
        """Whether the rest of a body is expected."""
        return self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused

    def drop(self) -> None:
        """Close it now; unsent data is lost."""
        self.transport.abort()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn only ever has this kind
        """Join the pool, if there is room."""
        super().connection_made(transport)
        self.address, self.last_received = address_of(self.client), self.loop.time()
        self.pool.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the pool."""
        super().connection_lost(exc)
        self.pool.remove(self)

    def data_received(self, data: bytes) -> None:
        """Parse data from the client."""
        self.last_received = self.loop.time()
        super().data_received(data)

    def handle_events(self) -> None:
        """Process parsed events."""
        super().handle_events()
        self._report_state()

    def on_response_complete(self) -> None:
        """Allow the next request."""
        super().on_response_complete()
        self._report_state()

    def pause_writing(self) -> None:
        """Stop writing: the client does not read fast enough."""
        super().pause_writing()
        self.pool.track_send(self, self.loop.time())

    def _report_state(self) -> None:
        """Tell the pool what is expected next. The rest of an answered request is discarded until the next head."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        is_answered = cycle is None or cycle.response_complete
        if self.conn.their_state is h11.IDLE or is_answered:
            self.pool.expect_head(self, self.loop.time())
        else:
            self.pool.expect_nothing(self)
        if self.unsent:
            self.pool.track_send(self, self.loop.time())

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser has a better one
        """Reject a malformed request and close; without an answer if another one is being sent."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        content, headers = _problem(self.pool.fresh_id(), 400, "invalid_request", self.conn.error)
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class ConnectionApp:
    """The application behind one connection; a reserved connection only gets the health routes."""

    def __init__(self, connection: Connection, app: ASGIApp) -> None:
        """Whether the connection is reserved is known when a request arrives."""
        self._connection, self._app = connection, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection = self._connection

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), CLOSE]
            await send(message)

        if scope["path"] in HEALTH_PATHS and scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send_and_close if connection.is_reserved else send)
        elif connection.is_reserved:
            await _reject(connection.pool, send)
        else:
            await self._app(scope, receive, send)


async def _reject(pool: ConnectionPool, send: Send) -> None:
    """Answer that the server is busy, and close; the request is not processed."""
    pool.refused += 1
    detail = "all connections are in use; the request was not processed, try again"
    content, headers = _problem(pool.fresh_id(), 503, "server_busy", detail)
    await send({"type": "http.response.start", "status": 503, "headers": [*headers, (b"retry-after", RETRY_AFTER)]})
    await send({"type": "http.response.body", "body": content})


def _problem(request_id: str, status: int, code: str, detail: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A problem document that bypasses the application, and its headers, which close the connection."""
    logger.info("request rejected: %s", detail, extra={"request_id": request_id})
    document = {
        "type": f"urn:noonmark:problem:{code}",
        "title": title_of(code),
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
    }
    content = write_json(document)
    headers = [
        (b"content-type", PROBLEM.encode()),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
        CLOSE,
    ]
    return content, headers
