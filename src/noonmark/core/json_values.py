"""Single values of a document: which are allowed, and how an error message shows one that is not.

The conversions take whatever JSON (or Python) puts in, and answer with the value or with a ValueError whose sentence
says what is allowed; a `Reader` puts the field before it.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_JSON_BYTES = 262_144
MAX_JSON_DEPTH = 64
MAX_ECHO = 60
"""How much of a bad value an error message repeats."""

IDENTIFIER = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_EVENT_TYPE = re.compile(r"[A-Za-z0-9._:-]{1,160}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def too_large(high: int) -> str:
    """The problem of a value that has more bytes."""
    return f"is larger than {high // 1024:,} KiB as JSON"


TOO_LARGE = too_large(MAX_JSON_BYTES)

_IN_PYTHON = {
    "must be an object": "must be a mapping",
    "must be an array": "must be a list",
    "must be true or false": "must be True or False",
}
"""Words of JSON, and those of Python."""


def shown(value: object) -> str:
    """A value as an error message shows it: quoted, on one line, cut short."""
    if isinstance(value, str):
        text = json.dumps(value[: MAX_ECHO + 1])
        return text if len(value) <= MAX_ECHO else f"{text[:MAX_ECHO]}…"
    if value is None or isinstance(value, bool | int | float):
        try:
            text = json.dumps(value)
        except ValueError:  # more digits than Python will print
            return "a huge number"
        return text if len(text) <= MAX_ECHO else f"{text[:MAX_ECHO]}…"
    return f"a {type(value).__name__}"


def in_python(message: str) -> str:
    """The message of a reader of documents, for a program that gave Python values."""
    for words, spoken in _IN_PYTHON.items():
        message = message.replace(words, spoken)
    return f"{message.removesuffix(' null')} None" if message.endswith(" not null") else message


def printable(text: str) -> str:
    """The text with everything escaped that could move a reader's cursor or reorder the line."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def text_problem(text: str, *, multiline: bool = False) -> str | None:
    """Why this text cannot be stored or shown, if it cannot."""
    if _SURROGATE.search(text):
        return "contains a lone surrogate, which is not Unicode text"
    if "\x00" in text:
        return "contains a NUL character"
    if not multiline and _CONTROL.search(text):
        return "contains a control character"
    return None


def key_path(key: object) -> str:
    """A key of an object as a path shows it: as it is, unless it is long or unprintable."""
    return key[:MAX_ECHO] if isinstance(key, str) and text_problem(key) is None else shown(key)


def json_problem(value: object, *, high: int = MAX_JSON_BYTES) -> str | None:
    """Why this value is not JSON that every store and client can hold, if it is not. Never recurses.

    `high` is the most bytes that it may have.
    """
    pending: list[tuple[object, int]] = [(value, 1)]
    # Counted on the way: lists that share their members are short, yet can be worth billions of bytes.
    least_bytes = 1
    problem: str | None = None
    while pending:
        item, depth = pending.pop()
        least_bytes += _least_bytes(item)
        if least_bytes > high:
            return too_large(high)
        if depth > MAX_JSON_DEPTH:
            problem = f"is nested more than {MAX_JSON_DEPTH} levels deep"
        elif isinstance(item, dict):
            pending.extend((key, depth) if isinstance(key, str) else (object(), depth) for key in item)
            pending.extend((member, depth + 1) for member in item.values())
        elif isinstance(item, list | tuple):
            pending.extend((member, depth + 1) for member in item)
        else:
            problem = problem or _scalar_problem(item)
    if problem is None and least_bytes * _MOST_BYTES > high and len(_written(value).encode()) > high:
        return too_large(high)
    return problem


_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_MOST_BYTES = 32
"""No value has more bytes for each that is counted: a character has up to 6, a number up to 24 and its comma."""


def _least_bytes(item: object) -> int:
    """What a value adds to its first byte, when each value inside it has a byte too: marks and characters."""
    if isinstance(item, dict):
        return 4 * len(item)
    if isinstance(item, list | tuple):
        return 2 * len(item)
    return len(item) + 1 if isinstance(item, str) else 0


def json_copy(value: Any) -> Any:
    """The same JSON as a value of our own: later changes to the caller's do not reach it; tuples become arrays."""
    if isinstance(value, dict):
        return {key: json_copy(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [json_copy(member) for member in value]
    return value


def _scalar_problem(value: object) -> str | None:
    if isinstance(value, str):
        return text_problem(value, multiline=True)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**64 else "contains an integer beyond 64 bits"
    if isinstance(value, float):
        return None if isfinite(value) else "contains NaN or infinity, which are not JSON"
    kind = type(value)
    what = "" if kind is object else f": it holds a {kind.__name__}"
    return f"is not JSON{what} (allowed: objects with text keys, arrays, text, numbers, true, false, null)"


def text_of(low: int, high: int, *, multiline: bool = False) -> Callable[[object], str]:
    """The conversion for text of a bounded length without control characters."""
    return lambda value: text_value(value, low, high, multiline=multiline)


def identifier(value: object) -> str:
    """An id that a caller may choose: safe in a URL and in a log line."""
    if isinstance(value, str) and IDENTIFIER.fullmatch(value):
        return value
    raise ValueError(f"must be 1 to 128 letters, digits, -, _, . or :, not {shown(value)}")


def event_type(value: object) -> str:
    """The name of a kind of event."""
    if isinstance(value, str) and _EVENT_TYPE.fullmatch(value):
        return value
    raise ValueError(f"must be 1 to 160 letters, digits, -, _, . or :, not {shown(value)}")


def text_value(value: object, low: int, high: int, *, multiline: bool) -> str:
    """Text of a bounded length; control characters only where it may have several lines, and NUL never."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    if not low <= len(value) <= high:
        raise ValueError(f"must have {low:,} to {high:,} characters, not {len(value):,}")
    if (problem := text_problem(value, multiline=multiline)) is not None:
        raise ValueError(problem)
    return value


def storable(text: str) -> str:
    """Text from user code without what a database cannot store: NUL and lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def boolean_value(value: object) -> bool:
    """A JSON boolean."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"must be true or false, not {shown(value)}")


def number_value(value: object, low: float, high: float, *, whole: bool = False) -> int | float:
    """A finite number in a range."""
    kind = "an integer" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be {kind}, not {shown(value)}")
    if not low <= value <= high or (whole and value != int(value)):
        raise ValueError(f"must be {kind} from {low:,} to {high:,}, not {shown(value)}")
    return value
