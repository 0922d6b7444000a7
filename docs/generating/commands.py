"""The page about the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from docs.generating.words import NOTE, names
from noonmark.cli.app import GROUPS, STARTING, app
from noonmark.operations.errors import STATUS
from noonmark.server.config import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cyclopts import App
    from cyclopts.argument import Argument


SHARED = ("When", "What it starts", "On which terms", "Where")
"""Groups of options that are told once, for all commands that take them."""
EXITS = {
    0: "done",
    1: "failed",
    2: "usage, or invalid input",
    3: "not found",
    4: "not in the present state",
    5: "not allowed, or a limit is reached",
    6: "no server, or no store, answers",
}


def cli_page() -> str:
    """Every command with its arguments and options, the options that several share, and the exit codes."""
    paths = [(name,) for name in app if not name.startswith("-") and name not in GROUPS]
    paths += [(group, name) for group, (_, commands) in GROUPS.items() for name in commands]
    commands = {path: list(_app(path).assemble_argument_collection()) for path in paths}
    shared: dict[str, dict[str, Argument]] = {}
    for arguments in commands.values():
        for one in arguments:
            if one.show and (group := _group(one)) in SHARED:
                shared.setdefault(group, {})[one.name] = one
    exits = [
        f"| {number} | {meaning} | {names(code for code, row in STATUS.items() if row.exit == number)} |"
        for number, meaning in EXITS.items()
    ]
    return (
        f"{NOTE}# Command line\n\n"
        "`noonmark` after an install, `.venv/bin/noonmark` after `make setup`, or `python -m noonmark`. To learn it,\n"
        "begin with [the guide](../guides/cli.md).\n\n"
        "- Commands of two words ask a server, or work on a store: [where](#where).\n"
        "- Instants are RFC 3339 with `Z` or an offset: `2027-05-25T02:00:00Z`.\n"
        "- Lengths of time are a number with `ms`, `s`, `m`, `h` or `d`; without any, seconds: `250ms`, `1.5h`, `90`.\n"
        "- With `--json` a command prints one JSON document on standard output, and nothing else. What went wrong is\n"
        "  one object on standard error, with `title`, `status`, `code` and `detail`, and with `field` and `problems`\n"
        "  if there are any. Without `--json` it is a line each: `noonmark: <field>: <what is wrong and allowed>`.\n"
        "- In a pipe, lines are as long as they have to be; on a narrow terminal, tables leave some columns out.\n\n"
        + "\n".join(_command(path, arguments) for path, arguments in commands.items())
        + "\n## Options that several commands share\n\n"
        + "\n".join(f"### {title}\n\n{_options(shared[title].values())}" for title in SHARED)
        + "\n## Exit codes\n\n| code | meaning | errors |\n| --- | --- | --- |\n"
        + "\n".join(exits)
        + "\n\n`noonmark schedule run-now --wait` and `noonmark schedule backfill --wait` exit with 1 unless all\n"
        "that they waited for has `completed`: also when it failed, timed out, was skipped or was cancelled.\n"
    )


def _app(path: tuple[str, ...]) -> App:
    found = app
    for name in path:
        found = found[name]
    return found


def _command(path: tuple[str, ...], arguments: list[Argument]) -> str:
    """One command: what it does, how it is called, and the options that are its own."""
    taken = [one for one in arguments if one.show]
    words = "".join(f" {one.name}" if one.required else f" [{one.name}]" for one in taken if one.index is not None)
    settings = {flag for one in SETTINGS.values() for flag in one.flag.split(", ")}
    own = [one for one in taken if _group(one) not in SHARED]
    told = []
    if len(unset := [one for one in own if not settings & set(one.names)]) < len(own) - 5:
        own, told = unset, ["Every [setting](settings.md) is an option.\n"]
    for title in SHARED[:-1]:
        options = [one.name for one in taken if _group(one) == title]
        told += [f"[{title}](#{title.lower().replace(' ', '-')}): {names(options)}.\n"] if options else []
    call = f"noonmark {' '.join(path)}{words} [OPTIONS]" + (" [-- PROGRAM ARGUMENT...]" if path in STARTING else "")
    parts = [f"## `noonmark {' '.join(path)}`\n", f"{inspect.getdoc(_app(path).default_command)}\n", f"    {call}\n"]
    return "\n".join([*parts, *([_options(own)] if own else []), *told])


def _group(argument: Argument) -> str:
    [group] = argument.parameter.group
    return str(group.name)


def _options(arguments: Iterable[Argument]) -> str:
    rows = [f"| {names(one.names)} | {one.parameter.help} {_unless(one)}|" for one in arguments]
    return "| argument | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _unless(argument: Argument) -> str:
    """The default that `--help` shows too."""
    default = argument.field_info.default
    if argument.parameter.show_default is False or default in (argument.field_info.empty, None, "", (), False):
        return ""
    return f"`{default}` unless given. "
