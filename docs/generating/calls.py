"""The compatibility page: its handwritten part, and the calls of other services that tests execute."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parents[1] / "reference"
COMPATIBILITY = "../compatibility.md"
TESTS = Path(__file__).parents[2] / "tests"
DOCUMENTED = TESTS / "server" / "documented"
CALLS = "<!-- From here on written by docs/generate.py: change the tables of the tests and run `make docs`. -->\n"


def compatibility_page() -> str:
    """The handwritten part, with every documented call of other services that a test executes."""
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
    """The commands of another command line."""
    table = runpy.run_path(str(TESTS / "cli" / "documented.py"))["COMMANDS"]
    lines = [" ".join(shlex.join(one.command).split()) for one in table]
    shown = [re.sub(r"'({\w+})'", r"\1", line) for line in lines]
    rows = [f"| {one.does} | `noonmark {line}` |" for one, line in zip(table, shown, strict=True)]
    words = (
        "Where theirs names a bundle, name a [bundle](guides/bundles.md) or any other target. `{id}` is the id of a\n"
        "schedule, and `{trigger}` that of one with an event trigger. Expressions are in the zone that `--timezone`\n"
        "names, or in that of the machine.\n"
    )
    return "\n".join(["### The job runtime's commands", "", words, "| what | command |", "| --- | --- |", *rows, ""])


def _asked(call: dict[str, Any]) -> str:
    """The request of a call; an operation with two interfaces has both."""
    http = call.get("rest", call)
    return ", ".join(f"`{one}`" for one in (call.get("method"), f"{http['verb']} {http['path']}") if one)


def _answered(call: dict[str, Any]) -> str:
    """The status codes of the answer, with the note if there is one."""
    error, told = call.get("error"), call.get("answer", {})
    if error is not None:
        answer = f"{error['rpc']}, {error['rest']} `{error['code']}`"
    else:
        code = told.get("code") if isinstance(told, dict) else None
        answer = str(call.get("rest", call)["status"]) + (f" `{code}`" if code else "")
    return f"{answer}: {call['note']}" if "note" in call else answer
