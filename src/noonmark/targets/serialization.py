"""Serialization of results and errors: as text for the store, and as JSON between processes."""

from __future__ import annotations

import builtins
import json
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import exception_names
from noonmark.core.json_values import printable

if TYPE_CHECKING:
    from types import TracebackType

MAX_RESULT = 65_536
"""Limit for a stored result, in bytes of JSON, and for a traceback, in characters."""
MAX_SUMMARY = 300


def error_summary(error: BaseException) -> str:
    """Return the message of an error as one short line."""
    return printable(str(error))[:MAX_SUMMARY] or type(error).__name__


def traceback_text(error: BaseException) -> str:
    """Return the end of a traceback, as text that every store accepts."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _user_frames(error)))[-MAX_RESULT:]
    except Exception:  # noqa: BLE001 - an error that cannot be formatted is still an error
        text = f"{type(error).__name__}, which cannot be shown"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _user_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without our own frame, the one that called the function."""
    trace = error.__traceback__
    return trace if trace is None or trace.tb_next is None else trace.tb_next


def result_to_json(result: object) -> tuple[str, str | None]:
    """Return a result as JSON, or `null` and a note that says why it cannot be stored."""
    try:
        return json.dumps(result, allow_nan=False), None
    except Exception as error:  # noqa: BLE001 - its type may be anything
        return "null", f"the result was not stored: it is not JSON ({printable(str(error))})"


def error_to_document(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON, with its arguments where `error_from_document` can recreate it from them."""
    kind = type(error)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be formatted is still an error
        text = ""
    args = _json_arguments(error) if kind.__module__ == "builtins" else None
    return {
        "type": kind.__qualname__,
        "raised": exception_names(kind),
        "text": text,
        "trace": traceback_text(error),
        "args": args,
    }


def error_from_document(document: dict[str, Any]) -> BaseException:
    """Recreate an error raised in a worker process if it is built in and has JSON arguments; else a RuntimeError."""
    kind = getattr(builtins, document["type"], None) if document["args"] is not None else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        with suppress(Exception):  # some errors do not accept the arguments that they show
            error = kind(*document["args"])
            error.add_note(f"in a worker process:\n{document['trace']}")
            return error
    return RuntimeError(f"{document['type']}: {document['text']}\n\nin a worker process:\n{document['trace']}")


def _json_arguments(error: BaseException) -> list[Any] | None:
    """Return the arguments of an error if they survive a JSON round trip."""
    args = list(error.args)
    if isinstance(error, OSError) and len(args) == 2 and error.filename is not None:
        args.append(error.filename)
    text, note = result_to_json(args)
    return args if note is None and json.loads(text) == args else None
