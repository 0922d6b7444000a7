"""Wiring: the only place that picks adapters."""

from __future__ import annotations

import os
import secrets
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from stat import S_ISDIR
from typing import TYPE_CHECKING
from zoneinfo import TZPATH

from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidSchedule
from noonmark.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from noonmark.core.agents.tasks import Instructions
    from noonmark.core.budgets.budget import Reservation
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.permissions import TargetPermissions
    from noonmark.core.targets.session import Provider
    from noonmark.node_locks import NodeLocks
    from noonmark.operations.diagnosis import Disk
    from noonmark.ports.agent_host import AgentHost
    from noonmark.ports.clock import Clock
    from noonmark.ports.runtime import Pinger, Seal
    from noonmark.ports.store import Store
    from noonmark.ports.target import Engine, Target
    from noonmark.ports.uploads import Uploads
    from noonmark.stores.store_copy.endpoint import Endpoint
    from noonmark.targets.agent.settings import AgentSettings
    from noonmark.targets.bundle.settings import BundleSettings
    from noonmark.targets.command.programs import ProgramPolicy
    from noonmark.targets.function.registry import FunctionRegistry
    from noonmark.targets.function.runner import FunctionRunner
    from noonmark.targets.http.settings import HttpTargetSettings
    from noonmark.targets.secrets import SecretResolver
    from noonmark.targets.temporal.settings import EngineSettings
    from noonmark.telemetry.traces import TraceRecorder

MEMORY = "memory://"
SQLITE = "sqlite:///"
FILES = (".db", ".sqlite", ".sqlite3")
POSTGRES = ("postgresql://", "postgres://")
REDIS = ("redis://", "rediss://")
KNOWN_STORES = (
    "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://host/database or redis://host/number"
)


def make_store(url: object, clock: Clock, *, migrates: bool = True, creates_file: bool = False) -> Store:
    """The store that a URL names; it is not open yet.

    Opening it creates and upgrades its schema if it `migrates`, and otherwise refuses an older one and a missing one; a
    missing file is created without that if it `creates_file`.
    """
    if url == MEMORY:
        from noonmark.stores.memory import MemoryStore

        return MemoryStore(clock.micros)
    if url == f"{SQLITE}:memory:":
        raise InvalidSchedule(f"{url!r} would be a file of that name; a store in memory is memory://", field="store")
    if isinstance(url, str) and url.startswith(SQLITE) and "?" in url:
        raise InvalidSchedule(f"{url!r} has a question mark in it: a file takes no options here", field="store")
    if isinstance(url, str) and url.startswith(SQLITE) and len(url) > len(SQLITE) and "\0" not in url:
        from noonmark.stores.sqlite import SqliteStore

        path = _expand_home(url.removeprefix(SQLITE))
        return SqliteStore(path, clock.micros, migrates=migrates, creates=migrates or creates_file)
    if isinstance(url, str) and url.startswith(POSTGRES):
        require("postgres", "a PostgreSQL store")
        from noonmark.stores.postgres import PostgresStore

        # Its time is the server's, whatever this machine's clock says. A test that sets the time sets it there too.
        return PostgresStore(url, None if isinstance(clock, SystemClock) else clock.micros, migrates=migrates)
    if isinstance(url, str) and url.startswith(REDIS):
        require("redis", "a Redis store")
        from noonmark.stores.redis.store import RedisStore

        # Likewise. There are no tables to create: what may create a file may also use an empty database.
        return RedisStore(
            url, None if isinstance(clock, SystemClock) else clock.micros, migrates=migrates or creates_file
        )
    if isinstance(url, str) and url and "://" not in url:
        raise InvalidSchedule(f"{url!r} is a path, not the URL of a store; write {SQLITE}{url}", field="store")
    raise InvalidSchedule(f"{url!r} names no store; it must be {KNOWN_STORES}", field="store")


def make_copy_endpoint(url: str, clock: Clock, field: str) -> Endpoint:
    """One end of a copy of a store: the argument `field` of a command names it."""
    if (path := file_of(url)) is not None:
        from noonmark.stores.sqlite.copy_endpoint import SqliteEndpoint

        make_store(url, clock)  # refuses what is no path
        return SqliteEndpoint(str(path), clock.micros)
    if url.startswith(POSTGRES):
        require("postgres", "a PostgreSQL store")
        from noonmark.stores.postgres.copy_endpoint import PostgresEndpoint

        return PostgresEndpoint(url)
    if url.startswith(REDIS):
        require("redis", "a Redis store")
        from noonmark.stores.redis.copy_endpoint import RedisEndpoint

        return RedisEndpoint(url)
    if url == MEMORY:
        raise InvalidSchedule("a store in memory belongs to one process, and cannot be copied", field=field)
    make_store(url, clock)
    raise InvalidSchedule(f"{url!r} names no store that can be copied", field=field)


