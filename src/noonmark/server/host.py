"""The server process: builds its components, starts them, and stops them in order."""

from __future__ import annotations

import logging
import math
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import uvicorn

from noonmark import __version__
from noonmark.clocks import SystemClock
from noonmark.core.budgets.prices import parse_price
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.json_values import shown
from noonmark.core.lineage import AgentLimits
from noonmark.core.quotas import EVERY_OTHER, UNLIMITED, Limits, Resource
from noonmark.core.rate_limit import parse_rate
from noonmark.core.redaction import redact
from noonmark.core.signatures import KeySettings
from noonmark.core.targets.command import CommandRules
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.embedded.references import check_callable
from noonmark.embedded.worker import Worker
from noonmark.extras import is_installed, require
from noonmark.operations.key_cache import KeyCache
from noonmark.operations.secrets import warn_of_unreadable
from noonmark.operations.serializers import next_run
from noonmark.operations.service import LOCAL, BundleLimits, Service
from noonmark.operations.session_tools import SessionTools
from noonmark.operations.uploads import recover
from noonmark.ports.runtime import Runtime, Timing
from noonmark.server.app import create_app
from noonmark.server.config import (
    CA_VARIABLE,
    FILE_VARIABLE,
    KEY_VARIABLE,
    SERVER_VARIABLE,
    SETTINGS,
    setting_conflicts,
)
from noonmark.server.metrics_listener import MetricsListener
from noonmark.server.rate_limits import RateLimiter, RateLimits
from noonmark.server.requests import HttpSettings
from noonmark.server.transport.connection import Connection
from noonmark.server.transport.connection_pool import ADDRESS_SHARE, ConnectionLimits, ConnectionPool, max_connections
from noonmark.server.transport.listener import BACKLOG, is_loopback, url_of
from noonmark.server.transport.tls import Certificate, Handshake
from noonmark.server.web.changes import ChangeHub
from noonmark.targets.agent.settings import EMBEDDED, OFF, AgentSettings, parse_provider_limit
from noonmark.targets.agent.tools import ToolRegistry
from noonmark.targets.bundle.resources import NodeOffer, NodeResources
from noonmark.targets.bundle.settings import BundleSettings
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
    make_first_call,
    make_instructions,
    make_model_check,
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
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from starlette.applications import Starlette

    from noonmark.core.instants import Micros
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.ports.events import EventSink
    from noonmark.ports.records import Backlog
    from noonmark.ports.store import Store
    from noonmark.server.config import LoadedSettings, Settings
    from noonmark.server.tokens import TokenVerifier
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
    settings = replace(loaded.settings, target_guard=_resolve_guard(loaded.settings, listener))
    loaded = replace(loaded, settings=settings)
    logs.configure(level=settings.log_level, form=settings.log_format, trace_ids=settings.traces != "off")
    if settings.allow_commands or settings.allow_bundles:
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
            certificate = _certificate(loaded)
            _check_exposure(loaded, store, listener)
            metrics = Metrics(__version__, _backlog_probe(store, clock), store.damage, _schedule_probe(store, clock))
            traces = _create_traces(settings, clock, cleanup)
            session_tools, hub = SessionTools(), ChangeHub(store)
            sinks: list[EventSink] = [metrics, LogSink(), hub, *([] if traces is None else [traces])]
            worker = _create_worker(loaded, functions, store, clock, sinks, traces, session_tools)
            metrics.watch(worker)
            cleanup.callback(worker.close)
            key_cache = KeyCache(store, clock.monotonic)
            cleanup.callback(key_cache.write)
            key_cache.has_keys()  # so that it is known if the store does not answer later
            tokens = _tokens(loaded, clock)
            components = _Components(store, clock, worker, metrics, key_cache, tokens, session_tools, hub)
            app = _create_app(replace(settings, port=listener.getsockname()[1]), components, _http(settings, listener))
            _listen_for_metrics(loaded, metrics, cleanup)
            if settings.worker:
                worker.start()
            pool = ConnectionPool(_connection_limits(settings), lambda: fresh_id(clock))
            metrics.watch_connections(pool)
            server = _Server(app, settings, listener, pool, certificate, hub)
            signals.handle_with(server.request_stop)
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


