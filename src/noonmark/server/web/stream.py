"""The stream of changes, as server-sent events: hints of what to read again, for the page and any other client."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from noonmark.core.api_key import Scope
from noonmark.server.problems import HttpError
from noonmark.server.strict_json import write_json
from noonmark.server.uploads import StreamHandler
from noonmark.server.web.changes import View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Send
    from starlette.types import Scope as ASGIScope

    from noonmark.operations.service import Caller
    from noonmark.server.requests import ApiRequest, HttpSettings
    from noonmark.server.web.changes import ChangeHub, Message, Subscription

PATH = "/stream"
MEDIA_TYPE = "text/event-stream"
HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes the connection for dead."""
RETRY_MILLISECONDS = 2_000
"""How long a browser waits before it connects again."""
RETRY_AFTER = 5
_COUNTER = re.compile(r"[0-9]{1,16}", re.ASCII)
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class ChangeStream:
    """Serves the stream."""

    def __init__(self, hub: ChangeHub, revalidator: Callable[[Request], Callable[[], bool]]) -> None:
        """`revalidator` makes what says whether the key of a request is still good."""
        self._hub, self._revalidator = hub, revalidator

    def handlers(self) -> dict[tuple[str, str], StreamHandler]:
        """The route."""
        return {("GET", PATH): StreamHandler(self._respond, "stream", Scope.READ)}

    async def _respond(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
        api_request.query({})
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=MEDIA_TYPE)
        if self._hub.open >= settings.max_streams:
            message = f"all {settings.max_streams:,} streams of this server are in use; try again later"
            raise HttpError(503, "server_busy", message, headers={"Retry-After": str(RETRY_AFTER)})
        subscription, is_reset = await self._hub.subscribe(
            _view_of(api_request.caller), self._revalidator(request), _last_counter(request)
        )
        return _StreamResponse(self._hub, subscription, _messages(subscription, is_reset=is_reset))


class _StreamResponse(StreamingResponse):
    """The answer to one client."""

    def __init__(self, hub: ChangeHub, subscription: Subscription, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, headers=_HEADERS, media_type=MEDIA_TYPE)
        self._hub, self._subscription = hub, subscription

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Send it until it ends; the client may be gone before its first message."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.unsubscribe(self._subscription)


async def _messages(subscription: Subscription, *, is_reset: bool) -> AsyncIterator[bytes]:
    """The messages of a client, until its key is revoked or the server stops."""
    yield f"retry: {RETRY_MILLISECONDS}\nid: {subscription.counter}\n\n".encode()
    if is_reset:
        yield _reset(subscription.counter)
    while not subscription.is_over:
        subscription.wakeup.clear()
        message = subscription.channel.after(subscription.counter)
        if message is not None:
            subscription.counter = message.counter
            yield _event(message)
            continue
        try:
            async with asyncio.timeout(HEARTBEAT):
                await subscription.wakeup.wait()
        except TimeoutError:
            yield b":\n\n"


def _view_of(caller: Caller) -> View:
    user = caller.owner.user if caller.sees_own_only else None
    return View(caller.owner.tenant, user, sees_nodes=caller.is_root)


def _last_counter(request: Request) -> int | None:
    """The last message that a client has had. What is not a number is unknown, as an old number is."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return None
    return int(given) if _COUNTER.fullmatch(given) else -1


def _event(message: Message) -> bytes:
    if message.is_reset:
        return _reset(message.counter)
    document = {
        "counter": message.counter,
        "topics": sorted(message.topics),
        "schedule_ids": list(message.schedule_ids),
        "more": message.has_more,
    }
    return b"event: change\nid: %d\ndata: %s\n\n" % (message.counter, write_json(document))


def _reset(counter: int) -> bytes:
    return b"event: reset\nid: %d\ndata: %s\n\n" % (counter, write_json({"counter": counter}))
