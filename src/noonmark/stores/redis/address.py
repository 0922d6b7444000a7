"""The address of a Redis database: a URL with a few options of Noonmark.

`redis://user:password@host:6379/0?prefix=noonmark&timeout=10&volatile=1`; `rediss://` uses TLS.
"""

from __future__ import annotations

import re
from dataclasses import field
from urllib.parse import parse_qsl, unquote, urlsplit

from noonmark.core.errors import InvalidSchedule
from noonmark.core.frozen import frozen

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DATABASE = re.compile(r"/?|/(\d{1,5})")
_OPTIONS = ("prefix", "timeout", "volatile")
_LONGEST = 600.0
_UNREADABLE = (
    "this Redis URL cannot be read; it must be redis://user:password@host:port/number?option=value, in which each of"
    " / ? # @ : % in a name or a password is written as % and its two hexadecimal digits"
)


@frozen
class Address:
    """Where the database is, and how it is used."""

    host: str
    port: int
    database: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    prefix: str = "noonmark"
    """All keys begin with this and a colon, so that other programs can use the same database."""
    timeout: float = 10.0
    """Seconds until a command is given up."""
    is_volatile: bool = False
    """Accept a server that may lose or evict what it was given."""

    @property
    def shown(self) -> str:
        """The address without user and password."""
        scheme = "rediss" if self.tls else "redis"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.database}"


def parse_address(url: str) -> Address:
    """Parse a URL; an error names the wrong option and what it may be."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        port = parts.port
    except ValueError:  # its message may contain a password
        raise InvalidSchedule(_UNREADABLE, field="store") from None
    database = _DATABASE.fullmatch(parts.path)
    if parts.scheme not in {"redis", "rediss"} or database is None or parts.fragment:
        raise InvalidSchedule(_UNREADABLE, field="store")
    for name in options:
        if name not in _OPTIONS:
            raise InvalidSchedule(
                f"unknown option {name!r} of a Redis URL; allowed are {', '.join(_OPTIONS)}", field="store"
            )
    prefix = options.get("prefix", "noonmark")
    if not _PREFIX.fullmatch(prefix):
        raise InvalidSchedule(
            f"prefix {prefix!r} must be 1 to 64 letters, digits, underscores, dots and hyphens", field="store"
        )
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=6379 if port is None else port,
        database=int(database.group(1) or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        prefix=prefix,
        timeout=_seconds(options.get("timeout", "10")),
        is_volatile=_flag(options.get("volatile", "0")),
    )


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0.5 <= number <= _LONGEST:
        raise InvalidSchedule(f"timeout {text!r} must be a number from 0.5 to {_LONGEST:g}", field="store")
    return number


def _flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise InvalidSchedule(f"volatile {text!r} must be 0 or 1", field="store")
    return text == "1"
