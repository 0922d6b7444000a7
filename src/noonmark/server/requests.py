"""API requests and responses: limits on bodies, typed query parameters, JSON documents.

Handlers take an `ApiRequest` and return an `ApiResponse`. They run in threads and may wait for the store.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from noonmark.core.errors import InvalidRequest, Problem, refusal
from noonmark.core.frozen import frozen
from noonmark.core.json_values import key_path, shown, text_problem
from noonmark.operations.creations import create_alone
from noonmark.operations.table import SMALL_PAGE, Quick, perform, perform_in_steps
from noonmark.server.problems import HttpError
from noonmark.server.strict_json import parse, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.datastructures import Headers
    from starlette.requests import Request

    from noonmark.operations.creations import Creation
    from noonmark.operations.service import Caller, Service

JSON = "application/json"
MAX_BODY = 1_048_576
SMALL_BODY = 16_384
MAX_PARAMETERS = 100
MAX_DRAINED = 33_554_432
"""Bytes of an oversized body that are read and discarded, so that the client gets to read the answer."""
DRAIN_SECONDS = 2.0
"""Time limit for that, when Content-Length already says that the body is too large."""
_SMALL_PAGE = re.compile(rb"(?:cursor=[^&]*&)?limit=([0-9]{1,3})(?:&cursor=[^&]*)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_LOST_PLUS = re.compile(r" (\d\d:?\d\d)$")


@frozen(kw_only=True)
class HttpSettings:
    """How the server is reached, and how much it reads. Loopback addresses are always allowed as hosts."""

    host: str = "127.0.0.1"
    port: int = 8001
    allowed_hosts: tuple[str, ...] = ()
    """More host names that clients may use, without a port."""
    public_url: str | None = None
    """The address that clients use when a proxy stands in front, such as https://noonmark.example.org."""
    max_body: int = MAX_BODY
    checks_host: bool = True
    """Whether the Host header must name this server. Where every call needs a key, a page of another site has none."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose X-Forwarded headers are believed."""
    visibility: str = "tenant"
    """What a user sees who is not an administrator: all of the `tenant`, or as `owner` the own schedules."""
    body_seconds: float = 20.0
    """Time limit for receiving a body."""
    max_streams: int = 100
    """How many streams of changes may be open at once."""
    has_page: bool = True
    """Whether the web page is served."""


class ParameterType(StrEnum):
    """The type of a query parameter."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    INSTANT = "instant"
    SEVERAL = "several"
    """Text; the parameter may be repeated."""


@frozen(kw_only=True)
class ApiRequest:
    """One request, with its body read but not parsed."""

    service: Service
    caller: Caller
    path: Mapping[str, str]
    query_string: bytes
    headers: Headers
    body: bytes
    exceeded: Callable[[], str | None] = lambda: None
    """Counts another call of this request; says which rate limit refuses it, or None."""

    def perform(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation and return its answer."""
        return perform(self.service, self.caller, operation, arguments)

    def perform_in_steps(self, operation: str, arguments: Mapping[str, Any]) -> Creation[dict[str, Any]]:
        """Run an operation that yields the schedules it creates."""
        return perform_in_steps(self.service, self.caller, operation, arguments)

    def query(self, kinds: Mapping[str, ParameterType]) -> dict[str, Any]:
        """The query parameters, each of its type; unknown ones are rejected."""
        return read_query(self.query_string, kinds)

    def document(self, *, required: bool = True, repeats: bool = True) -> dict[str, Any]:
        """The body as a JSON object; an empty object if there is no body and none is required.

        With `repeats=False`, errors quote nothing of the body: it may hold a secret.
        """
        if not self.body:
            if required:
                raise InvalidRequest("the body is empty; it must be a JSON object")
            return {}
        value = parse(self.body, repeats=repeats)
        if not isinstance(value, dict):
            raise InvalidRequest("the body must be a JSON object")
        return value


@frozen(kw_only=True)
class ApiResponse:
    """A status, headers and a JSON document, or content of another type."""

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: tuple[bytes, str] | None = None
    """Bytes and their media type, instead of a document."""

    @property
    def content(self) -> tuple[bytes, str]:
        """The bytes to send, and their media type."""
        return self.raw or (write_json(self.document), JSON)


if TYPE_CHECKING:
    Handler = Callable[[ApiRequest], ApiResponse]


@frozen
class CreatingHandler:
    """A handler that yields the schedules it creates, so that the requests of several callers share a transaction."""

    steps: Callable[[ApiRequest], Creation[ApiResponse]]

    def __call__(self, request: ApiRequest) -> ApiResponse:
        """Handle a request by itself."""
        return create_alone(request.service.store, self.steps(request))

    def may_share(self, request: ApiRequest) -> bool:
        """Whether others should wait for this request: it is small, and its key is not looked up first."""
        is_keyed = "idempotency-key" in request.headers or b"idempotency_key" in request.body
        return len(request.body) <= SMALL_BODY and not is_keyed


@frozen
class ReadingHandler:
    """A handler of an operation that has quick calls."""

    handle: Handler
    quick: Quick

    def __call__(self, request: ApiRequest) -> ApiResponse:
        """Handle a request."""
        return self.handle(request)

    def is_quick(self, request: ApiRequest) -> bool:
        """Whether a request reads little. For callers who see their own schedules only, every page has a filter."""
        if self.quick is Quick.RECORD:
            return True
        match = _SMALL_PAGE.fullmatch(request.query_string)
        return match is not None and int(match[1]) <= SMALL_PAGE and not request.caller.sees_own_only


