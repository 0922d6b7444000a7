"""MCP over HTTP: one path, and each request by itself.

There are no sessions, so a session id is nothing that could be guessed or stolen: each request is authenticated by its
key, like every other request of the server, behind the same guard and the same rate limits.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from starlette.responses import Response

from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidRequest
from noonmark.extras import require
from noonmark.server.requests import JSON, read_body
from noonmark.server.uploads import StreamHandler

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

    from noonmark.server.mcp.protocol import Context, Perform
    from noonmark.server.requests import ApiRequest, HttpSettings

PATH = "/mcp"
THREADS = 16
_REQUEST = "noonmark_request"
_LIBRARY = "mcp.server.streamable_http_manager"


def handlers() -> dict[tuple[str, str], StreamHandler]:
    """The handler of the path. The library is loaded with the first request."""
    return {("POST", PATH): StreamHandler(_respond, "mcp", None)}


async def _respond(request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
    require("mcp", PATH)
    body = await read_body(request, settings)
    if not body:
        raise InvalidRequest("there is no message; send one in JSON-RPC 2.0", field="body")
    from noonmark.server.mcp.messages import refusal  # noqa: PLC0415 - see `_server`

    if (error := refusal(body)) is not None:
        return Response(
            error.model_dump_json(exclude_unset=True), HTTPStatus.BAD_REQUEST, {"Cache-Control": "no-store"}, JSON
        )
    request.scope["state"][_REQUEST] = replace(api_request, caller=replace(api_request.caller, source="mcp"))
    return _McpResponse(body, settings.max_body)


def _performer(context: Context) -> Perform:
    """What performs operations for the caller of a request."""
    assert context.request is not None  # noqa: S101 - the transport passes it on
    api_request: ApiRequest = context.request.scope["state"][_REQUEST]
    return api_request.perform


@cache
def _server() -> Any:
    from noonmark.server.mcp.protocol import ToolServer  # noqa: PLC0415 - it takes most of a second

    logging.getLogger(_LIBRARY).setLevel(logging.WARNING)  # it would log each request
    return ToolServer(_performer, SystemClock().micros, CapacityLimiter(THREADS)).make()


class _McpResponse(Response):
    """What the library answers to a body that was read."""

    def __init__(self, body: bytes, max_body: int) -> None:
        super().__init__()
        self._body, self._max_body = body, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the library answer, with the tasks that it starts inside those of this request."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415 - see `_server`

        body: bytes | None = self._body

        async def receive_again() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message: Message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        async def send_uncached(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"cache-control", b"no-store")]
            await send(message)

        manager = StreamableHTTPSessionManager(
            _server(), json_response=True, stateless=True, max_request_body_size=self._max_body + 1
        )
        async with manager.run():
            await manager.handle_request(scope, receive_again, send_uncached)
