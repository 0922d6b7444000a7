"""Notifications: nodes learn that another one has written something, so that they need not poll often."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import closing
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING

from noonmark.stores.postgres.connections import Interrupted, connect, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.stores.postgres.address import Address
    from noonmark.stores.postgres.connections import Connection

logger = logging.getLogger("noonmark.store")

FIRST_PAUSE = 0.1
LAST_PAUSE = 5.0
"""Seconds between two attempts to connect; the pause doubles each time."""
CHECK_INTERVAL = 5.0
"""Seconds of silence after which the connection is checked."""


class NotificationListener:
    """Listens in a thread of its own while it has callbacks."""

    def __init__(self, address: Address, own_pids: Collection[int]) -> None:
        """Notifications from the server processes `own_pids` are ignored: they come from this node."""
        self._address, self._own_pids = address, own_pids
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread: _ListenerThread | None = None

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on each notification; returns a function that ends this."""
        with self._lock:
            self._callbacks = [*self._callbacks, callback]
            if self._thread is None:
                self._thread = _ListenerThread(self._address, self._own_pids, self._notify)
                self._thread.start()
        return lambda: self._keep(lambda each: each is not callback)

    def close(self) -> None:
        """Stop listening."""
        self._keep(lambda _: False)

    def _keep(self, is_kept: Callable[[Callable[[], None]], bool]) -> None:
        """Remove the other callbacks, and with the last one the thread."""
        thread = None
        with self._lock:
            self._callbacks = [callback for callback in self._callbacks if is_kept(callback)]
            if not self._callbacks:
                thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback()


class _ListenerThread(threading.Thread):
    """Keeps a connection that listens, whatever happens, until it is stopped."""

    def __init__(self, address: Address, own_pids: Collection[int], notify: Callable[[], None]) -> None:
        super().__init__(name="noonmark-listener", daemon=True)
        self._address, self._own_pids, self._notify = address, own_pids, notify
        self._stopped = threading.Event()
        self._waker, self._wakeup = socket.socketpair()

    def stop(self) -> None:
        """End the thread, whatever it waits for."""
        self._stopped.set()
        self._waker.close()
        if threading.current_thread() is not self:
            self.join()

    def run(self) -> None:
        pause = FIRST_PAUSE
        with self._wakeup:
            while not self._stopped.is_set():
                try:
                    with closing(connect(self._address, self._stopped)) as connection:
                        pause = FIRST_PAUSE
                        self._listen(connection)
                except Interrupted:
                    return
                except Exception as error:  # noqa: BLE001 - it retries after any failure
                    logger.warning("LISTEN connection lost; retrying in %s s: %s", pause, summary(error))
                self._stopped.wait(pause)
                pause = min(2 * pause, LAST_PAUSE)

    def _listen(self, connection: Connection) -> None:
        """Listen until the connection breaks; anything may have happened before it was made."""
        connection.run(f"LISTEN {self._address.channel}")
        self._notify()
        with DefaultSelector() as selector:
            selector.register(connection, EVENT_READ)
            selector.register(self._wakeup, EVENT_READ)
            while not self._stopped.is_set():
                if not selector.select(CHECK_INTERVAL):
                    connection.run("SELECT 1")
                for notification in connection.notifies(timeout=0):
                    if notification.pid not in self._own_pids:
                        self._notify()
