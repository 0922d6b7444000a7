"""Resolving: each name is looked up in a thread of its own, for as long as that takes.

The system cannot be told to stop looking. So a look-up keeps its thread when nobody waits for it any more; and as with
calls, no owner has more of them than are free, so that nobody's slow names shut out those of the others.
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

    from noonmark.targets.outbound import Resolve

MAX_LOOK_UPS = 256
"""So many at a time, one for each call that a node makes; of one owner alone, half as many."""

asked_by: ContextVar[Hashable] = ContextVar("asked_by", default=None)
"""Whose call it is for which a name is looked up."""


def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system knows them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Looks names up for the calls on one loop."""

    def __init__(self, resolve: Resolve = look_up, limit: int = MAX_LOOK_UPS) -> None:
        """There is no thread until there is a name."""
        self._resolve, self._places, self._freed = resolve, Places(limit), asyncio.Event()

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host; none where nobody knows it."""
        owner, loop = asked_by.get(), asyncio.get_running_loop()
        while not self._places.may_have_one(owner):
            self._freed.clear()
            await self._freed.wait()
        found: asyncio.Future[list[str]] = loop.create_future()

        def look() -> None:
            try:
                addresses = self._resolve(host, port)
            except (OSError, ValueError):  # a name that cannot be written in the way of names is the latter
                addresses = []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end, owner, found, addresses)

        # A daemon, so that no program has to wait at its end for a name server that does not answer.
        threading.Thread(target=look, name="noonmark-names", daemon=True).start()
        self._places.take(owner)
        return await found

    def _end(self, owner: Hashable, found: asyncio.Future[list[str]], addresses: list[str]) -> None:
        self._places.give_back(owner)
        self._freed.set()
        if not found.done():
            found.set_result(addresses)
