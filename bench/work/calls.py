"""Requests: by a bare loop, by the HTTP target alone, and by schedules that are due at one instant."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import httpcore2

from bench.ledger.ours import CHUNK, OWNER
from bench.service.jobs import LOOPBACK
from noonmark import OnceTrigger, Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.run import Outcome
from noonmark.core.schedule import TRUSTED, parse_schedule
from noonmark.operations.schedule_edits import new_schedule
from noonmark.ports.records import ScheduleFilter
from noonmark.ports.target import Assignment
from noonmark.targets.http.runner import MAX_REQUESTS, HttpRunner
from noonmark.testing import factories
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.schedule import Declaration
    from noonmark.core.settlement import Accepted, Delivered

AT_ONCE = MAX_REQUESTS // 2
"""As many as one owner may have under way."""
BODY = {"order": 17, "lines": ["a", "b", "c"]}
SENT = b'{"order":17,"lines":["a","b","c"]}'
HEADERS = {
    "Content-Type": "application/json",
    "Idempotency-Key": "0" * 32,
    "traceparent": f"00-{'0' * 32}-{'0' * 16}-00",
}
PATIENCE = 120


def calls_bare(port: int, count: int) -> dict[str, float]:
    """As many requests of the same kind, by the same library, as many at a time."""

    async def call() -> float:
        url, left = _url(port), iter(range(count))
        async with httpcore2.AsyncConnectionPool(
            max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE, network_backend=httpcore2.AnyIOBackend()
        ) as pool:

            async def go_on() -> None:
                for _ in left:
                    answer = await pool.request("POST", url, headers=[*HEADERS.items()], content=SENT)
                    assert answer.status == 200

            begun = time.perf_counter()
            await asyncio.gather(*(go_on() for _ in range(AT_ONCE)))
            return time.perf_counter() - begun

    return {"rate": count / asyncio.run(call())}


def calls_of_target(port: int, count: int) -> dict[str, float]:
    """The HTTP target by itself: everything but the ledger."""
    clock, schedule = SystemClock(), replace(factories.schedule(target=_declared(port).target), source=TRUSTED)
    outcomes: list[Outcome] = []
    is_over = threading.Event()

    def report(_: Assignment, delivered: Delivered | Accepted) -> None:
        outcomes.append(delivered.outcome)  # type: ignore[union-attr] # nobody takes over
        if len(outcomes) == count:
            is_over.set()

    caller = HttpRunner()
    caller.open(report, clock.micros)
    now = clock.micros()
    rows = (factories.occurrence(schedule, manual(str(one)), nominal=now, attempt=1) for one in range(count))
    assignments = [Assignment(row, schedule, begins=now) for row in rows]
    begun = time.perf_counter()
    caller.deliver(assignments)
    assert is_over.wait(PATIENCE), "the calls did not end"
    seconds = time.perf_counter() - begun
    caller.close()
    assert set(outcomes) == {Outcome.COMPLETED}, set(outcomes)
    return {"rate": count / seconds}


def calls_of_schedules(port: int, count: int) -> dict[str, float]:
    """Schedules that are due at one instant: from then until the last answer is written down."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = Scheduler(f"sqlite:///{folder}/bench.db")
        due = round(time.time() + max(1.0, count / 1_500), 3)
        plans = [*_plans(scheduler, _declared(port), count, due)]
        for begin in range(0, count, CHUNK):
            scheduler._store.create(plans[begin : begin + CHUNK])
        assert time.time() < due, "they were due before all of them were there"
        scheduler.start()
        limit, store_of_it = due + PATIENCE, scheduler._store
        while (
            store_of_it.count_schedules(OWNER.tenant, ScheduleFilter(phases=frozenset({SchedulePhase.COMPLETED})))
            < count
        ):
            assert time.time() < limit, "the calls did not end"
            time.sleep(0.02)
        seconds = time.time() - due
        scheduler.stop()
        return {"rate": count / seconds}


def _declared(port: int) -> Declaration:
    document = {
        "trigger": {"type": "once", "delay_seconds": 60},
        "target": {"target_kind": "http", "url": _url(port), "body": BODY},
    }
    return parse_schedule(document, now=SystemClock().now())


def _plans(scheduler: Scheduler, declared: Declaration, count: int, due: float) -> Iterator[object]:
    clock, lookahead = scheduler._runtime.clock, scheduler._runtime.timing.lookahead
    now = clock.micros()
    one = replace(declared, trigger=OnceTrigger(from_micros(int(due * SECOND))))
    for _ in range(count):
        uid = fresh_id(clock)
        made = new_schedule(one, uid=uid, schedule_id=f"job_{uid}", owner=OWNER, source=TRUSTED, now=now)
        yield first_plan(made, lookahead=lookahead)


def _url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}/hook"
