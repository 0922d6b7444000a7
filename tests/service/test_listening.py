import asyncio
import socket

from noonmark.cli.listening import listen
from noonmark.config import load


async def nodelay(listener):
    """Whether a connection that is accepted sends at once, or waits until what it sent before is confirmed."""
    found = asyncio.get_running_loop().create_future()

    def accepted(_, writer):
        found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accepted, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            return await found
        finally:
            writer.close()
            await writer.wait_closed()


def test_no_part_of_an_answer_waits_for_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listener = listen(load({"port": 0}, {}))
    assert asyncio.run(nodelay(listener))
