"""The listening socket of a server. Beyond loopback, clients need TLS or a proxy that speaks it."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError

if TYPE_CHECKING:
    from noonmark.server.config import LoadedSettings

BACKLOG = 2_048
SEND_BUFFER = 131_072
"""Small, so that the amount of unsent data shows whether a client reads its answer."""


def listen(loaded: LoadedSettings) -> socket.socket:
    """Open the socket; connections wait in its backlog until the server accepts them."""
    settings = loaded.settings
    family, address = _address(loaded)
    # asyncio sets TCP_NODELAY only if the protocol is given; without it each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Allows a restart right after a stop, but not two servers on one port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        listener.bind((address, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise NoonmarkError(_message(settings.host, settings.port, error), field="port") from None
    return listener


def url_of(listener: socket.socket, *, is_tls: bool = False) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach a listening socket."""
    return ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def _address(loaded: LoadedSettings) -> tuple[socket.AddressFamily, str]:
    """Resolve the host; beyond loopback only if keys do not travel in plain text."""
    host = loaded.settings.host
    try:
        infos = socket.getaddrinfo(host, loaded.settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise loaded.error("host", f"cannot resolve {host!r}; it must be 127.0.0.1, ::1 or localhost") from None
    addresses = [(family, str(where[0])) for family, _, _, _, where in infos]
    is_local = all(ip_address(address.partition("%")[0]).is_loopback for _, address in addresses)
    if not is_local and loaded.settings.tls_cert is None and not loaded.settings.behind_proxy:
        raise loaded.error(
            "host",
            f"{host!r} can be reached from other machines, and keys would travel in plain text: give --tls-cert and"
            " --tls-key, or --behind-proxy if a proxy speaks https for it; or listen on 127.0.0.1, ::1 or localhost",
        )
    return addresses[0]


def _message(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"another program listens on port {port} of {host}; stop it, or choose another port (0 takes a free one)"
    if error.errno == errno.EACCES:
        return f"this user may not listen on port {port} of {host}; choose one from 1024 on by --port"
    return f"cannot listen on port {port} of {host}: {error.strerror}"
