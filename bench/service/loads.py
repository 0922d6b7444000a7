"""Loads on a server: each measurement runs in its own process and calls a server in another."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from itertools import repeat
from typing import TYPE_CHECKING

from bench.ledger.ours import percentiles
from bench.service.callers import ask, request
from bench.service.jobs import LOOPBACK, body, document, nothing
from noonmark import CronTrigger, Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 16
PAUSE = 0.002
"""Seconds between an answer of `/health` and the next question."""
PATIENCE = 60
HEALTH = request("GET", "/health")


def http_create(port: int, count: int) -> dict[str, float]:
    """Schedules created over HTTP, sixteen at a time."""
    requests = [request("POST", "/schedules", body(number)) for number in range(count)]
    started = time.perf_counter()
    run = asyncio.run(ask(port, requests, connections=CONNECTIONS, status=201))
    return {"rate": count / (time.perf_counter() - started), **percentiles(run.took)}


def http_get(port: int, path: str, count: int) -> dict[str, float]:
    """The same thing asked for again and again, sixteen at a time."""
    started = time.perf_counter()
    run = asyncio.run(ask(port, repeat(request("GET", path), count), connections=CONNECTIONS))
    rate = count / (time.perf_counter() - started)
    return {"rate": rate, "bytes": len(run.answer), **percentiles(run.took)}


def embedded_create(url: str, count: int) -> dict[str, float]:
    """The same schedules created in this process, one by one."""
    scheduler = Scheduler(url)
    scheduler.register_function("nothing", nothing)
    took = []
    for number in range(count):
        one = document(number)
        begun = time.perf_counter()
        scheduler.schedule(
            nothing,
            function_name="nothing",
            trigger=CronTrigger(one["trigger"]["expression"], timezone=one["trigger"]["timezone"]),
            kwargs=one["target"]["kwargs"],
            description=one["description"],
            labels=one["labels"],
            overlap=one["overlap_policy"],
            retries=one["retry_policy"],
            timeout=one["timeout_seconds"],
        )
        took.append(time.perf_counter() - begun)
    scheduler.close()
    return {"rate": count / sum(took), **percentiles(took)}


def health_alone(port: int, count: int) -> dict[str, float]:
    """How long `/health` takes while there is nothing else to do."""
    return _health(asyncio.run(ask(port, repeat(HEALTH, count), pause=PAUSE)).took)


def health_beside_creates(port: int, count: int) -> dict[str, float]:
    """The same while schedules are created as fast as the server can."""

    async def both() -> list[float]:
        is_over = asyncio.Event()
        probes = asyncio.create_task(ask(port, _until(is_over), pause=PAUSE))
        requests = (request("POST", "/schedules", body(number)) for number in range(count))
        await ask(port, requests, connections=CONNECTIONS, status=201)
        is_over.set()
        return (await probes).took

    return _health(asyncio.run(both()))


def health_beside_bursts(port: int, first: float, apart: float, bursts: int, size: int) -> dict[str, float]:
    """The same while the server runs one burst after another."""

    async def one(number: int) -> list[float]:
        await asyncio.sleep(max(0, first + number * apart - time.time()))
        due = time.perf_counter() - (time.time() - first - number * apart)
        is_over = asyncio.Event()
        probes = asyncio.create_task(ask(port, _until(is_over), pause=PAUSE))
        count = request("GET", "/schedules/count?phase=completed")
        while json.loads((await ask(port, [count])).answer)["count"] < (number + 1) * size:
            assert time.perf_counter() < due + PATIENCE, "the burst did not end"
            await asyncio.sleep(0.05)
        seconds.append(time.perf_counter() - due)
        is_over.set()
        return (await probes).took

    async def every() -> list[float]:
        return [took for number in range(bursts) for took in await one(number)]

    seconds: list[float] = []
    run = asyncio.run(every())
    return {"rate": size / min(seconds), **_health(run)}


def run_now(port: int, schedule_id: str, count: int) -> dict[str, float]:
    """From the request to run a schedule now to the start of its function, one at a time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind((LOOPBACK, 0))
        line.settimeout(PATIENCE)
        payload = json.dumps({"payload": {"port": line.getsockname()[1]}}).encode()
        one = request("POST", f"/schedules/{schedule_id}/run", payload)
        started = []

        def requests() -> Iterator[bytes]:
            for number in range(count):
                if number:
                    started.append(float(line.recv(100)))
                yield one

        run = asyncio.run(ask(port, requests(), status=202))
        started.append(float(line.recv(100)))
    waited = [start - begun for start, begun in zip(started, run.begun, strict=True)]
    assert min(waited) > 0, "a function has started before it was asked for"
    answered = percentiles(run.took)
    return {**percentiles(waited), "answer": answered["p50"], "slow_answer": answered["p99"]}


def _until(is_over: asyncio.Event) -> Iterator[bytes]:
    while not is_over.is_set():
        yield HEALTH


def _health(took: list[float]) -> dict[str, float]:
    return {"probes": len(took), **percentiles(took)}
