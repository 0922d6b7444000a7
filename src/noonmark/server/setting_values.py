"""Readers: each makes one kind of value of what a flag, a variable or a file says, or says what is allowed.

Flags and variables are text; a file may have the value itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from noonmark.core.targets.egress import open_place
from noonmark.secret_cipher import read_keys
from noonmark.telemetry.masking import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_TEXT = 2_000
STORES = ("memory://", "sqlite:///", "postgresql://", "postgres://")
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_WHOLE = re.compile(r"\d{1,16}", re.ASCII)
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)
_PLACE = re.compile(r"[A-Za-z0-9_.:/*\[\]-]{1,300}")
_COMMAND = re.compile(r"[^\s,\0]{1,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}|\*", re.ASCII)
_FOLDER = re.compile(r"/[^,\0\n]{0,4095}")


def text(value: object) -> str:
    """A text on one line."""
    if isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise ValueError(_refusal("a text on one line", value))


def yes_or_no(value: object) -> bool:
    """True or false, also as a word."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES + _NO:
        return value.strip().lower() in _YES
    raise ValueError(_refusal("true or false", value))


def whole(low: int, high: int) -> Callable[[object], int]:
    """A whole number in these bounds."""

    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) else value
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        raise ValueError(_refusal(f"a whole number from {low:,} to {high:,}", value))

    return read


def number(low: float, high: float) -> Callable[[object], float]:
    """Any number in these bounds."""

    def read(value: object) -> float:
        try:
            found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            found = math.nan
        if low <= found <= high:
            return found
        raise ValueError(_refusal(f"a number from {low:,g} to {high:,g}", value))

    return read


def one_of(*allowed: str) -> Callable[[object], str]:
    """One of these words, in any case."""

    def read(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(_refusal(" or ".join((", ".join(allowed[:-1]), allowed[-1])), value))

    return read


def store(value: object) -> str:
    """The address of a store."""
    url = text(value)
    if url.startswith(STORES):
        return url
    known = "memory://, sqlite:///relative.db, sqlite:////absolute.db or postgresql://host/database"
    raise ValueError(_refusal(known, value))


def url(value: object) -> str:
    """Where others reach the server: a web address without a query."""
    allowed = "a web address such as https://schedules.example.com, without user, query or fragment"
    try:
        parts = urlsplit(text(value))
        is_sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        raise ValueError(_refusal(allowed, value)) from None
    if not is_sound or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(_refusal(allowed, value))
    return text(value).rstrip("/")


def hosts(value: object) -> tuple[str, ...]:
    """Names of hosts."""
    allowed = "names of hosts without a port, such as schedules.example.com"
    return tuple(one.lower() for one in _several(value, _HOST, allowed))


def secret_keys(value: object) -> str:
    """Keys that seal secrets: a text, or a list; what is said instead is not repeated."""
    text = ",".join(str(one) for one in value) if isinstance(value, list | tuple) else value
    read_keys(text)
    return str(text)


def places(value: object) -> tuple[str, ...]:
    """Hosts, all below a host, addresses and networks; all but the last perhaps with a port."""
    allowed = (
        "names of hosts, addresses or networks, such as hooks.example.com, *.example.com, 10.1.2.3:8080 or 10.1.0.0/16"
    )
    found = tuple(one.lower() for one in _several(value, _PLACE, allowed))
    for one in found:
        if one == "*":
            raise ValueError(f"{_refusal(allowed, one)}: it is --target-guard off that lets requests go everywhere")
        try:
            open_place(one)
        except ValueError:
            raise ValueError(_refusal(allowed, one)) from None
    return found


def commands(value: object) -> tuple[str, ...]:
    """Names of programs, or a star for any."""
    return _several(value, _COMMAND, 'names of programs, or "*" for any')


def variables(value: object) -> tuple[str, ...]:
    """Names of variables, or a star for any."""
    return _several(value, _VARIABLE, 'names of variables, or "*" for any')


def folders(value: object) -> tuple[str, ...]:
    """Folders, each by its absolute path."""
    return _several(value, _FOLDER, "absolute paths of folders")


def functions(value: object) -> dict[str, str]:
    """Functions by the name under which they are offered."""
    allowed = "names with functions, each as NAME=module:function"
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        value = {name.strip(): found.strip() for name, _, found in (str(each).partition("=") for each in value)}
    if not isinstance(value, Mapping):
        raise ValueError(_refusal(allowed, value))
    for name, found in value.items():
        sound_name = isinstance(name, str) and 0 < len(name) <= 500 and name.isprintable()
        if not sound_name or not isinstance(found, str) or not _REFERENCE.fullmatch(found):
            raise ValueError(_refusal(allowed, f"{name}={found}"))
    return dict(value)


def _several(value: object, each: re.Pattern[str], allowed: str) -> tuple[str, ...]:
    """Several words: with commas between them, or a list."""
    parts: Sequence[object] = ()
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, list | tuple):
        parts = value
    else:
        raise ValueError(_refusal(allowed, value))
    for part in parts:
        if not isinstance(part, str) or not each.fullmatch(part):
            raise ValueError(_refusal(allowed, part))
    return tuple(str(part) for part in parts)


def _refusal(allowed: str, value: object) -> str:
    shown = masked(repr(value))
    return f"must be {allowed}, not {shown if len(shown) <= 200 else f'{shown[:200]}…'}"
