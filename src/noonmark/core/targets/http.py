"""The HTTP target: one request to an absolute address.

Only the form is judged here. Which hosts may be reached is for the node that sends the request, at the time it does.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from noonmark.core.documents import named, present
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, Micros, micros_to_seconds
from noonmark.core.json_values import number_value, shown, text_of
from noonmark.core.secret import header_place, secret_name
from noonmark.core.targets.placeholders import check_json, is_fact, normalize_placeholders, unfillable
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noonmark.core.documents import Reader
    from noonmark.core.urls import Url

MAX_URL = 4_096
MAX_FILLED_URL = 16_384
"""Characters of a URL whose placeholders are filled in."""
MAX_HEADERS = 100
MAX_HEADER = 8_192
MAX_STATUSES = 100
MAX_TIMEOUT_SECONDS = 86_400
TIMEOUT: Micros = 30 * SECOND
"""For the whole call, where the target says nothing else."""
MAX_COMPLETION_SECONDS = 30 * 86_400
EXPECTED = ("2xx",)
RETRIED = (408, 425, 429, "5xx")
OWN_HEADERS = ("idempotency-key", "traceparent")
"""What every request carries, and no schedule can set; as is everything that begins with `noonmark-`."""
_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "expect", "te", "trailer"}
)

# RFC 9110, section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CLASS = re.compile(r"[1-5]xx")
_BREAKS_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_url_text = text_of(1, MAX_URL)
_literal_url_text = text_of(1, MAX_FILLED_URL)
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


@frozen(kw_only=True)
class HttpTarget:
    """An HTTP request; a `body` that is not text is sent as JSON, and null means that there is none."""

    kind: ClassVar[str] = "http"
    route: ClassVar[str] = "http"

    url: str = field(repr=False)
    """Not shown: the path or the query of many a webhook is its password."""
    method: Method = Method.POST
    headers: dict[str, str] = field(default_factory=dict, hash=False, repr=False)
    secret_headers: dict[str, str] = field(default_factory=dict, hash=False)
    """Headers whose values are secrets: the name of each."""
    body: Any = field(default=None, hash=False, repr=False)
    expected_statuses: tuple[int | str, ...] | None = None
    """The answers that mean success: numbers, or classes such as `2xx`, the default."""
    retry_statuses: tuple[int | str, ...] | None = None
    """Further statuses that the retry policy applies to; None for the transient ones."""
    timeout: Micros | None = None
    completion_timeout: Micros | None = None
    """How long a receiver that answers 202 has to report the end; None for a day."""
    literal: bool = False
    """Send the URL, the headers and the body as they are: nothing is filled in."""

    @property
    def address(self) -> Url:
        """The parsed URL; placeholders, which occur only in the path and the query, are not filled in."""
        return parse_url(self.url)

    def expects(self, status: int) -> bool:
        """Whether that answer means success."""
        return _is_among(status, EXPECTED if self.expected_statuses is None else self.expected_statuses)

    def retries(self, status: int) -> bool:
        """Whether another attempt may follow that answer, which does not mean success."""
        return _is_among(status, RETRIED if self.retry_statuses is None else self.retry_statuses)

    def unfillable(self, *, has_event: bool) -> Iterator[tuple[str, str]]:
        """What in it can never be filled in, with the field; `has_event` where events set it off."""
        if self.literal:
            return
        texts = {"url": self.url, "body": self.body}
        texts |= {f"headers{header_place(name, self.headers)}": text for name, text in self.headers.items()}
        for field_name, value in texts.items():
            if (problem := unfillable(value, has_event=has_event)) is not None:
                yield field_name, problem

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            method=str(self.method),
            url=self.url,
            headers=dict(self.headers) or None,
            secret_headers=dict(self.secret_headers) or None,
            body=self.body,
            expected_statuses=None if self.expected_statuses is None else list(self.expected_statuses),
            retry_statuses=None if self.retry_statuses is None else list(self.retry_statuses),
            timeout_seconds=None if self.timeout is None else micros_to_seconds(self.timeout),
            completion_timeout_seconds=(
                None if self.completion_timeout is None else micros_to_seconds(self.completion_timeout)
            ),
            literal=self.literal or None,
        )


def _is_among(status: int, statuses: tuple[int | str, ...]) -> bool:
    return status in statuses or f"{status // 100}xx" in statuses


def read_http(reader: Reader, *, is_known: Callable[[str], bool] = is_fact) -> HttpTarget:
    """Read the request, noting what is wrong with it; `is_known` says which names its placeholders may have."""
    method = reader.choice("method", _METHODS, Method.POST)
    literal = reader.boolean("literal", default=False)
    url = reader.read("url", _literal_url if literal else partial(_url, is_known=is_known))
    header_value = _literal_header if literal else partial(_header_value, is_known=is_known)
    headers = _read_headers(reader, "headers", header_value)
    secret_headers = _read_headers(reader, "secret_headers", secret_name)
    for name in secret_headers:
        if name.lower() in {one.lower() for one in headers}:
            place = header_place(name, secret_headers)
            reader.problem(f"secret_headers{place}", "is one of the headers too; leave it out there")
    expected = _read_statuses(reader, "expected_statuses")
    if reader.raw("expected_statuses") == []:
        reader.problem("expected_statuses", "must name at least one status")
    return HttpTarget(
        method=method,
        url=url,
        headers=headers,
        secret_headers=secret_headers,
        body=reader.json("body") if literal else _read_body(reader, is_known),
        expected_statuses=expected,
        retry_statuses=_read_statuses(reader, "retry_statuses"),
        timeout=reader.seconds("timeout_seconds", None, low=0.001, high=MAX_TIMEOUT_SECONDS),
        completion_timeout=reader.seconds("completion_timeout_seconds", None, low=1, high=MAX_COMPLETION_SECONDS),
        literal=literal,
    )


def _read_headers(reader: Reader, field: str, value: Callable[[object], str]) -> dict[str, str]:
    """Headers by name; what stands in their place is not repeated, for there may be a secret in it."""
    if not isinstance(reader.raw(field, {}), dict | None):
        reader.problem(field, "must be an object, with the names of headers for its keys")
        return {}
    headers = reader.text_map(field, key=_header_name, value=value, high=MAX_HEADERS, place=header_place)
    if len({name.lower() for name in headers}) < len(headers):
        reader.problem(field, "names a header twice; upper and lower case are the same name")
    return headers


def _read_body(reader: Reader, is_known: Callable[[str], bool]) -> Any:
    body = reader.json("body")
    try:
        check_json(body, is_known=is_known)
    except ValueError as error:
        reader.problem("body", str(error))
    return body


def _read_statuses(reader: Reader, name: str) -> tuple[int | str, ...] | None:
    return None if reader.raw(name) is None else reader.each(name, _status, high=MAX_STATUSES)


def _status(value: object) -> int | str:
    if isinstance(value, str):
        if _CLASS.fullmatch(value):
            return value
        raise ValueError(f"must be a status such as 404, or a class such as 5xx, not {shown(value)}")
    return int(number_value(value, 100, 599, whole=True))


def _url(value: object, *, is_known: Callable[[str], bool]) -> str:
    url = normalize_placeholders(_url_text(_text(value)), repeats=False, is_known=is_known)
    parse_url(url)
    return url


def _literal_url(value: object) -> str:
    url = _literal_url_text(_text(value))
    parse_url(url)
    return url


def _header_name(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_HEADER and _TOKEN.fullmatch(value):
        name = value.lower()
        if name in OWN_HEADERS or name.startswith("noonmark-"):
            raise ValueError("is one that every request has already")
        if name in _OF_THE_CONNECTION or name.startswith("proxy-"):
            raise ValueError("is set by the connection, not by a schedule")
        return value
    raise ValueError("must be letters, digits and !#$%&'*+-.^_`|~ only")


def _header_value(value: object, *, is_known: Callable[[str], bool]) -> str:
    return check_header(normalize_placeholders(_header_text(_text(value)), repeats=False, is_known=is_known))


def _literal_header(value: object) -> str:
    return check_header(_header_text(_text(value)))


def _text(value: object) -> object:
    """The value, if it is text; what stands in its place may be a password of digits, and is not repeated."""
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def check_header(text: str) -> str:
    """The value of a header, unless it would break the request; a ValueError says why."""
    if _BREAKS_HEADER.search(text):
        raise ValueError("contains a line break or another control character, which would break the request")
    return text


def quote_for_url(value: str) -> str:
    """Quote a value as one segment of a path or a query; neither slashes nor dots can leave it."""
    if value in (".", ".."):
        raise ValueError(f"{value!r} cannot be filled into a URL: it would change the path")
    return quote(value, safe="")
