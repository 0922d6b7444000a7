"""The server process: builds its parts, starts them, and stops them in order."""

from __future__ import annotations

import logging
import math
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import uvicorn

from noonmark import __version__
from noonmark.clocks import SystemClock
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.json_values import shown
from noonmark.core.redaction import redact
from noonmark.core.signatures import KeySettings
from noonmark.core.targets.command import CommandRules
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.embedded.references import check_callable
from noonmark.embedded.worker import Worker
from noonmark.operations.secrets import warn_of_unreadable
from noonmark.operations.serializers import next_run
from noonmark.operations.service import LOCAL, Limits, Service
from noonmark.operations.uploads import recover
from noonmark.ports.runtime import Runtime, Timing
from noonmark.server.app import create_app
from noonmark.server.config import FILE_VARIABLE, SERVER_VARIABLE, SETTINGS, setting_conflicts
from noonmark.server.requests import HttpSettings
from noonmark.server.transport.connection import Connection
from noonmark.server.transport.connection_pool import ADDRESS_SHARE, ConnectionLimits, ConnectionPool, max_connections
from noonmark.server.transport.listener import BACKLOG, url_of
from noonmark.targets.command.programs import Pin, ProgramPolicy
from noonmark.targets.function.registry import FunctionRegistry, import_function
from noonmark.targets.http.settings import HttpTargetSettings
from noonmark.targets.process_control import hide_process
from noonmark.telemetry import logs
from noonmark.telemetry.health import CachedProbe, Health
from noonmark.telemetry.logs import CompositeSink, LogSink
from noonmark.telemetry.metrics import Metrics, ScheduleTimesReader
from noonmark.wiring import (
    disk_space,
    file_of,
    fresh_id,
    make_pinger,
    make_runner,
    make_seal,
    make_store,
    make_target,
    make_traces,
    make_uploads,
    node_name,
    upload_folder,
    zone_data_version,
)

if TYPE_CHECKING:
    import socket
    from asyncio import Protocol
    from collections.abc import Callable
    from types import FrameType

    from starlette.applications import Starlette

    from noonmark.core.instants import Micros
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.ports.records import Backlog
    from noonmark.ports.store import Store
    from noonmark.server.config import Loaded, Settings
    from noonmark.telemetry.metrics import LabelledSchedules
    from noonmark.telemetry.traces import TraceRecorder

