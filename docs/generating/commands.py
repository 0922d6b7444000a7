"""The reference page of the command line, generated from the commands."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from typing import TYPE_CHECKING

from docs.generating.words import NOTE, names
from noonmark.cli.app import COMMANDS, GROUPS, PROGRAM_COMMANDS, load_command
from noonmark.operations.errors import STATUS
from noonmark.server.config import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noonmark.cli.parameters import Field


SHARED = ("Trigger", "Target", "Name and policies", "Connection")
"""Groups of options that several commands share; each is described once."""
EXITS = {
    0: "success",
    1: "failed",
    2: "usage error or invalid input",
    3: "not found",
    4: "conflict with the current state",
    5: "not allowed, or over a limit",
    6: "server or store unreachable",
}


def cli_page() -> str:
    """Every command with its arguments and options, the shared options, and the exit codes."""
    paths: list[tuple[str, ...]] = [(name,) for name in COMMANDS]
    paths += [(group, name) for group, (_, commands) in GROUPS.items() for name in commands]
    commands = {path: load_command(*path).fields for path in paths}
    shared: dict[str, dict[str, Field]] = {}
    for arguments in commands.values():
        for one in arguments:
            if (group := one.heading.name) in SHARED:
                shared.setdefault(group, {})[one.name] = one
    exits = [
        f"| {number} | {meaning} | {names(code for code, row in STATUS.items() if row.exit == number)} |"
        for number, meaning in EXITS.items()
    ]
    return (
        f"{NOTE}# Command line\n\n"
        "`noonmark` after an install, `.venv/bin/noonmark` after `make setup`, or `python -m noonmark`. For an\n"
        "introduction, see [the guide](../guides/cli.md).\n\n"
        "- Commands of two words, `apply`, `diff` and `export` use a server or a store: [connection](#connection).\n"
        "- Instants are RFC 3339 with `Z` or an offset: `2027-05-25T02:00:00Z`.\n"
        "- Durations are a number and `ms`, `s`, `m`, `h` or `d`; seconds without a unit: `250ms`, `1.5h`, `90`.\n"
        "- With `--json`, a command prints one JSON document on standard output and nothing else. An error is one\n"
        "  object on standard error, with `title`, `status`, `code` and `detail`, and with `field` and `problems` if\n"
        "  there are any. Without `--json`, each error is a line: `noonmark: <field>: <what is wrong and allowed>`.\n"
        "- In a pipe, lines are never folded; on a narrow terminal, tables leave some columns out.\n\n"
        + "\n".join(_command(path, arguments) for path, arguments in commands.items())
        + "\n## Shared options\n\n"
        + "\n".join(f"### {title}\n\n{_options(shared[title].values())}" for title in SHARED)
        + "\n## Exit codes\n\n| code | meaning | errors |\n| --- | --- | --- |\n"
        + "\n".join(exits)
        + "\n\n`noonmark schedule run-now --wait` and `noonmark schedule backfill --wait` exit with 1 unless\n"
        "everything they waited for `completed`; failed, timed out, skipped and cancelled runs count as failures.\n"
    )


def _command(path: tuple[str, ...], arguments: Sequence[Field]) -> str:
    """One command: what it does, its usage, and its own options."""
    words = "".join(f" {one.name}" if one.is_required else f" [{one.name}]" for one in arguments if one.is_positional)
    settings = {flag for one in SETTINGS.values() for flag in one.flag.split(", ")}
    own = [one for one in arguments if one.heading.name not in SHARED]
    told = []
    if len(unset := [one for one in own if not settings & set(one.names)]) < len(own) - 5:
        own, told = unset, ["Every [setting](settings.md) is an option.\n"]
    for title in SHARED[:-1]:
        options = [one.name for one in arguments if one.heading.name == title]
        told += [f"[{title}](#{title.lower().replace(' ', '-')}): {names(options)}.\n"] if options else []
    call = f"noonmark {' '.join(path)}{words} [OPTIONS]" + (
        " [-- PROGRAM ARGUMENT...]" if path in PROGRAM_COMMANDS else ""
    )
    parts = [f"## `noonmark {' '.join(path)}`\n", f"{inspect.getdoc(load_command(*path).function)}\n", f"    {call}\n"]
    return "\n".join([*parts, *([_options(own)] if own else []), *told])


def _options(arguments: Iterable[Field]) -> str:
    rows = [f"| {names(one.names)} | {one.parameter.help} {_default(one)}|" for one in arguments]
    return "| argument | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _default(argument: Field) -> str:
    """The default, as `--help` shows it."""
    if argument.parameter.show_default is False or argument.default in (MISSING, None, "", (), False):
        return ""
    return f"Default: `{argument.default}`. "
