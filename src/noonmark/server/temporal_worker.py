"""The process of a worker of the engine: delivers what nodes have handed over to Temporal, and writes how it ended."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark import __version__
from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidSchedule, NoonmarkError
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.redaction import redact
from noonmark.core.targets.egress import Guard
from noonmark.core.targets.ping import MOMENTS
from noonmark.driver import logs as run_logs
from noonmark.driver.store_clock import StoreClock
from noonmark.extras import require
from noonmark.operations.session_tools import SessionTools
from noonmark.ports.events import Settled
from noonmark.server.assembly import check_folders, delivery_parts, engine_address, import_functions, make_service
from noonmark.server.metrics_listener import listen_for_metrics
from noonmark.targets.loop_runner import pause
from noonmark.targets.process_control import hide_process
from noonmark.targets.temporal.settings import EngineCounts, check_route, served_routes
from noonmark.telemetry import logs
from noonmark.telemetry.metrics import Metrics
from noonmark.wiring import make_pinger, make_runner, make_store, make_target, needs_migration, node_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement
    from noonmark.ports.runtime import Pinger
    from noonmark.ports.store import Store
    from noonmark.ports.target import Target
    from noonmark.server.config import LoadedSettings
    from noonmark.targets.temporal.settings import EngineAddress

logger = logging.getLogger("noonmark.temporal")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CLOCK_INTERVAL: Micros = 5 * SECOND
"""Between two readings of the store's clock."""
OPTIONS = {
    "function": "--function NAME=MODULE:FUNCTION",
    "bundle": "--allow-bundles, and --labels and --slots for what they need",
    "session": "--agents",
    "mob": "--agents",
    "task": "--agents",
}
"""What lets a process deliver a kind of route."""


def run_temporal_worker(loaded: LoadedSettings, wanted: Sequence[str]) -> int:
    """Run a worker until a signal stops it; returns the exit code."""
    settings = loaded.settings
    if settings.target_guard == "auto":  # it does not know who may reach its nodes
        settings = replace(settings, target_guard=str(Guard.STRICT))
        loaded = replace(loaded, settings=settings)
    if settings.engine is None:
        raise loaded.error("engine", "is required: the URL of the engine, such as temporal://localhost:7233/default")
    address, routes = engine_address(loaded, settings.engine), _routes(loaded, wanted)
    require("temporal", "noonmark temporal-worker")
    logs.configure(level=settings.log_level, form=settings.log_format, trace_ids=False)
    logging.getLogger("temporalio.worker").setLevel(logging.WARNING)  # it says several times that it stops
    if settings.allow_commands or settings.allow_bundles:
        hide_process()
    with ExitStack() as cleanup:
        check_folders(loaded)
        functions, clock = import_functions(loaded), SystemClock()
        migrates = settings.migrate or not needs_migration(settings.store)
        store = make_store(settings.store, clock, migrates=migrates)
        cleanup.callback(store.close)
        store.open()
        session_tools = SessionTools()
        parts = delivery_parts(loaded, session_tools)
        session_tools.attach(make_service(settings, store, clock, node=node_name()))
        target = make_target(store, make_runner(functions, settings.max_threads, None), *parts)
        if missing := [route for route in routes if route not in target.routes()]:
            kind = missing[0].partition(":")[0]
            hint = f"; set {OPTIONS[kind]}" if kind in OPTIONS else ""
            raise _usage(f"has {missing[0]!r}, which this worker cannot deliver{hint}")
        metrics = Metrics(__version__)
        listen_for_metrics(loaded, metrics, cleanup)
        process = _Process(store, target, StoreClock(clock), metrics, make_pinger(parts.outbound))
        cleanup.callback(target.close)
        return asyncio.run(process.serve(loaded, address, routes))


def _routes(loaded: LoadedSettings, wanted: Sequence[str]) -> tuple[str, ...]:
    given = [route.strip() for part in wanted for route in part.split(",") if route.strip()]
    try:
        routes = served_routes(map(check_route, given), loaded.settings.functions)
    except ValueError as error:
        raise _usage(str(error)) from None
    if given and not routes:
        raise _usage("has 'function', and this worker has no functions; name them with --function NAME=module:function")
    if not routes:
        raise _usage("is required: what this worker delivers, such as session,task,workflow")
    return routes


def _usage(message: str) -> NoonmarkError:
    return InvalidSchedule(message, field="routes")


class _Process:
    """One worker process."""

    def __init__(self, store: Store, target: Target, clock: StoreClock, metrics: Metrics, pinger: Pinger) -> None:
        self._store, self._target, self._clock = store, target, clock
        self._metrics, self._pinger = metrics, pinger

    async def serve(self, loaded: LoadedSettings, address: EngineAddress, routes: Sequence[str]) -> int:
        """Serve until a signal comes."""
        from noonmark.targets.temporal.activities import Activities  # noqa: PLC0415 - slow to import
        from noonmark.targets.temporal.steps import StepRuns  # noqa: PLC0415 - likewise
        from noonmark.targets.temporal.worker import WorkerSettings, run_worker  # noqa: PLC0415 - likewise

        settings, stop, ready = loaded.settings, asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def leave() -> None:
            logger.info("stopping; deliveries have %g s to end", settings.grace)
            stop.set()

        for number in SIGNALS:
            loop.add_signal_handler(number, leave)
        await self._read_clock()
        self._target.open(lambda _assignment, _reported: None, self._clock.now)
        name, now = f"temporal:{node_name()}", self._clock.now
        steps = StepRuns(self._store, routes, now, has_callbacks=settings.public_url is not None)
        activities = Activities(self._store, self._target, steps, now, name=name, settled=self._note_settled)
        tasks = [
            asyncio.create_task(self._keep_time()),
            asyncio.create_task(_announce(ready, address, routes, settings.store)),
        ]
        counts = EngineCounts()
        self._metrics.watch_engine(counts)
        polls = WorkerSettings(
            address=address, routes=routes, name=name, grace=int(settings.grace * SECOND), counts=counts
        )
        try:
            await run_worker(polls, activities, stop, ready)
        finally:
            for task in tasks:
                task.cancel()
        return 0

    async def _keep_time(self) -> None:
        while True:
            await pause(CLOCK_INTERVAL)
            with suppress(NoonmarkError):  # the store is away; its time goes on
                await self._read_clock()

    async def _read_clock(self) -> None:
        before = self._clock.monotonic()
        self._clock.note(await asyncio.to_thread(self._store.clock), before)

    def _note_settled(self, schedule: Schedule, settlement: Settlement) -> None:
        """Log the end of a run, count it, and call the URL that its schedule names for it."""
        occurrence = settlement.occurrence
        if settlement.phase is Phase.COMPLETED:
            run_logs.completed([(schedule, settlement)])
        else:
            run_logs.failed(schedule, settlement)
        end = Settled(occurrence, settlement.phase, settlement.reason, settlement.run, settlement.retry_at)
        self._metrics.report([end])
        if schedule.declaration.ping_urls is not None and (moment := MOMENTS.get(settlement.phase)) is not None:
            self._pinger.ping(schedule, occurrence, moment)


async def _announce(ready: asyncio.Event, address: EngineAddress, routes: Sequence[str], store: str) -> None:
    await ready.wait()
    with suppress(OSError):  # standard output may be closed
        sys.stdout.write(
            f"Noonmark {__version__} delivers {', '.join(routes)} for {address.server}/{address.namespace}, task queue"
            f" {address.task_queue} (store {redact(store)})\n"
        )
        sys.stdout.flush()
