"""Listening: the socket of a server, on this machine only as long as anybody who reaches it may do anything."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError

if TYPE_CHECKING:
    from noonmark.server.config import Loaded

BACKLOG = 2_048
SEND_BUFFER = 131_072
"""So little of an answer waits in the system that it shows whether the caller reads it."""


def listen(loaded: Loaded) -> socket.socket:
    """A socket that takes connections; they wait until the server answers them."""
    settings = loaded.settings
    family, address = _address(loaded)
    # Only a socket that knows its protocol sends without delay under asyncio; else each answer waits for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Not while another server has the port, but at once after one that has stopped.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        listener.bind((address, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise NoonmarkError(_refusal(settings.host, settings.port, error), field="port") from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Where it listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _address(loaded: Loaded) -> tuple[socket.AddressFamily, str]:
    """What the host stands for; all of it must be loopback."""
    host = loaded.settings.host
    try:
        found = socket.getaddrinfo(host, loaded.settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise loaded.refuse(
            "host", f"no address is known for {host!r}; it must be 127.0.0.1, ::1 or localhost"
        ) from None
    addresses = [(family, str(where[0])) for family, _, _, _, where in found]
    if not all(ip_address(address.partition("%")[0]).is_loopback for _, address in addresses):
        raise loaded.refuse(
            "host",
            f"{host!r} can be reached from other machines, and there are no keys yet that would keep strangers out:"
            " every caller may do everything. Until there are, it must be 127.0.0.1, ::1 or localhost; a proxy on this"
            " machine that asks for a password can let others in",
        )
    return addresses[0]


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"another program listens on port {port} of {host}; stop it, or choose another port (0 takes a free one)"
    if error.errno == errno.EACCES:
        return f"this user may not listen on port {port} of {host}; choose one from 1024 on by --port"
    return f"cannot listen on port {port} of {host}: {error.strerror}"
