"""The server process: builds its components, starts them, and stops them in order."""

from __future__ import annotations

import gc
import logging
import math
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import uvicorn
from anyio import to_thread

from noonmark import __version__
from noonmark.clocks import SystemClock
from noonmark.core.instants import DAY, SECOND
from noonmark.core.quotas import UNLIMITED
from noonmark.core.rate_limit import parse_rate
from noonmark.core.redaction import redact
from noonmark.core.targets.egress import Guard
from noonmark.embedded.worker import Worker
from noonmark.operations.diagnosis import EngineState
from noonmark.operations.key_cache import KeyCache
from noonmark.operations.secrets import warn_of_unreadable
from noonmark.operations.serializers import next_run
from noonmark.operations.service import LOCAL
from noonmark.operations.session_tools import SessionTools
from noonmark.operations.uploads import recover
from noonmark.ports.runtime import Runtime, Timing
from noonmark.server.app import create_app
from noonmark.server.assembly import (
    check_folders,
    delivery_parts,
    engine_settings,
    import_functions,
    limits,
    make_service,
    server_option,
)
from noonmark.server.config import setting_conflicts
from noonmark.server.metrics_listener import listen_for_metrics
from noonmark.server.rate_limits import RateLimiter, RateLimits
from noonmark.server.requests import HttpSettings
from noonmark.server.transport.connection import Connection
from noonmark.server.transport.connection_pool import ADDRESS_SHARE, ConnectionLimits, ConnectionPool, max_connections
from noonmark.server.transport.listener import BACKLOG, is_loopback, url_of
from noonmark.server.transport.tls import Certificate, Handshake
from noonmark.server.web.changes import ChangeHub
from noonmark.targets.process_control import hide_process
from noonmark.telemetry import logs
from noonmark.telemetry.health import CachedProbe, Health
from noonmark.telemetry.logs import CompositeSink, LogSink
from noonmark.telemetry.metrics import Metrics, ScheduleTimesReader
from noonmark.wiring import (
    fresh_id,
    make_first_call,
    make_node_locks,
    make_pinger,
    make_runner,
    make_store,
    make_target,
    make_traces,
    needs_migration,
    node_name,
    zone_data_version,
)

if TYPE_CHECKING:
    import socket
    from asyncio import Protocol
    from collections.abc import Callable, Sequence
    from types import FrameType

    from starlette.applications import Starlette

    from noonmark.core.instants import Micros
    from noonmark.ports.events import EventSink
    from noonmark.ports.records import Backlog
    from noonmark.ports.store import Store
    from noonmark.server.config import LoadedSettings, Settings
    from noonmark.server.tokens import TokenVerifier
    from noonmark.targets.function.registry import FunctionRegistry
    from noonmark.targets.temporal.settings import EngineSettings
    from noonmark.telemetry.metrics import LabelledSchedules
    from noonmark.telemetry.traces import TraceRecorder

