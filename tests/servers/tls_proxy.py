"""A proxy that terminates TLS before another server, and asks its clients for a certificate."""

import asyncio
import ssl
import threading
from contextlib import contextmanager, suppress


@contextmanager
def tls_proxy(port, folder):
    """Forward to a port of this machine; yields the port of the proxy, and what its clients have sent.

    The folder has the certificate and key of the proxy, and that of the authority for those of clients.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    received, ready, proxy, forwarding = bytearray(), threading.Event(), {}, {}

    async def forward(reader, writer, seen=None):
        with suppress(OSError):
            while data := await reader.read(65_536):
                if seen is not None:
                    seen += data
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def connected(reader, writer):
        behind = await asyncio.open_connection("127.0.0.1", port)
        forwarding[asyncio.current_task()] = writer, behind[1]
        await asyncio.gather(forward(reader, behind[1], received), forward(behind[0], writer))

    async def serve():
        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        proxy.update(loop=asyncio.get_running_loop(), stop=asyncio.Event(), port=server.sockets[0].getsockname()[1])
        ready.set()
        await proxy["stop"].wait()
        server.close()
        for writer in (writer for writers in forwarding.values() for writer in writers):
            writer.transport.abort()
        await asyncio.gather(*forwarding)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy["port"], received
    finally:
        proxy["loop"].call_soon_threadsafe(proxy["stop"].set)
        thread.join(10)
