"""Verification of signed requests, for programs that receive the requests of HTTP targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidRequest, NotAllowed
from noonmark.core.instants import to_micros
from noonmark.core.signatures import check_signature

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class Headers(Protocol):
    """The headers of a request: those of a web framework, or a dictionary."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Names, in any case, and values."""


def verify(
    headers: Headers, body: bytes, key: str | bytes | Sequence[str | bytes], *, now: datetime | None = None
) -> str:
    """Verify a request and return the id of its occurrence; the same id again is the same work.

    The body is the raw bytes that were received. Raises `NotAllowed` unless the request was signed with this key
    within the last 5 minutes. While a key is being replaced, give both. Raises `InvalidRequest` for arguments that are
    not headers, bytes and keys.
    """
    occurrence_id, text = _signed(headers)
    raw = _raw(body)
    at = SystemClock().micros() if now is None else to_micros(now)
    refusal = NotAllowed("there is no key to check the signature with")
    for candidate in filter(None, _keys(key)):
        try:
            check_signature(text, candidate, occurrence_id=occurrence_id, body=raw, now=at)
        except NotAllowed as refused:
            refusal = refused
        else:
            return occurrence_id
    raise refusal


def _signed(headers: Headers) -> tuple[str, str]:
    """The occurrence and the signature in the headers."""
    try:
        lowered = {name.lower(): value for name, value in headers.items()}
    except (AttributeError, TypeError, ValueError):
        what = "a dictionary, or the headers of a web framework"
        raise InvalidRequest(f"must be {what}, not {type(headers).__name__}", field="headers") from None
    values = lowered.get("idempotency-key", ""), lowered.get("noonmark-signature", "")
    if not all(isinstance(one, str) for one in values):
        raise InvalidRequest("must have a text for each name", field="headers")
    if not values[0].isascii():  # the sender is not trusted yet
        raise NotAllowed("the id of the occurrence is invalid")
    return values


def _raw(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    what = "the raw bytes that were received, before anything decodes them"
    raise InvalidRequest(f"must be {what}, not {type(body).__name__}", field="body")


def _keys(key: object) -> list[str]:
    """The keys as text; no error repeats a key."""
    several = [key] if isinstance(key, str | bytes) or not isinstance(key, Iterable) else list(key)
    try:
        return [one.decode() if isinstance(one, bytes) else _text(one) for one in several]
    except UnicodeDecodeError:
        raise InvalidRequest("is not a Noonmark key: those are text in UTF-8", field="key") from None


def _text(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidRequest(f"must be the signing key, or several of them, not {type(key).__name__}", field="key")
    return key