def _listen_for_metrics(loaded: LoadedSettings, metrics: Metrics, cleanup: ExitStack) -> None:
    """Serve the metrics on their own address too, if there is one."""
    if loaded.settings.metrics_listen is None:
        return
    host, port = loaded.settings.metrics_listen
    try:
        listener = MetricsListener(host, port, metrics)
    except OSError as error:
        raise loaded.error("metrics_listen", f"cannot listen on {host} port {port}: {error.strerror}") from None
    cleanup.callback(listener.close)
    listener.start()
    logger.info("metrics on http://%s:%d/metrics, without a key", host, listener.port)


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
) -> Worker:
    settings = loaded.settings
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
    timing = Timing(
        lease=int(settings.lease * SECOND),
        keep_for=int(settings.keep_days * DAY_SECONDS * SECOND),
        keep_messages_for=int(settings.keep_messages_days * DAY_SECONDS * SECOND),
        session_bytes=settings.max_session_bytes,
    )
    seal, bundles, agents = make_seal(settings.secret_key), _bundles(settings), _agents(loaded, session_tools)
    outbound = HttpTargetSettings(
        egress=_egress(settings),
        keys=_keys(settings),
        public_url=settings.public_url,
    )
    runtime = Runtime(
        node=node_name() if traces is None else traces.node,
        store=store,
        clock=clock,
        target=make_target(
            store,
            make_runner(functions, settings.max_threads, None),
            programs,
            outbound,
            seal,
            _permissions(settings),
            bundles,
            agents,
        ),
        sink=CompositeSink(*sinks),
        traces=traces,
        pinger=make_pinger(outbound),
        version=__version__,
        zone_data=zone_data_version(),
        timing=timing,
        first_call=make_first_call(store, agents),
        has_remote_host=agents is None or agents.remote_url is not None,
        limits=_limits(settings) if settings.limit_inflight or settings.tenant_limit_inflight else UNLIMITED,
    )
    return Worker(
        runtime,
        functions,
        programs,
        max_threads=settings.max_threads,
        grace=int(settings.grace * SECOND),
        outbound=outbound,
        seal=seal,
        permissions=_permissions(settings),
        bundles=bundles,
        agents=agents,
    )


def _bundles(settings: Settings) -> BundleSettings | None:
    """How this node runs bundles; None if it does not."""
    if not settings.allow_bundles:
        return None
    return BundleSettings(
        resources=NodeResources(NodeOffer(labels=settings.labels, slots=settings.slots)),
        cache=None if settings.bundle_cache is None else Path(settings.bundle_cache).expanduser().absolute(),
        max_cache_bytes=settings.bundle_cache_bytes,
    )


def _agents(loaded: LoadedSettings, session_tools: SessionTools) -> AgentSettings | None:
    """How this node delivers to agents; None if it does not."""
    settings = loaded.settings
    host, remote = _agent_hosts(settings)
    if host == OFF:
        return None
    if host == EMBEDDED:
        require("agents", "running agents in this server (--agents embedded)")
        if settings.agent_mcp:
            require("mcp", "calling tools of MCP servers (--agent-mcp)")
    return AgentSettings(
        host=host,
        remote=remote,
        instructions=make_instructions(settings.task_instructions),
        model=settings.agent_model,
        tools=_import_tools(loaded),
        schedule_tools=session_tools,
        mcp_servers=settings.agent_mcp,
        skills=None if settings.agent_skills is None else Path(settings.agent_skills).absolute(),
        prices={model: parse_price(price) for model, price in settings.prices.items()},
        multipliers={user: float(factor) for user, factor in settings.budget_multipliers.items()},
        provider_limits={name: parse_provider_limit(limit) for name, limit in settings.provider_limits.items()},
        max_model_calls=settings.agent_max_model_calls,
        max_tool_calls=settings.agent_max_tool_calls,
        max_tokens=settings.agent_max_tokens,
        max_output_tokens=settings.agent_max_output_tokens,
        max_history_tokens=settings.agent_max_history_tokens,
        time_limit=int(settings.agent_timeout * SECOND),
        logs_content=settings.agent_log_content,
    )


def _agent_hosts(settings: Settings) -> tuple[str, str | None]:
    """The host of agents, and the one of those that ask for another."""
    host, _, remote = (settings.agents or (EMBEDDED if is_installed("agents") else OFF)).partition(",")
    return host, remote or None


def _import_tools(loaded: LoadedSettings) -> ToolRegistry:
    """Import the functions that agents may call."""
    tools = ToolRegistry()
    for name, function in _imported(loaded, "agent_tools", loaded.settings.agent_tools):
        try:
            tools.register(function, name)
        except ValueError as error:
            raise loaded.error("agent_tools", str(error)) from None
    return tools


def _resolve_guard(settings: Settings, listener: socket.socket) -> str:
    """Which addresses HTTP targets may connect to.

    `auto` allows local addresses only if clients are on this machine: clients behind a proxy could otherwise reach
    services that listen on this machine alone, including this server.
    """
    if settings.target_guard != "auto":
        return settings.target_guard
    is_exposed = settings.behind_proxy or settings.public_url or settings.allowed_hosts or not is_loopback(listener)
    return Guard.STRICT if is_exposed else Guard.LOCAL


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
        reserved=frozenset({*setting_variables, FILE_VARIABLE, SERVER_VARIABLE, KEY_VARIABLE, CA_VARIABLE}),
    )


