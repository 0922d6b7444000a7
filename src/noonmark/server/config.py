"""Settings of a server: flags, then `NOONMARK_*` variables, then a TOML file, then defaults; each knows its source."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidSchedule, Problem
from noonmark.core.signatures import read_signing_key
from noonmark.server import setting_values
from noonmark.telemetry.masking import MASK, is_secret, masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PREFIX = "NOONMARK_"
LEVELS = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One of them: how it is read, what it is for, and which variables of other systems set it too."""

    name: str = ""
    default: Any
    read: Callable[[object], Any]
    meaning: str
    also: tuple[str, ...] = ()
    switch: str = ""
    """Its flag, where that does not follow from the name."""

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        return self.switch or f"--{self.name.replace('_', '-')}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the environment that set it; the first that is set counts."""
        return (PREFIX + self.name.upper(), *self.also)


def _set(
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
    """What a server goes by."""

    host: str = _set(
        setting_values.text,
        "where to listen; nothing but loopback, until there are keys",
        also=("SCHEDULER_HOST",),
        default="127.0.0.1",
    )
    port: int = _set(
        setting_values.whole(0, 65_535), "the port; 0 takes a free one", also=("SCHEDULER_PORT",), default=8001
    )
    store: str = _set(
        setting_values.store,
        "where everything is kept: a SQLite file, a PostgreSQL database, or memory",
        default="sqlite:///noonmark.db",
    )
    worker: bool = _set(
        setting_values.yes_or_no,
        "whether this server runs what is due, or only answers",
        switch="--no-worker",
        default=True,
    )
    migrate: bool = _set(
        setting_values.yes_or_no,
        "whether to create or upgrade the schema in PostgreSQL; that of a SQLite file always is",
        default=False,
    )
    public_url: str | None = _set(
        setting_values.url,
        "the address under which others reach the server, where a proxy stands before it",
        default=None,
    )
    allowed_hosts: tuple[str, ...] = _set(
        setting_values.hosts, "names that a request may be addressed to, besides the server's own", default=()
    )
    functions: Mapping[str, str] = _set(
        setting_values.functions, "the functions that this node offers, by name", switch="--function", default={}
    )
    target_guard: str = _set(
        setting_values.one_of("auto", "strict", "off"),
        "where requests may go: `strict` is public addresses only, `off` everywhere; `auto` is strict, but a server"
        " that only this machine can reach, without `public_url` and `allowed_hosts`, may also call this machine and"
        " private networks",
        default="auto",
    )
    allow_hosts: tuple[str, ...] = _set(
        setting_values.places,
        "hosts, addresses and networks that requests may go to whatever the guard says; `*.example.com` is every host"
        " below that one, but no metadata, link-local or multicast address; a host or an"
        " address may have a port, and only that is open then",
        default=(),
    )
    signing_key: str | None = _set(
        read_signing_key,
        "what requests are signed with, the same on every node; unless given, a key that follows from one which the"
        " store has drawn, as `noonmark secret signing-key` prints it. Better in the environment or a file than in a"
        " flag, which every user of this machine can see",
        default=None,
        is_secret=True,
    )
    secret_key: str | None = _set(
        setting_values.secret_keys,
        "what secrets are sealed with in the store, the same on every node: the output of `noonmark secret key`. Of"
        " several, with commas between them, the first seals and every one opens; better in the environment or a file"
        " than in a flag",
        default=None,
        is_secret=True,
    )
    allow_commands: tuple[str, ...] = _set(
        setting_values.commands,
        'programs that schedules may start on this node, by name or absolute path, or `"*"` for any',
        default=(),
    )
    allow_env: tuple[str, ...] = _set(
        setting_values.variables,
        "variables that callers may set for the programs they start, besides `NOONMARK_*` names of their own, or"
        ' `"*"` for any',
        default=(),
    )
    allow_cwd: tuple[str, ...] = _set(
        setting_values.folders,
        "folders in and below which callers may let programs start; each has an empty folder of its own otherwise",
        default=(),
    )
    pin_commands: str = _set(
        setting_values.one_of("inode", "digest"),
        "how an allowed program is known to be the one that was there when the server started: `inode` by its file,"
        " `digest` by its content",
        default="inode",
    )
    upload_dir: str | None = _set(
        setting_values.text,
        "the folder in which uploaded files are kept; beside a SQLite file unless given, and without either none are"
        " taken",
        default=None,
    )
    max_upload_bytes: int = _set(
        setting_values.whole(1, 2**40), "bytes that an uploaded file may have, at most", default=104_857_600
    )
    upload_quota_bytes: int = _set(
        setting_values.whole(0, 2**50),
        "bytes that all uploaded files of a tenant may have together",
        default=1_073_741_824,
    )
    max_connections: int = _set(
        setting_values.whole(1, 100_000),
        "connections that are open at a time, at most, beside a reserve of 16 in which only `/health` and `/metrics`"
        " are answered; never more than half of the files that the process may have open",
        default=1_000,
    )
    max_connections_per_address: int = _set(
        setting_values.whole(0, 100_000),
        "of these, so many may come from one address; all of this machine is one. 0 is one half of them, or all where"
        " `public_url` says that a proxy stands before the server",
        default=0,
    )
    request_timeout: float = _set(
        setting_values.number(0.1, 3_600),
        "seconds for the head of a request, and as many for its body; an uploaded file has longer, at 32 KiB a second",
        default=20.0,
    )
    send_timeout: float = _set(
        setting_values.number(0.1, 3_600),
        "seconds after which an answer is given up of which the caller reads nothing; or, beyond them, less than 4 KiB"
        " a second",
        default=20.0,
    )
    max_unsent_bytes: int = _set(
        setting_values.whole(1_048_576, 2**40),
        "bytes of answers that wait to be read, together; beyond that, the caller who has read"
        " nothing for longest is cut off",
        default=67_108_864,
    )
    lease: float = _set(
        setting_values.number(1, 3_600), "seconds after which what a dead node held is taken over", default=15.0
    )
    grace: float = _set(
        setting_values.number(0, 86_400),
        "seconds that runs have to end when the worker stops, before they are handed back",
        default=10.0,
    )
    max_threads: int = _set(setting_values.whole(1, 10_000), "so many functions run at a time, at most", default=256)
    keep_days: float = _set(setting_values.number(0.001, 36_500), "days for which what has ended is kept", default=30.0)
    log_level: str = _set(setting_values.one_of(*LEVELS), "the least that is logged", default="info")
    log_format: str = _set(setting_values.one_of("json", "text"), "how log lines are written", default="json")
    max_per_user: int = _set(
        setting_values.whole(0, 1_000_000),
        "schedules of a user, under `/api/v1`",
        also=("SCHEDULE_MAX_PER_USER",),
        default=50,
    )
    min_interval_minutes: int = _set(
        setting_values.whole(0, 525_600),
        "minutes between two fires, at least, under `/api/v1`",
        also=("SCHEDULE_MIN_INTERVAL_MINS",),
        default=60,
    )
    max_budget_usd: float = _set(
        setting_values.number(0, 1_000_000),
        "the budget of a schedule, at most, under `/api/v1`",
        also=("SCHEDULE_MAX_BUDGET_USD",),
        default=10.0,
    )
    reload: bool = _set(
        setting_values.yes_or_no,
        "whether to start anew when a Python file in this folder or below changes, for development",
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
    """The settings, and where each of them comes from."""

    settings: Settings
    sources: Mapping[str, str]
    """By name: `flag --port`, `environment NOONMARK_PORT`, `file noonmark.toml` or `default`."""
    file: str | None
    """The file that was read, if one was."""

    def shown(self) -> dict[str, dict[str, Any]]:
        """Each with its value and its source, for people and programs; what is secret is masked."""
        return {
            name: {"value": _shown(name, getattr(self.settings, name)), "source": self.sources[name]}
            for name in SETTINGS
        }

    def refuse(self, name: str, message: str) -> InvalidSchedule:
        """The error for a setting that turned out to be wrong when it was used."""
        return InvalidSchedule(f"{message} (from {_origin(self.sources[name])})", field=name)


def load(flags: Mapping[str, object], environment: Mapping[str, str], file: str | None = None) -> Loaded:
    """Read everything; one error says all that is wrong.

    `flags` has what was given on the command line, by the name of the setting. A file that is named must be there,
    the default one need not.
    """
    path, is_named = _file(file, environment)
    problems: list[Problem] = []
    written = _read_file(path, problems) if is_named or path.is_file() else None
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS.values():
        sources[setting.name] = "default"
        for value, source in _candidates(setting, flags, environment, written or {}, path):
            sources[setting.name] = source
            try:
                values[setting.name] = setting.read(value)
            except ValueError as error:
                problems.append(Problem(setting.name, f"{error} (from {_origin(source)})"))
            break
    if problems:
        raise InvalidSchedule(problems[0].message, field=problems[0].field, problems=problems)
    return Loaded(settings=Settings(**values), sources=sources, file=None if written is None else str(path))


def _file(file: str | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    named = file or environment.get(FILE_VARIABLE)
    return Path(named or DEFAULT_FILE), bool(named)


def _candidates(
    setting: Setting,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    written: Mapping[str, Any],
    path: Path,
) -> Iterator[tuple[object, str]]:
    """What the sources say, the strongest first. A variable that is empty says nothing, as in a shell."""
    given = flags.get(setting.name)
    if isinstance(given, bool):
        yield given, f"flag --{'' if given else 'no-'}{setting.name}"
    elif given is not None:
        yield given, f"flag {setting.flag}"
    for variable in setting.variables:
        if environment.get(variable, "").strip():
            yield environment[variable], f"environment {variable}"
    if setting.name in written:
        yield written[setting.name], f"file {path}"


def _read_file(path: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        written = tomllib.loads(_content(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problems.append(Problem("config", f"the file {path} cannot be read: {reason}"))
        return {}
    for name in written.keys() - SETTINGS.keys():
        known = ", ".join(SETTINGS)
        problems.append(Problem(name, f"there is no such setting (from the file {path}); there are {known}"))
    return written


def _content(path: Path) -> str:
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE + 1)
    if len(raw) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE:,} bytes")
    return raw.decode("utf-8")


def _origin(source: str) -> str:
    """The same in a sentence."""
    kind, _, name = source.partition(" ")
    article = {"flag": "the flag", "environment": "the variable", "file": "the file"}
    return f"{article[kind]} {name}" if kind in article else kind


def _shown(name: str, value: object) -> Any:  # noqa: ANN401 - JSON
    if is_secret(name) and value:
        return MASK
    if isinstance(value, str):
        return masked(value)
    return list(value) if isinstance(value, tuple) else value
