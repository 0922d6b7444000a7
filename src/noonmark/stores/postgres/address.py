"""The address of a database: a PostgreSQL URL, in which Noonmark has a few options of its own.

`postgresql://user:password@host:5432/database?schema=noonmark&pool=5&timeout=10`. All others are PostgreSQL's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

from noonmark.core.errors import InvalidSchedule

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_PLACES = re.compile(r"(([\w.%-]*|\[[0-9A-Fa-f:.%]+\])(:\d{1,5})?(,(?!$)|$))*")
"""Hosts, each perhaps with a port."""
_UNREADABLE = (
    "this PostgreSQL URL cannot be read; it must be postgresql://user:password@host:port/database?option=value, in"
    " which each of / ? # @ : % in a name or a password is written as % and its two hexadecimal digits"
)
_MOST_LINES = 100
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is, and how it is used."""

    dsn: str = field(repr=False)
    """What PostgreSQL itself understands; it may hold a password, and is never shown."""
    schema: str = "noonmark"
    """The schema that everything is in."""
    pool: int = 5
    """So many connections are open at once, at most, and one more that listens."""
    timeout: float = 10.0
    """Seconds until a statement is given up; an attempt to connect, or a line on which nothing arrives, after half."""

    @property
    def shown(self) -> str:
        """The address without anything secret."""
        parts = urlsplit(self.dsn)
        place = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{place}{parts.path}"

    @property
    def channel(self) -> str:
        """On which nodes tell each other that there is something new."""
        return f"noonmark_{self.schema}"


def parse_address(url: str) -> Address:
    """Read a URL; an error says which option is wrong, and what it may be."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:  # which may hold what is secret
        raise InvalidSchedule(_UNREADABLE, field="store") from None
    if not _PLACES.fullmatch(parts.netloc.rpartition("@")[2]) or parts.fragment or "@" in parts.path:
        raise InvalidSchedule(_UNREADABLE, field="store")
    schema = options.pop("schema", "noonmark")
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidSchedule(
            f"schema {schema!r} must be up to 48 lower-case letters, digits and underscores, and not begin with a digit"
            " or pg_",
            field="store",
        )
    pool = _number(options.pop("pool", "5"), "pool", low=2, high=_MOST_LINES)
    timeout = _number(options.pop("timeout", "10"), "timeout", low=0.5, high=_LONGEST)
    query = urlencode({"application_name": "noonmark"} | options)
    dsn = f"postgresql://{parts.netloc}{parts.path}?{query}"
    return Address(dsn=dsn, schema=schema, pool=int(pool), timeout=timeout)


def _number(text: str, name: str, *, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high or (name == "pool" and number != int(number)):
        raise InvalidSchedule(f"{name} {text!r} must be a number from {low:g} to {high:g}", field="store")
    return number
