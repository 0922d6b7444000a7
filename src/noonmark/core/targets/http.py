"""The HTTP target: one request to an absolute address.

Only the form is judged here. Which hosts may be reached is for the node that sends the request, at the time it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from noonmark.core.documents import named, present
from noonmark.core.jsonvalues import shown, text_of

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

MAX_URL = 4_096
MAX_HEADERS = 100
MAX_HEADER = 8_192

# RFC 9110, section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# One name at the most: an empty label or a placeholder is not part of a host.
_HOST = re.compile(r"\w[\w-]*(?:\.\w[\w-]*)*\.?")
_BREAKS_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_url_text = text_of(1, MAX_URL)
_header_text = text_of(0, MAX_HEADER, multiline=True)


class Method(StrEnum):
    """The request methods a schedule may use."""

    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    OPTIONS = "OPTIONS"


_METHODS = named(Method, **{method.lower(): method for method in Method})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """An HTTP request; a `body` that is not text is sent as JSON, and null means that there is none."""

    kind: ClassVar[str] = "http"
    route: ClassVar[str] = "http"

    url: str
    method: Method = Method.POST
    headers: dict[str, str] = field(default_factory=dict, hash=False)
    body: Any = field(default=None, hash=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            method=str(self.method),
            url=self.url,
            headers=dict(self.headers) or None,
            body=self.body,
        )


def read_http(reader: Reader) -> HttpTarget:
    """Read the request, noting what is wrong with it."""
    method = reader.choice("method", _METHODS, Method.POST)
    url = reader.read("url", _url)
    headers = reader.text_map("headers", key=_header_name, value=_header_value, high=MAX_HEADERS)
    if len({name.lower() for name in headers}) < len(headers):
        reader.problem("headers", "names a header twice; upper and lower case are the same name")
    return HttpTarget(method=method, url=url, headers=headers, body=reader.json("body"))


def _url(value: object) -> str:
    url = _url_text(value)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # brackets that do not match, a port that is no number
        raise ValueError(f"is not a URL: {shown(url)}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f"must be an absolute http or https URL with a host, not {shown(url)}")
    if "@" in parts.netloc:
        raise ValueError("must not carry a user name or password; put credentials in a header")
    if "\\" in url or any(character.isspace() for character in url):
        raise ValueError("must not contain blanks or backslashes; write them as %20 and %5C")
    if port == 0 or not _is_host(host, bracketed="[" in parts.netloc):
        raise ValueError(f"has no valid host and port: {shown(parts.netloc)}")
    return url


def _is_host(host: str, *, bracketed: bool) -> bool:
    if not bracketed:
        return _HOST.fullmatch(host) is not None
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _header_name(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_HEADER and _TOKEN.fullmatch(value):
        return value
    raise ValueError(f"must be letters, digits and !#$%&'*+-.^_`|~ only, not {shown(value)}")


def _header_value(value: object) -> str:
    text = _header_text(value)
    if _BREAKS_HEADER.search(text):
        raise ValueError("contains a line break or another control character, which would break the request")
    return text
