"""Many MCP clients at once, over HTTP, against a server process: each is served, and none does anything twice."""

import asyncio
import os
import statistics
import sys
from pathlib import Path

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

from noonmark.core.instants import SECOND
from tests.embedded.waiting import CLOCK, SOON
from tests.server.live_server import bearer
from tests.service.server import serving
from tests.service.test_exposure import first_key
from tests.soak import SCALE

CLIENTS, ROUNDS = (25, 1) if SCALE == 1 else (100, SCALE)
NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
GROWTH = 200
"""MiB that the server may grow by, the library of the protocol included."""


def megabytes(process):
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


def processor_time(process):
    """Milliseconds of processor time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return 1_000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(client, name, arguments):
    """Call a tool; not by `call_tool`, which would list all tools first to check the answer."""
    params = CallToolRequestParams(name=f"noonmark_{name}", arguments=arguments)
    began = CLOCK.monotonic()
    answer = await client.session.send_request(CallToolRequest(params=params), CallToolResult)
    return answer, (CLOCK.monotonic() - began) / SECOND


async def one_client(url, key, number):
    """A client with a connection of its own: it creates, repeats, reads and deletes a schedule in each round."""
    took = []
    async with (
        httpx2.AsyncClient(headers=bearer(key), timeout=4 * SOON, verify=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode="2026-07-28") as client,
    ):
        for turn in range(ROUNDS):
            label = f"{number}-{turn}"
            goal = {"trigger": NEVER, "target": {"target_kind": "event", "event_type": f"of.{label}"}}
            for _ in range(2):
                made, seconds = await ask(client, "schedule_create", {**goal, "idempotency_key": label})
                took.append(seconds)
            mine = {"schedule_id": made.structured_content["schedule_id"]}
            ran = [await ask(client, "schedule_run_now", {**mine, "key": label}) for _ in range(2)]
            assert len({answer.structured_content["occurrence_id"] for answer, _ in ran}) == 1
            took += [seconds for _, seconds in ran]
    return took


def test_many_clients_at_once(tmp_path):
    key = first_key(tmp_path)
    with serving(tmp_path, "--log-level", "warning") as server:

        async def everyone():
            return await asyncio.gather(*(one_client(server.url, key, number) for number in range(CLIENTS)))

        asyncio.run(one_client(server.url, key, "first"))  # the library is loaded with the first request
        before, used, began = megabytes(server.process), processor_time(server.process), CLOCK.monotonic()
        took = [seconds for one in asyncio.run(everyone()) for seconds in one]
        passed, growth = (CLOCK.monotonic() - began) / SECOND, megabytes(server.process) - before
        cost = (processor_time(server.process) - used) / len(took)
        authorized = {"Authorization": f"Bearer {key}"}
        count = server.ask("GET", "/schedules/count", **authorized).json["count"]
        events = server.ask("GET", "/events?limit=1000", **authorized).json["events"]
        log = server.log
    cuts = statistics.quantiles(took, n=100)
    sys.stdout.write(
        f"{CLIENTS} MCP clients at once: {len(took)} calls, {len(took) / passed:.0f} a second, p50 {cuts[49]:.2f} s,"
        f" p99 {cuts[98]:.2f} s, {cost:.0f} ms of the server's processor each, memory +{growth:.0f} MiB\n"
    )
    assert (len(took), count) == (4 * CLIENTS * ROUNDS, (CLIENTS + 1) * ROUNDS)
    ours = [one["event_type"] for one in events if one["event_type"].startswith("of.")]
    assert len(ours) == len(set(ours))
    assert growth < GROWTH
    assert log == ""
