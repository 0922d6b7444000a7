"""Connections that do not say what they want: each is given up in time, and many do not keep others out."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn

from noonmark.cli.connections import ENOUGH, Connection, most_connections
from tests.embedded.waiting import SOON, eventually
from tests.service.server import serving

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BUSY = b"GET /busy HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def served(**limits):
    """A server whose connections are of the class that is tried, with limits of its own; it answers with `ok`."""
    let_go = threading.Event()

    async def app(scope, _receive, send):
        if scope["path"] == "/busy":
            await asyncio.to_thread(let_go.wait, SOON)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        kind = type("Quick", (Connection,), limits)
        config = uvicorn.Config(app, http=kind, log_config=None, lifespan="off", ws="none", timeout_keep_alive=3_600)
        server = uvicorn.Server(config)
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
def test_a_connection_without_the_head_of_a_request_is_given_up(begins):
    with served(deadline=0.2) as server, server.connect() as line:
        line.sendall(begins)
        if WHOLE in begins:
            assert answer(line)
        assert is_closed(line)
        eventually(lambda: not server.server_state.connections)


def test_drop_by_drop_it_is_given_up_too():
    with served(deadline=0.2) as server, server.connect() as line:
        line.sendall(HALF)

        def is_cut():
            try:
                line.sendall(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        eventually(is_cut)


def test_an_answer_may_take_longer_than_a_head():
    with served(deadline=0.2) as server, server.connect() as line, server.connect() as other:
        line.sendall(BUSY)
        assert is_closed(other)  # so the time of both is over
        server.let_go.set()
        assert answer(line)


def test_too_many_take_the_place_of_the_one_that_has_waited_longest():
    with served(most=4) as server, ExitStack() as lines:
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


def test_where_all_are_busy_the_new_one_is_refused():
    with served(most=2) as server, ExitStack() as lines:
        both = [lines.enter_context(server.connect()) for _ in range(2)]
        for one in both:
            one.sendall(BUSY)
        eventually(lambda: len(server.server_state.tasks) == 2)
        assert is_closed(lines.enter_context(server.connect()))
        server.let_go.set()
        assert all(map(answer, both))


def test_many_beginnings_do_not_keep_others_from_a_server(tmp_path):
    few_files = ("sh", "-c", 'ulimit -n 128 && exec "$@"', "few-files")
    with serving(tmp_path, through=few_files) as server, ExitStack() as lines:
        for _ in range(300):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port), SOON))
            line.sendall(HALF)
        assert server.get("/health").status == 200
        eventually(lambda: server.get("/health/ready").status == 200)
        assert "Too many open files" not in server.log


def test_file_descriptors_are_left_for_everything_else():
    resource = pytest.importorskip("resource")
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections() == ENOUGH or 2 * most_connections() <= allowed
