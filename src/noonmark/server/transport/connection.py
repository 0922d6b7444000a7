"""One connection of the web server: strict in what it reads, and known to the pool that limits all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

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
WATCHING = ("/health", "/health/live", "/health/ready", "/metrics")
"""What is answered also when nothing else is."""


class Connection(H11Protocol):
    """A connection of a pool."""

    def __init__(self, pool: ConnectionPool, **options: Any) -> None:  # noqa: ANN401 - what the web server says to every one
        """Nothing is known of its peer yet."""
        super().__init__(**options)
        self.conn: StrictConnection = StrictConnection()
        self.app = Admitted(self, self.app)
        self.pool = pool
        self.address, self.is_reserved = "", False
        self.heard = self.loop.time()

    @property
    def unsent(self) -> int:
        """Bytes that wait to be read."""
        return self.transport.get_write_buffer_size()

    @property
    def produced(self) -> int:
        """Bytes of answers so far."""
        return self.conn.produced

    @property
    def is_expecting(self) -> bool:
        """Whether the rest of a body is waited for."""
        return self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused

    def drop(self) -> None:
        """End it now, whatever waits to be sent."""
        self.transport.abort()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn only ever has this kind
        """Wait for a request, if there is room."""
        super().connection_made(transport)
        self.address, self.heard = address_of(self.client), self.loop.time()
        self.pool.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits any more."""
        super().connection_lost(exc)
        self.pool.remove(self)

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        self.heard = self.loop.time()
        super().data_received(data)

    def handle_events(self) -> None:
        """Look at what has come."""
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """More waits to be read than is good."""
        super().pause_writing()
        self.pool.sends(self, self.loop.time())

    def _look(self) -> None:
        """Whether the head of a request is still to come. Until then, the rest of an answered one is thrown away."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        is_answered = cycle is None or cycle.response_complete
        if self.conn.their_state is h11.IDLE or is_answered:
            self.pool.expect_head(self, self.loop.time())
        else:
            self.pool.expect_nothing(self)
        if self.unsent:
            self.pool.sends(self, self.loop.time())

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it is always the same
        """Say that this is no HTTP, unless an answer is on its way; and hang up."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        content, headers = _problem(self.pool.fresh_id(), 400, "invalid_request", self.conn.refusal)
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class Admitted:
    """The application as one connection has it: in the reserve, it only tells of the server's health."""

    def __init__(self, connection: Connection, app: ASGIApp) -> None:
        """Whether it is in the reserve is known when a request comes."""
        self._connection, self._app = connection, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection = self._connection

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), CLOSE]
            await send(message)

        if scope["path"] in WATCHING and scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send_last if connection.is_reserved else send)
        elif connection.is_reserved:
            await _refuse(connection.pool, send)
        else:
            await self._app(scope, receive, send)


async def _refuse(pool: ConnectionPool, send: Send) -> None:
    """Say that there is too much to do, and hang up; nothing of the request has been carried out."""
    pool.refused += 1
    why = "all connections are in use; nothing was done, try again"
    content, headers = _problem(pool.fresh_id(), 503, "server_busy", why)
    await send({"type": "http.response.start", "status": 503, "headers": [*headers, (b"retry-after", RETRY_AFTER)]})
    await send({"type": "http.response.body", "body": content})


def _problem(request_id: str, status: int, code: str, detail: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A problem document before the application is asked, and its headers; the last of the connection."""
    logger.info("refused: %s", detail, extra={"request_id": request_id})
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
