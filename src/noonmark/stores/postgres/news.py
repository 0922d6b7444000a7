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
        self._task: asyncio.Task[None] | None = None
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
            thread = self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _forget(self, ring: Callable[[], None]) -> None:
        with self._lock:
            self._rings = [one for one in self._rings if one is not ring]
            thread = None if self._rings else self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _end(self) -> threading.Thread | None:
        """Tell the thread to end, whatever it waits for."""
        thread, self._thread = self._thread, None
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # that was an earlier one, and it has ended
                self._loop.call_soon_threadsafe(self._task.cancel)
        return thread

    @property
    def _is_wanted(self) -> bool:
        """Whether this thread is still the one that listens."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._listen_on())

    async def _listen_on(self) -> None:
        """Stay connected, whatever happens."""
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        pause = FIRST_PAUSE
        while self._is_wanted:
            try:
                connection = await connect(self._address)
                pause = FIRST_PAUSE
                await self._stay(connection)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                said = str(error) or type(error).__name__
                logger.warning("nobody tells this node of news, again in %s s: %s", pause, said)
            await _wait(asyncio.Event(), pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def _stay(self, connection: Any) -> None:  # noqa: ANN401 - asyncpg is not typed
        """Listen until the connection breaks; before it was made, anything may have been missed."""
        broken = asyncio.Event()
        connection.add_termination_listener(lambda _: broken.set())
        try:
            await connection.add_listener(self._address.channel, self._hear)
            self._tell()
            # A wait that ends just as it is cancelled forgets that it was: so it is asked each time.
            while self._is_wanted and not await _wait(broken, ALIVE_EVERY):
                await connection.execute("SELECT 1", timeout=self._address.timeout)
        finally:
            connection.terminate()
        raise ConnectionResetError("the connection has been closed")

    def _hear(self, _connection: Any, teller: int, _channel: str, _payload: str) -> None:  # noqa: ANN401 - asyncpg is not typed
        if teller not in self._own:
            self._tell()

    def _tell(self) -> None:
        for ring in self._rings:
            ring()


async def _wait(for_event: asyncio.Event, seconds: float) -> bool:
    """Whether something happened within so many seconds."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(for_event.wait(), seconds)
    return False
