"""Loading: the effective settings, each from the strongest source that names it, and all that is wrong with them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.config.settings import PREFIX, SETTINGS, Settings
from noonmark.core.errors import InvalidSchedule, Problem
from noonmark.core.redaction import MASK, is_secret_name, redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noonmark.config.settings import Setting

DEFAULT_FILE = "noonmark.toml"
FILE_VARIABLE = f"{PREFIX}CONFIG"
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
    if is_secret_name(name) and value:
        return MASK
    if isinstance(value, str):
        return redact(value)
    return list(value) if isinstance(value, tuple) else value
