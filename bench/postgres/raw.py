"""The limit: plain statements on one connection that make the same changes to the same tables, and decide nothing."""

from __future__ import annotations

import threading
import time
from importlib.resources import files
from typing import TYPE_CHECKING

from bench.ledger.ours import percentiles
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import connect
from noonmark.stores.postgres.dumpers import BigintArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.stores.postgres.connections import Connection

    Claimed = list[tuple[int, int, int]]

BATCH = 1_000
ROUTE, IDLE = "function:nothing", "function:idle"
LEASE = 15_000_000
YEAR = 365 * 86_400_000_000

SCHEDULES = """
INSERT INTO schedules (key, tenant, username, schedule_id, description, trigger_type, trigger_document, terms_document,
                       source, route, created, is_listed)
SELECT key, 'default', 'local', 'job_' || key, '', 'once', '{"type": "once"}', '{}', 'bench', $3, $4, 1
FROM generate_series($1::bigint, $2::bigint) AS key
"""
STATES = """
INSERT INTO schedule_states (schedule, uid, phase, revision, version, updated, watermark, exhausted, patience, live,
                             owner)
SELECT key, 'uid_' || key, 'active', 1, 1, $3, $3, 1, 60000000, 1, 1 FROM generate_series($1::bigint, $2::bigint) AS key
"""
OCCURRENCES = """
INSERT INTO occurrences (key, id, schedule, revision, origin, phase, route, nominal, due, first_due, ready, owner)
SELECT key, 'occ_' || key, key, 1, 'trigger', 'pending', $3, $4, $4, $4, $4, 1
FROM generate_series($1::bigint, $2::bigint) AS key
"""
CLAIM = """
WITH due AS (
    SELECT key FROM occurrences
    WHERE phase = 'pending' AND held = 0 AND ready IS NOT NULL AND route = $1 AND ready <= $2
    ORDER BY ready, nominal LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE occurrences AS taken SET phase = 'claimed', fence = taken.fence + 1, node = 'raw', lease_end = $4
FROM due WHERE taken.key = due.key RETURNING taken.key, taken.schedule, taken.fence
"""
# The fence alone says whose the occurrence is. If the phase were asked for too, and no row had it when the server last
# counted them, it would look for that phase first, expecting none, and so compare every row with every claim.
START = """
UPDATE occurrences AS one SET phase = 'dispatching', attempt = attempt + 1, holds_slot = 1, started = $3, lease_end = $4
FROM unnest($1::bigint[], $2::bigint[]) AS claim (key, fence)
WHERE one.key = claim.key AND one.fence = claim.fence
"""
STARTED = """
UPDATE schedule_states AS state SET last_started = $3, admitted = admitted + 1, holder = claim.key, newest = $3
FROM unnest($1::bigint[], $2::bigint[]) AS claim (schedule, key) WHERE state.schedule = claim.schedule
"""
END = """
UPDATE occurrences AS one SET phase = 'completed', reason = 'succeeded', holds_slot = 0, ended = $3, lease_end = NULL,
    node = NULL, started = NULL, ready = NULL
FROM unnest($1::bigint[], $2::bigint[]) AS claim (key, fence)
WHERE one.key = claim.key AND one.fence = claim.fence
"""
# Every schedule has the number of its one occurrence.
RUN = """
INSERT INTO runs (occurrence, fence, schedule, attempt, node, started, ended, outcome)
SELECT key, fence, key, 1, 'raw', $3, $3, 'completed' FROM unnest($1::bigint[], $2::bigint[]) AS claim (key, fence)
"""
ENDED = """
UPDATE schedule_states AS state SET total = total + 1, successful = successful + 1, last_phase = 'completed',
    failures_in_row = 0, live = live - 1, history = history + 1, holder = NULL, phase = 'completed', updated = $2
FROM unnest($1::bigint[]) AS claim (schedule) WHERE state.schedule = claim.schedule
"""


def raw_server_burst(url: str, count: int, *, overdue: bool = False) -> dict[str, float]:
    """Take occurrences through every phase, a thousand to a transaction; when overdue, claimed first."""
    return _connected(url, lambda connection: _burst(connection, count, overdue=overdue))


def raw_server_claim(url: str, stored: int, count: int) -> dict[str, float]:
    """How long it takes to claim an occurrence that is due, beside stored ones that are not."""
    return _connected(url, lambda connection: _claim_beside(connection, stored, count))