def schema_version(url: str) -> str:
    """The version of the schema that this Noonmark creates in a store."""
    if url.startswith(REDIS):
        from noonmark.stores.redis.bootstrap import FORMAT

        return FORMAT
    from noonmark.stores.sql.schema.version import VERSION

    return VERSION


def needs_migration(url: str) -> bool:
    """Whether the schema of a store is created and upgraded only on demand: other nodes may run an older version."""
    return url.startswith(POSTGRES)


def store_url(store: object) -> object:
    """The URL of a store that a program names, perhaps by the path of a SQLite file: a `Path`, or text such as jobs.db.

    Other text is not taken for a path: a typo would create a file.
    """
    if isinstance(store, os.PathLike) or (isinstance(store, str) and "://" not in store and store.endswith(FILES)):
        return f"{SQLITE}{store}"
    return store


def store_option(url: object) -> str | None:
    """The option by which a command in a log line finds a store, without its password; None for one in memory."""
    from shlex import quote

    from noonmark.core.redaction import redact

    return None if url == MEMORY or not isinstance(url, str) else f"--store {quote(redact(url))}"


def file_of(url: str) -> Path | None:
    """The file that the URL of a store means; None where it means something else."""
    from pathlib import Path

    return Path(_expand_home(url.removeprefix(SQLITE))).absolute() if url.startswith(SQLITE) else None


def _expand_home(path: str) -> str:
    """The path with `~/` expanded as in a shell."""
    if not path.startswith("~/"):
        return path
    try:
        from pathlib import Path

        return str(Path(path).expanduser())
    except RuntimeError:
        message = f"{path!r} is in the home folder, and this process has none; write an absolute path"
        raise InvalidSchedule(message, field="store") from None


def make_seal(keys: str | None) -> Seal | None:
    """What seals and opens secrets with the keys of a setting; None without any, and nothing is sealed."""
    if keys is None:
        return None
    require("server", "a key that encrypts secrets")
    from noonmark.secret_cipher import AesSeal, read_keys

    try:
        return AesSeal(read_keys(keys))
    except ValueError as error:
        raise InvalidSchedule(str(error), field="secret_key") from None


def make_runner(functions: FunctionRegistry, max_threads: int, max_processes: int | None) -> FunctionRunner:
    """What delivers to the functions of this process."""
    from noonmark.targets.function.runner import FunctionRunner

    return FunctionRunner(functions, max_threads, max_processes)


def make_target(  # noqa: PLR0913, PLR0917 - each is what a process picks
    store: Store,
    runner: FunctionRunner,
    programs: ProgramPolicy,
    outbound: HttpTargetSettings | None = None,
    seal: Seal | None = None,
    permissions: TargetPermissions | None = None,
    bundles: BundleSettings | None = None,
    agents: AgentSettings | None = None,
    engine: EngineSettings | None = None,
) -> Target:
    """The target for functions, programs, events, pings, HTTP requests, workflows, bundles and agents.

    Without rules for requests, only those of a program itself are sent; without a seal, none that carries a secret.
    Without settings of bundles, it runs none; without settings of agents, it delivers to none. An engine takes its
    routes over from all of them.
    """
    from noonmark.targets.composite import CompositeTarget
    from noonmark.targets.http.runner import HttpRunner
    from noonmark.targets.secrets import SecretResolver
    from noonmark.targets.store_targets import EventEmitter, PingReceiver
    from noonmark.targets.workflow.runner import WorkflowRunner

    secret_resolver = SecretResolver(store, seal)
    workflows = WorkflowRunner(store, has_callbacks=outbound is not None and outbound.public_url is not None)
    kinds: dict[str, Target] = {
        "function": runner,
        "event": EventEmitter(store),
        "ping": PingReceiver(store),
        "http": HttpRunner(outbound, secrets=secret_resolver),
        "workflow": workflows,
    }
    if agents is not None:
        from noonmark.targets.agent.runner import ROUTES, AgentRunner

        make_host = partial(_make_host, store, agents, secret_resolver, outbound)
        kinds |= dict.fromkeys(ROUTES, AgentRunner(store, agents, make_host))
    if os.name == "posix":  # other systems have no process groups
        from noonmark.targets.command.orphans import OrphanReaper
        from noonmark.targets.command.runner import CommandRunner

        reaper = OrphanReaper(store)
        kinds["command"] = CommandRunner(programs, reaper, secret_resolver)
        if bundles is not None:
            from noonmark.targets.bundle.cache import BundleCache
            from noonmark.targets.bundle.runner import BundleRunner

            cache = BundleCache(bundles.cache or bundle_folder(), bundles.max_cache_bytes)
            others = dict(kinds)
            kinds["bundle"] = BundleRunner(store, reaper, secret_resolver, cache, bundles.resources, others)
    target = CompositeTarget(kinds, permissions, None if engine is None else make_engine(store, engine))
    workflows.attach(target)
    return target


