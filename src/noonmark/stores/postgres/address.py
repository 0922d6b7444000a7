"""The address of a database: a PostgreSQL URL, in which Noonmark has a few options of its own.

`postgresql://user:password@host:5432/database?schema=noonmark&pool=5&timeout=10`. All others are PostgreSQL's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from noonmark.core.errors import InvalidSchedule

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_MOST_LINES = 100
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is, and how it is used."""

    dsn: str
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
        parts.port  # noqa: B018 - it is read to see whether it is one
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise InvalidSchedule(f"this PostgreSQL URL cannot be read: {error}", field="store") from None
    schema = options.pop("schema", "noonmark")
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidSchedule(
            f"schema {schema!r} must be up to 48 lower-case letters, digits and underscores, and not begin with a digit"
            " or pg_",
            field="store",
        )
    pool = _number(options.pop("pool", "5"), "pool", low=2, high=_MOST_LINES)
    timeout = _number(options.pop("timeout", "10"), "timeout", low=0.5, high=_LONGEST)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
    return Address(dsn=dsn, schema=schema, pool=int(pool), timeout=timeout)


def _number(text: str, name: str, *, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high or (name == "pool" and number != int(number)):
        raise InvalidSchedule(f"{name} {text!r} must be a number from {low:g} to {high:g}", field="store")
    return number
