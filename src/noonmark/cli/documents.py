"""Reading JSON strictly: what could be understood in two ways is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from noonmark.core.errors import InvalidSchedule, NoonmarkError, NotFound
from noonmark.core.json_values import shown

MAX_BYTES = 1_048_576
"""No service takes a larger document."""


def read_document(name: str) -> Any:  # noqa: ANN401 - any JSON; the core's parsers judge it
    """The JSON in a file, or on stdin for `-`."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("there is no such file", field=name) from None
    except OSError as error:
        raise NoonmarkError(f"cannot be read: {error.strerror}", field=name) from None
    if len(raw) > MAX_BYTES:
        raise InvalidSchedule("is larger than 1 MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSchedule(f"is not UTF-8 text: byte {error.start + 1} is 0x{raw[error.start]:02x}") from None
    return parse_json(text)


def parse_json(text: str, *, field: str = "") -> Any:  # noqa: ANN401 - as above
    """The value of a JSON text; InvalidSchedule, naming the field, for anything that is not JSON."""
    try:
        return json.loads(
            text, object_pairs_hook=_without_repeats, parse_int=_bounded_integer, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidSchedule(f"is not JSON: {error.msg} ({place})", field=field) from None
    except ValueError as error:
        raise InvalidSchedule(str(error), field=field) from None
    except RecursionError:
        raise InvalidSchedule("is nested too deeply", field=field) from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"gives the key {shown(name)} twice in one object")
        fields[name] = value
    return fields


def _bounded_integer(digits: str) -> int:
    """Nothing with more digits fits into 64 bits, and Python takes long over millions of them."""
    if len(digits) > 20:
        raise ValueError("contains an integer beyond 64 bits")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is no number there")
