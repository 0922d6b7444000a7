"""Name resolution: each host name is looked up in its own thread.

A lookup by the system cannot be cancelled, so it keeps its thread even when nothing waits for it any more. As with
requests, no owner has more lookups than are free, so that one owner's slow names do not block those of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

from noonmark.core.fair_queue import Places

if TYPE_CHECKING:
    from collections.abc import Hashable

    from noonmark.targets.http.settings import Resolve

MAX_LOOKUPS = 256
"""How many lookups run at a time: one per request of a node. One owner alone may have half of them."""

request_owner: ContextVar[Hashable] = ContextVar("request_owner", default=None)
"""The owner of the request for which a name is looked up."""


def system_lookup(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


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
        found: asyncio.Future[list[str]] = loop.create_future()

        def look_up() -> None:
            try:
                addresses = self._resolve(host, port)
            except (OSError, ValueError):  # ValueError: the name cannot be encoded for DNS
                addresses = []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._finish, owner, found, addresses)

        # A daemon, so that no program waits at its end for a name server that does not answer.
        threading.Thread(target=look_up, name="noonmark-dns", daemon=True).start()
        self._places.take(owner)
        return await found

    def _finish(self, owner: Hashable, found: asyncio.Future[list[str]], addresses: list[str]) -> None:
        self._places.give_back(owner)
        self._freed.set()
        if not found.done():
            found.set_result(addresses)