def raw_notify(url: str, count: int, *, writes: bool = False) -> dict[str, float]:
    """From the call that notifies to the listener on another connection; perhaps with a row to write before it."""
    return _connected(url, lambda connection: _notify(url, connection, count, writes=writes))


def _burst(connection: Connection, count: int, *, overdue: bool) -> dict[str, float]:
    _prepare(connection, 0, count)
    claimed: list[Claimed] = [] if overdue else _claim_all(connection)
    begun = time.perf_counter()
    if overdue:
        claimed = _claim_all(connection)
    for claims in claimed:
        _start(connection, claims)
    for claims in claimed:
        _end(connection, claims)
    seconds = time.perf_counter() - begun
    [(ran,)] = connection.fetch(
        "SELECT count(*) FROM occurrences JOIN runs ON occurrence = key WHERE phase = 'completed'"
    )
    assert ran == count, f"{ran:,} of {count:,} were completed"
    return {"ran": ran, "rate": count / seconds}


def _claim_beside(connection: Connection, stored: int, count: int) -> dict[str, float]:
    _prepare(connection, stored, 3 * count)
    best = 1e9
    for _ in range(3):
        begun = time.perf_counter()
        claims = _claim(connection, count)
        best = min(best, (time.perf_counter() - begun) / count)
        assert len(claims) == count, f"{len(claims):,} of {count:,} were claimed"
    return {"claim": best}


def _notify(url: str, sender: Connection, count: int, *, writes: bool) -> dict[str, float]:
    sender.run("CREATE TABLE written (number bigint)")
    heard: list[float] = []
    arrived = threading.Semaphore(0)
    listener = _connect(url)
    listener.run("LISTEN bench")

    def listen() -> None:
        for _ in listener.notifies(stop_after=count, timeout=60):
            heard.append(time.perf_counter())
            arrived.release()

    thread = threading.Thread(target=listen)
    thread.start()
    waited: list[float] = []
    for number in range(count):
        begun = time.perf_counter()
        with sender.transaction():
            if writes:
                sender.fetch("INSERT INTO written VALUES ($1)", [number])
            sender.fetch("SELECT pg_notify('bench', '')")
        assert arrived.acquire(timeout=30), "it was not heard"
        waited.append(heard[-1] - begun)
    thread.join()
    listener.close()
    return {"heard": len(waited), **percentiles(waited)}


def _prepare(connection: Connection, idle: int, due: int) -> None:
    """Our own tables, with some schedules that are far ahead and some that are due."""
    connection.run("SET statement_timeout = 0")
    connection.run(files("noonmark.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8"))
    now = _micros()
    for first, last, route, at in ((1, idle, IDLE, now + YEAR), (idle + 1, idle + due, ROUTE, now)):
        with connection.transaction():
            connection.fetch(SCHEDULES, [first, last, route, now])
            connection.fetch(STATES, [first, last, now])
            connection.fetch(OCCURRENCES, [first, last, route, at])
    # The server would do it by itself, perhaps during the measurement.
    connection.run("VACUUM ANALYZE")


def _claim_all(connection: Connection) -> list[Claimed]:
    claimed = []
    while claims := _claim(connection, BATCH):
        claimed.append(claims)
    return claimed


def _claim(connection: Connection, limit: int) -> Claimed:
    now = _micros()
    return connection.fetch(CLAIM, [ROUTE, now, limit, now + LEASE])


def _start(connection: Connection, claims: Claimed) -> None:
    keys, schedules, fences = _columns(claims)
    now = _micros()
    with connection.transaction():
        connection.fetch(START, [keys, fences, now, now + LEASE])
        connection.fetch(STARTED, [schedules, keys, now])


def _end(connection: Connection, claims: Claimed) -> None:
    keys, schedules, fences = _columns(claims)
    now = _micros()
    with connection.transaction():
        connection.fetch(END, [keys, fences, now])
        connection.fetch(RUN, [keys, fences, now])
        connection.fetch(ENDED, [schedules, now])


def _columns(claims: Claimed) -> tuple[BigintArray, BigintArray, BigintArray]:
    keys, schedules, fences = (BigintArray(column) for column in zip(*claims, strict=True))
    return keys, schedules, fences


def _connected(url: str, measure: Callable[[Connection], dict[str, float]]) -> dict[str, float]:
    with _connect(url) as connection:
        return measure(connection)


def _connect(url: str) -> Connection:
    return connect(parse_address(f"{url}?schema=public&timeout=600"))


def _micros() -> int:
    return time.time_ns() // 1_000
