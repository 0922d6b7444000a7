"""TLS: the certificate of the server, read again when its files change, and connections before their handshake."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from noonmark.server.transport.connection import Connection
from noonmark.server.transport.connection_pool import address_of

if TYPE_CHECKING:
    from noonmark.server.transport.connection_pool import ConnectionPool

logger = logging.getLogger("noonmark.serve")


class Certificate:
    """A certificate with its key, in two files."""

    def __init__(self, certificate: str, key: str) -> None:
        """A ValueError says which file is wrong."""
        self._certificate, self._key = certificate, key
        self.context = self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        self._stamp = self._file_stamps()

    def reload(self) -> None:
        """Use the files for new connections if they have changed; invalid ones are reported, and the old pair stays."""
        stamp = self._file_stamps()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            # A context keeps its old pair if the new files do not belong together, so they are tried on another first.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self.context)
        except ValueError as error:
            logger.warning("the certificate was not read again, the old one stays: %s", error)
        else:
            logger.info("the certificate was read again")

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # The password function refuses an encrypted key instead of waiting for input.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            reason = error.reason or "they are not a certificate and its key"
            raise ValueError(f"{self._certificate} and {self._key} cannot be used: {reason}") from None
        except OSError as error:
            raise ValueError(f"{self._certificate} and {self._key} cannot be read: {error.strerror}") from None
        return context

    def _file_stamps(self) -> tuple[object, ...]:
        return tuple(_file_stamp(file) for file in (self._certificate, self._key))


def check_authorities(file: str) -> None:
    """Check that a file has certificates to check others against; a ValueError says what is wrong."""
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise ValueError(f"{file} cannot be used: {error.reason or 'it has no certificates'}") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


def _file_stamp(file: str) -> tuple[int, int] | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


class Handshake(asyncio.Protocol):
    """A connection until its TLS handshake is complete. It counts in the pool like one that has sent no request."""

    unsent = produced = 0
    is_receiving = False

    def __init__(self, pool: ConnectionPool, context: ssl.SSLContext, **options: Any) -> None:
        self._pool, self._context, self._options = pool, context, options
        self._connections: set[Any] = options["server_state"].connections
        self._received: list[bytes] = []
        """What has arrived since the handshake, decrypted."""
        self._is_over = False
        self.address, self.is_reserved, self.last_received = "", False, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the pool, if there is room, and begin the handshake."""
        loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()
        self.address, self.last_received = address_of(transport.get_extra_info("peername")), loop.time()
        self._connections.add(self)
        self._pool.add(self, loop)
        if not self._is_over:
            self._task = loop.create_task(self._shake_hands(loop))

    def data_received(self, data: bytes) -> None:
        """Keep the beginning of the first request."""
        self._received.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever the reason
        """The client has left, just after the handshake."""
        self._leave()

    def drop(self) -> None:
        """Close it now."""
        self._leave()
        self._transport.abort()

    def shutdown(self) -> None:
        """Close it, since the server stops."""
        self.drop()

    async def _shake_hands(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            transport = await loop.start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._pool.limits.head_seconds,
            )
        except OSError:  # it is no TLS, the client does not trust the certificate, or has left
            self.drop()
            return
        if self._is_over or transport is None:
            self._leave()
            return
        self._leave()
        connection = Connection(self._pool, **self._options)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._received:
            connection.data_received(b"".join(self._received))

    def _leave(self) -> None:
        self._is_over = True
        self._pool.remove(self)
        self._connections.discard(self)