def make_engine(store: Store, settings: EngineSettings) -> Engine:
    """The engine that carries out the occurrences of some routes."""
    require("temporal", "an engine (--engine)")
    from noonmark.targets.temporal.engine import TemporalEngine

    return TemporalEngine(store, settings)


def make_first_call(
    store: Store, agents: AgentSettings | None
) -> Callable[[Schedule, Occurrence], Reservation | None] | None:
    """What says how much admission reserves for the first call of an agent's model; None without agents."""
    if agents is None:
        return None
    from noonmark.targets.agent.first_call import FirstCalls

    return FirstCalls(store, agents)


def _make_host(
    store: Store,
    settings: AgentSettings,
    secret_resolver: SecretResolver,
    outbound: HttpTargetSettings | None,
    now: Callable[[], Micros],
) -> AgentHost:
    """What carries out the turns of agents. It loads their libraries, so it is made with the first turn."""
    from noonmark.targets.agent.settings import EMBEDDED

    remote: AgentHost | None = None
    if settings.remote_url is not None:
        from noonmark.targets.agent.remote import RemoteHost
        from noonmark.targets.http.settings import HttpTargetSettings

        remote = RemoteHost(settings.remote_url, store, outbound or HttpTargetSettings(), now)
        if settings.host != EMBEDDED:
            return remote
    from noonmark.targets.agent.embedded import EmbeddedHost
    from noonmark.targets.agent.hosts import TwoHosts

    own = EmbeddedHost(store, settings, secret_resolver, now)
    return own if remote is None else TwoHosts(own, remote)


def make_traces(clock: Clock, *, version: str, node: str) -> tuple[TraceRecorder, Callable[[], None]]:
    """What records the traces of a server and sends them, and what ends it: that sends the rest."""
    require("otel", "recording traces")
    from noonmark.telemetry.otlp import make_provider
    from noonmark.telemetry.traces import TraceRecorder

    provider = make_provider(version=version, node=node)
    return TraceRecorder(provider, clock.micros, version=version, node=node), provider.shutdown


def make_program_traces(clock: Clock, *, version: str, node: str) -> TraceRecorder:
    """What records the traces of a program, with the tracer provider that the program has set."""
    require("otel", "recording traces")
    from opentelemetry import trace

    from noonmark.telemetry.traces import TraceRecorder

    return TraceRecorder(trace.get_tracer_provider(), clock.micros, version=version, node=node)


def make_pinger(outbound: HttpTargetSettings | None = None) -> Pinger:
    """What calls the URLs that schedules name for their starts and ends."""
    from noonmark.targets.http.pinger import HttpPinger

    return HttpPinger(outbound)


def make_instructions(folder: str | None = None) -> Instructions:
    """The instructions that tasks may name: those in a folder, and those of the package."""
    from pathlib import Path

    from noonmark.targets.agent.task_instructions import InstructionFiles

    return InstructionFiles(None if folder is None else Path(_expand_home(folder)).absolute())


def make_model_check(
    host: str | None, remote: str | None, own: Collection[str] = ()
) -> Callable[[str, Provider | None], str | None]:
    """The check of model names. Remote hosts have models of their own; `own` are known here."""

    def problem(named: str, provider: Provider | None) -> str | None:
        from noonmark.targets.agent.model_names import model_name
        from noonmark.targets.agent.settings import EMBEDDED

        if host != EMBEDDED or remote is not None or named in own:
            return None
        try:
            name = model_name(named, provider)
        except ValueError as error:
            return str(error)
        if name.is_free:
            return None
        from noonmark.targets.agent.models import provider_problem

        return provider_problem(name)

    return problem


def make_uploads(place: str | None, store: str, *, max_bytes: int, quota: int) -> Uploads | None:
    """The store of uploads; None without a folder."""
    folder = upload_folder(place, store)
    if folder is None or os.name != "posix":  # elsewhere, folders cannot be held open
        return None
    from noonmark.stores.files import UploadFolder

    return UploadFolder(folder, max_bytes=max_bytes, quota=quota)


