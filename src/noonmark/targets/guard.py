"""Connecting: a name is looked up once, each of its addresses is judged, and one of those is dialled and no other.

Whoever is at the other end can say so much to one request and no more, however it is packed; and what is said unasked
is never heard as the answer to the next request.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

import httpcore2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream, ConnectError, ConnectTimeout, NetworkError, ReadError

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterable

    from httpcore2 import SOCKET_OPTION

    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.targets.resolving import Resolver

NEXT_ADDRESS = 5.0
"""Seconds after which the next address of a host is tried, where there is one."""

MAX_HEARD = 524_288
"""Bytes that are read in answer to one request. Far fewer are kept; the rest are headers, interim answers and the
marks between chunks, of which there could be any number."""


class Refused(Exception):
    """The rules of this node do not let a request go there."""


class Unknown(ConnectError):
    """No address is known for the host."""


class TooLong(ReadError):
    """The answer goes on for longer than is read of any."""


class Unusable(NetworkError):
    """Nothing was said: the other side of a connection that was kept has hung up, or talks unasked."""


class HungUp(ReadError):
    """A connection that was kept ended before any of the answer came: perhaps before the request was heard."""


class Connector(AsyncNetworkBackend):
    """Makes the connections of a pool; without rules, to everywhere."""

    def __init__(self, reach: EgressPolicy | None, resolver: Resolver) -> None:
        """Nothing is looked up yet."""
        self._reach, self._resolver = reach, resolver
        self._dial = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of the library
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to one of the addresses of a host, if all of them may be reached."""
        if self._reach is not None and (problem := self._reach.host_problem(host, port)) is not None:
            raise Refused(problem)
        addresses = await self._addresses(host, port)
        *others, last = addresses
        for address in others:
            try:
                return Line(await self._dial.connect_tcp(address, port, NEXT_ADDRESS, local_address, socket_options))
            except (ConnectError, ConnectTimeout):
                continue
        return Line(await self._dial.connect_tcp(last, port, timeout, local_address, socket_options))

    async def _addresses(self, host: str, port: int) -> list[str]:
        addresses = await self._resolver.addresses(host, port)
        if not addresses:
            raise Unknown(f"no address is known for {host}")
        for address in addresses:
            if self._reach is not None and (problem := self._reach.address_problem(host, address, port)) is not None:
                raise Refused(problem)
        return addresses


class Line(AsyncNetworkStream):
    """A connection on which one request hears so much and no more, and nothing that came before it was made."""

    def __init__(self, stream: AsyncNetworkStream) -> None:
        """Nothing was said or heard yet."""
        self._stream, self._left = stream, MAX_HEARD
        self._unsaid, self._requests = b"", 0
        self._socket: socket.socket = stream.get_extra_info("socket")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - of the library
        """What comes next."""
        if self._unsaid:
            await self.write(b"", timeout)
        was_kept = self._requests > 1 and self._left == MAX_HEARD
        try:
            heard = await self._stream.read(max_bytes, timeout)
        except ReadError as error:
            if was_kept:
                raise HungUp("it hung up on a connection that was kept") from error
            raise
        if was_kept and not heard:
            raise HungUp("it hung up on a connection that was kept")
        self._left -= len(heard)
        if self._left < 0:
            raise TooLong(f"the answer has more than {MAX_HEARD:,} bytes")
        return heard

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - of the library
        """Say something, which may be answered anew. The head and the body of a request go out together, at its end."""
        self._left = MAX_HEARD
        self._unsaid += buffer
        if self._unsaid and not buffer:
            if self._requests and self._has_more():
                raise Unusable("the connection was closed, or used unasked, by the other side")
            said, self._unsaid = self._unsaid, b""
            self._requests += 1
            await self._stream.write(said, timeout)

    async def aclose(self) -> None:
        """Hang up."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the library
    ) -> AsyncNetworkStream:
        """The same connection, encrypted; if that is broken off, nothing is left open."""
        try:
            return Line(await self._stream.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - of the library
        """What the library wants to know of it."""
        return self._has_more() if info == "is_readable" else self._stream.get_extra_info(info)

    def _has_more(self) -> bool:
        """Whether something has come that nobody asked for: mostly that the other side hung up."""
        # Asked of every idle connection for every request, so it has to be quick.
        if _is_held(self._stream):
            return True
        return _is_readable(self._socket) if hasattr(select, "poll") else self._stream.get_extra_info("is_readable")


def _is_held(stream: Any) -> bool:  # noqa: ANN401 - what it is made of is known to its library alone
    """Whether something was taken from the socket, but not read: what was read is a part of what came at once.

    Where the library has changed, and it cannot be told, it counts as so: the connection is not used again then.
    """
    try:
        below = stream._stream  # noqa: SLF001 - no other way to see it
        if (encrypted := getattr(below, "_read_bio", None)) is not None:
            if encrypted.pending or below._ssl_object.pending():  # noqa: SLF001 - likewise
                return True
            below = below.transport_stream
        return bool(below._protocol.read_queue)  # noqa: SLF001 - likewise
    except AttributeError:
        return True


def _is_readable(connection: socket.socket) -> bool:
    if (number := connection.fileno()) < 0:
        return True
    watched = select.poll()
    watched.register(number, select.POLLIN)
    return bool(watched.poll(0))
