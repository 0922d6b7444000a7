"""Plain output and exit codes: JSON and sentences on stdout, errors and progress on stderr."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Exit codes of errors are in the table of `noonmark.operations.errors`.
EXIT_FAILED = 1
EXIT_INVALID = 2
EXIT_INTERRUPTED = 130
"""What shells report for a program that Ctrl-C ended."""

MAX_LINE = 1_000


def print_json(document: Mapping[str, object]) -> None:
    """Print one object on one line, in ASCII so that every terminal and pipe can carry it."""
    sys.stdout.write(json.dumps(document) + "\n")


def print_line(text: str) -> None:
    """Print a sentence on one line."""
    sys.stdout.write(one_line(text) + "\n")


def print_text(text: str) -> None:
    """Print text as it is; on a terminal, without control characters but line ends and tabs."""
    if sys.stdout.isatty():
        text = "".join(char if char in "\n\t" else printable(char) for char in text)
    sys.stdout.write(text)
    sys.stdout.flush()


def print_warning(text: str) -> None:
    """Print a warning on one line."""
    sys.stderr.write(f"noonmark: warning: {shorten(one_line(text))}\n")


def print_answer(document: Mapping[str, object], sentence: str, *, as_json: bool) -> None:
    """Print the document for programs, or the sentence for people."""
    if as_json:
        print_json(document)
    else:
        print_line(sentence)


def proposed_sentence(document: Mapping[str, Any]) -> str | None:
    """What a request has become that waits for somebody's approval; None if it was carried out."""
    proposal = document.get("proposal")
    if proposal is None:
        return None
    decided = f"`noonmark schedule approve {proposal['schedule_id']}`, by {proposal['expires_at_utc'][:10]}"
    return f"Proposed to {proposal['action']} {display_name(document)}; a person decides: {decided}."


def print_errors(messages: Iterable[object]) -> None:
    """Print one line per error; a message may repeat an argument of any length, so long lines are cut."""
    for message in messages:
        sys.stderr.write(f"noonmark: {shorten(one_line(message))}\n")


def print_error_json(problem: Mapping[str, object]) -> None:
    """Print an error as one object on stderr."""
    sys.stderr.write(json.dumps(problem) + "\n")


def display_name(schedule: Mapping[str, object]) -> str:
    """The name of a schedule, if it has one, and its id."""
    name, schedule_id = schedule["name"], schedule["schedule_id"]
    return f"{name} ({schedule_id})" if name else str(schedule_id)


def shorten(text: str, limit: int = MAX_LINE) -> str:
    """Cut a text that is longer than the limit."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def last_line(text: str) -> str:
    """The last line of a text that says something: of a traceback, the exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shorten(printable(lines[-1])) if lines else ""


def one_line(text: object) -> str:
    """Any value as printable text on one line."""
    return printable(" ".join(str(text).split()))


def printable(text: str) -> str:
    """Replace control characters, which a document from elsewhere may contain."""
    return "".join(char if char.isprintable() else "?" for char in text)


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if stderr is a terminal and the total is known; yields the function that advances it."""
    if total is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from click import progressbar

    with progressbar(length=total, label=title, file=sys.stderr) as bar:
        yield bar.update
