"""Writes the reference pages that repeat what the code says: errors, reasons, life cycles, API. Run by `make docs`."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import shlex
import textwrap
from dataclasses import is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import noonmark
from noonmark import (
    AsyncScheduler,
    Job,
    JobPipeline,
    JobStatus,
    NodeRecord,
    Occurrence,
    PipelineError,
    Progress,
    Run,
    Scheduler,
    client,
)
from noonmark.cli.app import GROUPS, STARTING, app
from noonmark.client import AsyncClient, Client
from noonmark.client.requests import Fields, Filters, NewFields
from noonmark.config import SETTINGS
from noonmark.core import errors
from noonmark.core.lifecycle import (
    ENDINGS,
    FINAL,
    SCHEDULE_TRANSITIONS,
    TRANSITIONS,
    Phase,
    diagram,
)
from noonmark.core.reasons import Reason
from noonmark.embedded.decorators import Decorators
from noonmark.operations import declaring
from noonmark.operations.errors import STATUS
from noonmark.operations.registry import OPERATIONS
from noonmark.operations.service import LOCAL, Service
from noonmark.stores.memory import MemoryStore
from noonmark.surfaces.jsonrpc.dispatch import MAX_CALLS, answer
from noonmark.surfaces.rest.described import described
from noonmark.surfaces.rest.openapi import REFUSALS
from noonmark.targets.functions import Context
from noonmark.testing import FakeClock, ManualDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cyclopts import App
    from cyclopts.argument import Argument

    from noonmark.surfaces.rest.described import Described

REFERENCE = Path(__file__).parent / "reference"
MAX_LINE = 100
NOTE = "<!-- Written by docs/generate.py; change the code and run `make docs`. -->\n\n"


def errors_page() -> str:
    """Every error with its code and what it means."""
    for name in noonmark.__all__:  # some errors are defined where they are raised
        getattr(noonmark, name)
    # A surface may have kinds of its own, which nobody outside it meets.
    kinds = [one for one in (errors.NoonmarkError, *_below(errors.NoonmarkError)) if one.__name__ in noonmark.__all__]
    rows = [f"| `{kind.__name__}` | `{kind.code}` | {_parents(kind)} | {_first_line(kind)} |" for kind in kinds[1:]]
    return (
        f"{NOTE}# Errors\n\n"
        "Every error is a `NoonmarkError` with a stable `code`, a `message` for people, and the `field` it speaks\n"
        "of, if there is one. `InvalidSchedule` and its kinds also list `problems`: all that is wrong.\n\n"
        "| class | code | also a | means |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def reasons_page() -> str:
    """Every reason code, and the final phases it may stand with."""
    rows = [f"| `{reason}` | {reason.sentence} | {_phases_with(reason)} |" for reason in Reason]
    return (
        f"{NOTE}# Reasons\n\n"
        "Every decision and every ended occurrence carries one of these codes, beside the numbers behind it.\n\n"
        "| code | meaning | ends an occurrence as |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def lifecycle_page() -> str:
    """Both life cycles, drawn from their tables."""
    rows = [
        f"| `{phase}` | {', '.join(f'`{reason}`' for reason in _in_order(phase))} |"
        for phase in Phase
        if phase in FINAL
    ]
    return (
        f"{NOTE}# Life cycles\n\n"
        "An **occurrence** is one planned delivery of a schedule.\n\n"
        f"```mermaid\n{diagram(TRANSITIONS)}```\n\n"
        "`superseded` is the only final phase that planning may reopen: an edit moved it, and another may move it\n"
        "back. All others are for good, each with a [reason](reasons.md):\n\n"
        "| phase | reasons |\n| --- | --- |\n" + "\n".join(rows) + "\n\n"
        "A **schedule** is completed when it has no further fire and nothing is live; an edit of its trigger, or more\n"
        "`max_runs`, reopens it. A deleted one is kept with its history.\n\n"
        f"```mermaid\n{diagram(SCHEDULE_TRANSITIONS)}```\n"
    )


def embedded_page() -> str:
    """The scheduler in a Python program: every class with its methods, from their signatures and docstrings."""
    decorators = [name for name in vars(Decorators) if not name.startswith("_")]
    methods = [name for name in vars(Scheduler) if _is_method(Scheduler, name)]
    parts = [
        _class(Scheduler, methods),
        f"## Decorators\n\n{inspect.getdoc(Decorators)}\n",
        *(_method(Decorators, name) for name in decorators),
        _class(AsyncScheduler, []),
        f"| awaited | not awaited |\n| --- | --- |\n| {_names(methods)} | {_names(decorators)} |\n",
        _class(JobPipeline, [name for name in vars(JobPipeline) if _is_method(JobPipeline, name)]),
        *(_values(kind) for kind in (Progress, PipelineError, Job, JobStatus, Occurrence, Run, NodeRecord, Context)),
        "## Testing\n\nImported from `noonmark.testing`.\n",
        *(
            _class(kind, [name for name in vars(kind) if _is_method(kind, name)], "###")
            for kind in (FakeClock, ManualDriver)
        ),
    ]
    return (
        f"{NOTE}# The scheduler in Python\n\n"
        "Every public method and attribute of the embedded scheduler, for looking up. To learn it, begin with the\n"
        "[tutorial](../tutorial.md); triggers have a [page of their own](triggers.md).\n\n" + "\n".join(parts)
    )


def client_page() -> str:
    """The client: every method from its signature and words, every value with its attributes."""
    methods = [name for name in vars(Client) if _is_method(Client, name)]
    values = [kind for kind in vars(client).values() if is_dataclass(kind)]
    parts = [
        _class(Client, methods),
        _class(AsyncClient, []),
        "## Arguments\n\n`fields`, `changes` and `filters` stand for these, by name.\n",
        *(_shape(kind) for kind in (Fields, NewFields, Filters)),
        "## Values\n\nA `Document` is JSON, as a dict.\n",
        *(_shape(kind) for kind in values),
    ]
    return (
        f"{NOTE}# The client in Python\n\n"
        "Every method of the clients in `noonmark.client`, and what they answer, for looking up. To learn it, begin\n"
        "with the [guide](../guides/client.md).\n\n" + "\n".join(parts)
    )


def _shape(kind: type) -> str:
    """A class that only holds something: what it is, and each attribute with its type."""
    [tree] = ast.parse(inspect.getsource(kind)).body
    lines = [ast.unparse(one) for one in tree.body if isinstance(one, ast.AnnAssign)]
    more = [f"# all of {base.id}" for base in tree.bases if getattr(base, "id", "") == Fields.__name__]
    return f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n```py\n" + "\n".join([*more, *lines]) + "\n```\n"


def jsonrpc_page() -> str:
    """Every method with its params, every error code, and calls as a service answers them."""
    fields = _names(declaring.FIELDS)
    methods = [
        f"| `{one.name}` | {_names(one.parameters).replace(fields, '*fields*')} | {one.summary} |"
        for one in OPERATIONS.values()
    ]
    codes = [
        f"| {number} | {_names(code for code, row in STATUS.items() if row.jsonrpc == number)} |"
        for number in sorted({row.jsonrpc for row in STATUS.values()}, reverse=True)
    ]
    return (
        f"{NOTE}# JSON-RPC\n\n"
        "`POST /rpc` speaks [JSON-RPC 2.0](https://www.jsonrpc.org/specification): every operation is a method, and\n"
        "its params are an object, or an array in the order below.\n\n"
        + "".join(_conversation())
        + f"A batch has at most {MAX_CALLS} calls, which are carried out and answered in order. A call without an\n"
        "`id` is a notification: it is carried out, and nobody is told what came of it. Where nothing else came, the\n"
        "answer is 204, without a body.\n\n"
        "## Methods\n\n"
        "| method | params, in order | |\n| --- | --- | --- |\n" + "\n".join(methods) + "\n\n"
        f"*fields* are those of a [schedule document](schedules.md): {fields}.\n\n"
        "## Errors\n\n"
        "`error.data` has the stable `code` of the [error](errors.md), a `detail` for people, the `field` it speaks\n"
        "of, if there is one, the `problems`, if there are several, and the `request_id` under which the server logs\n"
        "it. A body that is not strict JSON is -32700, and a call that is none -32600, with `invalid_request`.\n\n"
        "| code | errors |\n| --- | --- |\n" + "\n".join(codes) + "\n"
    )


def rest_page() -> str:
    """Every route with what it takes and answers, and what is the same for all of them."""
    tags = list(dict.fromkeys(one.tag for one in described()))
    tables = [
        f"### {tag[0].upper()}{tag[1:]}\n\n| route | takes | answers | |\n| --- | --- | --- | --- |\n"
        + "".join(_route(one) for one in described() if one.tag == tag)
        for tag in tags
    ]
    statuses = [
        f"| {status} | {words} | {_names(code for code, row in STATUS.items() if row.http == status)} |"
        for status, words in REFUSALS.items()
    ]
    return (
        f"{NOTE}# REST\n\n{inspect.cleandoc(REST)}\n\n## Routes\n\n" + "\n".join(tables) + "\n## Errors\n\n"
        "An error of any route is `application/problem+json`: `type`, `title`, `status`, the stable `code` of the\n"
        "[error](errors.md), a `detail` for people, the `field` it speaks of, if there is one, the `problems`, if\n"
        "there are several, and the `request_id` under which the server logs it.\n\n"
        "| status | when | codes of errors |\n| --- | --- | --- |\n" + "\n".join(statuses) + "\n"
    )


def _route(one: Described) -> str:
    takes = [f"`?{name}`" for name in one.query] + [f"`{body.__name__}`" for body in one.bodies]
    gives = "text" if one.answer is None else f"`{one.answer.__name__}`"
    return f"| `{one.method} {one.path}` | {', '.join(takes)} | {one.status} {gives} | {one.summary} |\n"


REST = """
    Every operation has a route. `GET /openapi.json` has all of this for programs, with the fields of every body and
    answer, and `/docs` shows it to people.

    - Bodies are JSON objects in UTF-8, of type `application/json`, not packed, and of 1 MiB at the most. A key that
      comes twice, a number beyond 64 bits, NaN, NUL, half a character, too many levels and fields that nobody knows
      are refused, as are parameters that a route does not have. A body that has not come after 20 seconds is given up.
    - A list is `{"schedules": [..], "next_cursor": ..}`, or the like. Ask again with `cursor` until that is null;
      `limit` is 100 unless given, and 1,000 at the most.
    - A schedule comes with an `ETag`: its revision, and when it was last changed. A change with `If-Match` is made
      only if that is still so, else it is 412. The revision alone, such as `"3"`, will do, too;
      with `expected_revision` in the body it is 409.
    - `POST /schedules` with an `Idempotency-Key` makes one schedule, however often it is sent within 24 hours; with
      another body it is 409. `run` and `backfill` take one, too.
    - `X-Request-Id` comes back as it was sent, if it is 1 to 128 letters, digits, `-`, `_`, `.` or `:`; otherwise the
      server makes one up. Its log lines carry it.
    - `Host` must be a loopback address or name, or one of the `allowed_hosts`, and `Origin`, if a browser sends it, the
      same. Everything else is 403, on every route.
