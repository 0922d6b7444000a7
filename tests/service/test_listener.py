"""The socket of a server."""

import asyncio
import socket
from types import SimpleNamespace

from noonmark.server.transport.listener import listen


def test_answers_are_sent_without_delay():
    async def story():
        taken = asyncio.Queue()
        listener = listen(SimpleNamespace(settings=SimpleNamespace(host="127.0.0.1", port=0)))
        server = await asyncio.start_server(lambda _, writer: taken.put_nowait(writer), sock=listener)
        async with server:
            _, mine = await asyncio.open_connection(*listener.getsockname())
            theirs = await taken.get()
            delays = theirs.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
            for writer in (mine, theirs):
                writer.close()
                await writer.wait_closed()
        return delays

    assert asyncio.run(story()) is False
