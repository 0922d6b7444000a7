"""Parsers of setting values: each takes text from a flag or a variable, or a value from a TOML file.

A ValueError says which values are allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from noonmark.core.redaction import redact
from noonmark.core.targets.egress import open_place
from noonmark.secret_cipher import read_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_TEXT = 2_000
STORES = ("memory://", "sqlite:///", "postgresql://", "postgres://")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_INTEGER = re.compile(r"\d{1,16}", re.ASCII)
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)
_DESTINATION = re.compile(r"[A-Za-z0-9_.:/*\[\]-]{1,300}")
_COMMAND = re.compile(r"[^\s,\0]{1,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}|\*", re.ASCII)
_FOLDER = re.compile(r"/[^,\0\n]{0,4095}")


def text(value: object) -> str:
    """Text on one line."""
    if isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise ValueError(_message("text on one line", value))


def boolean(value: object) -> bool:
    """A boolean, also as a word."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError(_message("true or false", value))


def integer(low: int, high: int) -> Callable[[object], int]:
    """An integer within bounds."""

    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and _INTEGER.fullmatch(value.strip()) else value
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        raise ValueError(_message(f"a whole number from {low:,} to {high:,}", value))

    return read


def number(low: float, high: float) -> Callable[[object], float]:
    """A number within bounds."""

    def read(value: object) -> float:
        try:
            found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            found = math.nan
        if low <= found <= high:
            return found
        raise ValueError(_message(f"a number from {low:,g} to {high:,g}", value))

    return read


def one_of(*allowed: str) -> Callable[[object], str]:
    """One of these words, in any case."""

    def read(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(_message(" or ".join((", ".join(allowed[:-1]), allowed[-1])), value))

    return read


def store(value: object) -> str:
    """The URL of a store."""
    url = text(value)
    if url.startswith(STORES):
        return url
    known = "memory://, sqlite:///relative.db, sqlite:////absolute.db or postgresql://host/database"
    raise ValueError(_message(known, value))


def url(value: object) -> str:
    """A web address without a query."""
    allowed = "a web address such as https://schedules.example.com, without user, query or fragment"
    try:
        parts = urlsplit(text(value))
        is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        raise ValueError(_message(allowed, value)) from None
    if not is_valid or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(_message(allowed, value))
    return text(value).rstrip("/")


def hosts(value: object) -> tuple[str, ...]:
    """Host names."""
    allowed = "host names without a port, such as schedules.example.com"
    return tuple(one.lower() for one in _list(value, _HOST, allowed))


def secret_keys(value: object) -> str:
    """Encryption keys, as text or a list; errors do not quote the value."""
    text = ",".join(str(one) for one in value) if isinstance(value, list | tuple) else value
    read_keys(text)
    return str(text)


def destinations(value: object) -> tuple[str, ...]:
    """Hosts, wildcard hosts, addresses and networks; all but networks may have a port."""
    allowed = (
        "host names, addresses or networks, such as hooks.example.com, *.example.com, 10.1.2.3:8080 or 10.1.0.0/16"
    )
    destinations = tuple(one.lower() for one in _list(value, _DESTINATION, allowed))
    for destination in destinations:
        if destination == "*":
            raise ValueError(f"{_message(allowed, destination)}: use --target-guard off to allow every address")
        try:
            open_place(destination)
        except ValueError:
            raise ValueError(_message(allowed, destination)) from None
    return destinations


def commands(value: object) -> tuple[str, ...]:
    """Program names, or a star for any."""
    return _list(value, _COMMAND, 'program names, or "*" for any')


def variables(value: object) -> tuple[str, ...]:
    """Variable names, or a star for any."""
    return _list(value, _VARIABLE, 'variable names, or "*" for any')


def folders(value: object) -> tuple[str, ...]:
    """Absolute paths of folders."""
    return _list(value, _FOLDER, "absolute paths of folders")


def functions(value: object) -> dict[str, str]:
    """Functions by the name under which they are offered."""
    allowed = "functions, each as NAME=module:function"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        value = {name.strip(): found.strip() for name, _, found in (str(each).partition("=") for each in value)}
    if not isinstance(value, Mapping):
        raise ValueError(_message(allowed, value))
    for name, found in value.items():
        is_valid_name = isinstance(name, str) and 0 < len(name) <= 500 and name.isprintable()
        if not is_valid_name or not isinstance(found, str) or not _REFERENCE.fullmatch(found):
            raise ValueError(_message(allowed, f"{name}={found}"))
    return dict(value)


def _list(value: object, each: re.Pattern[str], allowed: str) -> tuple[str, ...]:
    """A list, or text separated by commas."""
    parts: Sequence[object] = ()
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, list | tuple):
        parts = value
    else:
        raise ValueError(_message(allowed, value))
    for part in parts:
        if not isinstance(part, str) or not each.fullmatch(part):
            raise ValueError(_message(allowed, part))
    return tuple(str(part) for part in parts)


def _message(allowed: str, value: object) -> str:
    shown = redact(repr(value))
    return f"must be {allowed}, not {shown if len(shown) <= 200 else f'{shown[:200]}…'}"
