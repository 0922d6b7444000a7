"""The guard before every route: which host was meant, who sent it, under which id it is logged, and what went wrong."""

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
from noonmark.core.jsonvalues import shown
from noonmark.server.problems import failure, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from noonmark.server.requests import HttpSettings

logger = logging.getLogger("noonmark.rest")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PORTS = {"http": 80, "https": 443}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN = frozenset({"cross-site", "same-site"})
"""What a browser says of a request that a page of another origin has made; another port of this machine is one."""


class Guard:
    """Lets through what was meant for this server; a page of another site that a browser shows was not."""

    def __init__(self, app: ASGIApp, *, settings: HttpSettings, fresh_id: Callable[[], str]) -> None:
        """`fresh_id` names the requests that come without an id of their own."""
        self._app, self._fresh_id = app, fresh_id
        self._hosts = {one.lower() for one in (settings.host, *settings.allowed_hosts)}
        self._public = None
        if settings.public_url is not None:
            parts = urlsplit(settings.public_url)
            self._public = (parts.hostname, parts.port or _PORTS.get(parts.scheme))
            self._hosts.add(parts.hostname or "")
        # Of a server that listens everywhere, this is no name.
        self._hosts -= {"", "0.0.0.0", "::"}  # noqa: S104 - it is taken away

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ApiResponse a request, whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        request_id = self._request_id(request)
        scope.setdefault("state", {})["request_id"] = request_id
        bind_contextvars(request_id=request_id)  # for all log lines of this request, which has a task of its own
        has_begun = False

        async def told(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            self._check(request)
            await self._app(scope, receive, told)
        except NotAllowed as error:
            await problem(error, request)(scope, receive, told)
        except ClientDisconnect:
            logger.info("%s %s: the caller went away", request.method, shown(request.scope["path"]))
        except Exception:
            logger.exception(
                "%s %s failed", request.method, shown(request.scope["path"]), extra={"request_id": request_id}
            )
            if has_begun:
                raise
            await failure(request)(scope, receive, told)

    def _request_id(self, request: Request) -> str:
        given = request.headers.getlist("x-request-id")
        return given[0] if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]) else self._fresh_id()

    def _check(self, request: Request) -> None:
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        meant = _authority(hosts[0]) if len(hosts) == 1 else None
        if meant is None or not self._is_ours(meant[0]):
            raise NotAllowed(
                "the Host header names none of the hosts of this server; if it is one, add it to the allowed hosts"
            )
        if origins and (len(origins) > 1 or not self._is_same(origins[0], meant)):
            raise NotAllowed("the request comes from a page of another site, by its Origin header")
        # Not every browser says the origin of every request, but all say this, and no page can change it.
        sites = request.headers.getlist("sec-fetch-site")
        if request.method not in _SAFE and any(one.strip().lower() in _FOREIGN for one in sites):
            raise NotAllowed("the request comes from a page of another site, by its Sec-Fetch-Site header")

    def _is_ours(self, host: str) -> bool:
        if host == "localhost" or host in self._hosts:
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def _is_same(self, origin: str, meant: tuple[str, int | None]) -> bool:
        """Whether a page came from this very server."""
        scheme, mark, authority = origin.partition("://")
        sent = _authority(authority)
        if not mark or scheme not in _PORTS or sent is None:
            return False
        host, port = sent[0], sent[1] or _PORTS[scheme]
        return (host, port) == (meant[0], meant[1] or _PORTS[scheme]) or (host, port) == self._public


_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z._-]+))(?::([0-9]{1,5}))?")


def _authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of a Host header; None when it is something else."""
    found = _AUTHORITY.fullmatch(text.lower())
    if found is None:
        return None
    return found[1] or found[2], None if found[3] is None else int(found[3])
