"""Strict JSON: a body that two parsers could read differently is rejected.

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
from noonmark.core.json_values import key_path, shown, text_problem

MAX_DEPTH = 100
"""More than a payload may have (its own parser checks that), with room for the document around it."""
TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
MAX_NUMBER = 100
"""Characters of a number; no number that fits into 64 bits needs more."""
MAX_PATH = 200
"""Characters of a path in an error; the beginning says where to look."""

_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""An escape that may be NUL or a surrogate; only these need a walk through the text."""


class _Rejected(NamedTuple):
    """Replaces a rejected value; `key` is set if one key of an object is rejected."""

    message: str
    key: str | None = None


def parse(body: bytes, *, repeats: bool = True) -> Any:
    """Parse a body; InvalidRequest says what is wrong with it, and where.

    With `repeats=False`, the error quotes nothing of the body, not even keys: a secret may be in the wrong place.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: byte {error.start} is not part of a character") from None
    hooks = _ParserHooks()
    try:
        value = json.loads(
            text,
            object_pairs_hook=hooks.members,
            parse_int=hooks.integer,
            parse_float=hooks.number,
            parse_constant=hooks.constant,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest(f"the body is not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None
    # Most bodies have none of these signs, and are not walked through.
    may_be_deep = text.count("[") + text.count("{") > MAX_DEPTH
    if hooks.has_rejected or _SUSPECT.search(text) or (may_be_deep and _is_deep(value)):
        _check(value, repeats=repeats)
    return value


class _ParserHooks:
    """What the parser calls for each number and each object; it does not know their paths."""

    def __init__(self) -> None:
        self.has_rejected = False

    def _reject(self, message: str, key: str | None = None) -> _Rejected:
        self.has_rejected = True
        return _Rejected(message, key)

    def members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Rejected:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        keys = Counter(key for key, _ in pairs)
        return self._reject("is given twice in the same object", keys.most_common(1)[0][0])

    def integer(self, text: str) -> int | _Rejected:
        if len(text) > MAX_NUMBER or not -(2**63) <= (value := int(text)) < 2**64:
            return self._reject("is an integer beyond 64 bits")
        return value

    def number(self, text: str) -> float | _Rejected:
        if len(text) > MAX_NUMBER:
            return self._reject(f"is a number of more than {MAX_NUMBER} characters")
        return value if isfinite(value := float(text)) else self._reject("is a number beyond the range of a float")

    def constant(self, text: str) -> _Rejected:
        return self._reject(f"is {text}, which is not JSON")


def _is_deep(value: object) -> bool:
    """Whether it has more than MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        if not inside:
            return False
        level = [member for members in inside for member in members]
    return any(isinstance(item, dict | list) for item in level)


def _check(value: object, *, repeats: bool) -> None:
    """Raise for the first problem anywhere inside. Nothing here recurses."""
    if (problem := _first_problem(value)) is None:
        return
    message, path, key = problem
    if not repeats:
        raise InvalidRequest(f"something in the body {message}; its content is not quoted here, as it may be secret")
    raise InvalidRequest(message if key is None else f"has a key, {shown(key)}, that {message}", field=str(path))


def _first_problem(value: object) -> tuple[str, _Path, str | None] | None:
    """The first problem: its message and path, and the key if the key itself is the problem."""
    pending: list[tuple[object, _Path]] = [(value, _Path(None, "", 0))]
    while pending:
        item, path = pending.pop()
        if isinstance(item, _Rejected):
            return item.message, path if item.key is None else path.child(item.key), None
        if isinstance(item, str) and (problem := text_problem(item, multiline=True)) is not None:
            return problem, path, None
        if isinstance(item, dict | list) and path.depth >= MAX_DEPTH:
            return TOO_DEEP, path, None
        if isinstance(item, list):
            pending.extend((member, path.child(number)) for number, member in enumerate(item))
        elif isinstance(item, dict):
            for key in item:
                if (problem := text_problem(key, multiline=True)) is not None:
                    return problem, path, key
            pending.extend((member, path.child(key)) for key, member in item.items())
    return None


class _Path(NamedTuple):
    """The path of a value. It is written out only for an error: a deep path may lead to many values."""

    parent: _Path | None
    step: str | int
    depth: int

    def child(self, step: str | int) -> _Path:
        return _Path(self, step, self.depth + 1)

    def __str__(self) -> str:
        steps: list[str] = []
        path = self
        while path.parent is not None:
            steps.append(f"[{path.step}]" if isinstance(path.step, int) else f".{key_path(path.step)}")
            path = path.parent
        return "".join(reversed(steps)).removeprefix(".")[:MAX_PATH]


_write = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
"""It does not look for values that contain themselves, which takes a tenth of the time: what was JSON has none."""


def write_json(value: object) -> bytes:
    """Encode a value as UTF-8; lone surrogates, which a run may have left behind, are escaped."""
    try:
        return _write(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
