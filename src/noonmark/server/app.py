"""The application: every route of the table behind one guard."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Path

from noonmark.core.errors import NoonmarkError
from noonmark.operations.service import LOCAL
from noonmark.server import health as health_routes
from noonmark.server import jsonrpc, openapi, routes, uploads
from noonmark.server.dialects import cron_service, tasks
from noonmark.server.guard import Guard
from noonmark.server.problems import HttpError, problem, request_id_of
from noonmark.server.requests import ApiRequest, read_body
from noonmark.server.uploads import Streamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from noonmark.operations.service import Service
    from noonmark.server.health import Health, Metrics
    from noonmark.server.requests import Handler, HttpSettings

SOURCE = "rest"
VERSION = version("noonmark")
NO_BODY = frozenset({"GET", "HEAD"})
_UNLIMITED = CapacityLimiter(math.inf)
"""Each table has its own limit, which is taken before a thread is."""
WORKING, WATCHING = 40, 8
"""How many requests are worked on at a time; those who watch have threads of their own, so that they are answered
while all others wait for the store."""


def create_app(
    service: Service, settings: HttpSettings, metrics: Metrics | None = None, *, health: Health | None = None
) -> FastAPI:
    """Everything that is served over HTTP."""
    app = FastAPI(title="Noonmark", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    described = cache(partial(openapi.document, VERSION))
    app.openapi = described  # type: ignore[method-assign] # as FastAPI would have it
    app.add_middleware(Guard, settings=settings, fresh_id=service.fresh_id)
    app.add_exception_handler(HTTPException, _refused)
    table: dict[tuple[str, str], Handler | Streamed] = {
        **routes.handlers(),
        **cron_service.handlers(),
        **tasks.handlers(),
        **jsonrpc.handlers(),
        **uploads.handlers(),
    }
    add(app, service, settings, table, threads=WORKING)
    add(app, service, settings, health_routes.handlers(health, metrics), threads=WATCHING)
    add(app, service, settings, health_routes.quick_handlers(health), threads=None)
    return app


def add(
    app: FastAPI,
    service: Service,
    settings: HttpSettings,
    table: Mapping[tuple[str, str], Handler | Streamed],
    *,
    threads: int | None,
) -> None:
    """Serve the handlers of a table, in so many threads; a path without a variable part goes first.

    What never waits needs no thread, and then waits for none.
    """
    limiter = None if threads is None else CapacityLimiter(threads)
    for path in sorted({path for _, path in table}, key=lambda one: "{" in one):
        by_method = {method: handler for (method, where), handler in table.items() if where == path}
        app.router.routes.append(Path(path, Endpoint(service, settings, by_method, limiter)))


class Endpoint:
    """One path: reads the body, lets the handler of the method answer, in a thread if it may have to wait."""

    def __init__(
        self,
        service: Service,
        settings: HttpSettings,
        by_method: Mapping[str, Handler | Streamed],
        limiter: CapacityLimiter | None,
    ) -> None:
        """A path that can be got can be asked for its headers alone, too."""
        self._limiter = limiter
        self._service, self._settings, self._handlers = service, settings, dict(by_method)
        if "GET" in self._handlers:
            self._handlers["HEAD"] = self._handlers["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ApiResponse one request."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except NoonmarkError as error:
            response = problem(error, request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        handler = self._handlers.get(request.method)
        if handler is None:
            raise _not_by_this_method(self._handlers)
        is_read = request.method not in NO_BODY and not isinstance(handler, Streamed)
        body = await read_body(request, self._settings) if is_read else b""
        asked = ApiRequest(
            service=self._service,
            caller=replace(LOCAL, source=SOURCE, request_id=request_id_of(request), chain=_chain(request)),
            path=request.path_params,
            query_string=request.scope["query_string"],
            headers=request.headers,
            body=body,
        )
        if isinstance(handler, Streamed):
            return await handler.answer(request, asked, self._settings)
        if self._limiter is None:
            return _written(handler, asked)
        has_waited = not self._limiter.available_tokens
        async with self._limiter:
            if has_waited and request.method in NO_BODY and await request.is_disconnected():
                raise ClientDisconnect  # nobody would read it, and others wait
            return await to_thread.run_sync(_written, handler, asked, limiter=_UNLIMITED)


def _chain(request: Request) -> str:
    """Which occurrence's work asks, as it says; whoever says several things says nothing."""
    given = request.headers.getlist("noonmark-chain")
    return given[0] if len(given) == 1 else ""


def _written(handler: Handler, asked: ApiRequest) -> Response:
    """What a handler answers, as bytes: a long list takes its time to write, too."""
    answer = handler(asked)
    content, media_type = answer.content
    return Response(content, answer.status, {"Cache-Control": "no-store", **answer.headers}, media_type=media_type)


def _not_by_this_method(methods: Iterable[str]) -> HttpError:
    allowed = ", ".join(sorted(methods))
    return HttpError(405, "method_not_allowed", f"allowed are {allowed}", headers={"Allow": allowed})


async def _refused(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    if status == 404:
        return problem(HttpError(404, "not_found", "there is nothing at this path"), request)
    if status == 405:
        return problem(_not_by_this_method(headers.get("Allow", "").split(", ")), request)
    return problem(HttpError(status, "invalid_request", "the request is not valid", headers=headers), request)
