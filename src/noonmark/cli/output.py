"""What commands print without ornament: JSON on stdout, complaints on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_LINE = 1_000


def print_json(document: Mapping[str, object]) -> None:
    """One object on one line, and nothing else; in ASCII, so that every terminal and pipe can carry it."""
    sys.stdout.write(json.dumps(document) + "\n")


def complain(messages: Iterable[object]) -> None:
    """One line for each thing that went wrong; it may repeat an argument, which can be of any length."""
    for message in messages:
        line = printable(" ".join(str(message).split()))
        sys.stderr.write(f"noonmark: {line if len(line) <= MAX_LINE else f'{line[:MAX_LINE]}…'}\n")


def complain_in_json(problem: Mapping[str, object]) -> None:
    """What went wrong, as one object on stderr."""
    sys.stderr.write(json.dumps(problem) + "\n")


def called(schedule: Mapping[str, object]) -> str:
    """A schedule for people: its name, if it has one, and its id."""
    name, schedule_id = schedule["name"], schedule["schedule_id"]
    return f"{name} ({schedule_id})" if name else str(schedule_id)


def one_line(text: object) -> str:
    """Text of any length and shape for one cell of a table."""
    return printable(" ".join(str(text).split()))


def printable(text: str) -> str:
    """Text for a terminal: no control characters, which a document from elsewhere may hold."""
    return "".join(each if each.isprintable() else "?" for each in text)
