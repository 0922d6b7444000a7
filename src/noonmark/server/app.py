"""The ASGI application: every route behind one guard."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from noonmark.clocks import SystemClock
from noonmark.core.errors import NoonmarkError
from noonmark.core.frozen import evolve
from noonmark.operations.errors import hidden_cause
from noonmark.operations.key_cache import KeyCache
from noonmark.operations.service import LOCAL
from noonmark.operations.table import check_scope
from noonmark.server import bundles, jsonrpc, openapi, pings, routes, uploads
from noonmark.server import health as health_routes
from noonmark.server.authentication import SOURCE, Authenticator
from noonmark.server.dialects import cron_service, tasks
from noonmark.server.guard import RequestGuard
from noonmark.server.handler_threads import HandlerThreads
from noonmark.server.mcp import endpoint as mcp
from noonmark.server.problems import HttpError, problem_response, request_id_of
from noonmark.server.requests import ApiRequest, ApiResponse, CreatingHandler, ReadingHandler, TextHandler, read_body
from noonmark.server.router import ShapeRouter
from noonmark.server.uploads import StreamHandler
from noonmark.server.web import files
from noonmark.server.web.changes import ChangeHub
from noonmark.server.web.sign_in import SignIn
from noonmark.server.web.stream import ChangeStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from noonmark.operations.creations import Creation
    from noonmark.operations.service import Caller, Service
    from noonmark.server.authentication import Tokens
    from noonmark.server.health import Health, Metrics
    from noonmark.server.rate_limits import RateLimits
    from noonmark.server.requests import Handler, HttpSettings

VERSION = version("noonmark")
OPENAPI_PATH = "/openapi.json"
NO_BODY = frozenset({"GET", "HEAD"})
API_THREADS = 40
HEALTH_THREADS = 8
"""Health checks have threads of their own: they are answered while every other request waits for the store."""


def create_app(  # noqa: PLR0913 - each is a part of the application
    service: Service,
    settings: HttpSettings,
    metrics: Metrics | None = None,
    *,
    health: Health | None = None,
    tokens: Tokens | None = None,
    rates: RateLimits | None = None,
    hub: ChangeHub | None = None,
) -> Starlette:
    """Create the application that serves everything over HTTP. With `tokens`, callers may send signed tokens too.

    `hub` learns what the operations of the service change; without one, the application has its own.
    """
    if hub is None:
        hub = ChangeHub(service.store)
        service = replace(service, changed=hub.publish)
    if service.key_cache is None:
        service = replace(service, key_cache=KeyCache(service.store, SystemClock().monotonic))
    assert service.key_cache is not None  # noqa: S101 - see above
    sees_own_only = settings.visibility == "owner"
    authenticator = Authenticator(
        service,
        service.key_cache,
        sees_own_only=sees_own_only,
        tokens=tokens,
        rates=rates,
        has_page=settings.has_page,
    )
    api: dict[tuple[str, str], Handler | StreamHandler] = {
        **routes.handlers(),
        **cron_service.handlers(),
        **tasks.handlers(),
        **jsonrpc.handlers(),
        **uploads.handlers(),
        **bundles.handlers(),
        **mcp.handlers(),
        **ChangeStream(hub, authenticator.revalidator).handlers(),
        **health_routes.metrics_handlers(metrics),
    }
    endpoints = partial(_endpoints, service, settings)
    threads = HandlerThreads(API_THREADS)
    router = ShapeRouter(
        [
            *endpoints({("GET", OPENAPI_PATH): _openapi_handler()}, None, authenticator),
            *endpoints(api, threads, authenticator),
            *endpoints(pings.handlers(), threads, None),
            *endpoints(health_routes.handlers(health), HandlerThreads(HEALTH_THREADS), None),
            *endpoints(health_routes.nonblocking_handlers(health), None, None),
            *(endpoints(SignIn(authenticator).handlers(), None, None) if settings.has_page else ()),
            *(files.routes() if settings.has_page else ()),
        ]
    )
    app = Starlette(
        middleware=[Middleware(RequestGuard, settings=settings, fresh_id=service.fresh_id)],
        exception_handlers={HTTPException: _router_error},
    )
    app.router = router
    app.state.hub = hub
    return app


def _openapi_handler() -> Handler:
    document = cache(partial(openapi.document, VERSION))

    def handle(_: ApiRequest) -> ApiResponse:
        return ApiResponse(document=document())

    return handle


def _endpoints(
    service: Service,
    settings: HttpSettings,
    handlers: Mapping[tuple[str, str], Handler | StreamHandler],
    threads: HandlerThreads | None,
    authenticator: Authenticator | None,
) -> Iterator[Route]:
    """One endpoint per path; paths without a variable part come first."""
    for path in sorted({path for _, path in handlers}, key=lambda one: "{" in one):
        by_method = {method: handler for (method, where), handler in handlers.items() if where == path}
        yield Route(path, Endpoint(path, service, settings, by_method, threads, authenticator))


class Endpoint:
    """One path: reads the body and calls the handler of the method, in a thread unless it has none.

    Without `authenticator`, everyone may call it.
    """

    def __init__(
        self,
        path: str,
        service: Service,
        settings: HttpSettings,
        by_method: Mapping[str, Handler | StreamHandler],
        threads: HandlerThreads | None,
        authenticator: Authenticator | None,
    ) -> None:
        """A path that has GET also has HEAD."""
        self._path, self._threads, self._authenticator = path, threads, authenticator
        self._service, self._settings, self._handlers = service, settings, dict(by_method)
        self._reads_take_turns = service.store.traits.is_in_process
        if "GET" in self._handlers:
            self._handlers["HEAD"] = self._handlers["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request, traces = Request(scope, receive), self._service.traces
        if traces is None:
            await (await self._answer(request))(scope, receive, send)
            return
        with traces.request(request.method, self._path, request.headers) as set_status:
            response = await self._answer(request)
            set_status(response.status_code)
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except NoonmarkError as error:
            return problem_response(error, request)

    async def _respond(self, request: Request) -> Response:
        handler = self._handlers.get(request.method)
        authenticator = self._authenticator
        caller: Caller | None = LOCAL
        if authenticator is not None:
            with hidden_cause(request_id_of(request)):
                caller = None if await authenticator.is_callback(request) else await authenticator.authenticate(request)
        if handler is None:
            raise _method_not_allowed(self._handlers)
        reads_body = request.method not in NO_BODY and not isinstance(handler, StreamHandler)
        is_json = not isinstance(handler, TextHandler)
        body = await read_body(request, self._settings, is_json=is_json) if reads_body else b""
        if caller is None:
            assert authenticator is not None  # noqa: S101 - see above
            with hidden_cause(request_id_of(request)):
                caller = await authenticator.authenticate_receiver(request, body)
        api_request = ApiRequest(
            service=self._service,
            caller=evolve(caller, source=SOURCE, request_id=request_id_of(request), chain=_chain(request)),
            path=request.path_params,
            query_string=request.scope["query_string"],
            headers=request.headers,
            body=body,
            **({} if authenticator is None else {"exceeded": partial(authenticator.exceeded, request, caller)}),
        )
        if isinstance(handler, StreamHandler):
            if handler.scope is not None:
                check_scope(handler.name, handler.scope, caller)
            return await handler.respond(request, api_request, self._settings)
        threads = self._threads
        if threads is None:
            return _call(handler, api_request)
        if await threads.wait_for_room() and request.method in NO_BODY and await request.is_disconnected():
            raise ClientDisconnect  # do no work for a client that is gone while others wait
        if isinstance(handler, CreatingHandler) and handler.may_share(api_request):
            key, store = caller.owner.tenant, self._service.store
            return await threads.call_in_group(key, store.create_each, _creation, handler, api_request)
        if self._reads_take_turns and isinstance(handler, ReadingHandler) and handler.is_quick(api_request):
            return await threads.call_in_turn(handler.quick, _call, handler, api_request)
        return await threads.call(_call, handler, api_request)


def _chain(request: Request) -> str:
    """The causation chain that the client names; a repeated header counts as none."""
    given = request.headers.getlist("noonmark-chain")
    return given[0] if len(given) == 1 else ""


def _call(handler: Handler, api_request: ApiRequest) -> Response:
    """Call a handler and encode its answer; encoding a long list takes time too, so both run in the thread."""
    return _encode(handler(api_request))


def _creation(handler: CreatingHandler, api_request: ApiRequest) -> Creation[Response]:
    """The same for a handler that yields what it creates."""
    return _encode((yield from handler.steps(api_request)))


def _encode(answer: ApiResponse) -> Response:
    content, media_type = answer.content
    return Response(content, answer.status, {"Cache-Control": "no-store", **answer.headers}, media_type=media_type)


def _method_not_allowed(methods: Iterable[str]) -> HttpError:
    allowed = ", ".join(sorted(methods))
    return HttpError(405, "method_not_allowed", f"allowed are {allowed}", headers={"Allow": allowed})


async def _router_error(request: Request, error: Exception) -> Response:
    """Turn an error of the router into a problem document."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    if status == 404:
        return problem_response(HttpError(404, "not_found", "there is no such path"), request)
    if status == 405:
        return problem_response(_method_not_allowed(headers.get("Allow", "").split(", ")), request)
    return problem_response(HttpError(status, "invalid_request", "the request is not valid", headers=headers), request)
