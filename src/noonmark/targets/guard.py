"""Connecting: a name is looked up once, each of its addresses is judged, and one of those is dialled and no other."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import httpcore2
from httpcore2 import AsyncNetworkBackend, ConnectError, ConnectTimeout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from httpcore2 import SOCKET_OPTION, AsyncNetworkStream

    from noonmark.core.targets.reach import Reach
    from noonmark.targets.outbound import Resolve

NEXT_ADDRESS = 5.0
"""Seconds after which the next address of a host is tried, where there is one."""


class Refused(Exception):
    """The rules of this node do not let a request go there."""


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Connector(AsyncNetworkBackend):
    """Makes the connections of a pool; without rules, to everywhere."""

    def __init__(self, reach: Reach | None, resolve: Resolve = look_up) -> None:
        """Nothing is looked up yet."""
        self._reach, self._resolve = reach, resolve
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
        if self._reach is not None and (problem := self._reach.host_problem(host)) is not None:
            raise Refused(problem)
        addresses = await self._addresses(host, port)
        *others, last = addresses
        for address in others:
            try:
                return await self._dial.connect_tcp(address, port, NEXT_ADDRESS, local_address, socket_options)
            except (ConnectError, ConnectTimeout):
                continue
        return await self._dial.connect_tcp(last, port, timeout, local_address, socket_options)

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = []
        if not addresses:
            raise ConnectError(f"no address is known for {host}")
        for address in addresses:
            if self._reach is not None and (problem := self._reach.address_problem(host, address)) is not None:
                raise Refused(problem)
        return addresses
