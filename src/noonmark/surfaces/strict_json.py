"""Strict JSON: what comes by wire is read once, here, and whatever a store or client could not hold is refused."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from noonmark.core.errors import InvalidRequest
from noonmark.core.jsonvalues import MAX_JSON_DEPTH, key_path, text_problem

MAX_BODY = 1_048_576
"""Bytes of one body."""
MAX_DEPTH = MAX_JSON_DEPTH + 16
"""Levels of a whole body: a payload as deep as it may be, and what stands around it."""
MAX_DIGITS = 20
"""Digits and sign of a whole number; the longest of 64 bits has as many."""
MAX_FRACTION = 400
"""Characters of a number with a fraction or an exponent."""


def read_json(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """The value that the bytes are; InvalidRequest says what is wrong with them, and where."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start} is wrong") from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidRequest(_TOO_DEEP) from None
    _check(value)
    return value


def write_json(value: object) -> bytes:
    """The value as UTF-8; whatever a run has left behind can be written."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


_TOO_DEEP = f"the body is nested more than {MAX_DEPTH} levels deep"


def _check(value: object) -> None:
    """Refuse text that no store can hold, and levels beyond what is read. Never recurses."""
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, list):
                below += item
            elif isinstance(item, dict):
                below += item.values()
        if below and depth == MAX_DEPTH:
            raise InvalidRequest(_TOO_DEEP)
        level = below


def _check_text(text: str, *, field: str = "") -> None:
    if text.isascii() and "\x00" not in text:
        return
    if (problem := text_problem(text, multiline=True)) is not None:
        raise InvalidRequest(f"the body {problem}", field=field)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidRequest("is given twice in one object", field=key_path(key))
            seen.add(key)
    for key in members:
        _check_text(key, field=key_path(key))
    return members


def _integer(digits: str) -> int:
    if len(digits) <= MAX_DIGITS and -(2**63) <= (number := int(digits)) < 2**64:
        return number
    raise InvalidRequest("the body contains an integer beyond 64 bits")


def _fraction(digits: str) -> float:
    if len(digits) > MAX_FRACTION:
        raise InvalidRequest(f"the body contains a number of more than {MAX_FRACTION} characters")
    if not isfinite(number := float(digits)):
        raise InvalidRequest("the body contains a number beyond 64 bits")
    return number


def _constant(name: str) -> Any:  # noqa: ANN401 - it never answers
    raise InvalidRequest(f"the body contains {name}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
