"""A server in a process of its own that answers every request the same way, as quickly as Python can."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.neighbours import port_of
from bench.service.jobs import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"done":true}'
END, LENGTH = b"\r\n\r\n", b"content-length:"


class Answering(asyncio.Protocol):
    """One connection; the next request comes when the one before was answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody calls."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport, self._heard = transport, b""

    def data_received(self, data: bytes) -> None:
        """Answer when a request is whole."""
        self._heard += data
        head, end, body = self._heard.partition(END)
        if end and len(body) >= int(head.lower().partition(LENGTH)[2].partition(b"\r\n")[0]):
            self._heard = b""
            self._transport.write(ANSWER)


@contextmanager
def answering() -> Iterator[int]:
    """The port of such a server, for as long as the block lasts."""
    with port_of("bench.work.receiver") as port:
        yield port


async def main() -> None:
    """Serve, and say at which port."""
    server = await asyncio.get_running_loop().create_server(Answering, LOOPBACK, 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
