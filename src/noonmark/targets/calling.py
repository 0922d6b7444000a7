"""Calling: one request over pooled connections, and as much of the answer as is kept.

No redirect is followed, no proxy is asked, no cookie is kept, and nothing is unpacked: an answer costs no more memory
than what is kept of it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2

from noonmark.core.json_values import json_problem, printable
from noonmark.core.redaction import MASK
from noonmark.targets.guard import Connector, HungUp, Refused, Unusable

if TYPE_CHECKING:
    import ssl

    from noonmark.core.redaction import Redactor
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.targets.requests import Request
    from noonmark.targets.resolving import Resolver

MAX_BODY = 65_536
MAX_HEADER = 1_000
OF_INTEREST = ("content-type", "content-encoding", "etag", "location", "retry-after", "x-request-id")
"""The headers of an answer that are kept."""
NOT_KEPT = "not kept: the request carried a secret, and of such an answer only JSON is kept"
EACH = 16
"""Connections of one part of a pool: the library looks at all of them, twice for every request."""
KEEP_ALIVE = 3.0
"""Seconds for which an idle connection is kept: less than servers do, so that hardly one hangs up on a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is kept of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool
    """There was more of the body."""

    def to_document(self, hidden: Redactor, *, only_json: bool) -> dict[str, Any]:
        """The answer as JSON: its body as what it says it is, as far as that can be told, and without what is hidden.

        Of the answer to a request that carried a secret `only_json` is kept, for there every text can be looked at as
        what it says; and nothing that was cut, for a cut may go through a secret.
        """
        document: dict[str, Any] = {"status": self.status}
        kept = {name: self.headers[name] for name in OF_INTEREST if name in self.headers}
        if kept:
            document["headers"] = {
                name: MASK if only_json and len(value) >= MAX_HEADER else hidden.text(value)
                for name, value in kept.items()
            }
        if not self.body:
            return document
        is_packed = self.headers.get("content-encoding", "identity").lower() != "identity"
        is_json, value = (False, None) if is_packed else self._json()
        if is_json:
            return document | {"body": hidden.json(value)}
        if only_json:
            size = {"body_cut": True} if self.is_cut else {"body_bytes": len(self.body)}
            return document | {"body_note": NOT_KEPT} | size
        if is_packed:
            return document  # nobody asked for it, and what it unpacks to has no limit
        text, is_cut = self._text()
        return document | {"body": hidden.text(text)} | ({"body_cut": True} if is_cut else {})

    def _json(self) -> tuple[bool, Any]:
        """Whether the body is JSON that can be kept, and what it says."""
        if "json" in self.headers.get("content-type", "").lower() and not self.is_cut:
            try:
                value = json.loads(self.body)
            except (ValueError, RecursionError):
                return False, None
            # Numbers can grow: 9e15 has 18 digits.
            return json_problem(value) is None and _size(value) <= MAX_BODY, value
        return False, None

    def _text(self) -> tuple[str, bool]:
        text = self.body.decode(errors="replace").replace("\0", "\ufffd")
        is_cut = self.is_cut
        while _size(text) > MAX_BODY + 2:
            text, is_cut = text[: len(text) * 7 // 8], True
        return text, is_cut


class _Connection(httpcore2.AsyncHTTPConnection):
    """One that is not used again once it has said more than it was asked: that would answer the next request.

    Nor once it has told two lengths of one answer: where that ends, somebody between may have seen otherwise.
    """

    _is_doubtful = False

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request, and look at how long its answer says it is."""
        response = await super().handle_async_request(request)
        said = {name.lower() for name, _ in response.headers}
        self._is_doubtful = self._is_doubtful or said >= {b"content-length", b"transfer-encoding"}
        return response

    def has_expired(self) -> bool:
        """Whether to close it. The pool asks as soon as an answer was read, and again before the next request."""
        return super().has_expired() or (self.is_idle() and (self._is_doubtful or self._has_more()))

    def _has_more(self) -> bool:
        """Whether it has; so it counts too where the library has changed, and it cannot be told."""
        try:
            inner = self._connection
            return isinstance(inner, httpcore2.AsyncHTTP11Connection) and bool(inner._h11_state.trailing_data[0])  # noqa: SLF001 - no other way to see it
        except AttributeError:
            return True


class _Connections(httpcore2.AsyncConnectionPool):
    """So many of them, to whatever places there are."""

    def __init__(self, tls: ssl.SSLContext, connector: Connector) -> None:
        super().__init__(max_connections=EACH, max_keepalive_connections=EACH)
        self._tls, self._connector = tls, connector

    def create_connection(self, origin: httpcore2.Origin) -> _Connection:
        """One that is new."""
        return _Connection(origin, ssl_context=self._tls, keepalive_expiry=KEEP_ALIVE, network_backend=self._connector)


@dataclass(slots=True)
class _Part:
    pool: _Connections
    busy: int = 0
    """So many calls are under way here."""


class Pool:
    """Connections to whatever the rules let them go to; without rules, to everywhere."""

    def __init__(self, reach: EgressPolicy | None, tls: ssl.SSLContext, resolver: Resolver) -> None:
        """There are no connections yet."""
        self._tls, self._connector = tls, Connector(reach, resolver)
        self._parts: list[_Part] = []
        self._tidying: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[list[BaseException | None]] | None = None

    @property
    def connections(self) -> list[httpcore2.AsyncConnectionInterface]:
        """All that are open."""
        return [one for part in self._parts for one in part.pool.connections if not one.is_closed()]

    async def call(self, request: Request, *, may_repeat: bool) -> Answer:
        """Send a request, and read the answer as far as it is kept. It takes as long as the other side likes.

        Where the other side hangs up on a connection that was kept, it may not have heard the request: that is sent
        again then, on a new one, if it may be. Of one that was not sent yet, that is certain.
        """
        part = self._free_part()
        part.busy += 1
        try:
            return await _heard(await part.pool.handle_async_request(_raw(request)))
        except (Unusable, HungUp) as error:
            if isinstance(error, HungUp) and not may_repeat:
                raise
            return await _call_anew(part.pool, request)
        finally:
            part.busy -= 1
            self._plan_tidying()

    async def close(self) -> None:
        """Hang up."""
        if self._tidying is not None:
            self._tidying.cancel()
        if self._closing is not None:
            await self._closing
        for part in self._parts:
            await part.pool.aclose()

    def _plan_tidying(self) -> None:
        """See to it that what is idle is closed in time. The library does that only when a part has another call."""
        if self._tidying is None and self.connections:
            self._tidying = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._tidy)

    def _tidy(self) -> None:
        expired = [one for one in self.connections if one.is_idle() and one.has_expired()]
        self._closing = asyncio.gather(*(one.aclose() for one in expired), return_exceptions=True)
        self._tidying = None
        self._plan_tidying()

    def _free_part(self) -> _Part:
        """The first that has room: where there are few calls it is always the same, and they find its connections."""
        for part in self._parts:
            if part.busy < EACH:
                return part
        self._parts.append(_Part(_Connections(self._tls, self._connector)))
        return self._parts[-1]


async def _call_anew(pool: _Connections, request: Request) -> Answer:
    """The same on a connection of its own, which is not kept."""
    raw = _raw(request)
    connection = pool.create_connection(raw.url.origin)
    try:
        return await _heard(await connection.handle_async_request(raw))
    finally:
        await connection.aclose()


async def _heard(response: httpcore2.Response) -> Answer:
    try:
        body, is_cut = bytearray(), False
        async for chunk in response.aiter_stream():
            body += chunk[: MAX_BODY + 1 - len(body)]
            if is_cut := len(body) > MAX_BODY:
                break
    finally:
        await response.aclose()
    headers = {name.decode("latin-1").lower(): _value(value) for name, value in reversed(response.headers)}
    return Answer(status=response.status, headers=headers, body=bytes(body[:MAX_BODY]), is_cut=is_cut)


def _raw(request: Request) -> httpcore2.Request:
    """The request as the library takes it: in parts, so that it has no text of a URL to read in its own way."""
    url = replace(request.url, host=_in_ascii(request.url.host))
    headers = [(b"Host", url.authority.encode())]
    headers += [(name.encode(), value.encode()) for name, value in request.headers.items()]
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        headers.append((b"Content-Length", str(len(request.body or b"")).encode()))
    place = httpcore2.URL(scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode())
    return httpcore2.Request(request.method, place, headers=headers, content=request.body)


def _in_ascii(host: str) -> str:
    """A host as name servers know it. It is judged in that form, too, when the connection is made."""
    if host.isascii():
        return host
    try:
        return httpx2.URL(scheme="http", host=host).raw_host.decode()
    except httpx2.InvalidURL:
        raise Refused("its host is no name that can be looked up") from None


def _size(value: Any) -> int:  # noqa: ANN401 - JSON
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _value(value: bytes) -> str:
    return printable(value[:MAX_HEADER].decode(errors="replace"))[:MAX_HEADER]
