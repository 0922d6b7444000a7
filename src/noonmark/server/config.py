"""Settings of a server: from flags, then `NOONMARK_*` variables, then a TOML file, then defaults."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidSchedule, Problem
from noonmark.core.redaction import MASK, is_secret_name, redact
from noonmark.core.signatures import read_signing_key
from noonmark.server import setting_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PREFIX = "NOONMARK_"
LEVELS = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: how it is parsed, what it is for, and which environment variables set it."""

    name: str = ""
    default: Any
    read: Callable[[object], Any]
    meaning: str
    also: tuple[str, ...] = ()
    switch: str = ""
    """Its flag, if that is not the name with dashes."""

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return self.switch or f"--{self.name.replace('_', '-')}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it; the first one that is set counts."""
        return (PREFIX + self.name.upper(), *self.also)


def _setting(
    read: Callable[[object], Any],
    meaning: str,
    *,
    default: object,
    also: tuple[str, ...] = (),
    switch: str = "",
    is_secret: bool = False,
) -> Any:  # noqa: ANN401 - a field of whatever type it is declared with
    setting = {"default": default, "read": read, "meaning": meaning, "also": also, "switch": switch}
    return field(default_factory=lambda: default, metadata=setting, repr=not is_secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a server."""

    host: str = _setting(
        setting_values.text,
        "the address to listen on; loopback only, because there is no authentication yet",
        also=("SCHEDULER_HOST",),
        default="127.0.0.1",
    )
    port: int = _setting(
        setting_values.integer(0, 65_535), "the port; 0 picks a free one", also=("SCHEDULER_PORT",), default=8001
    )
    store: str = _setting(
        setting_values.store,
        "the store: a SQLite file, a PostgreSQL database, or memory",
        default="sqlite:///noonmark.db",
    )
    worker: bool = _setting(
        setting_values.boolean,
        "whether this server runs schedules, or only answers requests",
        switch="--no-worker",
        default=True,
    )
    migrate: bool = _setting(
        setting_values.boolean,
        "whether to create or upgrade the schema in PostgreSQL; a SQLite file is always upgraded",
        default=False,
    )
    public_url: str | None = _setting(
        setting_values.url,
        "the URL of the server for its clients, if it runs behind a proxy",
        default=None,
    )
    allowed_hosts: tuple[str, ...] = _setting(
        setting_values.hosts, "host names that clients may use, besides the server's own", default=()
    )
    functions: Mapping[str, str] = _setting(
        setting_values.functions, "functions that this node offers, by name", switch="--function", default={}
    )
    target_guard: str = _setting(
        setting_values.one_of("auto", "strict", "off"),
        "where HTTP targets may connect to: `strict` is public addresses only, `off` is everywhere; `auto` is strict,"
        " except that a server that only this machine can reach, without `public_url` and `allowed_hosts`, may also"
        " connect to this machine and private networks",
        default="auto",
    )
    allow_hosts: tuple[str, ...] = _setting(
        setting_values.destinations,
        "hosts, addresses and networks that HTTP targets may always connect to; `*.example.com` is every host below"
        " that one, except metadata, link-local and multicast addresses; a host or an address may have a port, and"
        " then only that port is open",
        default=(),
    )
    signing_key: str | None = _setting(
        read_signing_key,
        "the key that signs requests, the same on every node; by default it is derived from a key in the store, and"
        " `noonmark secret signing-key` prints it. Set it in the environment or a file rather than by a flag, which"
        " every user of this machine can see",
        default=None,
        is_secret=True,
    )
    secret_key: str | None = _setting(
        setting_values.secret_keys,
        "the key that encrypts secrets in the store, the same on every node: the output of `noonmark secret key`. Of"
        " several keys, separated by commas, the first encrypts and all decrypt. Set it in the environment or a file"
        " rather than by a flag",
        default=None,
        is_secret=True,
    )
    allow_commands: tuple[str, ...] = _setting(
        setting_values.commands,
        'programs that schedules may run on this node, by name or absolute path, or `"*"` for any',
        default=(),
    )
    allow_env: tuple[str, ...] = _setting(
        setting_values.variables,
        "environment variables that clients may set for commands, besides `NOONMARK_*` names that Noonmark does not"
        ' use, or `"*"` for any',
        default=(),
    )
    allow_cwd: tuple[str, ...] = _setting(
        setting_values.folders,
        "folders in and below which clients may run commands; by default each run has an empty folder of its own",
        default=(),
    )
    pin_commands: str = _setting(
        setting_values.one_of("inode", "digest"),
        "how an allowed program is recognised as the one that was there when the server started: `inode` by its"
        " file, `digest` by its content",
        default="inode",
    )
    upload_dir: str | None = _setting(
        setting_values.text,
        "the folder for uploaded files; by default beside the SQLite file. Without either, uploads are off",
        default=None,
    )
    max_upload_bytes: int = _setting(
        setting_values.integer(1, 2**40), "maximum size of an uploaded file, in bytes", default=104_857_600
    )
    upload_quota_bytes: int = _setting(
        setting_values.integer(0, 2**50),
        "maximum size of all uploaded files of a tenant, in bytes",
        default=1_073_741_824,
    )
    max_connections: int = _setting(
        setting_values.integer(1, 100_000),
        "maximum number of open connections, beside a reserve of 16 in which only `/health` and `/metrics` are"
        " answered; never more than half of the file descriptors of the process",
        default=1_000,
    )
    max_connections_per_address: int = _setting(
        setting_values.integer(0, 100_000),
        "maximum number of connections from one address; this machine counts as one. 0 means one half of all, or all"
        " if `public_url` is set, because then every client comes from the proxy",
        default=0,
    )
    request_timeout: float = _setting(
        setting_values.number(0.1, 3_600),
        "seconds for the head of a request, and as many for its body; an uploaded file has more time, at 32 KiB per"
        " second",
        default=20.0,
    )
    send_timeout: float = _setting(
        setting_values.number(0.1, 3_600),
        "seconds after which an answer is aborted if the client reads nothing of it, or, beyond that, reads less than"
        " 4 KiB per second",
        default=20.0,
    )
    max_unsent_bytes: int = _setting(
        setting_values.integer(1_048_576, 2**40),
        "maximum number of unread bytes of all answers together; beyond that, the client that has read nothing for"
        " longest is disconnected",
        default=67_108_864,
    )
    lease: float = _setting(
        setting_values.number(1, 3_600),
        "seconds after which other nodes take over the work of a dead node",
        default=15.0,
    )
    grace: float = _setting(
        setting_values.number(0, 86_400),
        "seconds that runs have to finish when the worker stops, before they are released to other nodes",
        default=10.0,
    )
    max_threads: int = _setting(
        setting_values.integer(1, 10_000), "maximum number of functions that run at the same time", default=256
    )
    keep_days: float = _setting(setting_values.number(0.001, 36_500), "days for which history is kept", default=30.0)
    log_level: str = _setting(
        setting_values.one_of(*LEVELS), f"the minimum level that is logged: {', '.join(LEVELS)}", default="info"
    )
    log_format: str = _setting(
        setting_values.one_of("auto", "json", "text"),
        "the format of log lines: `json`, `text`, or `auto`, which is text on a terminal and JSON otherwise",
        default="auto",
    )
    max_per_user: int = _setting(
        setting_values.integer(0, 1_000_000),
        "maximum number of schedules per user, under `/api/v1`",
        also=("SCHEDULE_MAX_PER_USER",),
        default=50,
    )
    min_interval_minutes: int = _setting(
        setting_values.integer(0, 525_600),
        "minimum number of minutes between two fires, under `/api/v1`",
        also=("SCHEDULE_MIN_INTERVAL_MINS",),
        default=60,
    )
    max_budget_usd: float = _setting(
        setting_values.number(0, 1_000_000),
        "maximum budget of a schedule in US dollars, under `/api/v1`",
        also=("SCHEDULE_MAX_BUDGET_USD",),
        default=10.0,
    )
    reload: bool = _setting(
        setting_values.boolean,
        "whether to restart when a Python file in this folder or below changes, for development",
        also=("SCHEDULER_RELOAD",),
        default=False,
    )


SETTINGS: Mapping[str, Setting] = {one.name: Setting(name=one.name, **one.metadata) for one in fields(Settings)}


DEFAULT_FILE = "noonmark.toml"
FILE_VARIABLE = f"{PREFIX}CONFIG"
SERVER_VARIABLE = f"{PREFIX}SERVER"
"""Names the server that commands call; not a setting of the server itself."""
MAX_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings, and the source of each."""

    settings: Settings
    sources: Mapping[str, str]
    """By name: `flag --port`, `environment NOONMARK_PORT`, `file noonmark.toml` or `default`."""
    file: str | None
    """The file that was read, if any."""

    def shown(self) -> dict[str, dict[str, Any]]:
        """Each value with its source; secrets are masked."""
        return {
            name: {"value": _shown(name, getattr(self.settings, name)), "source": self.sources[name]}
            for name in SETTINGS
        }

    def refuse(self, name: str, message: str) -> InvalidSchedule:
        """The error for a setting that turns out to be invalid when it is used."""
        return InvalidSchedule(f"{message} (from {_origin(self.sources[name])})", field=name)


def load(flags: Mapping[str, object], environment: Mapping[str, str], file: str | None = None) -> Loaded:
    """Read all settings; one error reports every problem.

    `flags` are the values of the command line, by name of the setting. A file that is named must exist; the default
    file need not.
    """
    path, is_named = _file(file, environment)
    problems: list[Problem] = []
    file_values = _read_file(path, problems) if is_named or path.is_file() else None
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS.values():
        sources[setting.name] = "default"
        for value, source in _candidates(setting, flags, environment, file_values or {}, path):
            sources[setting.name] = source
            try:
                values[setting.name] = setting.read(value)
            except ValueError as error:
                problems.append(Problem(setting.name, f"{error} (from {_origin(source)})"))
            break
    if problems:
        raise InvalidSchedule(problems[0].message, field=problems[0].field, problems=problems)
    return Loaded(settings=Settings(**values), sources=sources, file=None if file_values is None else str(path))


def _file(file: str | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    named = file or environment.get(FILE_VARIABLE)
    return Path(named or DEFAULT_FILE), bool(named)


def _candidates(
    setting: Setting,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file_values: Mapping[str, Any],
    path: Path,
) -> Iterator[tuple[object, str]]:
    """The values of the sources, by precedence. An empty variable counts as unset."""
    given = flags.get(setting.name)
    if isinstance(given, bool):
        yield given, f"flag --{'' if given else 'no-'}{setting.name}"
    elif given is not None:
        yield given, f"flag {setting.flag}"
    for variable in setting.variables:
        if environment.get(variable, "").strip():
            yield environment[variable], f"environment {variable}"
    if setting.name in file_values:
        yield file_values[setting.name], f"file {path}"


def _read_file(path: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        file_values = tomllib.loads(_content(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problems.append(Problem("config", f"the file {path} cannot be read: {reason}"))
        return {}
    for name in file_values.keys() - SETTINGS.keys():
        known = ", ".join(SETTINGS)
        problems.append(Problem(name, f"unknown setting (from the file {path}); known settings are {known}"))
    return file_values


def _content(path: Path) -> str:
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE + 1)
    if len(raw) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE:,} bytes")
    return raw.decode("utf-8")


def _origin(source: str) -> str:
    """The source as part of a sentence."""
    kind, _, name = source.partition(" ")
    article = {"flag": "the flag", "environment": "the variable", "file": "the file"}
    return f"{article[kind]} {name}" if kind in article else kind


def _shown(name: str, value: object) -> Any:  # noqa: ANN401 - JSON
    if is_secret_name(name) and value:
        return MASK
    if isinstance(value, str):
        return redact(value)
    return list(value) if isinstance(value, tuple) else value
