"""One HTTP connection: it parses strictly and reports to the pool that limits all connections."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from noonmark.server.health import PATHS as HEALTH_PATHS
from noonmark.server.problems import PROBLEM, title_of
from noonmark.server.strict_json import write_json
from noonmark.server.transport.connection_pool import address_of
from noonmark.server.transport.strict_http import StrictConnection

if TYPE_CHECKING:
    from asyncio import Transport

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from noonmark.server.transport.connection_pool import ConnectionPool

logger = logging.getLogger("noonmark.rest")
RETRY_AFTER = b"1"
CLOSE = (b"connection", b"close")


class Connection(H11Protocol):
    """A connection of a pool."""

    def __init__(self, pool: ConnectionPool, **options: Any) -> None:  # noqa: ANN401 - the options of uvicorn
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
        self.pool.sends(self, self.loop.time())

    def _report_state(self) -> None:
        """Tell the pool what is expected next. The rest of an answered request is discarded until the next head."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        is_answered = cycle is None or cycle.response_complete
        if self.conn.their_state is h11.IDLE or is_answered:
            self.pool.expect_head(self, self.loop.time())
        else:
            self.pool.expect_nothing(self)
        if self.unsent:
            self.pool.sends(self, self.loop.time())

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
