"""The transport: how a request is sent over HTTP, when it is sent again, and how its answer is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from secrets import token_hex
from ssl import SSLCertVerificationError, SSLError
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import httpx2

from noonmark.core.errors import InvalidRequest, InvalidSchedule, InvalidTrigger, NoonmarkError, Problem, Unreachable
from noonmark.core.frozen import frozen
from noonmark.core.instants import to_micros, to_text
from noonmark.core.json_values import shown
from noonmark.operations.errors import error_of
from noonmark.operations.table import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.operations.models.answers import Document
    from noonmark.operations.table import Operation

T = TypeVar("T")
Outcome = httpx2.Response | httpx2.TransportError

_MISSING_NAME = re.compile(r"{(\w+)}")
_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""A header has no blank at either end."""
JSON = {"Content-Type": "application/json"}
MAX_TRIES = 3
FIRST_WAIT = 0.2
"""Seconds before the second try; each further one waits four times as long."""
MAX_WAIT = 30.0
"""If a server asks for a longer wait, the error is raised at once."""
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors after which the server has received nothing."""
NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})
"""How versions of OpenSSL name an answer that is not TLS."""
BUSY, UNAVAILABLE = 429, (502, 503, 504)


class Http(NamedTuple):
    """An HTTP request, without the address of a server."""

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}


@frozen(kw_only=True)
class Request(Generic[T]):
    """An HTTP request, how its answer is read, and whether it may be sent again if it may have arrived."""

    http: Http
    read: Callable[[Any], T]
    is_repeatable: bool = True


@frozen
class Page(Generic[T]):
    """Part of a list, and the cursor of the next part."""

    entries: list[T]
    next_cursor: str | None


@frozen(kw_only=True)
class Listing(Generic[T]):
    """A list that comes in pages."""

    operation: str
    arguments: Mapping[str, Any]
    read: Callable[[Any], Page[T]]

    def page(self, cursor: str | None) -> Request[Page[T]]:
        """The request for the page at a cursor; None for the first."""
        return rest_request(self.operation, self.read, {**self.arguments, **to_arguments(cursor=cursor)})


def rest_request(
    operation: str, read: Callable[[Any], T], arguments: Mapping[str, Any], *, route: str | None = None
) -> Request[T]:
    """The request for an operation over REST."""
    row = OPERATIONS[operation]
    return Request(
        http=_http(row, route or row.route, _with_key(row, arguments)), read=read, is_repeatable=row.is_repeatable
    )


def rpc_request(name: str, read: Callable[[Any], T], arguments: Mapping[str, Any]) -> Request[T]:
    """The request for any operation over JSON-RPC."""
    row = OPERATIONS.get(name)
    params = dict(arguments) if row is None else _with_key(row, arguments)
    call = {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
    is_repeatable = row is None or row.is_repeatable
    return Request(http=Http("POST", "/rpc", _json(call), JSON), read=read, is_repeatable=is_repeatable)


def _with_key(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with a new key if the operation takes one and they have none."""
    if operation.key is None or arguments.get(operation.key) is not None:
        return dict(arguments)
    return {**arguments, operation.key: fresh_key()}


def fresh_key() -> str:
    """A unique key."""
    return f"client-{token_hex(16)}"


