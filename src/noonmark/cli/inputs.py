"""Values that users type: JSON, instants, and durations such as `30m`, `1.5h`, `250ms` or bare seconds.

JSON is read strictly: repeated keys, NaN and integers beyond 64 bits are refused.
"""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from noonmark.core.errors import InvalidRequest, InvalidSchedule, NoonmarkError, NotFound
from noonmark.core.instants import MAX_INSTANT, MIN_INSTANT, SECOND, parse_instant, to_text
from noonmark.core.json_values import shown

MAX_BYTES = 1_048_576
"""The largest document that a server accepts."""
SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3_600), "d": Decimal(86_400)}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})\s?(ms|s|m|h|d)?", re.ASCII)


def read_document(name: str) -> Any:
    """Read JSON from a file, or from stdin for `-`."""
    raw = read_bytes(None if name == "-" else name, MAX_BYTES + 1, field=name)
    if len(raw) > MAX_BYTES:
        raise InvalidSchedule("is larger than 1 MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSchedule(f"is not UTF-8 text: byte {error.start + 1} is 0x{raw[error.start]:02x}") from None
    return parse_json(text)


def read_bytes(name: str | None, limit: int, *, field: str) -> bytes:
    """Read at most `limit` bytes from a file, or from stdin for None."""
    try:
        if name is None:
            return sys.stdin.buffer.read(limit)
        with Path(name).open("rb") as file:
            return file.read(limit)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("no such file", field=field) from None
    except OSError as error:
        raise NoonmarkError(f"cannot be read: {error.strerror}", field=field) from None


def parse_json(text: str, *, field: str = "") -> Any:
    """Parse a JSON text; raises InvalidSchedule with the field for anything else."""
    try:
        return json.loads(
            text, object_pairs_hook=_without_repeats, parse_int=_bounded_integer, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise InvalidSchedule(f"is not JSON: {error.msg} ({position})", field=field) from None
    except ValueError as error:
        raise InvalidSchedule(str(error), field=field) from None
    except RecursionError:
        raise InvalidSchedule("is nested too deeply", field=field) from None


def parse_optional_json(text: str | None, field: str) -> Any:
    """The JSON of an option; None if it is not given."""
    return None if text is None else parse_json(text, field=field)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"gives the key {shown(name)} twice in one object")
        fields[name] = value
    return fields


def _bounded_integer(digits: str) -> int:
    """Refuse more digits than 64 bits need: Python is slow with millions of them."""
    if len(digits) > 20:
        raise ValueError("contains an integer beyond 64 bits")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is not a number in JSON")


def parse_duration(text: str, *, field: str) -> int | float:
    """Parse a duration to seconds; a bare number is seconds. Whole seconds are an integer."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(
            f"must be a duration such as 30m, 1.5h or 250ms (a number and one of {', '.join(SECONDS)}; seconds"
            f" without a unit), not {shown(text)}",
            field=field,
        )
    seconds = Decimal(match[1]) * SECONDS[match[2] or "s"]
    return int(seconds) if seconds == seconds.to_integral_value() else float(seconds)


def parse_optional_duration(text: str | None, field: str) -> int | float | None:
    """The duration of an option, in seconds; None if it is not given."""
    return None if text is None else parse_duration(text, field=field)


def parse_past(text: str | None, field: str) -> str | None:
    """An instant, or a duration back from now such as `1d`, as text in UTC; None if it is not given."""
    return _instant_or_distance(text, field, sign=-1)


def parse_future(text: str | None, field: str) -> str | None:
    """An instant, or a duration from now such as `2h`, as text in UTC; None if it is not given."""
    return _instant_or_distance(text, field, sign=1)


def _instant_or_distance(text: str | None, field: str, *, sign: int) -> str | None:
    if text is None:
        return None
    if _DURATION.fullmatch(text.strip()) is None:
        try:
            return to_text(parse_instant(text))
        except ValueError as error:
            raise InvalidRequest(f"{error}, or a duration such as 2h", field=field) from None
    from noonmark.clocks import SystemClock

    distance = sign * round(parse_duration(text, field=field) * SECOND)
    return to_text(min(MAX_INSTANT, max(MIN_INSTANT, SystemClock().micros() + distance)))


def parse_optional_instant(text: str | None, field: str) -> str | None:
    """The instant of an option, as text in UTC; None if it is not given."""
    if text is None:
        return None
    try:
        return to_text(parse_instant(text))
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None


def parse_pair(text: str, separator: str, field: str) -> tuple[str, str]:
    """The name and the value in `name: value` or `name=value`."""
    name, delimiter, value = text.partition(separator)
    if not delimiter:
        # A malformed header is not repeated: it may be a secret.
        detail = f", not {shown(text)}" if separator == "=" else ""
        raise InvalidRequest(f"must be a name, then {separator!r}, then a value{detail}", field=field)
    return name.strip(), value.strip()
