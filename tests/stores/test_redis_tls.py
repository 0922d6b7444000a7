"""Redis over TLS: the certificate is verified, and commands and notifications work."""

import asyncio
import ssl
import threading
from contextlib import closing, contextmanager, suppress

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.redis.store import RedisStore
from tests.servers.redis import LOOPBACK
from tests.stores.test_postgres_listener import listening
from tests.stores.test_sqlite_file import plans
from tests.targets.http.test_pool import certificate


class TlsServer(threading.Thread):
    """Speaks TLS, and passes everything on to the server on a port."""

    def __init__(self, port, context):
        super().__init__(daemon=True)
        self._far_port, self._context = port, context
        self._ready, self._loop, self._ended = threading.Event(), None, None

    @property
    def port(self):
        self._ready.wait()
        return self._port

    def run(self):
        asyncio.run(self._main())

    def close(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self.join()

    async def _main(self):
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._writers = []
        server = await asyncio.start_server(self._serve, LOOPBACK, 0, ssl=self._context)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._far_port)
        self._writers += [writer, far_writer]
        await asyncio.gather(passed(reader, far_writer), passed(far_reader, writer))


async def passed(reader, writer):
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextmanager
def encrypted(port, certificate_file):
    """The port on which another one is reached by TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file)
    server = TlsServer(port, context)
    server.start()
    yield server.port
    server.close()


def test_commands_and_notifications_are_encrypted(redis, redis_url, tmp_path, monkeypatch):
    file = certificate(tmp_path)
    with encrypted(redis.port, file) as port:
        url = redis.url(port=port).replace("redis://", "rediss://")
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            RedisStore(url).open()
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with closing(RedisStore(url)) as store, closing(RedisStore(redis_url)) as other:
            store.open()
            bell = listening(store)
            assert store.create(plans(1)) == [True]
            assert other.create(plans(1, "other")) == [True]
            bell.wait(2)
            assert len(store.schedules("acme", after=None, limit=5)) == 2
