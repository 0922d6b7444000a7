"""Reused connections: no data leaks into the next request, and no request is lost when one is closed."""

import asyncio
import datetime as dt
import ipaddress
import re
import socket
import socketserver
import ssl
import struct
import threading
from contextlib import contextmanager

import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from httpcore2 import AnyIOBackend, AsyncNetworkStream

from noonmark.core.policies.delivery import Delivery
from noonmark.core.run import Outcome
from noonmark.targets.http.errors import StaleConnection, describe_error
from noonmark.targets.http.network import GuardedBackend, Resolver
from noonmark.targets.http.pool import _Connection
from tests.embedded.waiting import eventually
from tests.targets.http.receiver import Server, http_sender

KEPT_AT_ONCE = 65_536
"""Bytes of a response that are read at a time."""
AT_MOST_ONCE = {"delivery": Delivery.AT_MOST_ONCE}


def said(body, size=0):
    """A response of a minimum length."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %5d\r\n\r\n"
    body = body.ljust(size - len(head % 0))
    return head % len(body) + body


OTHER = said(b"of another")
UNASKED = {
    "/twice": [said(b"mine") + OTHER],
    "/twice-apart": [said(b"mine"), OTHER],
    "/twice-and-long": [said(b"mine", KEPT_AT_ONCE) + OTHER],
    "/part": [said(b"mine") + OTHER[:20]],
    "/body-of-none": [b"HTTP/1.1 204 No Content\r\n\r\n" + OTHER],
    "/head": [OTHER + b" and its body"],
}
"""The chunks of each response; with TLS each is a record."""

TWO_LENGTHS = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmine\r\n0\r\n\r\n"


class Plain(socketserver.BaseRequestHandler):
    """Selects the response by the path; the default is the path itself."""

    def handle(self):
        self.server.lines.append([])
        lines = self.server.lines[-1]
        while request := self.hear():
            path = re.match(r"\S+ (\S+)", request.decode())[1]
            lines.append(path)
            if path == "/drop" or (path in ("/hang-up", "/reset") and len(lines) > 1):
                if path == "/reset":
                    self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            self.say([TWO_LENGTHS] if path == "/two-lengths" else UNASKED.get(path, [said(path.encode())]))

    def hear(self):
        try:
            return self.request.recv(65_536)
        except OSError:
            return b""

    def say(self, pieces):
        self.request.sendall(b"".join(pieces))


class Encrypted(Plain):
    """The same with TLS."""

    def setup(self):
        self.coming, self.going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = self.server.tls.wrap_bio(self.coming, self.going, server_side=True)
        self.through(self.tls.do_handshake)
        self.request.sendall(self.going.read())

    def through(self, step, *args):
        while True:
            try:
                return step(*args)
            except ssl.SSLWantReadError:
                self.request.sendall(self.going.read())
                if not (heard := self.request.recv(65_536)):
                    raise OSError("hung up") from None
                self.coming.write(heard)

    def hear(self):
        try:
            return self.through(self.tls.read, 65_536)
        except OSError:
            return b""

    def say(self, pieces):
        for piece in pieces:
            self.tls.write(piece)
        self.request.sendall(self.going.read())


@contextmanager
def serving(handler, tls=None):
    with Server(("127.0.0.1", 0), handler) as server:
        server.lines, server.tls = [], tls
        server.place = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def certificate(folder):
    """A certificate for this machine, with its files."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    made = made.not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
    made = made.add_extension(address, critical=True).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    place = folder / "server.pem"
    place.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return place


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """One server per scheme, trusted by the runner."""
    place = certificate(tmp_path_factory.mktemp("tls"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(place)
    with serving(Plain) as plain, serving(Encrypted, tls) as encrypted, pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(place))
        yield {"http": plain, "https": encrypted}


@pytest.fixture(params=["http", "https"])
def tried(request, servers):
    """Send requests one after the other; return their outcomes, and the paths received on each connection."""
    server = servers[request.param]
    server.lines.clear()

    def try_(*paths, **options):
        calls = [caller.call(f"{request.param}://{server.place}{path}", **options) for path in paths]
        return calls, server.lines

    with http_sender() as caller:
        yield try_


def bodies(calls):
    return [(one.result or {}).get("body", "").strip() for one in calls]


def test_connection_is_reused(tried):
    calls, lines = tried("/a", "/b", "/c")
    assert bodies(calls) == ["/a", "/b", "/c"]
    assert lines == [["/a", "/b", "/c"]]


@pytest.mark.parametrize("path", UNASKED)
def test_unsolicited_data_is_not_read_as_a_response(tried, path):
    if path == "/head":
        first, lines = tried(path, method="HEAD")
    else:
        first, lines = tried(path)
    (second,), _ = tried("/b")
    assert first[0].outcome is Outcome.COMPLETED
    assert second.result["body"] == "/b"
    assert lines == [[path], ["/b"]]


def test_connection_with_an_ambiguous_length_is_not_reused(tried):
    calls, lines = tried("/two-lengths", "/b")
    assert bodies(calls) == ["mine", "/b"]
    assert lines == [["/two-lengths"], ["/b"]]


@pytest.mark.parametrize("path", ["/hang-up", "/reset"])
def test_request_on_a_dropped_connection_is_sent_again(tried, path):
    calls, lines = tried("/a", path)
    assert bodies(calls) == ["/a", path]
    assert {(one.outcome, one.error) for one in calls} == {(Outcome.COMPLETED, None)}
    assert lines == [["/a", path], [path]]


@pytest.mark.parametrize("path", ["/hang-up", "/reset"])
def test_request_is_not_sent_again_under_at_most_once(tried, path):
    (_, second), lines = tried("/a", path, declared=AT_MOST_ONCE)
    assert (second.outcome, second.is_unknown) == (Outcome.FAILED, True)
    assert "connection lost to" in second.error
    assert lines == [["/a", path]]


def test_dropped_new_connection_is_a_failure(tried):
    (first,), lines = tried("/drop")
    assert (first.outcome, first.is_final, lines) == (Outcome.FAILED, False, [["/drop"]])
    # A request is sent again only once.
    (_, second), lines = tried("/a", "/drop")
    assert (second.outcome, second.is_final) == (Outcome.FAILED, False)
    assert lines[1:] == [["/a", "/drop"], ["/drop"]]


class Opaque(AsyncNetworkStream):
    """A stream whose internals are not accessible."""

    def __init__(self, stream):
        self.__inner = stream
        self.read, self.write, self.aclose = stream.read, stream.write, stream.aclose
        self.get_extra_info = stream.get_extra_info

    async def start_tls(self, *args, **kwargs):
        return Opaque(await self.__inner.start_tls(*args, **kwargs))


def test_opaque_connection_is_not_reused(tried, monkeypatch):
    """As after an upgrade of a library: requests work, each on a new connection."""
    connect = AnyIOBackend.connect_tcp

    async def connect_opaque(*args, **kwargs):
        return Opaque(await connect(*args, **kwargs))

    monkeypatch.setattr(AnyIOBackend, "connect_tcp", connect_opaque)
    calls, lines = tried("/a", "/b", "/c")
    assert bodies(calls) == ["/a", "/b", "/c"]
    assert lines == [["/a"], ["/b"], ["/c"]]


def test_connection_with_an_opaque_parser_is_not_reused():
    connection = _Connection(httpcore2.Origin(b"http", b"a.example", 80))
    connection._connection = httpcore2.AsyncHTTP11Connection.__new__(httpcore2.AsyncHTTP11Connection)
    assert connection._has_trailing_data()
    del connection._connection
    assert connection._has_trailing_data()


def test_nothing_is_sent_on_a_connection_with_unsolicited_data(servers):
    """Data that arrives between the check of an idle connection and the request is noticed."""
    server = servers["http"]

    async def scenario():
        port = server.server_address[1]
        line = await GuardedBackend(None, Resolver()).connect_tcp("127.0.0.1", port)
        await say(line, "/a")
        assert b"/a" in await line.read(65_536)
        assert line.get_extra_info("is_readable") is False
        await say(line, "/twice-apart")
        assert b"mine" in await line.read(len(said(b"mine")))
        with pytest.raises(StaleConnection):
            await say(line, "/b")
        await line.aclose()

    async def say(line, path):
        await line.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        await line.write(b"")

    asyncio.run(scenario())
    assert eventually(lambda: server.lines[-1] == ["/a", "/twice-apart"])


def test_connection_errors_are_described(servers, monkeypatch, tmp_path):
    encrypted, plain = servers["https"].place, servers["http"].place
    collected = {}
    with http_sender() as caller:
        for name, url in {
            "other host": f"https://localhost:{encrypted.partition(':')[2]}",
            "no TLS": f"https://{plain}",
            "nobody": "http://127.0.0.1:1",
        }.items():
            collected[name] = caller.call(f"{url}/", key=name).error.rpartition(": ")[2]
    monkeypatch.delenv("SSL_CERT_FILE")
    with http_sender() as caller:
        collected["not trusted"] = caller.call(f"https://{encrypted}/").error.rpartition(": ")[2]
    assert collected == {
        "other host": "it is for another host",
        "no TLS": "the TLS handshake failed",
        "nobody": "connection refused",
        "not trusted": "it is self-signed",
    }


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpcore2.ConnectError("MARK"), "it could not be reached"),
        (httpcore2.ReadError("MARK"), "the connection was lost while the response was read"),
        (httpcore2.WriteError("MARK"), "the connection was lost while the request was sent"),
        (httpcore2.LocalProtocolError("MARK"), "the request cannot be written as HTTP"),
        (httpcore2.UnsupportedProtocol("MARK"), "UnsupportedProtocol"),
    ],
)
def test_descriptions_contain_no_library_text(error, words):
    assert describe_error(error) == words
    error.__cause__ = ExceptionGroup("MARK", [OSError(111, "MARK")])
    assert describe_error(error) == "connection refused"
