"""The table of commands, and the exit code for each error. A command's module is loaded when it is called."""

from __future__ import annotations

import os
import re
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import noonmark
from noonmark.cli.output import print_error_json, print_errors
from noonmark.cli.parameters import COMPLETION_VARIABLE, CommandGroup, ExtraArguments, FunctionCommand, suggestion
from noonmark.core.errors import InvalidRequest, InvalidSchedule, NoonmarkError
from noonmark.operations.errors import STATUS, error_document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SERVER_ERROR = 500
"""HTTP statuses from here on mean that the server failed, not that it refused."""
COMMANDS = {
    "preview": (
        "preview:preview",
        "Show the next fires of cron expressions, or of any trigger.",
        "[OPTIONS] EXPRESSION...",
    ),
    "check": ("preview:check", "Check a schedule document or cron expressions, and describe them.", "[OPTIONS] [FILE]"),
    "apply": ("files:apply", "Create and change workflows and schedules as files declare them.", "[OPTIONS] -f FILE"),
    "diff": ("files:diff", "Show what noonmark apply would change.", "[OPTIONS] -f FILE"),
    "export": ("files:export", "Print workflows and schedules as a file for noonmark apply.", "[OPTIONS]"),
    "failures": ("run:failures", "List failed and missed occurrences of all schedules.", "[OPTIONS]"),
    "top": ("top:top", "Watch what runs, is queued, comes next and failed.", "[OPTIONS]"),
    "timeline": (
        "timeline:timeline",
        "Show past, running and planned occurrences on a timeline.",
        "[OPTIONS] [SCHEDULE-ID]",
    ),
    "overview": ("timeline:overview", "Show today's figures, and what needs attention.", "[OPTIONS]"),
    "halt": ("halt:halt", "Halt all schedules, or those with some labels or a lineage.", "[OPTIONS]"),
    "unhalt": ("halt:unhalt", "Lift a halt.", "[OPTIONS] [HALT-ID]"),
    "serve": ("server:serve", "Run a server and its worker.", "[OPTIONS]"),
    "temporal-worker": ("engine:temporal_worker", "Run a worker of the engine.", "[OPTIONS]"),
    "migrate": ("store:migrate", "Create or upgrade the schema of a store.", "[OPTIONS]"),
    "backup": ("store:backup", "Write a consistent copy of a SQLite store.", "[OPTIONS] FILE"),
    "restore": ("store:restore", "Replace a SQLite store with a backup.", "[OPTIONS] FILE"),
    "doctor": ("store:doctor", "Check a store and its nodes, and say what to do.", "[OPTIONS]"),
    "login": ("key:login", "Store your key of a server.", "[OPTIONS]"),
    "logout": ("key:logout", "Remove your stored key of a server.", "[OPTIONS]"),
    "whoami": ("key:whoami", "Show the tenant, user and scopes of your key.", "[OPTIONS]"),
    "limits": ("key:limits", "Show your limits and how much of each is used.", "[OPTIONS]"),
    "config": ("server:config", "Show the settings of a server and their sources.", "[OPTIONS]"),
    "completion": (
        "completion:completion",
        "Print the script that completes commands in bash, zsh or fish.",
        "SHELL",
    ),
    "call": ("call:call", "Call any operation by name and print its answer.", "[OPTIONS] OPERATION"),
}
"""The single commands: where each is, what it does, and its usage."""

