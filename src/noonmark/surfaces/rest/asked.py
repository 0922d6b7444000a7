"""What a handler is asked, and what it answers. Handlers run in threads, and may wait for the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest
from noonmark.operations.registry import perform
from noonmark.surfaces.rest.reading import read_query
from noonmark.surfaces.rest.writing import write_json
from noonmark.surfaces.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.datastructures import Headers

    from noonmark.operations.service import Caller, Service
    from noonmark.surfaces.rest.reading import Kind

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: its body is read, but not looked at yet."""

    service: Service
    caller: Caller
    path: Mapping[str, str]
    query_string: bytes
    headers: Headers
    body: bytes

    def perform(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do an operation, and wait for it."""
        return perform(self.service, self.caller, operation, arguments)

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
class Answer:
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
    Handler = Callable[[Asked], Answer]
