"""Notifications of PostgreSQL: a connection that listens to a channel."""

from __future__ import annotations

import socket
from contextlib import closing
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING

from noonmark.stores.notifications import ListenerThread, NotificationListener
from noonmark.stores.postgres.connections import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.stores.postgres.address import Address
    from noonmark.stores.postgres.connections import Connection

CHECK_INTERVAL = 5.0
"""Seconds of silence after which the connection is checked."""


def make_listener(address: Address, own_pids: Collection[int]) -> NotificationListener:
    """Notifications from the server processes `own_pids` are ignored: they come from this node."""
    return NotificationListener(lambda notify: _PostgresListener(address, own_pids, notify))


class _PostgresListener(ListenerThread):
    def __init__(self, address: Address, own_pids: Collection[int], notify: Callable[[], None]) -> None:
        super().__init__("LISTEN", notify)
        self._address, self._own_pids = address, own_pids
        self._waker, self._wakeup = socket.socketpair()

    def run(self) -> None:
        with self._wakeup:
            super().run()

    def _interrupt(self) -> None:
        self._waker.close()

    def _listen(self) -> None:
        with closing(connect(self._address, self._stopped)) as connection:
            connection.run(f"LISTEN {self._address.channel}")
            self._connected()
            self._wait(connection)

    def _wait(self, connection: Connection) -> None:
        with DefaultSelector() as selector:
            selector.register(connection, EVENT_READ)
            selector.register(self._wakeup, EVENT_READ)
            while not self._stopped.is_set():
                if not selector.select(CHECK_INTERVAL):
                    connection.run("SELECT 1")
                for notification in connection.notifies(timeout=0):
                    if notification.pid not in self._own_pids:
                        self._notify()