def upload_folder(place: str | None, store: str) -> Path | None:
    """Where uploads are stored: in the given folder, or else beside the file of the store, if there is one."""
    from pathlib import Path

    file = file_of(store)
    beside = None if file is None else file.with_name(f"{file.name}.uploads")
    return beside if place is None else Path(_expand_home(place)).absolute()


def bundle_folder() -> Path:
    """Where this node unpacks bundles: in the cache folder of its user, or else among temporary files."""
    import tempfile
    from pathlib import Path

    cache = os.environ.get("XDG_CACHE_HOME", "")
    if cache.startswith(os.sep):
        return Path(cache) / "noonmark" / "bundles"
    home = os.path.expanduser("~")  # noqa: PTH111 - it may be unknown, which is no error here
    if os.path.isabs(home) and os.access(home, os.W_OK):  # noqa: PTH117 - likewise
        return Path(home) / ".cache" / "noonmark" / "bundles"
    return Path(tempfile.gettempdir()) / f"noonmark-bundles-{os.geteuid()}"


def make_node_locks(url: object, store: Store) -> NodeLocks | None:
    """The locks by which nodes of this machine see that another is gone; None where there are no such locks."""
    if sys.platform != "linux" or not isinstance(url, str) or url == MEMORY:
        return None
    from noonmark.node_locks import NodeLocks

    file = file_of(url)
    if file is None:
        return NodeLocks(partial(_lock_folder, store))
    # By the real name: another process may use a link to the file.
    return NodeLocks(lambda: (real := file.resolve()).with_name(f"{real.name}.nodes"))


def _lock_folder(store: Store) -> Path:
    """The folder for locks of the nodes of a store that has no file; for all processes of this user the same."""
    import tempfile
    from hashlib import sha256
    from pathlib import Path

    runtime = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]  # of systemd
    user = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith(os.sep):
        folder = Path(runtime) / "nodes"
    elif user.startswith(os.sep) and _is_own_folder(Path(user)):
        folder = Path(user) / "noonmark" / "nodes"
    else:
        folder = Path(tempfile.gettempdir()) / f"noonmark-nodes-{os.geteuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_own_folder(folder):
        raise OSError(f"{folder} belongs to another user")
    # URLs of one store may differ from process to process.
    return folder / sha256(b"node locks\0" + store.own_key()).hexdigest()[:16]


def _is_own_folder(folder: Path) -> bool:
    """Whether it is a folder of this user. Programs that `sudo` starts may have variables that name another user's."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


_ID_DIGITS, _IDS_DRAWN = 12, 256
_drawn: deque[str] = deque()
"""The random parts of the next ids. They are drawn many at a time: a system call lets another thread run instead."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)


def fresh_id(clock: Clock) -> str:
    """A unique id. It begins with the time, so that rows created together are stored together."""
    try:
        part = _drawn.pop()
    except IndexError:
        digits = secrets.token_hex(_IDS_DRAWN * _ID_DIGITS // 2)
        part, *others = [digits[at : at + _ID_DIGITS] for at in range(0, len(digits), _ID_DIGITS)]
        _drawn.extend(others)
    return f"{clock.micros():014x}{part}"


def node_name() -> str:
    """This process, for those who look for it; never the same twice."""
    import socket

    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def zone_data_version(folders: Sequence[str] = TZPATH) -> str:
    """The version of the time zone data that this process uses, such as 2026a; empty if that is unknown.

    As in Python, the data of the operating system are used where it has them, else the package tzdata.
    """
    from pathlib import Path

    for folder in map(Path, folders):
        if (folder / "UTC").exists():
            for name in ("tzdata.zi", "+VERSION"):
                with suppress(OSError, IndexError), (folder / name).open(encoding="utf-8") as stream:
                    return stream.readline(100).split()[-1]
            return ""
    import tzdata

    return str(tzdata.IANA_VERSION)


def disk_space(store: str, uploads: Path | None) -> list[Disk]:
    """The space for the file of a store and for uploads; nothing for a store on another machine."""
    import shutil

    from noonmark.operations.diagnosis import Disk

    spaces = []
    for what, path in (("the store", file_of(store)), ("uploads", uploads)):
        folder = None if path is None else next((one for one in path.parents if one.is_dir()), None)
        if folder is not None:
            with suppress(OSError):
                spaces.append(Disk(what=what, path=str(folder), free=shutil.disk_usage(folder).free))
    return spaces
