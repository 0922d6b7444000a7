"""Slow and silent connections: each is closed in time, and many do not block others."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest
import uvicorn

from noonmark.server.transport import connection_pool
from noonmark.server.transport.connection import Connection
from noonmark.server.transport.connection_pool import (
    DEFAULT_MAX,
    ConnectionLimits,
    ConnectionPool,
    address_of,
    max_connections,
)
from noonmark.server.transport.listener import SEND_BUFFER
from tests.embedded.waiting import SOON, eventually
from tests.service.server import serving

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BUSY = b"GET /busy HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 8_388_608
READS_NOTHING = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def served(**limits):
    """A server whose connections are of the class that is tried, with limits of its own; it answers with `ok`."""
    let_go = threading.Event()

    async def app(scope, _receive, send):
        if scope["path"] == "/busy":
            await asyncio.to_thread(let_go.wait, SOON)
        if scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
            await send({"type": "http.response.body", "body": bytes(LARGE)})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool = ConnectionPool(ConnectionLimits(**limits), lambda: "refused")
        kind = partial(Connection, pool)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        config = uvicorn.Config(app, http=kind, log_config=None, lifespan="off", ws="none", timeout_keep_alive=3_600)
        server = uvicorn.Server(config)
        server.pool = pool
        server.let_go, server.connect = let_go, lambda: socket.create_connection(listener.getsockname(), SOON)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            eventually(lambda: server.started)
            yield server
        finally:
            let_go.set()
            server.should_exit = True
            thread.join(SOON)
    assert not thread.is_alive()


def asked(line, request=WHOLE):
    line.sendall(request)
    return answer(line)


def answer(line):
    """Whether all of it came."""
    found = b""
    while not found.endswith(b"ok") and (more := line.recv(4_096)):
        found += more
    return found.startswith(b"HTTP/1.1 200 ")


def is_closed(line):
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("begins", [b"", HALF, WHOLE, WHOLE + HALF], ids=["silent", "half", "idle", "half again"])
def test_a_connection_without_a_request_head_is_closed(begins):
    with served(head_seconds=0.2) as server, server.connect() as line:
        line.sendall(begins)
        if WHOLE in begins:
            assert answer(line)
        assert is_closed(line)
        eventually(lambda: not server.server_state.connections)


def test_a_head_that_arrives_byte_by_byte_is_closed_too():
    with served(head_seconds=0.2) as server, server.connect() as line:
        line.sendall(HALF)

        def is_cut():
            try:
                line.sendall(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        eventually(is_cut)


def test_an_answer_may_take_longer_than_a_head():
    with served(head_seconds=0.2) as server, server.connect() as line, server.connect() as other:
        line.sendall(BUSY)
        assert is_closed(other)  # so the time of both is over
        server.let_go.set()
        assert answer(line)


def test_at_the_limit_the_longest_waiting_connection_is_evicted():
    with served(max_connections=4) as server, ExitStack() as lines:
        busy, *halves = [lines.enter_context(server.connect()) for _ in range(4)]
        busy.sendall(BUSY)
        for one in halves:
            one.sendall(HALF)
        eventually(lambda: server.server_state.tasks)
        for one in halves:
            assert asked(lines.enter_context(server.connect()))
            assert is_closed(one)
        assert len(server.server_state.connections) == 4
        server.let_go.set()
        assert answer(busy)


@contextmanager
def all_busy(count=2, **limits):
    """A server of which every connection is in use."""
    with served(**limits) as server, ExitStack() as lines:
        server.busy = [lines.enter_context(server.connect()) for _ in range(count)]
        for connection in server.busy:
            connection.sendall(BUSY)
        eventually(lambda: len(server.server_state.tasks) == count)
        yield server
        server.let_go.set()
        assert all(map(answer, server.busy))


def heard(line, request):
    """The status and the whole answer, up to its end."""
    line.sendall(request)
    found = b""
    while more := line.recv(65_536):
        found += more
    return int(found.split()[1]), found


@pytest.mark.parametrize(
    "limits", [{"max_connections": 2}, {"max_connections": 9, "per_address": 2}], ids=["in all", "of an address"]
)
def test_when_all_connections_are_busy_only_health_is_answered(limits):
    with all_busy(**limits) as server:
        for path in (b"/health", b"/health/ready", b"/metrics"):
            with server.connect() as line:
                status, said = heard(line, HEALTH.replace(b"/health", path))
                assert (status, b"connection: close" in said) == (200, True)
        for request in (WHOLE, HEALTH.replace(b"GET", b"POST"), HEALTH.replace(b"/health", b"/healthy")):
            with server.connect() as line:
                status, said = heard(line, request)
                assert (status, b"retry-after: 1" in said, b'"server_busy"' in said) == (503, True, True)
        assert server.pool.refused == 3


def test_the_reserve_evicts_too():
    with all_busy(max_connections=2, reserve=2) as server, ExitStack() as lines:
        for _ in range(2):
            lines.enter_context(server.connect()).sendall(HALF)
        eventually(lambda: server.pool.open == 4)

        def health():  # those in the reserve have a moment, and then their place is taken
            with server.connect() as line:
                try:
                    return heard(line, HEALTH)[0] == 200
                except (ConnectionError, IndexError):
                    return False

        eventually(health)
        assert server.pool.open <= 4


@pytest.mark.parametrize("reads", [0, 1], ids=["nothing", "drop by drop"])
def test_an_unread_answer_is_aborted(reads):
    # It fits into no buffer; and the time of a byte now and then is over, too.
    with served(send_seconds=0.4, min_bytes_per_second=1 << 30) as server, server.connect() as line:
        line.sendall(READS_NOTHING)
        eventually(lambda: server.pool.unsent)

        def is_given_up():
            with suppress(ConnectionResetError):
                line.recv(reads * 4_096) if reads else None
            return not server.pool.open and not server.server_state.connections

        eventually(is_given_up)
        assert (server.pool.dropped, server.pool.unsent) == (1, 0)


def test_an_answer_that_is_read_slowly_arrives_complete():
    with served(head_seconds=0.3) as server, server.connect() as line:
        line.sendall(READS_NOTHING)
        eventually(lambda: server.pool.unsent)
        with server.connect() as other:
            assert is_closed(other)  # so the time of a head is over, and more than that
        got = 0
        while got < LARGE:
            more = line.recv(262_144)
            assert more, got
            got += len(more)


def test_clients_that_do_not_read_are_evicted():
    with served(max_connections=8, send_seconds=600) as server, ExitStack() as lines:
        for _ in range(8):
            lines.enter_context(server.connect()).sendall(READS_NOTHING)
        eventually(lambda: server.pool.unsent > 8 * LARGE // 2)

        def is_served():
            with server.connect() as line:
                return asked(line)

        eventually(is_served)


def test_stalled_bodies_are_evicted():
    slow = b"POST /busy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1"
    with served(max_connections=4, head_seconds=600) as server, ExitStack() as lines:
        for _ in range(4):
            lines.enter_context(server.connect()).sendall(slow)
        eventually(lambda: len(server.server_state.tasks) == 4)

        def is_served():
            with server.connect() as line:
                return asked(line)

        eventually(is_served)


def test_unread_answers_are_limited_together():
    with served(unsent_bytes=2 * LARGE, send_seconds=600) as server, ExitStack() as lines:
        for _ in range(20):
            lines.enter_context(server.connect()).sendall(READS_NOTHING)
        eventually(lambda: server.pool.dropped >= 17)
        assert server.pool.unsent <= 3 * LARGE
        with server.connect() as line:
            assert asked(line, HEALTH)


def test_memory_is_trimmed_while_other_answers_are_unread(monkeypatch):
    given_back = threading.Event()
    monkeypatch.setattr(connection_pool, "trim_memory", given_back.set)
    with served(unsent_bytes=2 * LARGE, send_seconds=600, head_seconds=0.4) as server, ExitStack() as lines:
        for _ in range(10):
            lines.enter_context(server.connect()).sendall(READS_NOTHING)
        eventually(lambda: server.pool.dropped >= 7)
        assert given_back.wait(SOON)
        assert server.pool.unsent > LARGE


def test_the_rest_of_an_unwanted_body_times_out_too():
    with served(head_seconds=0.3) as server, server.connect() as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        assert answer(line)

        def is_cut():
            try:
                line.sendall(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        eventually(is_cut)


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (None, ""),
        (("127.0.0.1", 1), "loopback"),
        (("127.9.9.9", 1), "loopback"),
        (("::1", 1), "loopback"),
        (("::ffff:127.0.0.1", 1), "loopback"),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3::4", 1), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("somewhere", 1), "somewhere"),
    ],
)
def test_addresses_are_grouped(client, address):
    assert address_of(client) == address


def test_many_half_open_requests_do_not_block_a_server(tmp_path):
    few_files = ("sh", "-c", 'ulimit -n 128 && exec "$@"', "few-files")
    with serving(tmp_path, through=few_files) as server, ExitStack() as lines:
        for _ in range(300):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port), SOON))
            line.sendall(HALF)
        assert server.get("/health").status == 200
        eventually(lambda: server.get("/health/ready").status == 200)
        assert "Too many open files" not in server.log


def test_half_of_the_file_descriptors_are_left():
    resource = pytest.importorskip("resource")
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert max_connections() == DEFAULT_MAX or 2 * max_connections() <= allowed