"""


def _conversation() -> Iterable[str]:
    """A call and a batch, each with what a service answers."""
    clock = FakeClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    service = Service(store=MemoryStore(clock.micros), lookahead=0, fresh_id=lambda: "1")
    caller = replace(LOCAL, source="jsonrpc", request_id="req_1")
    trigger = {"type": "cron", "expression": "0 9 * * 1-5", "timezone": "Europe/Stockholm"}
    document = {"name": "report", "trigger": trigger, "target": {"target_kind": "function", "function": "report"}}
    for call in (
        {"jsonrpc": "2.0", "id": 1, "method": "schedule/preview", "params": {"trigger": trigger, "count": 2}},
        [
            {"jsonrpc": "2.0", "method": "schedule/create", "params": document},
            {"jsonrpc": "2.0", "id": 2, "method": "schedule/count"},
            {"jsonrpc": "2.0", "id": 3, "method": "schedule/get", "params": ["nowhere"]},
        ],
    ):
        given = answer(service, caller, json.dumps(call).encode()) or b"null"
        for text in (json.dumps(call, indent=2), json.dumps(json.loads(given), indent=2)):
            yield f"```jsonc\n{text}\n```\n\n"


def settings_page() -> str:
    """Every setting of a server, with its flag, its variables and its default."""
    rows = [
        f"| `{one.name}` | `{one.flag}` | {_names(one.variables)} | {_default(one.default)} | {one.meaning} |"
        for one in SETTINGS.values()
    ]
    return (
        f"{NOTE}# Settings of a server\n\n"
        "A flag wins over a variable, the first of several variables over the next, and these over the file:\n"
        "`noonmark.toml`, or the one that `--config` or `NOONMARK_CONFIG` names. A variable that is empty counts as\n"
        "not set. In the file, each setting is a key of the same name, and `functions` a table. Several functions are\n"
        "several `--function NAME=module:function`, or have commas between them in a variable; several hosts and\n"
        "commands likewise. `noonmark config` shows what is in force, see [the guide](../guides/service.md).\n\n"
        "| setting | flag | variables | default | meaning |\n| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


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
        f"| {number} | {meaning} | {_names(code for code, row in STATUS.items() if row.exit == number)} |"
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
        + "\n"
    )


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
        names = [one.name for one in taken if _group(one) == title]
        told += [f"[{title}](#{title.lower().replace(' ', '-')}): {_names(names)}.\n"] if names else []
    call = f"noonmark {' '.join(path)}{words} [OPTIONS]" + (" [-- PROGRAM ARGUMENT...]" if path in STARTING else "")
    parts = [f"## `noonmark {' '.join(path)}`\n", f"{inspect.getdoc(_app(path).default_command)}\n", f"    {call}\n"]
    return "\n".join([*parts, *([_options(own)] if own else []), *told])


def _group(argument: Argument) -> str:
    [group] = argument.parameter.group
    return str(group.name)


def _options(arguments: Iterable[Argument]) -> str:
    rows = [f"| {_names(one.names)} | {one.parameter.help} {_unless(one)}|" for one in arguments]
    return "| argument | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _unless(argument: Argument) -> str:
    """The default that `--help` shows too."""
    default = argument.field_info.default
    if argument.parameter.show_default is False or default in (argument.field_info.empty, None, "", (), False):
        return ""
    return f"`{default}` unless given. "


def compatibility_page() -> str:
    """The page as people wrote it, with every documented call of other services that a test carries out."""
    written, mark, _ = (REFERENCE / COMPATIBILITY).read_text("utf-8").partition(CALLS)
    tables = [json.loads(path.read_text("utf-8")) for path in sorted(DOCUMENTED.glob("*.json"))]
    return written + mark + "\n" + "\n".join([*(_calls(table) for table in tables), _commands()])


def _calls(table: dict[str, Any]) -> str:
    titles = [one["title"].replace("*", "\\*") for one in table["calls"]]
    rows = [
        f"| {title} | {_asked(one)} | {_answered(one)} |" for title, one in zip(titles, table["calls"], strict=True)
    ]
    heading = f"### {table['about'][0].upper()}{table['about'][1:]}"
    return "\n".join([heading, "", "| what | request | answer |", "| --- | --- | --- |", *rows, ""])


def _commands() -> str:
    """The commands that users of another command line know."""
    table = runpy.run_path(str(TESTS / "cli" / "documented.py"))["COMMANDS"]
    lines = [" ".join(shlex.join(one.command).split()) for one in table]
    shown = [re.sub(r"'({\w+})'", r"\1", line) for line in lines]
    rows = [f"| {one.does} | `noonmark {line}` |" for one, line in zip(table, shown, strict=True)]
    words = "Where theirs names a bundle, name a function: bundles are not run yet.\n"
    return "\n".join(["### The job runtime's commands", "", words, "| what | command |", "| --- | --- |", *rows, ""])


def _asked(call: dict[str, Any]) -> str:
    """The request of a call; what may be asked for in two ways has both."""
    http = call.get("rest", call)
    return ", ".join(f"`{one}`" for one in (call.get("method"), f"{http['verb']} {http['path']}") if one)


def _answered(call: dict[str, Any]) -> str:
    """How it is answered, by codes, with what is to be known."""
    error, told = call.get("error"), call.get("answer", {})
    if error is not None:
        answer = f"{error['rpc']}, {error['rest']} `{error['code']}`"
    else:
        code = told.get("code") if isinstance(told, dict) else None
        answer = str(call.get("rest", call)["status"]) + (f" `{code}`" if code else "")
    return f"{answer}: {call['note']}" if "note" in call else answer


COMPATIBILITY = "../compatibility.md"
TESTS = Path(__file__).parents[1] / "tests"
DOCUMENTED = TESTS / "surfaces" / "documented"
CALLS = "<!-- From here on written by docs/generate.py: change the tables of the tests and run `make docs`. -->\n"
PAGES = {
    "cli.md": cli_page,
    COMPATIBILITY: compatibility_page,
    "client.md": client_page,
    "jsonrpc.md": jsonrpc_page,
    "rest.md": rest_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "reasons.md": reasons_page,
    "lifecycles.md": lifecycle_page,
    "embedded.md": embedded_page,
}
PARTS = ("with_engine", "after_fork", "settle_here", "micros", "monotonic", "has_begun")
"""Names through which the parts of the library reach each other; not for users."""


def _is_method(kind: type, name: str) -> bool:
    return not name.startswith("_") and name not in PARTS and inspect.isfunction(vars(kind)[name])


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(value: object) -> str:
    """As it would be written in a file; nothing, where there is none."""
    if value in (None, (), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _class(kind: type, methods: list[str], heading: str = "##") -> str:
    made = _signature(kind.__name__, kind.__init__)
    parts = [f"{heading} {kind.__name__}\n", f"{inspect.getdoc(kind)}\n", f"```py\n{made}\n```\n"]
    parts.append(f"{inspect.getdoc(kind.__init__)}\n")
    return "\n".join([*parts, *(_method(kind, name, heading + "#") for name in methods)])


def _method(kind: type, name: str, heading: str = "###") -> str:
    method = getattr(kind, name)
    call = "await " * inspect.iscoroutinefunction(method) + _signature(name, method)
    return f"{heading} {name}\n\n```py\n{call}\n```\n\n{inspect.getdoc(method)}\n"


def _signature(name: str, call: Callable[..., object]) -> str:
    """The call as one writes it: without self, an argument to a line where it is long."""
    signature = inspect.signature(call)
    given: list[str] = []
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not any(before.startswith("*") for before in given):
            given.append("*")
        if one.name != "self":
            given.append(_argument(one))
    returns = "" if signature.return_annotation == "None" else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(given)}){returns}"
    if len(line) <= MAX_LINE:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in given) + f"){returns}"


def _argument(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    kind = "" if one.annotation.startswith("Unpack") else f": {one.annotation}"
    return f"{stars}{one.name}{kind}" + ("" if one.default is one.empty else f" = {one.default!r}")


def _values(kind: type) -> str:
    """A class that is read: its attributes, those that say what they are."""
    about, _, _ = (
        (inspect.getdoc(kind) or "").partition("\n\n") if is_dataclass(kind) else (inspect.getdoc(kind), "", "")
    )
    properties = {name: inspect.getdoc(value) for name, value in vars(kind).items() if isinstance(value, property)}
    told = {name: text for name, text in (_told(kind) | properties).items() if name not in PARTS}
    rows = [f"| `{name}` | {' '.join(text.split())} |" for name, text in told.items()]
    table = ["", f"| {'value' if issubclass(kind, Enum) else 'attribute'} | |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"## {kind.__name__}", "", about, *table, ""])


def _told(kind: type) -> dict[str, str]:
    """The attributes of a class that have a line of their own below them."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    told = {}
    for field, text in pairwise(tree.body):
        if isinstance(field, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Expr):
            [target] = field.targets if isinstance(field, ast.Assign) else [field.target]
            name = str(getattr(kind, target.id).value) if issubclass(kind, Enum) else target.id
            told[name] = inspect.cleandoc(text.value.value)
    return told


def _below(kind: type[errors.NoonmarkError]) -> list[type[errors.NoonmarkError]]:
    return [one for child in kind.__subclasses__() for one in (child, *_below(child))]


def _parents(kind: type[errors.NoonmarkError]) -> str:
    return ", ".join(f"`{parent.__name__}`" for parent in kind.__bases__)


def _first_line(kind: type[errors.NoonmarkError]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _phases_with(reason: Reason) -> str:
    return ", ".join(f"`{phase}`" for phase in Phase if reason in ENDINGS.get(phase, ()))


def _in_order(phase: Phase) -> list[Reason]:
    return [reason for reason in Reason if reason in ENDINGS[phase]]


if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), "utf-8")
        print(f"wrote docs/reference/{name}")
