"""Clients that request much and read little, against a server process."""

import json
import re
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.embedded.waiting import SOON, eventually
from tests.service.server import serving

MIB = 1 << 20
UNSENT = 8 * MIB
CONNECTIONS = 8
"""How many answers are made at once. Each takes its size twice while it is encoded, so this bounds the memory."""
RESERVE = 16
LIMITS = (
    *("--max-connections", str(CONNECTIONS), "--max-connections-per-address", str(CONNECTIONS)),
    *("--max-unsent-bytes", str(UNSENT), "--send-timeout", "3600", "--request-timeout", "3600"),
)
EVENTS = b"GET /events?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One with events of 5 MB."""
    with serving(tmp_path_factory.mktemp("greedy"), "--no-worker", "--store", "memory://", *LIMITS) as running:
        for _ in range(20):
            assert running.ask("POST", "/events", {"event_type": "large", "payload": "x" * 250_000}).status == 202
        yield running


def memory(server, name):
    """`VmRSS`, or `VmHWM` for the most that it has had; in bytes."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells how much memory a process has")
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1_024


def is_answered(server):
    """Whether another client is answered, perhaps with 503; health always is."""
    assert server.get("/health").status == 200
    assert server.get("/metrics").status == 200
    answer = server.get("/schedules/count")
    assert answer.status in (200, 503)
    return answer.status == 200


def sent_away(server):
    """How many connections were closed, or answered with 503: which of the two depends on what arrives first."""
    numbers = server.samples()
    return numbers["noonmark_http_dropped_total"] + numbers["noonmark_http_refused_total"]


@pytest.mark.parametrize("sent", [EVENTS, SLOW], ids=["read nothing", "send half"])
def test_stalled_clients_do_not_block_others(server, sent):
    before = memory(server, "VmHWM")
    earlier = sent_away(server)
    with ExitStack() as lines:
        for _ in range(100):
            lines.enter_context(socket.create_connection(("127.0.0.1", server.port), SOON)).sendall(sent)
        eventually(lambda: sent_away(server) >= earlier + 100 - CONNECTIONS - RESERVE)
        eventually(lambda: is_answered(server))
        numbers = server.samples()
        assert numbers["noonmark_http_unsent_bytes"] <= UNSENT + 3 * MIB  # and one answer
        assert numbers["noonmark_http_connections"] <= CONNECTIONS + RESERVE
        assert memory(server, "VmHWM") - before < 150 * MIB  # they asked for three times as much, in one copy
    eventually(lambda: server.samples()["noonmark_http_connections"] == 1)


def test_a_small_batch_cannot_exhaust_memory(server):
    before, peak = memory(server, "VmRSS"), memory(server, "VmHWM")
    call = {"jsonrpc": "2.0", "method": "event/list", "params": {"limit": 1_000}}
    batch = [{**call, "id": number} for number in range(100)]
    assert len(json.dumps(batch)) < 10_000
    for _ in range(5):
        answer = server.ask("POST", "/rpc", batch)
        assert len(answer.body) < 11 * MIB
        assert [one["id"] for one in answer.json] == list(range(100))
    assert memory(server, "VmHWM") - peak < 100 * MIB
    # And what it took is given back.
    eventually(lambda: (server.get("/health").status, memory(server, "VmRSS") - before < 30 * MIB) == (200, True))
