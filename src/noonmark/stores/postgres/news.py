"""News: nodes tell each other that there is something new, so that nobody has to ask again and again."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noonmark.stores.postgres.lines import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.stores.postgres.address import Address

logger = logging.getLogger("noonmark.store")

FIRST_PAUSE = 0.1
LAST_PAUSE = 5.0
"""Seconds between two attempts to connect, twice as long each time."""
ALIVE_EVERY = 5.0
"""Seconds after which a line on which nothing was heard is tried."""


class News:
    """Listens in a thread of its own while anybody wants to be told."""

    def __init__(self, address: Address, own: Collection[int]) -> None:
        """What the server's processes for our `own` lines have told is no news."""
        self._address, self._own = address, own
        self._rings: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring whenever there is news; returns what ends that."""
        with self._lock:
            self._rings = [*self._rings, ring]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="noonmark-news", daemon=True)
                self._thread.start()
        return lambda: self._forget(ring)

    def close(self) -> None:
        """Listen no more."""
        with self._lock:
            self._rings = []
            thread, self._thread = self._thread, None
            if self._loop is not None and self._stop is not None:
                with suppress(RuntimeError):  # it has ended by itself
                    self._loop.call_soon_threadsafe(self._stop.set)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _forget(self, ring: Callable[[], None]) -> None:
        with self._lock:
            self._rings = [one for one in self._rings if one is not ring]
            is_last = not self._rings
        if is_last:
            self.close()

    def _run(self) -> None:
        asyncio.run(self._listen_on())

    async def _listen_on(self) -> None:
        """Stay connected, whatever happens; after each connection anything may have been missed."""
        with self._lock:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            is_wanted = self._thread is threading.current_thread()
        pause = FIRST_PAUSE
        while is_wanted and not self._stop.is_set():
            try:
                await self._stay(self._stop)
                pause = FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                logger.warning(
                    "nobody tells this node of news, again in %s s: %s", pause, str(error) or type(error).__name__
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def _stay(self, stop: asyncio.Event) -> None:
        connection = await connect(self._address)
        try:
            await connection.add_listener(self._address.channel, self._hear)
            self._tell()
            while not stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), ALIVE_EVERY)
                if not stop.is_set():
                    await connection.execute("SELECT 1", timeout=self._address.timeout)
        finally:
            connection.terminate()

    def _hear(self, _connection: Any, teller: int, _channel: str, _payload: str) -> None:  # noqa: ANN401 - asyncpg is not typed
        if teller not in self._own:
            self._tell()

    def _tell(self) -> None:
        for ring in self._rings:
            ring()
