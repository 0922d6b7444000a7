"""Verifying: for a program that receives the requests of HTTP targets, and wants to know that they are Noonmark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.clocks import SystemClock
from noonmark.core.errors import NotAllowed
from noonmark.core.instants import to_micros
from noonmark.core.signatures import check_signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


class Headers(Protocol):
    """The headers of a request, as any web framework has them, or a dictionary."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Names and values, in whatever case."""


def verify(headers: Headers, body: bytes, key: str | Sequence[str], *, now: datetime | None = None) -> str:
    """The id of the occurrence that a request was sent for; the same id again is the same work.

    The body is what came over the wire, before anything reads it. Raises `NotAllowed` unless the request was signed
    with this key within the last 5 minutes. While a key is replaced by another, give both.
    """
    found = {name.lower(): value for name, value in headers.items()}
    occurrence_id, text = found.get("idempotency-key", ""), found.get("noonmark-signature", "")
    at = SystemClock().micros() if now is None else to_micros(now)
    refusal = NotAllowed("there is no key to check the signature with")
    for one in filter(None, [key] if isinstance(key, str) else key):
        try:
            check_signature(text, one, occurrence_id=occurrence_id, body=body, now=at)
        except NotAllowed as refused:
            refusal = refused
        else:
            return occurrence_id
    raise refusal
