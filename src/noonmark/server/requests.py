"""API requests and responses: size and time limits for bodies, typed query parameters, JSON documents."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from noonmark.core.errors import InvalidRequest, Problem, refusal
from noonmark.core.jsonvalues import key_path, shown, text_problem
from noonmark.driver.drive import drive
from noonmark.operations.table import perform
from noonmark.server.problems import HttpError
from noonmark.server.strict_json import parse, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.datastructures import Headers
    from starlette.requests import Request

    from noonmark.operations.service import Caller, Service

MAX_BODY = 1_048_576
"""Bytes of one body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What the HTTP surface is told; loopback addresses are always among the hosts by which it may be called."""

    host: str = "127.0.0.1"
    port: int = 8001
    allowed_hosts: tuple[str, ...] = ()
    """Other names by which callers reach it, without a port."""
    public_url: str | None = None
    """Where callers find it when something stands before it, such as https://noonmark.example.org."""
    max_body: int = MAX_BODY
    body_seconds: float = 20.0
    """A body that has not come by then is given up."""


MAX_PARAMETERS = 100
DRAINED = 33_554_432
"""So many bytes of what is too large are taken and thrown away, so that the caller gets to read the answer."""
DRAIN_SECONDS = 2.0
"""So long they are waited for, where it was said before that there would be too many."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_LOST_PLUS = re.compile(r" (\d\d:?\d\d)$")


class Kind(StrEnum):
    """What a parameter may be."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    INSTANT = "instant"
    SEVERAL = "several"
    """Text that may be given again and again."""


async def read_body(request: Request, settings: HttpSettings) -> bytes:
    """The bytes of a body; refused when there are too many, they do not come, or they are no JSON by their headers."""
    check_encoding(request)
    body = await _bytes(request, settings)
    if body:
        _check_type(request.headers.getlist("content-type"))
    return body


def check_encoding(request: Request) -> None:
    """Refuse a body that is packed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise HttpError(
            415,
            "unsupported_media_type",
            f"Content-Encoding {shown(encoding)} is not read; send the body as it is",
            headers={"Accept-Encoding": "identity"},
        )


def declared_length(request: Request) -> int:
    """How long a body is said to be; 0 when nothing is said."""
    declared = request.headers.get("content-length", "0")
    return int(declared) if declared.isdecimal() and len(declared) < 20 else 0


def late(seconds: float) -> HttpError:
    """The error for a body that does not come."""
    return HttpError(
        408,
        "request_timeout",
        f"the body did not come within {seconds:g} seconds",
        headers={"Connection": "close"},
    )


def _check_type(types: list[str]) -> None:
    kind, _, parameters = (types[0] if len(types) == 1 else "").partition(";")
    charset = parameters.strip().lower().replace('"', "").replace(" ", "")
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        given = shown(types[0]) if types else "none"
        raise HttpError(
            415, "unsupported_media_type", f"the Content-Type must be application/json, in UTF-8; it is {given}"
        )


async def _bytes(request: Request, settings: HttpSettings) -> bytes:
    parts: list[bytes] = []
    size = 0
    is_too_large = declared_length(request) > settings.max_body
    if is_too_large and "expect" in request.headers:
        raise _too_large(settings)
    patience = min(settings.body_seconds, DRAIN_SECONDS) if is_too_large else settings.body_seconds
    try:
        async with asyncio.timeout(patience):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_body:
                    parts.clear()
                    is_too_large = True
                if size > DRAINED:
                    break
                if not is_too_large:
                    parts.append(part)
    except TimeoutError:
        if not is_too_large:
            raise late(settings.body_seconds) from None
    if is_too_large:
        raise _too_large(settings)
    return b"".join(parts)


def _too_large(settings: HttpSettings) -> HttpError:
    return HttpError(
        413,
        "payload_too_large",
        f"the body is larger than {settings.max_body:,} bytes",
        headers={"Connection": "close"},
    )


def read_query(query_string: bytes, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The parameters by name, each of its kind; whatever is unknown, wrong or given twice is refused."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except UnicodeError:
        raise InvalidRequest("the parameters are not UTF-8") from None
    except ValueError:
        raise InvalidRequest(f"there are more than {MAX_PARAMETERS} parameters") from None
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    for name, value in pairs:
        message = _take(found, kinds, name, value)
        if message is not None:
            problems.append(Problem(key_path(name), message, InvalidRequest.code))
    if problems:
        raise refusal(problems)
    return found


def _take(found: dict[str, Any], kinds: Mapping[str, Kind], name: str, text: str) -> str | None:
    """Keep a parameter; says what is wrong with it, if anything is."""
    kind = kinds.get(name)
    if kind is None:
        allowed = f"allowed are {', '.join(kinds)}" if kinds else "there are none here"
        return f"unknown parameter; {allowed}"
    if (wrong := text_problem(text)) is not None:
        return wrong
    if kind is Kind.SEVERAL:
        found.setdefault(name, []).append(text)
        return None
    if name in found:
        return "is given twice"
    try:
        found[name] = _value(kind, text)
    except ValueError as error:
        return str(error)
    return None


def _value(kind: Kind, text: str) -> object:
    if kind is Kind.INTEGER:
        if _WHOLE.fullmatch(text):
            return int(text)
        raise ValueError(f"must be a whole number, not {shown(text)}")
    if kind is Kind.BOOLEAN:
        if text in ("true", "false"):
            return text == "true"
        raise ValueError(f"must be true or false, not {shown(text)}")
    if kind is Kind.INSTANT:
        # A plus sign that was not escaped has become a blank on its way.
        return _LOST_PLUS.sub(r"+\1", text)
    return text


def read_match(header: str | None) -> tuple[str, ...] | None:
    """The tags that an If-Match header allows, without their quotes; None when every one will do."""
    if header is None or header.strip() == "*":
        return None
    tags = [one.strip() for one in header.split(",")]
    if not all(re.fullmatch(r'(?:W/)?"[^"]*"|[0-9]+', one) for one in tags):
        raise InvalidRequest('If-Match must be the ETag of a schedule, such as "3"', field="If-Match")
    return tuple(one.strip('"') for one in tags if not one.startswith("W/"))


JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request: its body is read, but not looked at yet."""

    service: Service
    caller: Caller
    path: Mapping[str, str]
    query_string: bytes
    headers: Headers
    body: bytes

    def perform(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do an operation, and wait for it."""
        return drive(perform(self.service, self.caller, operation, arguments))

    def query(self, kinds: Mapping[str, Kind]) -> dict[str, Any]:
        """The parameters, each of its kind; others are refused."""
        return read_query(self.query_string, kinds)

    def document(self, *, required: bool = True, repeats: bool = True) -> dict[str, Any]:
        """The body as an object; without one, an empty object where none is required.

        Of one that brings a secret, no error `repeats` anything.
        """
        if not self.body:
            if required:
                raise InvalidRequest("the body is empty; it must be a JSON object")
            return {}
        value = parse(self.body, repeats=repeats)
        if not isinstance(value, dict):
            raise InvalidRequest("the body must be a JSON object")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A status, a document and headers; or content of another kind."""

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: tuple[bytes, str] | None = None
    """Bytes and their media type, in place of a document."""

    @property
    def content(self) -> tuple[bytes, str]:
        """What is sent, and its media type."""
        return self.raw or (write_json(self.document), JSON)


if TYPE_CHECKING:
    Handler = Callable[[ApiRequest], ApiResponse]
