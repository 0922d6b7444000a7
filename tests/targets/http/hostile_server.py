"""A server with malformed and endless responses, written to the socket directly."""

import gzip
import itertools
import socketserver
import threading
from contextlib import contextmanager, suppress

from tests.embedded.waiting import SOON
from tests.targets.http.receiver import Server

OK = b"HTTP/1.1 200 OK\r\n"
PIECE = b"x" * 65_536
BOMB = gzip.compress(bytes(50_000_000))


def sized(body, *headers):
    """A well-formed response."""
    return [OK, *headers, b"Content-Length: %d\r\n\r\n" % len(body), body]


ENDLESS = {
    "endless": lambda: itertools.chain([OK, b"\r\n"], itertools.repeat(PIECE)),
    "endless_chunks": lambda: itertools.chain(
        [OK, b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(b"1;" + b"e" * 2_000 + b"\r\nx\r\n")
    ),
    "endless_headers": lambda: itertools.chain([OK], itertools.repeat(b"X-More: " + b"x" * 2_000 + b"\r\n")),
    "endless_interim": lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
    "endless_garbage": lambda: itertools.repeat(PIECE),
}
"""Endless responses, as fast as they are read."""
SLOW = {
    "silent": list,
    "drip": lambda: itertools.chain([OK, b"\r\n"], itertools.repeat(b".")),
    "drip_headers": lambda: itertools.chain([OK], itertools.repeat(b"a:b\r\n")),
    "drip_interim": lambda: itertools.repeat(b"HTTP/1.1 102 Processing\r\n\r\n"),
    "half": lambda: [OK, b"Content-Length: 100\r\n\r\n", b"half"],
}
"""Responses that are slow or stop, on a connection that stays open."""
AT_ONCE = {
    "long_header": lambda: [OK, b"X-Long: ", *[PIECE] * 16, b"\r\nContent-Length: 0\r\n\r\n"],
    "bomb": lambda: sized(BOMB, b"Content-Encoding: gzip\r\n"),
    "other_bomb": lambda: sized(BOMB, b"Content-Encoding: br, gzip\r\n"),
    "bomb_in_disguise": lambda: sized(BOMB, b"Content-Type: application/json\r\n"),
    "too_short": lambda: [OK, b"Content-Length: 100\r\n\r\nhalf"],
    "too_long": lambda: [*sized(b"four"), b"and more that was not asked for"],
    "two_lengths": lambda: [OK, b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nfour5"],
    "no_length": lambda: [OK, b"Content-Length: -1\r\n\r\n"],
    "huge_length": lambda: [OK, b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\nfour"],
    "huge_chunk": lambda: [OK, b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 5_000 + b"\r\nfour"],
    "many_headers": lambda: [OK, b"a:b\r\n" * 10_000, b"Content-Length: 0\r\n\r\n"],
    "length_and_chunks": lambda: [OK, b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nfour"],
    "bad_chunks": lambda: [OK, b"Transfer-Encoding: chunked\r\n\r\nzz\r\nfour\r\n"],
    "other_protocol": lambda: [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", PIECE],
    "garbage": lambda: [b"<html>\x1b[31m\x00\xff" + b"g" * 50_000 + b"\r\n\r\n"],
    "nothing": list,
    "status_only": lambda: [b"HTTP/1.1 200"],
    "status_beyond": lambda: [b"HTTP/1.1 999 Beyond\r\nContent-Length: 0\r\n\r\n"],
}
"""Responses sent at once, before the connection is closed."""


class HostileHandler(socketserver.BaseRequestHandler):
    """Selects the response by the path."""

    def handle(self):
        name = self.request.recv(65_536).decode("latin-1").split("/", 2)[1].split(" ")[0].partition("?")[0]
        closing = self.server.closing
        with suppress(OSError):
            for piece in (ENDLESS | SLOW | AT_ONCE)[name]():
                self.request.sendall(piece)
                if name in SLOW and closing.wait(0.05):
                    return
            if name in SLOW:
                closing.wait(SOON)


class SilentHandler(socketserver.BaseRequestHandler):
    """Accepts the connection, and never answers."""

    def handle(self):
        self.request.settimeout(SOON)
        while self.server.heard.append(self.request.recv(65_536)) or self.server.heard[-1]:
            pass


@contextmanager
def hostile_server(handler=HostileHandler):
    """The server, with `url`."""
    with Server(("127.0.0.1", 0), handler) as server:
        server.closing, server.heard = threading.Event(), []
        server.url = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
