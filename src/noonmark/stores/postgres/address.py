"""The address of a database: a PostgreSQL URL with a few options of Noonmark.

`postgresql://user:password@host:5432/database?schema=noonmark&pool=5&timeout=10`. All other options are libpq's, or
settings of the session.
"""

from __future__ import annotations

import re
from dataclasses import field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from noonmark.core.errors import InvalidSchedule
from noonmark.core.frozen import frozen

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_PLACES = re.compile(r"(([\w.%-]*|\[[0-9A-Fa-f:.%]+\])(:\d{1,5})?(,(?!$)|$))*")
"""Hosts, each perhaps with a port."""
_UNREADABLE = (
    "this PostgreSQL URL cannot be read; it must be postgresql://user:password@host:port/database?option=value, in"
    " which each of / ? # @ : % in a name or a password is written as % and its two hexadecimal digits"
)
_LIBPQ_OPTIONS = {option.keyword.decode() for option in Conninfo.get_defaults()}
_SPECIAL, _ESCAPED = re.compile(r"[\\\s]"), r"\\\g<0>"
_MOST_CONNECTIONS = 100
_LONGEST = 600.0


@frozen
class Address:
    """Where the database is, and how it is used."""

    dsn: str = field(repr=False)
    """The URL for libpq. It may contain a password and is never shown."""
    schema: str = "noonmark"
    """The schema of all tables."""
    pool: int = 5
    """Open connections at most; one more listens for notifications."""
    timeout: float = 10.0
    """Seconds until a statement is given up; half of them for an attempt to connect, and for sent data to arrive."""

    @property
    def shown(self) -> str:
        """The address without user, password and options."""
        parts = urlsplit(self.dsn)
        place = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{place}{parts.path}"

    @property
    def channel(self) -> str:
        """The channel on which nodes notify each other."""
        return f"noonmark_{self.schema}"


def parse_address(url: str) -> Address:
    """Parse a URL; an error names the wrong option and what it may be."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:  # its message may contain a password
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
    pool = _number(options.pop("pool", "5"), "pool", low=2, high=_MOST_CONNECTIONS)
    timeout = _number(options.pop("timeout", "10"), "timeout", low=0.5, high=_LONGEST)
    dsn = _dsn(parts.netloc, parts.path, {"application_name": "noonmark"} | options)
    return Address(dsn=dsn, schema=schema, pool=int(pool), timeout=timeout)


def _dsn(netloc: str, path: str, options: dict[str, str]) -> str:
    """A URL for libpq; options that it does not know are settings of the session."""
    libpq_options = {name: value for name, value in options.items() if name in _LIBPQ_OPTIONS}
    settings = [
        f"-c {name}={_SPECIAL.sub(_ESCAPED, value)}" for name, value in options.items() if name not in libpq_options
    ]
    if settings:
        libpq_options["options"] = " ".join([*filter(None, [libpq_options.get("options")]), *settings])
    dsn = f"postgresql://{netloc}{path}?{urlencode(libpq_options, quote_via=quote)}"
    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:  # its message may contain a password
        raise InvalidSchedule(_UNREADABLE, field="store") from None
    return dsn


def _number(text: str, name: str, *, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high or (name == "pool" and number != int(number)):
        raise InvalidSchedule(f"{name} {text!r} must be a number from {low:g} to {high:g}", field="store")
    return number