logger = logging.getLogger("noonmark.serve")
KEEP_ALIVE = 5
MAX_BACKLOG_COUNT = 10_000
"""The backlog metric stops counting here; beyond that the exact length does not matter."""
SCHEDULE_TIMES_LIFETIME: Micros = 5 * SECOND
"""How long the metrics of single schedules are reused: to find the schedules with the label reads all of them."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
TICKS_PER_SECOND = 10
"""Of the web server."""


class StopRequested(KeyboardInterrupt):
    """A signal stopped the server before it was ready."""


def host(loaded: LoadedSettings, listener: socket.socket) -> int:
    """Run a server until a signal stops it; returns the exit code."""
    port = listener.getsockname()[1]
    settings = replace(loaded.settings, port=port, target_guard=_resolve_guard(loaded.settings, listener))
    loaded = replace(loaded, settings=settings)
    logs.configure(level=settings.log_level, form=settings.log_format, trace_ids=settings.traces != "off")
    if settings.allow_commands or settings.allow_bundles:
        hide_process()
    with ExitStack() as cleanup:
        cleanup.callback(listener.close)
        signals = cleanup.enter_context(_SignalHandler())
        try:
            check_folders(loaded)
            functions = import_functions(loaded)
            migrates = settings.migrate or not needs_migration(settings.store)
            store = make_store(settings.store, clock := SystemClock(), migrates=migrates)
            cleanup.callback(store.close)
            store.open()
            certificate = _certificate(loaded)
            _check_exposure(loaded, store, listener)
            metrics = Metrics(__version__, _backlog_probe(store, clock), store.damage, _schedule_probe(store, clock))
            traces = _create_traces(settings, clock, cleanup)
            session_tools, hub = SessionTools(), ChangeHub(store)
            sinks: list[EventSink] = [metrics, LogSink(), hub, *([] if traces is None else [traces])]
            engine = engine_settings(loaded)
            worker = _create_worker(loaded, functions, store, clock, sinks, traces, session_tools, engine)
            metrics.watch(worker)
            if engine is not None:
                metrics.watch_engine(engine.counts)
            cleanup.callback(worker.close)
            key_cache = KeyCache(store, clock.monotonic)
            cleanup.callback(key_cache.write)
            key_cache.has_keys()  # so that it is known if the store does not answer later
            tokens = _tokens(loaded, clock)
            components = _Components(store, clock, worker, metrics, key_cache, tokens, session_tools, hub, engine)
            app = _create_app(settings, components, _http(settings, listener))
            listen_for_metrics(loaded, metrics, cleanup)
            if settings.worker:
                worker.start()
            pool = ConnectionPool(_connection_limits(settings), lambda: fresh_id(clock))
            metrics.watch_connections(pool)
            server = _Server(app, settings, listener, pool, certificate, hub)
            signals.handle_with(server.request_stop)
            gc.freeze()  # modules and settings stay: without them a full collection stops all requests for half as long
            server.run([listener])
            signals.handle_with(worker.hand_back_now)
            if server.stop_requests > 1:
                worker.hand_back_now()
        except StopRequested:
            signals.handle_with(_ignore_signal)
            logger.info("stopped before startup was complete")
    return 0


class _Components(NamedTuple):
    """What the application is made of."""

    store: Store
    clock: SystemClock
    worker: Worker
    metrics: Metrics
    key_cache: KeyCache
    tokens: TokenVerifier | None
    session_tools: SessionTools
    hub: ChangeHub
    engine: EngineSettings | None


def _certificate(loaded: LoadedSettings) -> Certificate | None:
    """The certificate for https; None without one."""
    certificate, key = loaded.settings.tls_cert, loaded.settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given, missing = ("tls_key", "--tls-cert") if certificate is None else ("tls_cert", "--tls-key")
        raise loaded.error(given, f"needs {missing} beside it")
    try:
        return Certificate(certificate, key)
    except ValueError as error:
        raise loaded.error("tls_cert", str(error)) from None


def _check_exposure(loaded: LoadedSettings, store: Store, listener: socket.socket) -> None:
    """Refuse to listen beyond loopback, or behind a proxy, while every caller would be an administrator."""
    settings = loaded.settings
    is_exposed = settings.behind_proxy or not is_loopback(listener)
    if is_exposed and settings.jwt_keys is None and not store.has_api_keys():
        raise loaded.error(
            "behind_proxy" if settings.behind_proxy else "host",
            "other machines can reach this server, and there is no key yet, so every caller could do everything. Create"
            f" the first key: noonmark key create --store {redact(settings.store)} --tenant '*' --scopes admin",
        )


def _tokens(loaded: LoadedSettings, clock: SystemClock) -> TokenVerifier | None:
    """What checks signed tokens; None if they are not accepted."""
    settings = loaded.settings
    if settings.jwt_keys is None:
        return None
    from noonmark.server.tokens import TokenSettings, TokenVerifier  # noqa: PLC0415 - few servers accept tokens

    accepted = TokenSettings(
        keys=settings.jwt_keys,
        audience=settings.jwt_audience,
        issuer=settings.jwt_issuer,
        tenant_claim=settings.jwt_tenant_claim,
        user_claim=settings.jwt_user_claim,
        scope_claim=settings.jwt_scope_claim,
    )
    try:
        return TokenVerifier(accepted, clock.monotonic)
    except ValueError as error:
        raise loaded.error("jwt_keys", str(error)) from None


def _connection_limits(settings: Settings) -> ConnectionLimits:
    """Behind a proxy, one address may have all connections: every client comes from the proxy."""
    maximum = max_connections(settings.max_connections)
    share = maximum if settings.public_url is not None or settings.behind_proxy else max(1, maximum // ADDRESS_SHARE)
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
    reader = ScheduleTimesReader(store, lambda stored, now: next_run(stored, now=now))
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


def _create_worker(  # noqa: PLR0913, PLR0917 - each is a part of the process
    loaded: LoadedSettings,
    functions: FunctionRegistry,
    store: Store,
    clock: SystemClock,
    sinks: Sequence[EventSink],
    traces: TraceRecorder | None,
    session_tools: SessionTools,
    engine: EngineSettings | None = None,
) -> Worker:
    settings, parts = loaded.settings, delivery_parts(loaded, session_tools)
    timing = Timing(
        lease=int(settings.lease * SECOND),
        keep_for=int(settings.keep_days * DAY),
        keep_messages_for=int(settings.keep_messages_days * DAY),
        session_bytes=settings.max_session_bytes,
    )
    runtime = Runtime(
        node=node_name() if traces is None else traces.node,
        store=store,
        clock=clock,
        target=make_target(
            store,
            make_runner(functions, settings.max_threads, None),
            *parts,
            engine=engine,
        ),
        sink=CompositeSink(*sinks),
        traces=traces,
        pinger=make_pinger(parts.outbound),
        version=__version__,
        zone_data=zone_data_version(),
        timing=timing,
        locks=make_node_locks(settings.store, store),
        first_call=make_first_call(store, parts.agents),
        reach=server_option(settings),
        has_remote_host=parts.agents is None or parts.agents.remote_url is not None,
        limits=limits(settings) if settings.limit_inflight or settings.tenant_limit_inflight else UNLIMITED,
    )
    return Worker(
        runtime,
        functions,
        parts.programs,
        max_threads=settings.max_threads,
        grace=int(settings.grace * SECOND),
        outbound=parts.outbound,
        seal=parts.seal,
        permissions=parts.permissions,
        bundles=parts.bundles,
        agents=parts.agents,
        engine=engine,
    )


def _resolve_guard(settings: Settings, listener: socket.socket) -> str:
    """Which addresses HTTP targets may connect to.

    `auto` allows local addresses only if clients are on this machine: clients behind a proxy could otherwise reach
    services that listen on this machine alone, including this server.
    """
    if settings.target_guard != "auto":
        return settings.target_guard
    is_exposed = settings.behind_proxy or settings.public_url or settings.allowed_hosts or not is_loopback(listener)
    return Guard.STRICT if is_exposed else Guard.LOCAL


def _http(settings: Settings, listener: socket.socket) -> HttpSettings:
    return HttpSettings(
        host=settings.host,
        port=settings.port,
        allowed_hosts=settings.allowed_hosts,
        public_url=settings.public_url,
        checks_host=is_loopback(listener) and not settings.behind_proxy,
        trusted_proxies=settings.trusted_proxies,
        visibility=settings.visibility,
        body_seconds=settings.request_timeout,
        max_streams=settings.max_streams,
        has_page=settings.ui,
    )


def _create_app(settings: Settings, components: _Components, http: HttpSettings) -> Starlette:
    store, clock, worker = components.store, components.clock, components.worker
    node = worker.snapshot().node
    given = {"key": settings.rate_limit, "address": settings.rate_limit_address}
    rates = {scope: parse_rate(rate) for scope, rate in given.items() if rate is not None}
    service = make_service(
        settings,
        store,
        clock,
        conflicts=setting_conflicts(settings, max_connections=max_connections(settings.max_connections)),
        node=node,
        wake=worker.wake,
        check_stop_requests=worker.check_stop_requests,
        worker=worker,
        serves=lambda route: route in worker.routes(),
        lacks_workers=partial(_lacks_workers, components.engine),
        engine_problem=partial(_engine_problem, components.engine),
        engine_state=partial(_engine_state, components.engine),
        key_cache=components.key_cache,
        pinger=worker.pinger,
        report=components.metrics.report,
        changed=components.hub.publish,
        traces=worker.traces,
        rates=rates,
    )
    rate_limits = RateLimits(
        limiter=RateLimiter(store, clock.monotonic),
        per_key=rates.get("key"),
        per_address=rates.get("address"),
        failures=parse_rate(settings.auth_failures, burst=None),
    )
    components.session_tools.attach(service)
    recover(service)
    warn_of_unreadable(service, LOCAL.owner.tenant)
    health = Health(
        store.nodes,
        node=node,
        version=__version__,
        worker=worker,
        waiting=lambda: _claim_delay(store, worker),
        damage=store.damage,
        engine=None if (engine := components.engine) is None else lambda: engine.counts.problem,
    )
    return create_app(
        service,
        http,
        components.metrics,
        health=health,
        tokens=components.tokens,
        rates=rate_limits,
        hub=components.hub,
    )


def _lacks_workers(engine: EngineSettings | None, route: str) -> bool:
    return engine is not None and route in engine.counts.unserved


def _engine_problem(engine: EngineSettings | None, route: str) -> str | None:
    return engine.counts.problem if engine is not None and route in engine.routes else None


def _engine_state(engine: EngineSettings | None) -> EngineState | None:
    if engine is None:
        return None
    counts = engine.counts
    return EngineState(
        server=engine.address.server,
        problem=counts.problem,
        unserved=sorted(counts.unserved),
        orphans=sum(counts.orphans.values()),
    )


class _Server(uvicorn.Server):
    """The web server; it prints its address once it accepts requests."""

    def __init__(
        self,
        app: Starlette,
        settings: Settings,
        listener: socket.socket,
        pool: ConnectionPool,
        certificate: Certificate | None,
        hub: ChangeHub,
    ) -> None:
        # Uvicorn would not tell the pool of a connection before its handshake.
        connection = (
            partial[object](Connection, pool)
            if certificate is None
            else partial[object](Handshake, pool, certificate.context)
        )
        config = uvicorn.Config(
            app,
            http=cast("type[Protocol]", connection),
            log_config=None,
            proxy_headers=False,  # the guard reads them, from trusted proxies only
            server_header=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, math.ceil(settings.grace)),
            # asyncio accepts this many at once, before the pool sees them; all must fit.
            backlog=max(1, pool.limits.max_connections // 8),
        )
        super().__init__(config)
        self._certificate, self._hub = certificate, hub
        self.stop_requests = 0
        worker = "on" if settings.worker else "off"
        url = url_of(listener, is_tls=certificate is not None)
        self._started_line = (
            f"Noonmark {__version__} listens on {url} (store {redact(settings.store)}, worker {worker})"
        )

    def request_stop(self) -> None:
        """Stop as soon as startup is complete. While uvicorn runs it handles signals, and repeats them at its end."""
        self.stop_requests += 1
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Look for another certificate, every second."""
        if self._certificate is not None and counter % TICKS_PER_SECOND == 0:
            self._certificate.reload()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; streams of changes would go on until the grace period ends."""
        self._hub.close()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await to_thread.run_sync(lambda: None)  # anyio loads itself for its first thread, which would delay a request
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
