"""Requests: one operation with its arguments, and how it is asked for over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from noonmark.client.keys import KEYS, ONCE, fresh_key
from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import to_micros, to_text
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.client.values import Page

T = TypeVar("T")

ROUTES: Mapping[str, str] = {
    "schedule/create": "POST /schedules",
    "schedule/upsert": "POST /schedules/upsert",
    "schedule/get": "GET /schedules/{schedule_id}",
    "schedule/list": "GET /schedules",
    "schedule/count": "GET /schedules/count",
    "schedule/update": "PATCH /schedules/{schedule_id}",
    "schedule/pause": "POST /schedules/{schedule_id}/pause",
    "schedule/resume": "POST /schedules/{schedule_id}/resume",
    "schedule/delete": "DELETE /schedules/{schedule_id}",
    "schedule/run": "POST /schedules/{schedule_id}/run",
    "schedule/backfill": "POST /schedules/{schedule_id}/backfill",
    "schedule/preview": "GET /schedules/{schedule_id}/preview",
    "schedule/occurrences": "GET /schedules/{schedule_id}/occurrences",
    "schedule/runs": "GET /schedules/{schedule_id}/runs",
    "schedule/explain": "GET /schedules/{schedule_id}/explain",
    "occurrence/get": "GET /occurrences/{occurrence_id}",
    "occurrence/runs": "GET /occurrences/{occurrence_id}/runs",
    "occurrence/explain": "GET /occurrences/{occurrence_id}/explain",
    "occurrence/complete": "POST /occurrences/{occurrence_id}/complete",
    "occurrence/fail": "POST /occurrences/{occurrence_id}/fail",
    "occurrence/cancel": "POST /occurrences/{occurrence_id}/cancel",
    "run/get": "GET /runs/{run_id}",
    "event/emit": "POST /events",
    "event/list": "GET /events",
    "secret/set": "PUT /secrets/{name}",
    "secret/list": "GET /secrets",
    "secret/delete": "DELETE /secrets/{name}",
    "signing/key": "GET /signing-key",
    "event/match": "POST /events/match",
    "trigger/list": "GET /triggers",
    "upload/list": "GET /uploads",
    "upload/delete": "DELETE /uploads/{upload_id}",
    "node/list": "GET /nodes",
    "doctor": "GET /doctor",
    "audit/list": "GET /audit",
    "worker/start": "POST /worker/start",
    "worker/stop": "POST /worker/stop",
    "worker/confirm-time": "POST /worker/confirm-time",
    "worker/status": "GET /worker/status",
}
"""Every operation, with its method and path."""
_LEFT = re.compile(r"{(\w+)}")
"""What nothing was put in the place of."""
_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""A header has no blank at either end."""
BARE_PREVIEW = "POST /schedules/preview"
JSON = {"Content-Type": "application/json"}


class Http(NamedTuple):
    """What is sent: nothing of it depends on the server that gets it."""

    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[T]):
    """What is sent, how its answer is read, and whether it can be sent again when nobody knows if it arrived."""

    http: Http
    read: Callable[[Any], T]
    is_repeatable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """A list that comes in pages."""

    operation: str
    arguments: Mapping[str, Any]
    read: Callable[[Any], Page[T]]

    def page(self, cursor: str | None) -> Request[Page[T]]:
        """The request for the page at a cursor; the first has none."""
        return ask(self.operation, self.read, {**self.arguments, **given(cursor=cursor)})


def ask(operation: str, read: Callable[[Any], T], arguments: Mapping[str, Any], *, route: str = "") -> Request[T]:
    """The request for an operation over REST."""
    return Request(
        http=_http(route or ROUTES[operation], operation, with_key(operation, arguments)),
        read=read,
        is_repeatable=operation not in ONCE,
    )


def ask_by_name(operation: str, read: Callable[[Any], T], arguments: Mapping[str, Any]) -> Request[T]:
    """The request for any operation over JSON-RPC."""
    call = {"jsonrpc": "2.0", "id": 1, "method": operation, "params": with_key(operation, arguments)}
    return Request(http=Http("POST", "/rpc", _text(call), JSON), read=read, is_repeatable=operation not in ONCE)


def with_key(operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with a key of their own, where the operation takes one and they have none."""
    name = KEYS.get(operation)
    if name is None or arguments.get(name) is not None:
        return dict(arguments)
    return {**arguments, name: fresh_key()}


def given(**arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON, or what stands for it
    """The arguments that are not None, as JSON."""
    return {name: plain(value) for name, value in arguments.items() if value is not None}


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON, or what stands for it
    """A value as JSON: an instant as text, a trigger as its document."""
    if isinstance(value, datetime):
        return to_text(to_micros(value))
    return value.to_document() if hasattr(value, "to_document") else value


def _http(route: str, operation: str, arguments: dict[str, Any]) -> Http:
    method, _, path = route.partition(" ")
    for name in [one for one in arguments if f"{{{one}}}" in path]:
        path = path.replace(f"{{{name}}}", segment(name, arguments.pop(name)))
    if (missing := _LEFT.search(path)) is not None:
        segment(missing[1], None)
    headers: dict[str, str] = {}
    # An event has its id in the body; the others have the header that HTTP knows for this.
    if operation in KEYS and operation != "event/emit":
        headers |= key_header(KEYS[operation], arguments.pop(KEYS[operation]))
    if method not in ("GET", "DELETE"):
        return Http(method, path, _text(arguments), headers | JSON)
    query = urlencode([pair for name, value in arguments.items() for pair in _pairs(name, value)])
    return Http(method, f"{path}?{query}" if query else path, None, headers)


def _text(document: dict[str, Any]) -> bytes:
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"cannot be sent as JSON: {error}") from None


def segment(name: str, value: object) -> str:
    """An id or a name as a part of a path; what is none would lead elsewhere."""
    if isinstance(value, str) and value not in ("", ".", "..") and "/" not in value:
        with suppress(UnicodeEncodeError):
            return quote(value, safe="")
    # Whoever gives a secret in place of its name does not want to read it again.
    given = "" if name == "name" else f", not {shown(value)}"
    raise InvalidRequest(f"must have letters, digits, -, _, . or : and nothing else{given}", field=name)


def key_header(name: str, key: object) -> dict[str, str]:
    """The header that says under which key a request is done once; `name` is the argument that gives the key."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise InvalidRequest(f"must be a text of printable ASCII characters, not {shown(key)}", field=name)
    return {"Idempotency-Key": key}


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - JSON
    """A parameter as a query says it."""
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    if isinstance(value, Mapping):
        return [(name.removesuffix("s"), f"{key}={one}") for key, one in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(name, ",".join(str(one) for one in value))]
    return [(name, str(value))]


def several(hosts: object) -> object:
    """A list, unless it is one text: that is refused by whoever judges it, and not taken apart here."""
    return hosts if isinstance(hosts, str) or not isinstance(hosts, Iterable) else list(hosts)