def to_arguments(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None, as JSON."""
    return {name: _argument(name, value) for name, value in arguments.items() if value is not None}


def _argument(name: str, value: Any) -> Any:
    try:
        return to_json(value)
    except InvalidTrigger as error:
        raise InvalidRequest(error.message, field=f"{name}.{error.field}") from None
    except ValueError as error:  # a naive datetime
        raise InvalidRequest(str(error), field=name) from None


def to_json(value: Any) -> Any:
    """A value as JSON: an instant as text, a trigger as its document."""
    if isinstance(value, datetime):
        return to_text(to_micros(value))
    return value.to_document() if hasattr(value, "to_document") else value


def _http(operation: Operation, route: str, arguments: dict[str, Any]) -> Http:
    method, _, path = route.partition(" ")
    for name in [name for name in arguments if f"{{{name}}}" in path]:
        path = path.replace(f"{{{name}}}", segment(name, arguments.pop(name)))
    if (missing := _MISSING_NAME.search(path)) is not None:
        segment(missing[1], None)
    headers: dict[str, str] = {}
    if operation.key is not None and operation.has_key_header:
        headers |= key_header(operation.key, arguments.pop(operation.key))
    if method not in ("GET", "DELETE"):
        return Http(method, path, _json(arguments), headers | JSON)
    query = urlencode([pair for name, value in arguments.items() for pair in _query(name, value)])
    return Http(method, f"{path}?{query}" if query else path, None, headers)


def _json(document: dict[str, Any]) -> bytes:
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"cannot be sent as JSON: {error}") from None


def segment(name: str, value: object) -> str:
    """An id or a name as a segment of a path; anything else could lead to another path."""
    if isinstance(value, str) and value not in ("", ".", "..") and "/" not in value:
        with suppress(UnicodeEncodeError):
            return quote(value, safe="")
    # The name of a secret is not repeated: the secret itself may have been given in its place.
    shown_value = "" if name == "name" else f", not {shown(value)}"
    raise InvalidRequest(f"must have letters, digits, -, _, . or : and nothing else{shown_value}", field=name)


def key_header(name: str, key: object) -> dict[str, str]:
    """The Idempotency-Key header; `name` is the argument that gives the key."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise InvalidRequest(f"must be a text of printable ASCII characters, not {shown(key)}", field=name)
    return {"Idempotency-Key": key}


def _query(name: str, value: Any) -> list[tuple[str, str]]:
    """An argument as parameters of a query."""
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    if isinstance(value, Mapping):
        return [(name.removesuffix("s"), f"{key}={one}") for key, one in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(name, ",".join(str(one) for one in value))]
    return [(name, str(value))]


def retry_delay(request: Request[Any], outcome: Outcome, tries: int) -> float | None:
    """The seconds until the next try; None if this outcome is final."""
    if tries >= MAX_TRIES or not _is_transient(request, outcome):
        return None
    wait = FIRST_WAIT * 4 ** (tries - 1)
    if isinstance(outcome, httpx2.Response):
        retry_after = outcome.headers.get("retry-after", "")
        wait = max(wait, float(retry_after)) if retry_after.isdecimal() else wait
    return wait if wait <= MAX_WAIT else None


def _is_transient(request: Request[Any], outcome: Outcome) -> bool:
    """Whether another try may succeed, and would do nothing twice."""
    if isinstance(outcome, httpx2.TransportError):
        return isinstance(outcome, NOT_SENT) or request.is_repeatable
    if outcome.status_code == BUSY:
        # Refused before anything was done. Without a time, it is a quota, which waiting does not help.
        return "retry-after" in outcome.headers
    return request.is_repeatable and outcome.status_code in UNAVAILABLE


def read_answer(request: Request[T], outcome: Outcome) -> T:
    """The value of an answer, or its error raised."""
    if isinstance(outcome, httpx2.TransportError):
        raise _unreachable(request, outcome) from outcome
    document = _document(outcome)
    if not outcome.is_success:
        raise _misplaced(request, outcome, document) or _refused(outcome, document)
    try:
        return request.read(document)
    except NoonmarkError:  # some of them are ValueErrors too
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NoonmarkError(f"{outcome.url} did not answer as Noonmark does; is it another program?") from error


def read_result(answer: Document) -> Document:
    """The result of a JSON-RPC response, or its error raised."""
    if "error" in answer:
        raise read_error(_without_params(answer["error"]["data"]))
    result: Document = answer["result"]
    return result


def _without_params(document: Document) -> Document:
    """An error whose fields are named as in the arguments, without the `params` of the call."""
    problems = {"problems": [_without_params(one) for one in document["problems"]]} if "problems" in document else {}
    field = {"field": document["field"].removeprefix("params.")} if "field" in document else {}
    return document | problems | field


def read_error(document: Document) -> NoonmarkError:
    """The error of a problem document, as the operation raised it in the server."""
    error = error_of(document["code"], document["detail"], field=document.get("field", ""))
    if isinstance(error, InvalidSchedule) and "problems" in document:
        error.problems = tuple(Problem(one["field"], one["detail"], one["code"]) for one in document["problems"])
    if request_id := document.get("request_id"):
        error.request_id = request_id
        error.add_note(f"The server logs this as request {request_id}.")
    return error


def _document(response: httpx2.Response) -> Any:
    """The JSON of an answer; None if it is not JSON."""
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


MISPLACED = frozenset({"not_found", "method_not_allowed"})
"""What a server answers where no operation is, without a field."""


def _misplaced(request: Request[Any], response: httpx2.Response, document: object) -> NoonmarkError | None:
    """The error of a base URL that leads to another part of a server, such as its web page; None if it does not."""
    is_below = response.url.path != request.http.path.partition("?")[0]
    if not is_below or not isinstance(document, dict) or document.get("code") not in MISPLACED or "field" in document:
        return None
    server = f"{response.url.scheme}://{response.url.netloc.decode('ascii')}"
    return error_of(document["code"], f"{response.url.copy_with(query=None)} is not part of the API; use {server}")


def _refused(response: httpx2.Response, document: object) -> NoonmarkError:
    if isinstance(document, dict) and isinstance(document.get("code"), str) and "detail" in document:
        return read_error(document)
    what = f"{response.url} answered {response.status_code} {response.reason_phrase}, and not as Noonmark does"
    return Unreachable(what) if response.status_code in UNAVAILABLE else NoonmarkError(what)


def is_untrusted(error: BaseException) -> bool:
    """Whether the certificate of the server is the reason for an error."""
    return isinstance(_tls_error(error), SSLCertVerificationError)


def lacks_tls(error: BaseException) -> bool:
    """Whether the reason for an error is that the server answers without TLS."""
    problem = _tls_error(error)
    return problem is not None and problem.reason in NO_TLS


def _tls_error(error: BaseException) -> SSLError | None:
    """The TLS error that an error follows from; None if there is none."""
    while error.__cause__ is not None:
        error = error.__cause__
    # What an error is raised for may be its context only; the context of that may be an error that the caller handles.
    return next((one for one in (error, error.__context__) if isinstance(one, SSLError)), None)


def _unreachable(request: Request[Any], error: httpx2.TransportError) -> Unreachable:
    scheme, host = error.request.url.scheme, error.request.url.netloc.decode("ascii")
    where = f"{scheme}://{host}"
    if is_untrusted(error):
        return Unreachable(f"the certificate of {where} is not trusted ({error})")
    if lacks_tls(error):
        return Unreachable(f"{where} answers without TLS; is its address http://{host}?")
    if isinstance(error, NOT_SENT):
        return Unreachable(f"cannot connect to {where} ({type(error).__name__}: {error}); is `noonmark serve` running?")
    known = "" if request.http.method == "GET" else "; the request may or may not have been performed"
    if isinstance(error, httpx2.RemoteProtocolError) and scheme == "http":
        known += f"; if it has a certificate, its address is https://{host}"
    return Unreachable(f"{where} did not answer ({type(error).__name__}: {error}){known}")
