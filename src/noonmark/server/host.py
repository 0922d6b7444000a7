"""Hosting: everything that a server is made of, put together, started, and taken down again in order."""

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
from noonmark.core.signatures import KeySettings
from noonmark.core.targets.command import CommandRules
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.driver.drive import drive
from noonmark.embedded.references import check_callable
from noonmark.embedded.worker import Worker
from noonmark.operations.secrets import warn_of_unreadable
from noonmark.operations.service import LOCAL, Limits, Service
from noonmark.operations.uploads import recover
from noonmark.ports.runtime import Runtime, Timing
from noonmark.server.app import create_app
from noonmark.server.config import FILE_VARIABLE, SERVER_VARIABLE, SETTINGS
from noonmark.server.requests import HttpSettings
from noonmark.server.transport.connection import Connection
from noonmark.server.transport.connection_pool import SHARE, ConnectionLimits, ConnectionPool, most_connections
from noonmark.server.transport.listener import BACKLOG, url_of
from noonmark.targets.functions import Functions, import_function
from noonmark.targets.hiding import hide
from noonmark.targets.outbound import Outbound
from noonmark.targets.programs import Pin, Programs
from noonmark.telemetry import logs
from noonmark.telemetry.health import Health
from noonmark.telemetry.masking import masked
from noonmark.telemetry.metrics import Metrics
from noonmark.telemetry.probing import Recent
from noonmark.telemetry.sinks import LogSink, Sinks
from noonmark.wiring import (
    fresh_id,
    make_runner,
    make_seal,
    make_store,
    make_target,
    make_uploads,
    node_name,
    upload_folder,
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

logger = logging.getLogger("noonmark.serve")
KEEP_ALIVE = 5
MOST_COUNTED = 10_000
"""So much of a backlog is counted: beyond that it is long, and to know how long would be no help."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequested(KeyboardInterrupt):
    """Somebody asked the server to stop before it answered anybody."""


def host(loaded: Loaded, listener: socket.socket) -> int:
    """Run a server until somebody asks it to stop; 0 when that went well."""
    settings = replace(loaded.settings, target_guard=_guard(loaded.settings, listener))
    logs.configure(level=settings.log_level, form=settings.log_format)
    if settings.allow_commands:
        hide()
    with ExitStack() as cleanup:
        cleanup.callback(listener.close)
        on_signal = cleanup.enter_context(_Signals())
        try:
            _check_folders(loaded)
            functions = _functions(loaded)
            store = make_store(settings.store, clock := SystemClock(), migrates=settings.migrate)
            cleanup.callback(lambda: drive(store.close()))
            drive(store.open())
            metrics = Metrics(__version__, _backlog(store, clock), store.damage)
            worker = _worker(settings, functions, store, clock, metrics)
            metrics.watch(worker)
            cleanup.callback(worker.close)
            app = _app(replace(settings, port=listener.getsockname()[1]), store, clock, worker, metrics)
            if settings.worker:
                worker.start()
            pool = ConnectionPool(_limits(settings), lambda: fresh_id(clock))
            metrics.watch_connections(pool)
            server = _Server(app, settings, listener, pool)
            on_signal.then(server.leave)
            server.run([listener])
            on_signal.then(worker.hurry)
            if server.asked > 1:
                worker.hurry()
        except StopRequested:
            on_signal.then(_nothing)
            logger.info("asked to stop before it had begun")
    return 0


def _limits(settings: Settings) -> ConnectionLimits:
    """Whoever stands behind a proxy comes from its address, and from no other."""
    most = most_connections(settings.max_connections)
    share = most if settings.public_url is not None else max(1, most // SHARE)
    return ConnectionLimits(
        most=most,
        per_address=settings.max_connections_per_address or share,
        head_seconds=settings.request_timeout,
        send_seconds=settings.send_timeout,
        unsent_bytes=settings.max_unsent_bytes,
    )


def _backlog(store: Store, clock: SystemClock) -> Callable[[], Backlog | None]:
    """What is to be done, as the store last told; None while it does not answer."""

    async def count() -> Backlog:
        return await store.backlog(await store.clock(), MOST_COUNTED)

    return Recent(lambda: drive(count()), monotonic=clock.monotonic, lifetime=SECOND).look


async def _waiting(store: Store, worker: Worker) -> Micros:
    """How long the first of what this node could claim has been due."""
    since = await store.due_since(worker.routes())
    return 0 if since is None else max(0, await store.clock() - since)


def _worker(settings: Settings, functions: Functions, store: Store, clock: SystemClock, metrics: Metrics) -> Worker:
    programs = Programs(
        settings.allow_commands,
        rules=_command_rules(settings),
        uploads=upload_folder(settings.upload_dir, settings.store),
        pin=Pin(settings.pin_commands),
    )
    timing = Timing(lease=int(settings.lease * SECOND), keep_for=int(settings.keep_days * DAY_SECONDS * SECOND))
    seal = make_seal(settings.secret_key)
    outbound = Outbound(
        reach=_reach(settings),
        keys=_keys(settings),
        public_url=settings.public_url,
    )
    runtime = Runtime(
        node=node_name(),
        store=store,
        clock=clock,
        target=make_target(store, make_runner(functions, settings.max_threads, None), programs, outbound, seal),
        sink=Sinks(metrics, LogSink()),
        version=__version__,
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


def _guard(settings: Settings, listener: socket.socket) -> str:
    """How much of the network is open to requests.

    `auto` opens the neighbourhood where only this machine reaches the server: whoever comes through a proxy would reach
    with it what listens here for this machine alone, this server too.
    """
    if settings.target_guard != "auto":
        return settings.target_guard
    is_loopback = ip_address(listener.getsockname()[0]).is_loopback
    return Guard.LOCAL if is_loopback and not settings.public_url and not settings.allowed_hosts else Guard.STRICT


def _reach(settings: Settings) -> EgressPolicy:
    """Where requests may go."""
    return egress_policy(Guard(settings.target_guard), settings.allow_hosts)


def _command_rules(settings: Settings) -> CommandRules:
    """What callers may say of programs."""
    read_here = {variable for setting in SETTINGS.values() for variable in setting.variables}
    return CommandRules(
        env=frozenset(settings.allow_env),
        folders=settings.allow_cwd,
        reserved=frozenset({*read_here, FILE_VARIABLE, SERVER_VARIABLE}),
    )


def _check_folders(loaded: Loaded) -> None:
    """Refuse a folder for programs that lies among the uploads: nothing would ever start there."""
    uploads = upload_folder(loaded.settings.upload_dir, loaded.settings.store)
    for folder in loaded.settings.allow_cwd:
        if uploads is not None and Path(folder).resolve().is_relative_to(uploads.resolve()):
            why = f"{folder} is where uploaded files are kept, or lies below that, and no caller's program starts there"
            raise loaded.refuse("allow_cwd", why)


def _keys(settings: Settings) -> KeySettings:
    return KeySettings(signing_key=settings.signing_key, secret_key=settings.secret_key)


def _functions(loaded: Loaded) -> Functions:
    """The functions that this node offers; the folder it was started in counts as a place for modules."""
    functions = Functions()
    if loaded.settings.functions and "" not in sys.path:
        sys.path.insert(0, "")
    for name, place in loaded.settings.functions.items():
        try:
            found = import_function(place)
            check_callable(found)
        except (Exception, SystemExit) as error:  # whatever the module does when it is loaded
            raise loaded.refuse("functions", f"{name}={place} cannot be used: {error}") from error
        functions.register(name, found)
        functions.offer(name)
    return functions


def _app(settings: Settings, store: Store, clock: SystemClock, worker: Worker, metrics: Metrics) -> Starlette:
    node = worker.vitals().node
    service = Service(
        store=store,
        lookahead=Timing().lookahead,
        fresh_id=lambda: fresh_id(clock),
        machine=clock.micros,
        node=node,
        wake=worker.wake,
        attend=worker.attend,
        worker=worker,
        keys=_keys(settings),
        seal=make_seal(settings.secret_key),
        reach=_reach(settings),
        commands=_command_rules(settings),
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
    drive(recover(service))
    drive(warn_of_unreadable(service, LOCAL.owner.tenant))
    http = HttpSettings(
        host=settings.host,
        port=settings.port,
        allowed_hosts=settings.allowed_hosts,
        public_url=settings.public_url,
        body_seconds=settings.request_timeout,
    )
    health = Health(
        lambda: drive(store.nodes()),
        node=node,
        version=__version__,
        worker=worker,
        waiting=lambda: drive(_waiting(store, worker)),
        damage=store.damage,
    )
    return create_app(service, http, metrics, health=health)


class _Server(uvicorn.Server):
    """The web server; it says on standard output where it listens, once it does."""

    def __init__(self, app: Starlette, settings: Settings, listener: socket.socket, pool: ConnectionPool) -> None:
        config = uvicorn.Config(
            app,
            http=cast("type[Protocol]", partial(Connection, pool)),
            log_config=None,
            proxy_headers=False,  # on loopback, anybody could claim to be anybody
            server_header=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, math.ceil(settings.grace)),
            # So many are accepted before the first of them is looked at; all of them have to fit in.
            backlog=max(1, pool.limits.most // 8),
        )
        super().__init__(config)
        self.asked = 0
        """How often it was asked to end."""
        worker = "on" if settings.worker else "off"
        self._line = (
            f"Noonmark {__version__} listens on {url_of(listener)} (store {masked(settings.store)}, worker {worker})"
        )

    def leave(self) -> None:
        """End as soon as it has begun. While it runs it hears signals by itself, and repeats them when it has ended."""
        self.asked += 1
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            for one in sockets or ():  # the others wait outside, as before
                one.listen(BACKLOG)
            with suppress(OSError):  # nobody reads it
                sys.stdout.write(self._line + "\n")
                sys.stdout.flush()


class _Signals:
    """What SIGINT and SIGTERM mean: at first that nothing is begun, later whatever is said."""

    def __init__(self) -> None:
        self._means: Callable[[], None] = _give_up

    def then(self, means: Callable[[], None]) -> None:
        """From now on they mean that."""
        self._means = means

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._take) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._means()


def _give_up() -> None:
    raise StopRequested


def _nothing() -> None:
    """It stops already."""