logger = logging.getLogger("noonmark.serve")
KEEP_ALIVE = 5
MAX_BACKLOG_COUNT = 10_000
"""The backlog metric stops counting here; beyond that the exact length does not matter."""
SCHEDULE_TIMES_LIFETIME: Micros = 5 * SECOND
"""How long the metrics of single schedules are reused: to find the schedules with the label reads all of them."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequested(KeyboardInterrupt):
    """A signal stopped the server before it was ready."""


def host(loaded: Loaded, listener: socket.socket) -> int:
    """Run a server until a signal stops it; returns the exit code."""
    settings = replace(loaded.settings, target_guard=_resolve_guard(loaded.settings, listener))
    logs.configure(level=settings.log_level, form=settings.log_format, trace_ids=settings.traces != "off")
    if settings.allow_commands:
        hide_process()
    with ExitStack() as cleanup:
        cleanup.callback(listener.close)
        signals = cleanup.enter_context(_SignalHandler())
        try:
            _check_folders(loaded)
            functions = _import_functions(loaded)
            migrates = settings.migrate or file_of(settings.store) is not None
            store = make_store(settings.store, clock := SystemClock(), migrates=migrates)
            cleanup.callback(store.close)
            store.open()
            metrics = Metrics(__version__, _backlog_probe(store, clock), store.damage, _schedule_probe(store, clock))
            traces = _create_traces(settings, clock, cleanup)
            worker = _create_worker(settings, functions, store, clock, metrics, traces)
            metrics.watch(worker)
            cleanup.callback(worker.close)
            app = _create_app(replace(settings, port=listener.getsockname()[1]), store, clock, worker, metrics)
            if settings.worker:
                worker.start()
            pool = ConnectionPool(_connection_limits(settings), lambda: fresh_id(clock))
            metrics.watch_connections(pool)
            server = _Server(app, settings, listener, pool)
            signals.handle_with(server.request_stop)
            server.run([listener])
            signals.handle_with(worker.hand_back_now)
            if server.stop_requests > 1:
                worker.hand_back_now()
        except StopRequested:
            signals.handle_with(_ignore_signal)
            logger.info("stopped before startup was complete")
    return 0


def _connection_limits(settings: Settings) -> ConnectionLimits:
    """Behind a proxy, one address may have all connections: every client comes from the proxy."""
    maximum = max_connections(settings.max_connections)
    share = maximum if settings.public_url is not None else max(1, maximum // ADDRESS_SHARE)
    return ConnectionLimits(
        max_connections=maximum,
        per_address=settings.max_connections_per_address or share,
        head_seconds=settings.request_timeout,
        send_seconds=settings.send_timeout,
        unsent_bytes=settings.max_unsent_bytes,
    )


def _backlog_probe(store: Store, clock: SystemClock) -> Callable[[], Backlog | None]:
    """Reads the backlog, at most once per second; None while the store does not answer."""

    def count() -> Backlog:
        return store.backlog(store.clock(), MAX_BACKLOG_COUNT)

    return CachedProbe(count, monotonic=clock.monotonic, lifetime=SECOND).read


def _schedule_probe(store: Store, clock: SystemClock) -> Callable[[], LabelledSchedules | None]:
    """Reads the times of labelled schedules, at most every few seconds; None while the store does not answer."""
    reader = ScheduleTimesReader(store, LOCAL.owner.tenant, lambda stored, now: next_run(stored, now=now))
    return CachedProbe(reader.read, monotonic=clock.monotonic, lifetime=SCHEDULE_TIMES_LIFETIME).read


def _claim_delay(store: Store, worker: Worker) -> Micros:
    """How long the oldest occurrence that this node could claim has been due."""
    since = store.due_since(worker.routes())
    return 0 if since is None else max(0, store.clock() - since)


def _create_traces(settings: Settings, clock: SystemClock, cleanup: ExitStack) -> TraceRecorder | None:
    """What records traces; what it has recorded is sent when the server stops."""
    if settings.traces == "off":
        return None
    recorder, shut_down = make_traces(clock, version=__version__, node=node_name())
    cleanup.callback(shut_down)
    return recorder


def _create_worker(
    settings: Settings,
    functions: FunctionRegistry,
    store: Store,
    clock: SystemClock,
    metrics: Metrics,
    traces: TraceRecorder | None,
) -> Worker:
    programs = ProgramPolicy(
        settings.allow_commands,
        rules=_command_rules(settings),
        uploads=upload_folder(settings.upload_dir, settings.store),
        pin=Pin(settings.pin_commands),
    )
    for name in programs.not_found:
        logger.warning(
            "--allow-commands names %s, which was not found or cannot be read or run; commands that name it fail until"
            " the server is restarted with the program in place",
            shown(name),
        )
    timing = Timing(lease=int(settings.lease * SECOND), keep_for=int(settings.keep_days * DAY_SECONDS * SECOND))
    seal = make_seal(settings.secret_key)
    outbound = HttpTargetSettings(
        egress=_egress(settings),
        keys=_keys(settings),
        public_url=settings.public_url,
    )
    runtime = Runtime(
        node=node_name() if traces is None else traces.node,
        store=store,
        clock=clock,
        target=make_target(store, make_runner(functions, settings.max_threads, None), programs, outbound, seal),
        sink=CompositeSink(metrics, LogSink(), *([] if traces is None else [traces])),
        traces=traces,
        pinger=make_pinger(outbound),
        version=__version__,
        zone_data=zone_data_version(),
        timing=timing,
    )
    return Worker(
        runtime,
        functions,
        programs,
        max_threads=settings.max_threads,
        grace=int(settings.grace * SECOND),
        outbound=outbound,
        seal=seal,
    )


def _resolve_guard(settings: Settings, listener: socket.socket) -> str:
    """Which addresses HTTP targets may connect to.

    `auto` allows local addresses only if clients are on this machine: clients behind a proxy could otherwise reach
    services that listen on this machine alone, including this server.
    """
    if settings.target_guard != "auto":
        return settings.target_guard
    is_loopback = ip_address(listener.getsockname()[0]).is_loopback
    return Guard.LOCAL if is_loopback and not settings.public_url and not settings.allowed_hosts else Guard.STRICT


def _egress(settings: Settings) -> EgressPolicy:
    """The addresses that HTTP targets may connect to."""
    return egress_policy(Guard(settings.target_guard), settings.allow_hosts)


def _command_rules(settings: Settings) -> CommandRules:
    """What clients may set for commands."""
    setting_variables = {variable for setting in SETTINGS.values() for variable in setting.variables}
    names = settings.allow_commands
    return CommandRules(
        programs=None if "*" in names or not names else frozenset(names),
        env=frozenset(settings.allow_env),
        folders=settings.allow_cwd,
        reserved=frozenset({*setting_variables, FILE_VARIABLE, SERVER_VARIABLE}),
    )


def _check_folders(loaded: Loaded) -> None:
    """Reject an allowed working folder inside the upload folder: no command may run there."""
    uploads = upload_folder(loaded.settings.upload_dir, loaded.settings.store)
    for folder in loaded.settings.allow_cwd:
        if uploads is not None and Path(folder).resolve().is_relative_to(uploads.resolve()):
            message = f"{folder} is the upload folder or inside it, and commands may not run there"
            raise loaded.refuse("allow_cwd", message)


def _keys(settings: Settings) -> KeySettings:
    return KeySettings(signing_key=settings.signing_key, secret_key=settings.secret_key)


def _import_functions(loaded: Loaded) -> FunctionRegistry:
    """Import the functions that this node offers; the current folder is on the module path."""
    functions = FunctionRegistry()
    if loaded.settings.functions and "" not in sys.path:
        sys.path.insert(0, "")
    for name, reference in loaded.settings.functions.items():
        try:
            function = import_function(reference)
            check_callable(function)
        except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
            raise loaded.refuse("functions", f"{name}={reference} cannot be used: {error}") from error
        functions.register(name, function)
        functions.offer(name)
    return functions


def _create_app(settings: Settings, store: Store, clock: SystemClock, worker: Worker, metrics: Metrics) -> Starlette:
    node = worker.snapshot().node
    service = Service(
        store=store,
        lookahead=Timing().lookahead,
        fresh_id=lambda: fresh_id(clock),
        machine_clock=clock.micros,
        zone_data=zone_data_version(),
        disks=lambda: disk_space(settings.store, upload_folder(settings.upload_dir, settings.store)),
        conflicts=setting_conflicts(settings, max_connections=max_connections(settings.max_connections)),
        node=node,
        wake=worker.wake,
        check_stop_requests=worker.check_stop_requests,
        worker=worker,
        keys=_keys(settings),
        seal=make_seal(settings.secret_key),
        egress=_egress(settings),
        commands=_command_rules(settings),
        base_url=_base_url(settings),
        pinger=worker.pinger,
        report=metrics.report,
        traces=worker.traces,
        offered=frozenset({*settings.functions, *settings.functions.values()}),
        limits=Limits(
            max_per_user=settings.max_per_user,
            min_interval=settings.min_interval_minutes * 60 * SECOND,
            max_budget_usd=settings.max_budget_usd,
        ),
        uploads=make_uploads(
            settings.upload_dir,
            settings.store,
            max_bytes=settings.max_upload_bytes,
            quota=settings.upload_quota_bytes,
        ),
    )
    recover(service)
    warn_of_unreadable(service, LOCAL.owner.tenant)
    http = HttpSettings(
        host=settings.host,
        port=settings.port,
        allowed_hosts=settings.allowed_hosts,
        public_url=settings.public_url,
        body_seconds=settings.request_timeout,
    )
    health = Health(
        store.nodes,
        node=node,
        version=__version__,
        worker=worker,
        waiting=lambda: _claim_delay(store, worker),
        damage=store.damage,
    )
    return create_app(service, http, metrics, health=health)


class _Server(uvicorn.Server):
    """The web server; it prints its address once it accepts requests."""

    def __init__(self, app: Starlette, settings: Settings, listener: socket.socket, pool: ConnectionPool) -> None:
        config = uvicorn.Config(
            app,
            http=cast("type[Protocol]", partial(Connection, pool)),
            log_config=None,
            proxy_headers=False,  # any client on loopback could forge them
            server_header=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, math.ceil(settings.grace)),
            # asyncio accepts this many at once, before the pool sees them; all must fit.
            backlog=max(1, pool.limits.max_connections // 8),
        )
        super().__init__(config)
        self.stop_requests = 0
        worker = "on" if settings.worker else "off"
        self._started_line = (
            f"Noonmark {__version__} listens on {url_of(listener)} (store {redact(settings.store)}, worker {worker})"
        )

    def request_stop(self) -> None:
        """Stop as soon as startup is complete. While uvicorn runs it handles signals, and repeats them at its end."""
        self.stop_requests += 1
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            for listener in sockets or ():  # uvicorn has made the backlog of the socket smaller
                listener.listen(BACKLOG)
            with suppress(OSError):  # standard output may be closed
                sys.stdout.write(self._started_line + "\n")
                sys.stdout.flush()


class _SignalHandler:
    """Handles SIGINT and SIGTERM; until another handler is set, they abort startup."""

    def __init__(self) -> None:
        self._handler: Callable[[], None] = _abort_startup

    def handle_with(self, handler: Callable[[], None]) -> None:
        """Call this handler from now on."""
        self._handler = handler

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._handler()


def _abort_startup() -> None:
    raise StopRequested


def _ignore_signal() -> None:
    """The server stops already."""


def _base_url(settings: Settings) -> str:
    """Where clients reach the server; empty if the system chooses its port."""
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}" if settings.port else ""
