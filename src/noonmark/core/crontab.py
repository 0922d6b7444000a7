"""Crontabs: the lines of a crontab as schedules.

A line becomes a cron trigger and a command: the shell of the crontab with the rest of the line. Its name follows from
its command alone, so that it stays the same when the times change. A comment directly above becomes the description.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from noonmark.core.errors import InvalidTrigger
from noonmark.core.instants import EPOCH
from noonmark.core.json_values import shown
from noonmark.core.triggers import parse_trigger
from noonmark.core.triggers.zones import load_zone

USUAL_SHELL = "/bin/sh"
USER_LABEL = "crontab_user"
MAIL_VARIABLES = frozenset({"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"})
MAX_DELAY_MINUTES = 1_440
MAX_DESCRIPTION = 10_000
REBOOT = (
    "@reboot names no time. Start the command where the system starts the node: in a systemd unit, in the container's"
    " entry point, or by scheduler.schedule(f) in a Python program"
)
NO_MAIL = "is not used: no mail is sent; runs keep their output, and events report failures"
_VARIABLE = re.compile(r"""\s*(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*?)\s*""")
_HEADER = re.compile(r"m\s+h\s+dom\b|Example of job definition", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*\s+")
_FOLDER = re.compile(r"cd\s+\S+\s*(?:&&|;)\s*")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class LineNote(NamedTuple):
    """A problem with a line or a remark about it; lines count from 1."""

    line: int
    message: str


@dataclass(kw_only=True)
class Crontab:
    """The schedule documents of a crontab, each with its line, what could not be read, and what differs."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    problems: list[LineNote] = field(default_factory=list)
    notes: list[LineNote] = field(default_factory=list)


@dataclass(kw_only=True)
class _Settings:
    """What the variables above a line say."""

    timezone: str
    shell: str = USUAL_SHELL
    delay_minutes: int = 0
    env: dict[str, str] = field(default_factory=dict)


def read_crontab(text: str, *, timezone: str, has_user: bool = False) -> Crontab:
    """Read a crontab; with `has_user`, each command is preceded by a user, as in /etc/crontab."""
    crontab, settings = Crontab(), _Settings(timezone=timezone)
    comment: list[str] = []
    counts: dict[str, int] = {}
    users: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            comment = [] if _HEADER.search(stripped) else [*comment, stripped.lstrip("#").strip()]
            continue
        if not stripped:
            comment = []
        elif (variable := _VARIABLE.fullmatch(line)) is not None:
            _set(settings, crontab, number, variable[2], _unquoted(variable[3]))
            comment = []
        else:
            try:
                document, user = _schedule(stripped, settings, has_user=has_user)
            except ValueError as error:
                crontab.problems.append(LineNote(number, str(error)))
            else:
                if user is not None and user not in users:
                    users.add(user)
                    message = f"runs as the user of the node, not as {user}; the label {USER_LABEL} has the user"
                    crontab.notes.append(LineNote(number, message))
                crontab.documents.append(_named(document, comment, counts))
                crontab.lines.append(number)
            comment = []
    return crontab


def split_command(text: str) -> tuple[str, str | None]:
    """The command of a line, and its standard input: what follows the first `%`, with each `%` as a new line.

    A backslash before `%` makes it an ordinary character.
    """
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text)]
    if len(parts) == 1:
        return parts[0], None
    return parts[0].rstrip(), "\n".join(parts[1:]).removesuffix("\n") + "\n"


def _set(settings: _Settings, crontab: Crontab, number: int, name: str, value: str) -> None:
    """Put a variable in force for the lines below it."""
    if name == "CRON_TZ":
        try:
            load_zone(value)
        except ValueError as error:
            crontab.problems.append(LineNote(number, f"CRON_TZ: {error}"))
        # In force even if it is wrong: the lines below must not run in another zone.
        settings.timezone = value
    elif name == "SHELL":
        settings.shell = value
    elif name == "RANDOM_DELAY":
        if not (value.isascii() and value.isdigit() and int(value) <= MAX_DELAY_MINUTES):
            message = f"RANDOM_DELAY: must be minutes from 0 to {MAX_DELAY_MINUTES:,}, not {shown(value)}"
            crontab.problems.append(LineNote(number, message))
            return
        settings.delay_minutes = int(value)
    elif name in MAIL_VARIABLES:
        crontab.notes.append(LineNote(number, f"{name} {NO_MAIL}"))
    else:
        settings.env = settings.env | {name: value}


def _schedule(line: str, settings: _Settings, *, has_user: bool) -> tuple[dict[str, Any], str | None]:
    """The document of a line, without a name, and its user; ValueError if the line is invalid."""
    fields = 1 if line.startswith("@") else 5
    parts = line.split(None, fields)
    expression, rest = " ".join(parts[:fields]), "".join(parts[fields:])
    if expression.lower() == "@reboot":
        raise ValueError(REBOOT)
    user = None
    if has_user:
        user, rest = (*rest.split(None, 1), "", "")[:2]
    command, stdin = split_command(rest.strip())
    if not command:
        needed = "a user and a command" if has_user else "a command"
        raise ValueError(f"must be {'a name such as @daily' if fields == 1 else 'five fields'}, then {needed}")
    trigger: dict[str, Any] = {"type": "cron", "expression": expression, "timezone": settings.timezone}
    if settings.delay_minutes:
        trigger["jitter_seconds"] = settings.delay_minutes * 60
    try:
        parse_trigger(trigger, now=EPOCH)
    except InvalidTrigger as error:
        raise ValueError("; ".join(f"{one.field}: {one.message}" for one in error.problems)) from None
    target: dict[str, Any] = {"target_kind": "command", "argv": [settings.shell, "-c", command]}
    if settings.env:
        target["env"] = dict(settings.env)
    if home := settings.env.get("HOME"):
        target["cwd"] = home
    if stdin is not None:
        target["stdin"] = stdin
    document: dict[str, Any] = {"trigger": trigger, "target": target}
    return document | ({"labels": {USER_LABEL: user}} if user else {}), user


def _named(document: dict[str, Any], comment: list[str], counts: dict[str, int]) -> dict[str, Any]:
    """A document with a name that follows from its command, and a description; the same command again has a number."""
    command, user = document["target"]["argv"][2], document.get("labels", {}).get(USER_LABEL, "")
    text = f"{user}\n{command}\n{document['target'].get('stdin', '')}"
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    name = f"{_program(command)}-{digest}"
    counts[name] = counts.get(name, 0) + 1
    description = "\n".join(comment).strip()[:MAX_DESCRIPTION]
    return {
        "name": name if counts[name] == 1 else f"{name}-{counts[name]}",
        **({"description": description} if description else {}),
        **document,
    }


def _program(command: str) -> str:
    """The name of the program that a command starts, as far as it shows."""
    rest = _FOLDER.sub("", command, count=1) if command.startswith("cd ") else command
    while (assignment := _ASSIGNMENT.match(rest)) is not None:
        rest = rest[assignment.end() :]
    word = (rest.split() or [""])[0].rstrip("/").rpartition("/")[2]
    return _UNSAFE.sub("-", word).strip("-.")[:60] or "cron"


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value
