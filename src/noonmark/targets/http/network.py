"""Network connections: a name is resolved once, each address is checked, and only a checked address is connected to.

The other side can send only a limited number of bytes per request, however they are encoded; and data that it sends
unasked is never read as the response to the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpcore2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream, ConnectError, ConnectTimeout, ReadError

from noonmark.core.fair_queue import Places
from noonmark.targets.http.errors import ConnectionDropped, EgressDenied, ResponseTooLong, StaleConnection, UnknownHost

if TYPE_CHECKING:
    import ssl
    from collections.abc import Hashable, Iterable

    from httpcore2 import SOCKET_OPTION

    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.targets.http.settings import Resolve


MAX_LOOKUPS = 256
"""How many lookups run at a time: one per request of a node. One owner alone may have half of them."""

request_owner: ContextVar[Hashable] = ContextVar("request_owner", default=None)
"""The owner of the request for which a name is looked up."""


def system_lookup(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system's resolver."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


class Resolver:
    """Looks up names for the requests on one event loop."""

    def __init__(self, resolve: Resolve = system_lookup, limit: int = MAX_LOOKUPS) -> None:
        self._resolve, self._places, self._freed = resolve, Places(limit), asyncio.Event()

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host; empty if it is unknown."""
        owner, loop = request_owner.get(), asyncio.get_running_loop()
        while not self._places.may_have_one(owner):
            self._freed.clear()
            await self._freed.wait()
        future: asyncio.Future[list[str]] = loop.create_future()

        def look_up() -> None:
            try:
                addresses = self._resolve(host, port)
            except (OSError, ValueError):  # ValueError: the name cannot be encoded for DNS
                addresses = []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._finish, owner, future, addresses)

        # A daemon, so that no program waits at its end for a name server that does not answer.
        threading.Thread(target=look_up, name="noonmark-dns", daemon=True).start()
        self._places.take(owner)
        return await future

    def _finish(self, owner: Hashable, future: asyncio.Future[list[str]], addresses: list[str]) -> None:
        self._places.give_back(owner)
        self._freed.set()
        if not future.done():
            future.set_result(addresses)


NEXT_ADDRESS_SECONDS = 5.0
"""Seconds after which the next address of a host is tried, if there is one."""

MAX_RECEIVED = 524_288
"""Bytes that are read per request. Far fewer are stored; the rest are headers, interim responses and chunk markers, of
which there could be any number."""


class GuardedBackend(AsyncNetworkBackend):
    """Opens the connections of a pool; without rules, to any address."""

    def __init__(self, egress: EgressPolicy | None, resolver: Resolver) -> None:
        self._egress, self._resolver = egress, resolver
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of the library
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to one of the addresses of a host, if all of them are allowed."""
        if self._egress is not None and (problem := self._egress.host_problem(host, port)) is not None:
            raise EgressDenied(problem)
        *others, last = await self._addresses(host, port)
        for address in others:
            try:
                stream = await self._backend.connect_tcp(
                    address, port, NEXT_ADDRESS_SECONDS, local_address, socket_options
                )
            except (ConnectError, ConnectTimeout):
                continue
            return BoundedStream(stream)
        return BoundedStream(await self._backend.connect_tcp(last, port, timeout, local_address, socket_options))

    async def _addresses(self, host: str, port: int) -> list[str]:
        addresses = await self._resolver.addresses(host, port)
        if not addresses:
            raise UnknownHost(f"no address is known for {host}")
        for address in addresses:
            if self._egress is not None and (problem := self._egress.address_problem(host, address, port)) is not None:
                raise EgressDenied(problem)
        return addresses


class BoundedStream(AsyncNetworkStream):
    """A connection with a limit of received bytes per request, and none of them from before the request."""

    def __init__(self, stream: AsyncNetworkStream) -> None:
        self._stream, self._left = stream, MAX_RECEIVED
        self._unsent, self._requests = b"", 0
        self._socket: socket.socket = stream.get_extra_info("socket")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - of the library
        """Read the next bytes."""
        if self._unsent:
            await self.write(b"", timeout)
        is_reused = self._requests > 1 and self._left == MAX_RECEIVED
        try:
            received = await self._stream.read(max_bytes, timeout)
        except ReadError as error:
            if is_reused:
                raise ConnectionDropped("it closed a reused connection") from error
            raise
        if is_reused and not received:
            raise ConnectionDropped("it closed a reused connection")
        self._left -= len(received)
        if self._left < 0:
            raise ResponseTooLong(f"the response has more than {MAX_RECEIVED:,} bytes")
        return received

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - of the library
        """Buffer bytes, and send head and body of a request together at its end. Resets the limit."""
        self._left = MAX_RECEIVED
        self._unsent += buffer
        if self._unsent and not buffer:
            if self._requests and self._has_unread_data():
                raise StaleConnection("the other side closed the connection, or sent data unasked")
            request, self._unsent = self._unsent, b""
            self._requests += 1
            await self._stream.write(request, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the library
    ) -> AsyncNetworkStream:
        """Encrypt the connection; it is closed if that fails."""
        try:
            return BoundedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        """Return what the library asks for."""
        return self._has_unread_data() if info == "is_readable" else self._stream.get_extra_info(info)

    def _has_unread_data(self) -> bool:
        """Whether anything came unasked: mostly that the other side closed the connection."""
        # Called for every idle connection on every request, so it has to be fast.
        if _has_buffered_data(self._stream):
            return True
        return _is_readable(self._socket) if hasattr(select, "poll") else self._stream.get_extra_info("is_readable")


def _has_buffered_data(stream: Any) -> bool:
    """Whether the library holds data that it took from the socket and has not delivered.

    True if the internals of the library have changed and this is unknown: the connection is not reused then.
    """
    try:
        inner = stream._stream  # noqa: SLF001 - no public access
        if (encrypted := getattr(inner, "_read_bio", None)) is not None:
            if encrypted.pending or inner._ssl_object.pending():  # noqa: SLF001 - likewise
                return True
            inner = inner.transport_stream
        return bool(inner._protocol.read_queue)  # noqa: SLF001 - likewise
    except AttributeError:
        return True


def _is_readable(connection: socket.socket) -> bool:
    if (fd := connection.fileno()) < 0:
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