@frozen
class TextHandler:
    """A handler whose body is text of any media type."""

    handle: Handler

    def __call__(self, request: ApiRequest) -> ApiResponse:
        """Handle a request."""
        return self.handle(request)


async def read_body(request: Request, settings: HttpSettings, *, is_json: bool = True) -> bytes:
    """Read a body; reject one that is too large, too slow, or is not JSON where it must be."""
    check_encoding(request)
    body = await _receive(request, settings)
    if body and is_json:
        _check_content_type(request.headers.getlist("content-type"))
    return body


def check_encoding(request: Request) -> None:
    """Reject a compressed body."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise HttpError(
            415,
            "unsupported_media_type",
            f"unsupported Content-Encoding {shown(encoding)}; send the body uncompressed",
            headers={"Accept-Encoding": "identity"},
        )


def declared_length(request: Request) -> int:
    """The Content-Length; 0 if there is none."""
    declared = request.headers.get("content-length", "0")
    return int(declared) if declared.isdecimal() and len(declared) < 20 else 0


def body_timeout(seconds: float) -> HttpError:
    """The error for a body that is not received in time."""
    return HttpError(
        408,
        "request_timeout",
        f"the body was not received within {seconds:g} seconds",
        headers={"Connection": "close"},
    )


def _check_content_type(types: list[str]) -> None:
    kind, _, parameters = (types[0] if len(types) == 1 else "").partition(";")
    charset = parameters.strip().lower().replace('"', "").replace(" ", "")
    if kind.strip().lower() != JSON or charset not in ("", "charset=utf-8"):
        given = shown(types[0]) if types else "none"
        raise HttpError(
            415, "unsupported_media_type", f"the Content-Type must be application/json in UTF-8; it is {given}"
        )


async def _receive(request: Request, settings: HttpSettings) -> bytes:
    parts: list[bytes] = []
    size = 0
    is_too_large = declared_length(request) > settings.max_body
    if is_too_large and "expect" in request.headers:
        raise _too_large(settings)
    time_limit = min(settings.body_seconds, DRAIN_SECONDS) if is_too_large else settings.body_seconds
    try:
        async with asyncio.timeout(time_limit):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_body:
                    parts.clear()
                    is_too_large = True
                if size > MAX_DRAINED:
                    break
                if not is_too_large:
                    parts.append(part)
    except TimeoutError:
        if not is_too_large:
            raise body_timeout(settings.body_seconds) from None
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


def read_query(query_string: bytes, kinds: Mapping[str, ParameterType]) -> dict[str, Any]:
    """Parse query parameters by type; unknown, invalid and repeated ones are rejected, all in one error."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except UnicodeError:
        raise InvalidRequest("the parameters are not UTF-8") from None
    except ValueError:
        raise InvalidRequest(f"there are more than {MAX_PARAMETERS} parameters") from None
    problems: list[Problem] = []
    parameters: dict[str, Any] = {}
    for name, text in pairs:
        message = _add_parameter(parameters, kinds, name, text)
        if message is not None:
            problems.append(Problem(key_path(name), message, InvalidRequest.code))
    if problems:
        raise refusal(problems)
    return parameters


def _add_parameter(parameters: dict[str, Any], kinds: Mapping[str, ParameterType], name: str, text: str) -> str | None:
    """Add one parameter; returns the message if it is invalid."""
    kind = kinds.get(name)
    if kind is None:
        allowed = f"allowed are {', '.join(kinds)}" if kinds else "there are none here"
        return f"unknown parameter; {allowed}"
    if (problem := text_problem(text)) is not None:
        return problem
    if kind is ParameterType.SEVERAL:
        parameters.setdefault(name, []).append(text)
        return None
    if name in parameters:
        return "is given twice"
    try:
        parameters[name] = _parse_value(kind, text)
    except ValueError as error:
        return str(error)
    return None


def _parse_value(kind: ParameterType, text: str) -> object:
    if kind is ParameterType.INTEGER:
        if _INTEGER.fullmatch(text):
            return int(text)
        raise ValueError(f"must be an integer, not {shown(text)}")
    if kind is ParameterType.BOOLEAN:
        if text in ("true", "false"):
            return text == "true"
        raise ValueError(f"must be true or false, not {shown(text)}")
    if kind is ParameterType.INSTANT:
        # URL decoding turns an unescaped plus sign into a blank.
        return _LOST_PLUS.sub(r"+\1", text)
    return text


def read_if_match(header: str | None) -> tuple[str, ...] | None:
    """The tags of an If-Match header without quotes; None if any state matches."""
    if header is None or header.strip() == "*":
        return None
    tags = [one.strip() for one in header.split(",")]
    if not all(re.fullmatch(r'(?:W/)?"[^"]*"|[0-9]+', one) for one in tags):
        problem = 'If-Match must be the whole ETag of a schedule, such as "3-2027-01-02T09:00:00Z"'
        raise InvalidRequest(problem, field="If-Match")
    return tuple(one.strip('"') for one in tags if not one.startswith("W/"))
