"""Strict JSON: a body is read only if every reader would understand it the same way.

The parser of the standard library accepts NaN, infinities, repeated keys, integers of any size and lone surrogates.
All of these are rejected here, with the path of the value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any, NamedTuple

from noonmark.core.errors import InvalidRequest
from noonmark.core.jsonvalues import key_path, shown, text_problem

MAX_DEPTH = 100
"""More than a payload may have, which its own reader judges, with room for what stands around it."""
TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
MAX_NUMBER = 100
"""No number that can be kept needs more characters."""
MAX_PATH = 200
"""So much of the way to a value is told; its beginning says where to look."""

_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""An escape that may stand for NUL, or for half a character; nothing else can."""


class _Refused(NamedTuple):
    """Stands where something was that is refused; the key, if it is one key of an object."""

    why: str
    key: str | None = None


def parse(body: bytes, *, repeats: bool = True) -> Any:  # noqa: ANN401 - JSON of any shape
    """The JSON that a body holds; InvalidRequest says what is wrong with it, and where.

    Of a body that brings a secret, it `repeats` nothing, keys neither: the secret may stand in the wrong place there.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start} belongs to no character") from None
    reading = _Reading()
    try:
        value = json.loads(
            text,
            object_pairs_hook=reading.members,
            parse_int=reading.integer,
            parse_float=reading.number,
            parse_constant=reading.constant,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest(f"the body is not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None
    # Nearly every body is innocent at a glance, and then nobody walks through it.
    may_be_deep = text.count("[") + text.count("{") > MAX_DEPTH
    if reading.has_refused or _SUSPECT.search(text) or (may_be_deep and _is_deep(value)):
        _check(value, repeats=repeats)
    return value


class _Reading:
    """What the parser calls for each number and each object; it does not say where they stand."""

    def __init__(self) -> None:
        self.has_refused = False

    def _refuse(self, why: str, key: str | None = None) -> _Refused:
        self.has_refused = True
        return _Refused(why, key)

    def members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        keys = Counter(key for key, _ in pairs)
        return self._refuse("is said twice in the same object", keys.most_common(1)[0][0])

    def integer(self, text: str) -> int | _Refused:
        if len(text) > MAX_NUMBER or not -(2**63) <= (value := int(text)) < 2**64:
            return self._refuse("is an integer beyond 64 bits")
        return value

    def number(self, text: str) -> float | _Refused:
        if len(text) > MAX_NUMBER:
            return self._refuse(f"is a number of more than {MAX_NUMBER} characters")
        return value if isfinite(value := float(text)) else self._refuse("is a number that no float can hold")

    def constant(self, text: str) -> _Refused:
        return self._refuse(f"is {text}, which is not JSON")


def _is_deep(value: object) -> bool:
    """Whether it has more levels than are read; nothing else is looked at."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        if not inside:
            return False
        level = [member for members in inside for member in members]
    return any(isinstance(item, dict | list) for item in level)


def _check(value: object, *, repeats: bool) -> None:
    """Refuse what is refused anywhere inside; never recurses."""
    if (found := _first_problem(value)) is None:
        return
    why, place, key = found
    if not repeats:
        raise InvalidRequest(f"something in the body {why}; what was given is not repeated here")
    raise InvalidRequest(why if key is None else f"has a key, {shown(key)}, that {why}", field=str(place))


def _first_problem(value: object) -> tuple[str, _Place, str | None] | None:
    """What is refused first, why, and where; with the key, if that is what is wrong."""
    pending: list[tuple[object, _Place]] = [(value, _Place(None, "", 0))]
    while pending:
        item, place = pending.pop()
        if isinstance(item, _Refused):
            return item.why, place if item.key is None else place.below(item.key), None
        if isinstance(item, str) and (problem := text_problem(item, multiline=True)) is not None:
            return problem, place, None
        if isinstance(item, dict | list) and place.depth >= MAX_DEPTH:
            return TOO_DEEP, place, None
        if isinstance(item, list):
            pending.extend((member, place.below(number)) for number, member in enumerate(item))
        elif isinstance(item, dict):
            for key in item:
                if (problem := text_problem(key, multiline=True)) is not None:
                    return problem, place, key
            pending.extend((member, place.below(key)) for key, member in item.items())
    return None


class _Place(NamedTuple):
    """Where a value stands. It is written out only for an error: a long way down may lead to many values."""

    above: _Place | None
    step: str | int
    depth: int

    def below(self, step: str | int) -> _Place:
        return _Place(self, step, self.depth + 1)

    def __str__(self) -> str:
        steps: list[str] = []
        place = self
        while place.above is not None:
            steps.append(f"[{place.step}]" if isinstance(place.step, int) else f".{key_path(place.step)}")
            place = place.above
        return "".join(reversed(steps)).removeprefix(".")[:MAX_PATH]


def write_json(value: object) -> bytes:
    """The value as UTF-8; text that is not Unicode is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
