"""The response to a request, as far as it is stored."""

from __future__ import annotations

import json
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, to_micros
from noonmark.core.json_values import json_problem, printable
from noonmark.core.redaction import MASK

if TYPE_CHECKING:
    import httpcore2

    from noonmark.core.instants import Micros
    from noonmark.core.redaction import Redactor

MAX_BODY = 65_536
MAX_GROWTH = 5
"""How many times as long JSON may be when it is written again: 9e15 has 18 digits then."""
MAX_HEADER = 1_000
MAX_DIGITS = 9
STORED_HEADERS = ("content-type", "content-encoding", "etag", "location", "retry-after", "x-request-id")
BODY_OMITTED = "not stored: the request carried a secret, and of such a response only JSON is stored"


@frozen(kw_only=True)
class Response:
    """A response, with at most `MAX_BODY` bytes of its body."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool
    """The body was longer."""

    def to_document(self, redactor: Redactor, *, only_json: bool) -> dict[str, Any]:
        """Return the response as JSON, its body by its content type, with secrets masked.

        The response to a request that carried a secret is stored `only_json`, because only there every string can be
        searched as it is meant; and not if it was cut, because the cut may go through a secret.
        """
        document: dict[str, Any] = {"status": self.status}
        headers = {name: self.headers[name] for name in STORED_HEADERS if name in self.headers}
        if headers:
            document["headers"] = {
                name: MASK if only_json and len(value) >= MAX_HEADER else redactor.text(value)
                for name, value in headers.items()
            }
        if not self.body:
            return document
        is_encoded = self.headers.get("content-encoding", "identity").lower() != "identity"
        is_json, value = (False, None) if is_encoded else self._json()
        if is_json:
            return document | {"body": redactor.json(value)}
        if only_json:
            size = {"body_cut": True} if self.is_cut else {"body_bytes": len(self.body)}
            return document | {"body_note": BODY_OMITTED} | size
        if is_encoded:
            return document  # an encoding was not accepted, and the decoded size has no limit
        text, is_cut = self._text()
        return document | {"body": redactor.text(text)} | ({"body_cut": True} if is_cut else {})

    def _json(self) -> tuple[bool, Any]:
        """Return whether the body is JSON that can be stored, and its value."""
        if "json" in self.headers.get("content-type", "").lower() and not self.is_cut:
            try:
                value = json.loads(self.body)
            except (ValueError, RecursionError):
                return False, None
            if json_problem(value) is not None:
                return False, None
            return MAX_GROWTH * len(self.body) <= MAX_BODY or _json_size(value) <= MAX_BODY, value
        return False, None

    def _text(self) -> tuple[str, bool]:
        text = self.body.decode(errors="replace").replace("\0", "\ufffd")
        is_cut = self.is_cut
        while _json_size(text) > MAX_BODY + 2:
            text, is_cut = text[: len(text) * 7 // 8], True
        return text, is_cut


async def read_response(response: httpcore2.Response) -> Response:
    """Read a response up to the limit of its body, and close it."""
    try:
        body, is_cut = bytearray(), False
        async for chunk in response.aiter_stream():
            body += chunk[: MAX_BODY + 1 - len(body)]
            if is_cut := len(body) > MAX_BODY:
                break
    finally:
        await response.aclose()
    headers = {name.decode("latin-1").lower(): _header_value(value) for name, value in reversed(response.headers)}
    return Response(status=response.status, headers=headers, body=bytes(body[:MAX_BODY]), is_cut=is_cut)


def retry_after(text: str, *, now: Micros) -> Micros:
    """Parse a Retry-After header: seconds, or a date; 0 if it is invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[:MAX_DIGITS]) * SECOND
    try:
        when = parsedate_to_datetime(text)
        return max(0, to_micros(when.replace(tzinfo=when.tzinfo or UTC)) - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0


def status_text(status: int) -> str:
    """The number and the name of a status."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _json_size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _header_value(value: bytes) -> str:
    return printable(value[:MAX_HEADER].decode(errors="replace"))[:MAX_HEADER]
