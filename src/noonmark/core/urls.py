"""URLs: the one place where the text of a URL is read.

The egress policy, the binding of secrets and the connection all use the same value: two parsers of one text can
disagree on its host, and a request then goes where no check has looked. The grammar is narrower than that of RFC 3986;
everything else is refused. No message repeats any of the text: a webhook's path is
often its password.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote

from noonmark.core.frozen import frozen

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65_535

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.DOTALL,
)
# A name has no empty label, and no placeholder is part of it. Nothing stands between a bracket and the colon.
_AUTHORITY = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>\w[\w-]*(?:\.\w[\w-]*)*\.?))(?::(?P<port>[0-9]{0,5}))?"
)
_LIKE_IPV4 = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_UNSEEN = re.compile(r"[\x00-\x20\x7f-\x9f\\\s]")
# What stays as it is in a path and in a query (https://url.spec.whatwg.org/#percent-encoded-bytes).
_IN_PATH = "!$%&'()*+,/:;=@[]^|"
_IN_QUERY = _IN_PATH + "?`{}"


@frozen
class Url:
    """An absolute http or https URL."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without its brackets, and in its one short form."""
    port: int
    """The one that is dialled, also where the URL names none."""
    path: str = field(repr=False)
    """Percent-encoded where it has to be, as the query is."""
    query: str | None = field(default=None, repr=False)

    @property
    def authority(self) -> str:
        """The host, and the port unless the scheme says it already: what the header Host says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Where a request goes, without what may be secret about it."""
        return f"{self.scheme}://{self.authority}"

    @property
    def target(self) -> str:
        """What is asked for there."""
        return self.path if self.query is None else f"{self.path}?{self.query}"


@lru_cache(maxsize=1_024)
def parse_url(text: str) -> Url:
    """Read a URL; a ValueError says what is wrong, and repeats nothing of it. Most are called again and again."""
    match = _URL.fullmatch(text)
    if text.startswith("{{") or (match is not None and "{{" in match["authority"]):
        raise ValueError("must not have a placeholder in its scheme, host or port: only after them")
    if match is None or (scheme := match["scheme"].lower()) not in DEFAULT_PORTS:
        raise ValueError("must be an absolute http or https URL with a host")
    if "@" in match["authority"]:
        raise ValueError("must not carry a user name or password; put credentials in a header")
    if _UNSEEN.search(text):
        raise ValueError("must not contain blanks, backslashes or control characters; write them as %20 and %5C")
    host, port = _place(match["authority"])
    path = quote(_without_dots(match["path"] or "/"), safe=_IN_PATH)
    query = None if match["query"] is None else quote(match["query"], safe=_IN_QUERY)
    return Url(scheme, host, DEFAULT_PORTS[scheme] if port is None else port, path, query)


def _place(authority: str) -> tuple[str, int | None]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("has no valid host and port, as in https://example.com:8443 or https://[2001:db8::1]:8443")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port <= MAX_PORT:
        raise ValueError(f"has no valid host and port: a port is a number from 1 to {MAX_PORT}")
    return _host(match["name"], match["address"]), port


def _host(name: str | None, address: str | None) -> str:
    try:
        if address is not None:
            return str(IPv6Address(address))
        assert name is not None  # noqa: S101 - it is the one or the other
        return str(IPv4Address(name)) if _LIKE_IPV4.fullmatch(name) else name.lower()
    except ValueError:
        raise ValueError("has no valid host: addresses are written as 192.0.2.1 and [2001:db8::1]") from None


def _without_dots(path: str) -> str:
    """The path without the steps `.` and `..`, which lead nowhere above its beginning (RFC 3986, section 5.2.4)."""
    steps = path.split("/")
    if "." not in steps and ".." not in steps:
        return path
    segments: list[str] = []
    for step in steps:
        if step == "..":
            segments = segments[:-1] or segments
        elif step != ".":
            segments.append(step)
    return "/".join([*segments, ""] if steps[-1] in {".", ".."} else segments)
