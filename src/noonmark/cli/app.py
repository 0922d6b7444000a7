"""The commands, and how each way of ending becomes an exit code. A command's module is loaded when it is called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError, UnusedCliTokensError

import noonmark
from noonmark.cli.output import complain, complain_in_json
from noonmark.core.errors import InvalidRequest, InvalidSchedule, NoonmarkError
from noonmark.operations.errors import STATUS, error_document

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="noonmark",
    help="Durable schedules that say what they will do, do it, and can tell you why.",
    help_format="plaintext",
    help_formatter="plain",
    version=lambda: str(noonmark.__version__),
    exit_on_error=False,
    print_error=False,
    result_action="return_int_as_exit_code_else_zero",
)
app.command(
    "noonmark.cli.preview:preview",
    help="Show the next fires of cron expressions, or of any trigger.",
    usage="Usage: noonmark preview [OPTIONS] EXPRESSION...",
)
app.command(
    "noonmark.cli.check:check",
    help="Check a schedule document, and say in words what it does.",
    usage="Usage: noonmark check [OPTIONS] FILE",
)
app.command(
    "noonmark.cli.serve:serve",
    help="Run a server that answers requests and runs what is due.",
    usage="Usage: noonmark serve [OPTIONS]",
)
app.command(
    "noonmark.cli.migrate:migrate",
    help="Create the schema of a store, or bring it up to date.",
    usage="Usage: noonmark migrate [OPTIONS]",
)
app.command(
    "noonmark.cli.backup:backup",
    help="Write a consistent copy of a SQLite store to a file.",
    usage="Usage: noonmark backup [OPTIONS] FILE",
)
app.command(
    "noonmark.cli.backup:restore",
    help="Replace a SQLite store by a backup.",
    usage="Usage: noonmark restore [OPTIONS] FILE",
)
app.command(
    "noonmark.cli.doctor:doctor",
    help="Say whether a store is sound, which rows are damaged, and what to do.",
    usage="Usage: noonmark doctor [OPTIONS]",
)
app.command(
    "noonmark.cli.config:config",
    help="Show the settings of a server, and where each comes from.",
    usage="Usage: noonmark config [OPTIONS]",
)
app.command(
    "noonmark.cli.call:call",
    help="Do any operation by its name, and print its answer.",
    usage="Usage: noonmark call [OPTIONS] OPERATION",
)

GROUPS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "schedule": (
        "Create schedules, look at them, steer them.",
        {
            "create": ("declaring:create", "Create a schedule."),
            "delay": ("declaring:delay", "Create a schedule that runs once."),
            "list": ("looking:list_schedules", "List schedules."),
            "status": ("looking:status", "Show a schedule, its next fires and its last occurrences."),
            "pause": ("steering:pause", "Let nothing start by itself until it is resumed."),
            "resume": ("steering:resume", "Let it run again, from now on."),
            "run-now": ("running:run_now", "Run it now, beside its own times."),
            "update": ("declaring:update", "Change a schedule."),
            "delete": ("steering:delete", "Let nothing of it start any more; its history stays."),
            "preview": ("previewing:preview", "Show when a schedule runs next."),
            "backfill": ("steering:backfill", "Run past times of a schedule again."),
            "explain": ("looking:explain", "Say why something ran, or did not."),
            "occurrences": ("looking:list_occurrences", "List what a schedule did and let pass, and why."),
            "runs": ("looking:list_runs", "List the runs of a schedule, with what each gave."),
        },
    ),
    "run": (
        "Single runs.",
        {"cancel": ("running:cancel", "Let one occurrence not begin, or ask its run to stop.")},
    ),
    "trigger": (
        "Schedules that events set off.",
        {
            "create": ("declaring:create_trigger", "Create a schedule that an event sets off."),
            "list": ("looking:list_triggers", "List the schedules that events set off."),
            "delete": ("steering:delete_trigger", "Let no event set it off any more; its history stays."),
            "test": ("matching:try_trigger", "Say which of the last events would set it off, and why not the others."),
        },
    ),
    "event": (
        "Emit events, and list those that were.",
        {
            "emit": ("steering:emit", "Emit an event."),
            "list": ("looking:list_events", "List the events that were emitted."),
            "match": ("matching:match", "Say which of the last events filters match, and why not the others."),
        },
    ),
    "upload": (
        "Files that a server keeps, and tells of by events.",
        {
            "add": ("uploading:add", "Send a file; noonmark upload FILE does the same."),
            "list": ("uploading:list_uploads", "List the files that are kept."),
            "get": ("uploading:get", "Get a file back."),
            "delete": ("uploading:delete", "Forget a file, which makes room for others."),
        },
    ),
    "worker": (
        "Start and stop what a server runs.",
        {
            "start": ("steering:start_worker", "Let the server run what is due."),
            "stop": ("steering:stop_worker", "Let the server start nothing more; other nodes go on."),
            "confirm-time": ("steering:confirm_time", "Tell the server that its store's time is right."),
            "status": ("steering:worker_status", "Say whether the server runs what is due."),
        },
    ),
    "secret": (
        "What requests carry in their headers, and nobody may read.",
        {
            "set": ("secret:set_secret", "Keep a secret that requests to some hosts may carry."),
            "list": ("secret:list_secrets", "List the secrets, without their values."),
            "delete": ("secret:delete_secret", "Forget a secret."),
            "key": ("secret:fresh_key", "Print a fresh key to seal secrets with."),
            "signing-key": ("secret:signing_key", "Print the key that requests are signed with."),
        },
    ),
    "node": ("The nodes of a cluster.", {"list": ("looking:list_nodes", "List the nodes.")}),
    "audit": ("Who changed what.", {"list": ("looking:list_audit", "List who changed what.")}),
}
"""The commands by group: where each is, and what it does."""

_OPTION = re.compile(r"--[a-z-]+|set|list|delete|key|signing-key")
STARTING = {
    ("schedule", "create"): "[BUNDLE]",
    ("schedule", "delay"): "[BUNDLE]",
    ("schedule", "update"): "SCHEDULE-ID",
    ("trigger", "create"): "[BUNDLE]",
}
"""The commands that may end in `--` and a program with its arguments; and what stands before."""


def _usage(*path: str) -> str | None:
    """How a command that may start programs is called; of others, the app says it by itself."""
    before = STARTING.get((path[0], path[1]))
    return before and f"Usage: noonmark {' '.join(path)} [OPTIONS] {before} [-- PROGRAM ARGUMENT...]"


for _group, (_about, _commands) in GROUPS.items():
    _part = App(name=_group, help=_about)
    for _name, (_place, _does) in _commands.items():
        _part.command(f"noonmark.cli.{_place}", name=_name, help=_does, usage=_usage(_group, _name))
    app.command(_part)


def run(arguments: Sequence[str]) -> int:
    """Run one command; what went wrong is told on stderr, a line for each thing, or as one JSON object."""
    words, rest = _parted(_spelled_out(arguments))
    try:
        code: int = app([*words, *_program(words, rest)])
    except UnusedCliTokensError as error:
        return _fail(_too_many(error), is_json="--json" in words)
    except CycloptsError as error:
        return _fail(InvalidRequest(f"{_misread(error, words)} See noonmark --help."), is_json="--json" in words)
    except NoonmarkError as error:
        return _fail(error, is_json="--json" in words)
    return code


def _too_many(error: UnusedCliTokensError) -> InvalidRequest:
    """What stands where nothing belongs is not repeated: it may be a secret."""
    command = " ".join(["noonmark", *(error.command_chain or ())])
    return InvalidRequest(f"{len(error.unused_tokens or ())} more arguments than {command} takes; see {command} --help")


def _misread(error: CycloptsError, words: list[str]) -> str:
    """What is wrong with the arguments; among those about a secret, only options are repeated, which are none."""
    text = str(error)
    if words[:1] == ["secret"] and any(word in text for word in words[1:] if not _OPTION.fullmatch(word)):
        return "There is no such command or option of noonmark secret."
    return text


def _spelled_out(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the word that may be left out: `upload FILE` is `upload add FILE`."""
    words = list(arguments)
    if words[:1] == ["upload"] and len(words) > 1 and words[1] not in (*GROUPS["upload"][1], "--help", "-h"):
        words.insert(1, "add")
    return words


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before `--`, and the rest."""
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place:]


def _program(words: list[str], rest: list[str]) -> list[str]:
    """What stands from `--` on: behind a command that starts programs, that is one, with its arguments."""
    if not rest or tuple(words[:2]) not in STARTING:
        return rest
    if any(word.partition("=")[0] == "--command" for word in words):
        raise InvalidRequest("cannot stand beside a program behind --: give one of them", field="--command")
    return [f"--command={word}" for word in rest[1:]]


def _fail(error: NoonmarkError, *, is_json: bool) -> int:
    row = STATUS[error.code]
    if is_json:
        complain_in_json({"title": row.title, "status": row.http, **error_document(error)})
    else:
        complain(error.problems if isinstance(error, InvalidSchedule) else [error])
    return row.exit
