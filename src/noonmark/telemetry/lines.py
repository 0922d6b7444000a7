"""Lines: how a record becomes one line of text that no terminal, file or reader of JSON can be fooled by."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

from noonmark.telemetry.masking import MASK, is_secret, masked

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

MAX_TEXT = 8_000
"""Characters of one value; a traceback may be long, a hostile name too."""
MAX_ITEMS = 100
MAX_DEPTH = 4
HEAD = ("time", "level", "logger", "event")


def guard(_logger: object, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """The record without anything secret, and of bounded length; what each record has comes first."""
    shown = {name: _shown(name, value, 0) for name, value in event.items()}
    return {name: shown.pop(name) for name in HEAD if name in shown} | shown


def as_json(_logger: object, _method: str, event: Mapping[str, Any]) -> str:
    """One object; in ASCII, so that control characters and those that turn the direction of text are escaped."""
    return json.dumps(event)


def as_text(_logger: object, _method: str, event: Mapping[str, Any]) -> str:
    """For people: the time, the level, what happened, and the rest as `name=value`."""
    rest = (f"{escaped(name)}={_quoted(value)}" for name, value in event.items() if name not in HEAD)
    head = (str(event.get(name, "")) for name in HEAD)
    return " ".join(part for part in (*map(escaped, head), *rest) if part)


def escaped(text: str) -> str:
    """Text with an escape for each character that cannot be seen: control characters and marks of direction."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return escaped(text) if text and " " not in text else f'"{escaped(text)}"'


def _shown(name: str, value: object, depth: int) -> Any:  # noqa: ANN401 - anything may be logged
    """A value of JSON that says what the value is."""
    if is_secret(name) and value is not None:
        return MASK
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, dict) and depth < MAX_DEPTH:
        pairs = list(value.items())[:MAX_ITEMS]
        return {_text(str(key)): _shown(str(key), each, depth + 1) for key, each in pairs}
    if isinstance(value, list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return [_shown("", each, depth + 1) for each in list(value)[:MAX_ITEMS]]
    return _text(str(value))


def _text(text: str) -> str:
    """Masked before it is cut, or a password that is cut in half would not be known for one."""
    if len(text) > MAX_TEXT:
        text = text[: 2 * MAX_TEXT]
    text = masked(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