GROUPS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "schedule": (
        "Create, show and control schedules.",
        {
            "create": ("schedule:create", "Create a schedule."),
            "delay": ("schedule:delay", "Create a schedule that runs once."),
            "list": ("schedule:list_schedules", "List schedules."),
            "status": ("schedule:status", "Show a schedule, its next fires and its last occurrences."),
            "pause": ("schedule:pause", "Pause; fires missed meanwhile are recorded as skipped."),
            "resume": ("schedule:resume", "Resume a paused schedule."),
            "label": ("schedule:label", "Set labels of a schedule, or of all in a selection."),
            "run-now": ("run:run_now", "Run a schedule now, in addition to its own fires."),
            "update": ("schedule:update", "Change a schedule."),
            "delete": ("schedule:delete", "Delete a schedule; its history is kept."),
            "preview": ("schedule:preview", "Show the next fires of a schedule."),
            "backfill": ("run:backfill", "Run past fires of a schedule."),
            "explain": ("run:explain", "Explain why something ran or did not run."),
            "revisions": ("timeline:list_revisions", "List the revisions of a schedule, with what changed."),
            "trends": ("timeline:trends", "Show the outcomes, durations and cost of a schedule by day."),
            "occurrences": ("run:list_occurrences", "List the occurrences of a schedule, with reasons."),
            "runs": ("run:list_runs", "List the runs of a schedule, with results."),
            "proposals": (
                "proposal:list_proposals",
                "List pending proposals, or show one with a diff.",
            ),
            "approve": ("proposal:approve", "Approve a proposal."),
            "deny": ("proposal:deny", "Deny a proposal."),
            "ping-url": ("schedule:ping_url", "Print the URL that the job of a schedule calls, or replace it."),
        },
    ),
    "import": (
        "Import schedules from other schedulers.",
        {"crontab": ("crontab:import_crontab", "Print the schedules of a crontab as a file, or apply them.")},
    ),
    "run": (
        "Control single runs.",
        {
            "cancel": ("run:cancel", "Cancel a pending occurrence, or ask its run to stop."),
            "output": ("run:output", "Print the output of a run."),
            "redrive": ("run:redrive", "Run failed occurrences again."),
        },
    ),
    "backfill": (
        "List, pause, resume and cancel backfills.",
        {
            "list": ("backfill:list_backfills", "List the backfills of a schedule."),
            "show": ("backfill:show", "Show a backfill and its progress."),
            "pause": ("backfill:pause", "Pause a backfill."),
            "resume": ("backfill:resume", "Resume a paused backfill."),
            "cancel": ("backfill:cancel", "Cancel a backfill."),
        },
    ),
    "trigger": (
        "Create, list and test schedules that events trigger.",
        {
            "create": ("event:create", "Create a schedule that an event triggers."),
            "list": ("event:list_triggers", "List the schedules that events trigger."),
            "delete": ("event:delete", "Delete a schedule that events trigger; its history is kept."),
            "test": ("event:match_trigger", "Show which recent events would trigger a schedule, and why not."),
        },
    ),
    "event": (
        "Emit, list and match events.",
        {
            "emit": ("event:emit", "Emit an event."),
            "list": ("event:list_events", "List emitted events."),
            "match": ("event:match", "Show which recent events match filters, and why others do not."),
        },
    ),
    "workflow": (
        "Create workflows, and run, watch and cancel them.",
        {
            "create": ("workflow:create", "Create a version of a workflow from a file."),
            "list": ("workflow:list_workflows", "List workflows."),
            "show": ("workflow:show", "Show a workflow and the graph of its steps."),
            "versions": ("workflow:versions", "List the versions of a workflow."),
            "run": ("workflow:run", "Run a workflow now."),
            "runs": ("workflow:list_runs", "List workflow runs."),
            "status": ("workflow:status", "Show a workflow run and its steps, or watch it."),
            "cancel": ("workflow:cancel", "Cancel a workflow run."),
            "delete": ("workflow:delete", "Delete a workflow that no schedule names."),
        },
    ),
    "session": (
        "Create sessions with agents, talk in them and read them.",
        {
            "create": ("session:create", "Create a session."),
            "list": ("session:list_sessions", "List sessions."),
            "show": ("session:show", "Show a session and what it has used."),
            "messages": ("session:messages", "Print the messages of a session, or follow it."),
            "send": ("session:send", "Send a message to a session."),
            "archive": ("session:archive", "Archive a session; its transcript is kept."),
            "delete": ("session:delete", "Delete a session with its messages."),
        },
    ),
    "mob": (
        "Create and show mobs: named groups of agents.",
        {
            "create": ("mob:create", "Create a mob from a file."),
            "list": ("mob:list_mobs", "List mobs."),
            "show": ("mob:show", "Show a mob: its members and its flows."),
            "delete": ("mob:delete", "Delete a mob that no schedule names."),
        },
    ),
    "approval": (
        "Decide about pending approvals.",
        {
            "list": ("approval:list_approvals", "List approvals."),
            "approve": ("approval:approve", "Approve; the step or the occurrence continues."),
            "deny": ("approval:deny", "Deny; the step fails, or the occurrence is skipped."),
        },
    ),
    "budget": (
        "Manage budgets for model calls.",
        {
            "set": ("budget:set_budget", "Set a budget, or top it up."),
            "list": ("budget:list_budgets", "List budgets and their spend."),
            "delete": ("budget:delete_budget", "Delete a budget."),
        },
    ),
    "usage": (
        "Show the usage of models and its cost.",
        {
            "report": ("usage:report", "Report usage; noonmark usage does the same."),
            "forecast": ("usage:forecast", "Forecast what schedules will cost this month."),
        },
    ),
    "upload": (
        "Upload files; each upload emits an event.",
        {
            "add": ("upload:add", "Upload a file; noonmark upload FILE does the same."),
            "list": ("upload:list_uploads", "List uploads."),
            "get": ("upload:get", "Download an upload."),
            "delete": ("upload:delete", "Delete an upload and free its space."),
        },
    ),
    "bundle": (
        "Push and run bundles of files.",
        {
            "push": ("bundle:push", "Push a bundle, and declare its schedules."),
            "list": ("bundle:list_bundles", "List bundles."),
            "show": ("bundle:show", "Show a bundle: its manifest, its archives and its schedules."),
            "run": ("bundle:run", "Run a bundle now, and exit with its exit code."),
            "delete": ("bundle:delete", "Delete a bundle."),
        },
    ),
    "worker": (
        "Control the worker of a server.",
        {
            "start": ("cluster:start_worker", "Start the worker."),
            "stop": ("cluster:stop_worker", "Stop the worker; other nodes continue."),
            "confirm-time": ("cluster:confirm_time", "Confirm the store's time."),
            "status": ("cluster:worker_status", "Show whether the worker is running."),
        },
    ),
    "secret": (
        "Manage secrets for request headers and programs.",
        {
            "set": ("secret:set_secret", "Store a secret for requests to given hosts."),
            "list": ("secret:list_secrets", "List secrets, without their values."),
            "delete": ("secret:delete_secret", "Delete a secret."),
            "key": ("secret:generate_key", "Generate a key that encrypts secrets."),
            "signing-key": ("secret:signing_key", "Print the key that signs requests."),
        },
    ),
    "key": (
        "Manage API keys.",
        {
            "create": ("key:create_key", "Create an API key, and print it once."),
            "list": ("key:list_keys", "List API keys, without the keys themselves."),
            "revoke": ("key:revoke_key", "Revoke an API key on every node."),
            "rotate": ("key:rotate_key", "Replace an API key by a new one."),
        },
    ),
    "mcp": (
        "Serve tools for schedules to agents, over MCP.",
        {
            "serve": ("mcp:serve", "Serve the tools over stdin and stdout; noonmark mcp does the same."),
            "config": ("mcp:config", "Print the configuration for MCP clients."),
        },
    ),
    "skill": (
        "Install the skill for agents that schedule work.",
        {"install": ("mcp:install_skill", "Write the skill schedule-workflow into a folder of skills.")},
    ),
    "store": (
        "Move a store to another database.",
        {"copy": ("store_copy:copy", "Copy a store to an empty one, and verify the copy.")},
    ),
    "engine": (
        "Compare the store with the engine.",
        {"check": ("engine:check", "List what only the store or only the engine has.")},
    ),
    "node": ("Show the nodes of a cluster.", {"list": ("cluster:list_nodes", "List nodes.")}),
    "audit": ("Show the audit log.", {"list": ("cluster:list_audit", "List changes and who made them.")}),
}
"""The commands of each group: where each is, and what it does."""

