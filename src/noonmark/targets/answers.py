"""Answers: what a function returned or raised, as text, and an error as another process can make it again."""

from __future__ import annotations

import builtins
import json
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import printable

if TYPE_CHECKING:
    from types import TracebackType

MAX_RESULT = 65_536
"""Bytes of JSON that are kept of a result, and characters of a traceback."""
MAX_BRIEF = 300


def brief(error: BaseException) -> str:
    """What an error says, on one short line."""
    return printable(str(error))[:MAX_BRIEF] or type(error).__name__


def shown_error(error: BaseException) -> str:
    """The end of a traceback, as text that every store can hold."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _from_outside(error)))[-MAX_RESULT:]
    except Exception:  # noqa: BLE001 - an error that cannot even be shown is still an error
        text = f"{type(error).__name__}, which cannot be shown"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _from_outside(error: BaseException) -> TracebackType | None:
    """Its traceback without our own frame, where the function was called: what went wrong is theirs."""
    trace = error.__traceback__
    return trace if trace is None or trace.tb_next is None else trace.tb_next


def as_json(result: object) -> tuple[str, str | None]:
    """A result as JSON, or a note that says why it is not kept."""
    try:
        return json.dumps(result, allow_nan=False), None
    except Exception as error:  # noqa: BLE001 - it may be made of anything
        return "null", f"the result was not kept: it is not JSON ({printable(str(error))})"


def told_error(error: BaseException) -> dict[str, Any]:
    """An error as JSON, with its arguments where the parent can make the same one of them again."""
    kind = type(error)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be shown is still an error
        text = ""
    args = _arguments(error) if kind.__module__ == "builtins" else None
    return {"type": kind.__qualname__, "text": text, "trace": shown_error(error), "args": args}


def same_error(told: dict[str, Any]) -> BaseException:
    """What a function raised in a child: the same, if it is built in and made of JSON; else an error that tells it."""
    kind = getattr(builtins, told["type"], None) if told["args"] is not None else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        with suppress(Exception):  # not every error takes the arguments that it shows
            error = kind(*told["args"])
            error.add_note(f"in a process of its own:\n{told['trace']}")
            return error
    return RuntimeError(f"{told['type']}: {told['text']}\n\nin a process of its own:\n{told['trace']}")


def _arguments(error: BaseException) -> list[Any] | None:
    """What an error was made of, if it comes out of JSON as it went in."""
    args = list(error.args)
    if isinstance(error, OSError) and len(args) == 2 and error.filename is not None:
        args.append(error.filename)
    text, note = as_json(args)
    return args if note is None and json.loads(text) == args else None
