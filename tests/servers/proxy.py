"""A proxy between nodes and a database server that injects network faults.

It lives in a thread of its own. What it is told holds for every connection, old or new, until it is healed.
"""

import asyncio
import socket
import threading
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from tests.servers.conversation import Conversation

LOOPBACK = "127.0.0.1"
TO_SERVER, TO_CLIENT = "to server", "to client"
CHUNK = 1 << 16
WAITING = 1_000
"""So many chunks of one direction wait in the proxy; the sender has to keep what comes after them."""


@dataclass(frozen=True)
class Faults:
    """What the proxy does to what passes."""

    dropped_share: float = 0.0
    drops_statements: bool = False
    delay: float = 0.0
    lost: frozenset = frozenset()


class Proxy:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, port, conversation=Conversation):
        """To a server on that port of this machine; its clients use the proxy's own `port`."""
        self._server, self.conversation = port, conversation
        self.faults = Faults()
        self.seen = Counter()
        """What passed: `connections`; those that were `cut`, and `refused` as the server did; `commits`, and
        `statements` outside transactions that may have written; `dropped`, those of which the client was not told."""
        # Bound and never listening: while nobody else listens the port stays ours, and connections are refused.
        self._holder = _bound(0)
        self.port = self._holder.getsockname()[1]
        self._events = asyncio.new_event_loop()
        self._lines, self._serving = set(), set()
        self._listener = self._accepting = None
        self._thread = threading.Thread(target=self._events.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen)

    def drop_replies(self, share=1.0, *, statements=False):
        """Do not tell the client of so many of its commits, and cut the connection instead: they have been done.

        With `statements`, also of those that were committed without saying so, outside a transaction. Which ones looks
        random and is the same every time.
        """
        self._set(dropped_share=share, drops_statements=statements)

    def delay(self, seconds):
        """Let everything arrive so much later, either way; what follows closely still follows closely."""
        self._set(delay=seconds)

    def black_hole(self, *directions):
        """Let nothing arrive in these directions, both unless told; sockets stay open.

        As with TCP on a broken line, what was sent arrives when the line is healed.
        """
        self._set(lost=frozenset(directions or (TO_SERVER, TO_CLIENT)))

    def lead_to(self, port):
        """Break every connection; new ones go to the server on that port."""
        self._server = port
        self.cut()

    def cut(self):
        """Break every connection; new ones are welcome."""
        self._do(self._cut)

    def refuse(self):
        """Nobody listens any more; the connections that there are go on."""
        self._do(self._deafen)

    def heal(self):
        """Pass everything on again, and what was held back first."""
        self._set(**vars(Faults()))
        self._do(self._listen)

    def close(self):
        """Break everything, and end."""
        self._do(self._deafen)
        asyncio.run_coroutine_threadsafe(self._served(), self._events).result()
        self._events.call_soon_threadsafe(self._events.stop)
        self._thread.join()
        self._events.close()
        self._holder.close()

    @property
    def connections(self):
        """How many there are."""
        return len(self._lines)

    def wait_for(self, direction, arrived):
        """How many seconds something that arrived at that time has to wait yet; None is for ever."""
        if direction in self.faults.lost:
            return None
        return max(0.0, arrived + self.faults.delay - self._events.time())

    def tells(self, reply):
        """Whether the client is told; counts the commits."""
        if not (reply.ends_transaction or reply.ends_statement):
            return True
        self.seen["commits" if reply.ends_transaction else "statements"] += 1
        if reply.ends_statement and not self.faults.drops_statements:
            return True
        count = self.seen["commits"] + self.seen["statements"]
        if zlib.crc32(b"%d" % count) / 2**32 >= self.faults.dropped_share:
            return True
        self.seen["dropped"] += 1
        return False

    def _set(self, **changes):
        def change():
            self.faults = replace(self.faults, **changes)
            for line in self._lines:
                line.changed.set()

        self._do(change)

    def _do(self, action):
        """Do something on the loop, and wait until it is done."""

        async def do():
            action()

        asyncio.run_coroutine_threadsafe(do(), self._events).result()

    def _listen(self):
        if self._listener is None:
            self._listener = _bound(self.port)
            self._listener.listen()
            self._accepting = self._events.create_task(self._accept(self._listener))

    def _deafen(self):
        if self._listener is not None:
            self._accepting.cancel()
            self._events.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _cut(self):
        self.seen["cut"] += len(self._lines)
        for line in self._lines:
            line.cut()

    async def _accept(self, listener):
        while True:
            client, _ = await self._events.sock_accept(listener)
            serving = self._events.create_task(self._serve(client))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)

    async def _served(self):
        """Bring every connection to its end."""
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, self._accepting, return_exceptions=True)

    async def _serve(self, client):
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._server)
        except OSError:
            self.seen["refused"] += 1
            writer.transport.abort()
            return
        self.seen["connections"] += 1
        line = Line(self, writer, far_writer)
        self._lines.add(line)
        try:
            await line.run(reader, far_reader)
        finally:
            self._lines.discard(line)


class Line:
    """One connection, both ways."""

    def __init__(self, proxy, client, server):
        self._proxy, self._client, self._server = proxy, client, server
        self._conversation = proxy.conversation()
        self._is_silenced = False
        self._is_over = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when there are other faults than there were."""

    async def run(self, client, server):
        """Pass everything on until one side has ended, and the other has been told."""
        ways = [
            asyncio.create_task(self._pass(client, self._server, TO_SERVER)),
            asyncio.create_task(self._pass(server, self._client, TO_CLIENT)),
        ]
        for way in ways:
            way.add_done_callback(lambda _: self._is_over.set())
        try:
            await self._is_over.wait()
        finally:
            self.cut()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def cut(self):
        """Both sides see a connection that breaks off."""
        self._is_over.set()
        self._client.transport.abort()
        self._server.transport.abort()

    async def _pass(self, reader, writer, direction):
        """Another task reads, so that the time of arrival is known; this one waits and writes."""
        arrivals = asyncio.Queue(WAITING)
        reading = asyncio.create_task(_read(reader, arrivals))
        try:
            while not self._is_silenced:
                arrived, data = await arrivals.get()
                await self._wait(direction, arrived)
                if not data:
                    writer.close()
                    await writer.wait_closed()
                    return
                writer.writelines(self._heard(direction, data))
                await writer.drain()
        except ConnectionError:
            return
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _wait(self, direction, arrived):
        while (seconds := self._proxy.wait_for(direction, arrived)) != 0:
            self.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), seconds)

    def _heard(self, direction, data):
        """What is passed on."""
        if direction == TO_SERVER:
            self._conversation.hear_client(data)
            return [data]
        collected = []
        for reply in self._conversation.hear_server(data):
            if not self._proxy.tells(reply):
                self._is_silenced = True
                break
            collected.append(reply.data)
        return collected


async def _read(reader, arrivals):
    """Note when everything arrived; nothing is the end."""
    clock = asyncio.get_running_loop().time
    data = None
    while data != b"":
        try:
            data = await reader.read(CHUNK)
        except ConnectionError:
            data = b""
        await arrivals.put((clock(), data))


def _bound(port):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    connection.bind((LOOPBACK, port))
    connection.settimeout(0)
    return connection


@contextmanager
def proxied(server):
    """A proxy before a server, as long as the block."""
    proxy = Proxy(server.port)
    try:
        yield proxy
    finally:
        proxy.close()