def _check_folders(loaded: LoadedSettings) -> None:
    """Reject an allowed working folder inside the upload folder: no command may run there."""
    uploads = upload_folder(loaded.settings.upload_dir, loaded.settings.store)
    for folder in loaded.settings.allow_cwd:
        if uploads is not None and Path(folder).resolve().is_relative_to(uploads.resolve()):
            message = f"{folder} is the upload folder or inside it, and commands may not run there"
            raise loaded.error("allow_cwd", message)


def _keys(settings: Settings) -> KeySettings:
    return KeySettings(signing_key=settings.signing_key, secret_key=settings.secret_key)


def _import_functions(loaded: LoadedSettings) -> FunctionRegistry:
    """Import the functions that this node offers; the current folder is on the module path."""
    functions = FunctionRegistry()
    for name, function in _imported(loaded, "functions", loaded.settings.functions):
        functions.register(name, function)
        functions.offer(name)
    return functions


def _imported(
    loaded: LoadedSettings, setting: str, references: Mapping[str, str]
) -> Iterator[tuple[str, Callable[..., Any]]]:
    if references and "" not in sys.path:
        sys.path.insert(0, "")
    for name, reference in references.items():
        try:
            function = import_function(reference)
            check_callable(function)
        except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
            raise loaded.error(setting, f"{name}={reference} cannot be used: {error}") from error
        yield name, function


def _permissions(settings: Settings) -> TargetPermissions | None:
    """Which functions and commands each tenant may use; None: all of them."""
    if settings.tenant_functions is None and settings.tenant_commands is None:
        return None
    return TargetPermissions(functions=settings.tenant_functions, commands=settings.tenant_commands)


def _agent_limits(settings: Settings) -> AgentLimits:
    days = DAY_SECONDS * SECOND
    return AgentLimits(
        max_depth=settings.agent_schedule_depth,
        max_children=settings.agent_schedule_children,
        per_hour=settings.agent_schedules_per_hour,
        lifetime=int(settings.agent_schedule_days * days) or None,
        proposal_lifetime=int(settings.proposal_days * days),
        max_proposals=settings.limit_proposals,
    )


def _limits(settings: Settings) -> Limits:
    """The limits of callers whose key is of one tenant."""
    return Limits(
        per_user={
            Resource.SCHEDULES: settings.limit_schedules,
            Resource.EVENTS: settings.limit_events,
            Resource.QUEUED: settings.limit_queued,
            Resource.IN_FLIGHT: settings.limit_inflight,
        },
        per_tenant={
            Resource.SCHEDULES: settings.tenant_limit_schedules,
            Resource.EVENTS: settings.tenant_limit_events,
            Resource.QUEUED: settings.tenant_limit_queued,
            Resource.IN_FLIGHT: settings.tenant_limit_inflight,
        },
        min_interval=settings.min_interval,
        max_budget_usd=settings.limit_budget,
    )


def _bundle_limits(settings: Settings) -> BundleLimits | None:
    """How large the bundles of clients may be; None if they may push none."""
    if not settings.allow_bundles:
        return None
    return BundleLimits(max_bytes=settings.max_bundle_bytes, quota_bytes=settings.bundle_quota_bytes)


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
        permissions=_permissions(settings),
        key_cache=components.key_cache,
        base_url=_base_url(settings),
        pinger=worker.pinger,
        report=components.metrics.report,
        changed=components.hub.publish,
        traces=worker.traces,
        offered=frozenset({*settings.functions, *settings.functions.values()}),
        limits=_limits(settings),
        agent_limits=_agent_limits(settings),
        rates=rates,
        task_limits=Limits(
            per_user={Resource.TASKS: {EVERY_OTHER: settings.max_per_user}},
            per_tenant={},
            min_interval=settings.min_interval_minutes * 60 * SECOND,
            max_budget_usd=settings.max_budget_usd,
        ),
        bundle_limits=_bundle_limits(settings),
        instructions=make_instructions(settings.task_instructions),
        has_agent_model=settings.agent_model is not None or settings.agents not in (None, EMBEDDED),
        agent_model=settings.agent_model,
        model_problem=make_model_check(*_agent_hosts(settings)),
        uploads=make_uploads(
            settings.upload_dir,
            settings.store,
            max_bytes=settings.max_upload_bytes,
            quota=settings.upload_quota_bytes,
        ),
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
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{host}:{settings.port}" if settings.port else ""
