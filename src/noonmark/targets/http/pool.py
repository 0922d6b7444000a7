"""The connection pool: one request at a time per connection, and as much of the response as is stored.

It follows no redirects, uses no proxies, keeps no cookies and decodes nothing: a response costs no more memory than the
part that is stored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import httpcore2
import httpx2

from noonmark.targets.http.errors import ConnectionDropped, EgressDenied, StaleConnection
from noonmark.targets.http.network import GuardedBackend
from noonmark.targets.http.response import read_response

if TYPE_CHECKING:
    import ssl

    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.targets.http.network import Resolver
    from noonmark.targets.http.request import Request
    from noonmark.targets.http.response import Response

SHARD_SIZE = 8
"""Connections per shard of a pool: the library scans all connections of a shard twice for every request."""
KEEP_ALIVE = 3.0
"""Seconds for which an idle connection is kept: fewer than servers do, so that they rarely close it on a request."""


class _Connection(httpcore2.AsyncHTTPConnection):
    """A connection that is not reused after data that was not asked for: it would answer the next request.

    Nor after a response with two lengths: an intermediary may have seen another end of it.
    """

    _is_ambiguous = False

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request, and check the length headers of its response."""
        response = await super().handle_async_request(request)
        names = {name.lower() for name, _ in response.headers}
        self._is_ambiguous = self._is_ambiguous or names >= {b"content-length", b"transfer-encoding"}
        return response

    def has_expired(self) -> bool:
        """Whether to close it. The pool asks as soon as a response was read, and before the next request."""
        return super().has_expired() or (self.is_idle() and (self._is_ambiguous or self._has_trailing_data()))

    def _has_trailing_data(self) -> bool:
        """Whether it has; also True if the internals of the library have changed and this is unknown."""
        try:
            inner = self._connection
            return isinstance(inner, httpcore2.AsyncHTTP11Connection) and bool(inner._h11_state.trailing_data[0])  # noqa: SLF001 - no public access
        except AttributeError:
            return True


class _HttpcorePool(httpcore2.AsyncConnectionPool):
    def __init__(self, tls: ssl.SSLContext, backend: GuardedBackend) -> None:
        super().__init__(max_connections=SHARD_SIZE, max_keepalive_connections=SHARD_SIZE)
        self._tls, self._backend = tls, backend

    def create_connection(self, origin: httpcore2.Origin) -> _Connection:
        """Create a connection."""
        return _Connection(origin, ssl_context=self._tls, keepalive_expiry=KEEP_ALIVE, network_backend=self._backend)


@dataclass(slots=True)
class _Shard:
    pool: _HttpcorePool
    busy: int = 0
    """Requests in flight."""


class ConnectionPool:
    """Connections to whatever the rules allow; without rules, to any address."""

    def __init__(self, egress: EgressPolicy | None, tls: ssl.SSLContext, resolver: Resolver) -> None:
        self._tls, self._backend = tls, GuardedBackend(egress, resolver)
        self._shards: list[_Shard] = []
        self._cleanup: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[list[BaseException | None]] | None = None

    @property
    def connections(self) -> list[httpcore2.AsyncConnectionInterface]:
        """All open connections."""
        return [one for shard in self._shards for one in shard.pool.connections if not one.is_closed()]

    async def send(self, request: Request, *, may_repeat: bool) -> Response:
        """Send a request, and read its response up to the limits. There is no timeout here.

        When the other side closes a reused connection, the request may not have been received. It is sent again, on a
        new connection, if that is allowed or if it surely was not sent.
        """
        shard = self._free_shard()
        shard.busy += 1
        try:
            return await read_response(await shard.pool.handle_async_request(_to_httpcore(request)))
        except (StaleConnection, ConnectionDropped) as error:
            if isinstance(error, ConnectionDropped) and not may_repeat:
                raise
            return await _send_on_new_connection(shard.pool, request)
        finally:
            shard.busy -= 1
            self._schedule_cleanup()

    async def close(self) -> None:
        """Close all connections."""
        if self._cleanup is not None:
            self._cleanup.cancel()
        if self._closing is not None:
            await self._closing
        for shard in self._shards:
            await shard.pool.aclose()

    def _schedule_cleanup(self) -> None:
        """Have idle connections closed in time. The library does that only with the next request of a shard."""
        if self._cleanup is None and self.connections:
            self._cleanup = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._close_expired)

    def _close_expired(self) -> None:
        expired = [one for one in self.connections if one.is_idle() and one.has_expired()]
        self._closing = asyncio.gather(*(one.aclose() for one in expired), return_exceptions=True)
        self._cleanup = None
        self._schedule_cleanup()

    def _free_shard(self) -> _Shard:
        """Return the first shard with room. With few requests it is always the same, so they reuse its connections."""
        for shard in self._shards:
            if shard.busy < SHARD_SIZE:
                return shard
        self._shards.append(_Shard(_HttpcorePool(self._tls, self._backend)))
        return self._shards[-1]


async def _send_on_new_connection(pool: _HttpcorePool, request: Request) -> Response:
    """Send a request on a connection that is closed afterwards."""
    raw = _to_httpcore(request)
    connection = pool.create_connection(raw.url.origin)
    try:
        return await read_response(await connection.handle_async_request(raw))
    finally:
        await connection.aclose()


def _to_httpcore(request: Request) -> httpcore2.Request:
    """Convert a request for the library, with the URL in parts, so that the library does not parse it again."""
    url = request.url
    if not url.host.isascii():
        url = replace(url, host=_ascii_host(url.host))
    headers = [(b"Host", url.authority.encode())]
    headers += [(name.encode(), value.encode()) for name, value in request.headers.items()]
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        headers.append((b"Content-Length", str(len(request.body or b"")).encode()))
    target = httpcore2.URL(
        scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode()
    )
    return httpcore2.Request(request.method, target, headers=headers, content=request.body)


def _ascii_host(host: str) -> str:
    """Return a host in the form that DNS uses. The rules check this form when the connection is opened."""
    try:
        return httpx2.URL(scheme="http", host=host).raw_host.decode()
    except httpx2.InvalidURL:
        raise EgressDenied("its host is not a valid name") from None