PROGRAM_COMMANDS = {
    ("schedule", "create"): "[BUNDLE]",
    ("schedule", "delay"): "[BUNDLE]",
    ("schedule", "update"): "SCHEDULE-ID",
    ("trigger", "create"): "[BUNDLE]",
}
"""The commands that may end in `--` and a program with its arguments, and the arguments before that."""
_NEGATIVE_DURATION = re.compile(r"-[\d.]+(ms|s|m|h|d)", re.ASCII)
_SECRET_WORD = re.compile(r"--[a-z-]+|set|list|delete|key|signing-key")


def _make_app() -> CommandGroup:
    load: dict[str, tuple[str, Callable[[], click.Command]]] = {
        name: (summary, partial(load_command, name)) for name, (_, summary, _) in COMMANDS.items()
    }
    for name, (summary, _) in GROUPS.items():
        load[name] = (summary, partial(_make_group, name))
    root = CommandGroup("noonmark", "Durable schedules that say what they will do, do it, and can tell you why.", load)
    root.params.append(
        click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
    )
    return root


@cache
def _make_group(name: str) -> CommandGroup:
    summary, commands = GROUPS[name]
    return CommandGroup(
        name,
        summary,
        {each: (about, partial(load_command, name, each)) for each, (_, about) in commands.items()},
    )


@cache
def _load(name: str, location: str, usage: str | None) -> FunctionCommand:
    """Import a command."""
    module, _, function = location.partition(":")
    return FunctionCommand(name, getattr(import_module(f"noonmark.cli.commands.{module}"), function), usage, _complete)


def _complete(kind: str, given: dict[str, Any], incomplete: str) -> list[str]:
    from noonmark.cli.commands.completion import complete

    return complete(kind, given, incomplete)


def load_command(*path: str) -> FunctionCommand:
    """The command of these words."""
    if len(path) == 1:
        location, _, usage = COMMANDS[path[0]]
        return _load(path[0], location, f"Usage: noonmark {path[0]} {usage}")
    group, name = path
    return _load(name, GROUPS[group][1][name][0], _program_usage(group, name))


