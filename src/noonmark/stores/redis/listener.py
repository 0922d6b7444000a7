"""Notifications of Redis: a connection that is subscribed to the channel of all nodes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noonmark.stores.notifications import ListenerThread, NotificationListener
from noonmark.stores.redis.transactions.client import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.stores.redis.address import Address
    from noonmark.stores.redis.transactions.client import Client

CHECK_INTERVAL = 5.0
"""Seconds of silence after which the server is asked for a sign of life, and after which that is late."""
_STOP_INTERVAL = 0.05


def make_listener(address: Address, client: Client) -> NotificationListener:
    """Messages of this client are ignored: they come from this node."""
    return NotificationListener(lambda notify: _RedisListener(address, client.channel, client.token, notify))


class _RedisListener(ListenerThread):
    def __init__(self, address: Address, channel: str, own_token: str, notify: Callable[[], None]) -> None:
        super().__init__("SUBSCRIBE", notify)
        self._address, self._channel, self._own_token = address, channel, own_token.encode()
        self._connection: Any = None

    def _interrupt(self) -> None:
        # It may connect at this moment, so that there is nothing to disconnect yet.
        while self.is_alive():
            if (connection := self._connection) is not None:
                with suppress(OSError):
                    connection.disconnect()
            self.join(_STOP_INTERVAL)

    def _listen(self) -> None:
        # A connection of its own, without the library's PubSub: that connects again by itself, and tells nobody.
        self._connection = connection = connect(self._address).connection_pool.make_connection()
        try:
            connection.connect()
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()
            self._connected()
            self._wait(connection)
        finally:
            connection.disconnect()

    def _wait(self, connection: Any) -> None:
        is_asked = False
        while not self._stopped.is_set():
            if connection.can_read(timeout=CHECK_INTERVAL):
                is_asked = False
                message = connection.read_response()
                if message[0] == b"message" and message[2] != self._own_token:
                    self._notify()
            elif is_asked:
                raise TimeoutError("the server gave no sign of life")
            else:
                connection.send_command("PING")
                is_asked = True
