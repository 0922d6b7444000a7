"""The guard in front of every route: checks Host and Origin, assigns the request id, and answers unexpected errors."""

from __future__ import annotations

import ipaddress
import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from structlog.contextvars import bind_contextvars

from noonmark.core.errors import NotAllowed
from noonmark.core.json_values import shown
from noonmark.core.redaction import redact, redact_ping
from noonmark.server.problems import internal_error_response, problem_response
from noonmark.server.rate_limits import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from noonmark.server.requests import HttpSettings

logger = logging.getLogger("noonmark.rest")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PORTS = {"http": 80, "https": 443}
HSTS = "max-age=31536000"
"""Browsers and clients use https for a year."""
API_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""Sec-Fetch-Site of a request from a page of another origin; another port of this machine is another origin."""
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z._-]+))(?::([0-9]{1,5}))?")


class RequestGuard:
    """Rejects requests for another host, and requests that a page of another site makes in a browser."""

    def __init__(self, app: ASGIApp, *, settings: HttpSettings, fresh_id: Callable[[], str]) -> None:
        """`fresh_id` names requests that have no valid X-Request-Id."""
        self._app, self._fresh_id = app, fresh_id
        self._checks_host = settings.checks_host
        self._proxies = [ipaddress.ip_network(one, strict=False) for one in settings.trusted_proxies]
        self._hosts = {one.lower() for one in (settings.host, *settings.allowed_hosts)}
        self._public = None
        if settings.public_url is not None:
            parts = urlsplit(settings.public_url)
            self._public = (parts.hostname, parts.port or _PORTS.get(parts.scheme))
            self._hosts.add(parts.hostname or "")
        # The wildcard addresses are not host names.
        self._hosts -= {"", "0.0.0.0", "::"}  # noqa: S104 - they are removed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, also after an internal error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        self._read_forwarded(request)
        request_id = self._request_id(request)
        scope.setdefault("state", {})["request_id"] = request_id
        bind_contextvars(request_id=request_id)  # each request has its own task, so this covers its log lines only
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                given = message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
                names = {name for name, _ in given}
                # A browser that opens an answer of the API shows it as what it is, and runs nothing in it.
                given += [header for header in API_HEADERS if header[0] not in names]
                if limits := scope["state"].get(HEADERS):
                    MutableHeaders(scope=message).update(limits)
                if scope["scheme"] == "https":
                    MutableHeaders(scope=message)["Strict-Transport-Security"] = HSTS
            await send(message)

        try:
            self._check(request)
            await self._app(scope, receive, send_with_id)
        except NotAllowed as error:
            await problem_response(error, request)(scope, receive, send_with_id)
        except ClientDisconnect:
            logger.info("%s %s: client disconnected", request.method, _path(request))
        except Exception:
            logger.exception("%s %s failed", request.method, _path(request), extra={"request_id": request_id})
            if has_started:
                raise
            await internal_error_response(request)(scope, receive, send_with_id)

    def _read_forwarded(self, request: Request) -> None:
        """Take the address and the scheme of the client from the headers of a trusted proxy."""
        client = request.scope.get("client")
        if not self._proxies or client is None or not self._is_proxy(client[0]):
            return
        protocols = request.headers.getlist("x-forwarded-proto")
        if len(protocols) == 1 and protocols[0].strip().lower() in _PORTS:
            request.scope["scheme"] = protocols[0].strip().lower()
        # Each proxy appends the address that it saw: the last one that is not a proxy is the client.
        hops = [one.strip() for line in request.headers.getlist("x-forwarded-for") for one in line.split(",")]
        for hop in reversed(hops):
            if not _is_address(hop):
                return
            request.scope["client"] = (hop, 0)
            if not self._is_proxy(hop):
                return

    def _is_proxy(self, address: str) -> bool:
        return _is_address(address) and any(ipaddress.ip_address(address) in network for network in self._proxies)

    def _request_id(self, request: Request) -> str:
        given = request.headers.getlist("x-request-id")
        return given[0] if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]) else self._fresh_id()

    def _check(self, request: Request) -> None:
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        host = _parse_authority(hosts[0]) if len(hosts) == 1 else None
        if host is None or (self._checks_host and not self._is_our_host(host[0])):
            raise NotAllowed("the Host header names no host of this server; if it is one, add it to the allowed hosts")
        if origins and (len(origins) > 1 or not self._is_same_origin(origins[0], host)):
            raise NotAllowed("the request comes from a page of another site, by its Origin header")
        # Some browsers omit Origin, but all send Sec-Fetch-Site, and no page can change it.
        sites = request.headers.getlist("sec-fetch-site")
        if request.method not in _SAFE_METHODS and any(one.strip().lower() in _FOREIGN_SITES for one in sites):
            raise NotAllowed("the request comes from a page of another site, by its Sec-Fetch-Site header")

    def _is_our_host(self, host: str) -> bool:
        if host == "localhost" or host in self._hosts:
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def _is_same_origin(self, origin: str, requested: tuple[str, int | None]) -> bool:
        scheme, separator, authority = origin.partition("://")
        sender = _parse_authority(authority)
        if not separator or scheme not in _PORTS or sender is None:
            return False
        host, port = sender[0], sender[1] or _PORTS[scheme]
        return (host, port) == (requested[0], requested[1] or _PORTS[scheme]) or (host, port) == self._public


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _path(request: Request) -> str:
    """The path of a request, for logs."""
    return shown(redact(redact_ping(request.scope["path"])))


def _parse_authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of a Host header; None if it is malformed."""
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    return match[1] or match[2], None if match[3] is None else int(match[3])