def _print_version(ctx: click.Context, _: click.Parameter, value: object) -> None:
    if value:
        click.echo(noonmark.__version__)
        ctx.exit()


def _program_usage(group: str, name: str) -> str | None:
    """The usage of a command that may start programs; None for the usual one."""
    before = PROGRAM_COMMANDS.get((group, name))
    return before and f"Usage: noonmark {group} {name} [OPTIONS] {before} [-- PROGRAM ARGUMENT...]"


app = _make_app()


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors go to stderr, one line each, or as one JSON object."""
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from noonmark.cli.commands.completion import print_completions

        return print_completions(app, instruction)
    words, rest = _split_at_dashes(_expand_group(_options_last(arguments)))
    as_json = "--json" in words
    try:
        parsed = [*_join_negative_durations(words), *_program_arguments(words, rest)]
        with app.make_context("noonmark", parsed) as context:
            code: int = app.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except ExtraArguments as error:
        return _fail(InvalidRequest(error.message), as_json=as_json)
    except click.UsageError as error:
        return _fail(InvalidRequest(f"{_usage_error(error, words)} See {_help_of(error)}."), as_json=as_json)
    except NoonmarkError as error:
        return _fail(error, as_json=as_json)
    return code


def _help_of(error: click.UsageError) -> str:
    """The command that says what is right."""
    return f"{'noonmark' if error.ctx is None else error.ctx.command_path} --help"


def _usage_error(error: click.UsageError, words: list[str]) -> str:
    """What is wrong with the arguments; `noonmark secret` repeats only options, which are never secret."""
    text = _usage_text(error)
    if words[:1] == ["secret"] and any(word in text for word in words[1:] if not _SECRET_WORD.fullmatch(word)):
        return "Unknown command or option of noonmark secret."
    return text


def _options_last(arguments: Sequence[str]) -> list[str]:
    """Move `--server URL`, `--store URL` and `--json` from before the command to its end, before any `--`."""
    words, leading = list(arguments), list[str]()
    while words and words[0].partition("=")[0] in ("--server", "--store", "--json"):
        takes_value = "=" not in words[0] and words[0] != "--json"
        leading += [words.pop(0) for _ in range(min(len(words), 1 + takes_value))]
    before, rest = _split_at_dashes(words)
    return [*before, *leading, *rest]


def _usage_text(error: click.UsageError) -> str:
    match error:
        case click.NoSuchOption():
            return f"Unknown option: {error.option_name}.{suggestion(error.option_name, error.possibilities or ())}"
        case click.MissingParameter(param=click.Parameter() as parameter):
            name = parameter.metavar if isinstance(parameter, click.Argument) else parameter.opts[0]
            return f"{name} is required."
        case click.BadParameter(param=click.Parameter() as parameter):
            return f"Invalid value for {parameter.opts[0]}: {error.message}"
    return error.format_message()


def _expand_group(arguments: Sequence[str]) -> list[str]:
    """Expand `upload FILE` to `upload add FILE`, `usage` to `usage report`, and `mcp` to `mcp serve`."""
    words = list(arguments)
    group, following = (words[0], words[1:2]) if words else ("", [])
    if following and following[0] in (*GROUPS.get(group, ("", {}))[1], "--help", "-h"):
        return words
    if group == "upload" and following:
        words.insert(1, "add")
    if group == "usage" and (not following or following[0].startswith("-")):
        words.insert(1, "report")
    if group == "mcp" and (not following or following[0].startswith("-")):
        words.insert(1, "serve")
    return words


def _join_negative_durations(words: list[str]) -> list[str]:
    """Join `--every -5m` to `--every=-5m`, so that the option gets the value and says what it accepts."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _NEGATIVE_DURATION.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _split_at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before `--`, and the rest."""
    position = words.index("--") if "--" in words else len(words)
    return words[:position], words[position:]


def _program_arguments(words: list[str], rest: list[str]) -> list[str]:
    """The arguments from `--` on, as `--command` options for commands that start programs."""
    if not rest or tuple(words[:2]) not in PROGRAM_COMMANDS:
        return rest
    if any(word.partition("=")[0] == "--command" for word in words):
        raise InvalidRequest("conflicts with a program after --: give one of them", field="--command")
    return [f"--command={word}" for word in rest[1:]]


def _fail(error: NoonmarkError, *, as_json: bool) -> int:
    row = STATUS[error.code]
    # Of an error of the server, its log says more.
    request_id = {"request_id": error.request_id} if error.request_id and row.http >= SERVER_ERROR else {}
    if as_json:
        print_error_json({"title": row.title, "status": row.http, **error_document(error), **request_id})
    else:
        print_errors(error.problems if isinstance(error, InvalidSchedule) else [error])
        print_errors(f"the request_id is {name}" for name in request_id.values())
    return row.exit
