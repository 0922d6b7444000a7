"""Verifying: for a program that receives the requests of HTTP targets, and wants to know that they are Noonmark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.clocks import SystemClock
from noonmark.core.errors import NotAllowed
from noonmark.core.instants import to_micros
from noonmark.core.signatures import check_signature

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


def verify(headers: Mapping[str, str], body: bytes, key: str, *, now: datetime | None = None) -> str:
    """The id of the occurrence that a request was sent for; the same id again is the same work.

    The body is what came over the wire, before anything reads it. Raises `NotAllowed` unless the request was signed
    with this key within the last 5 minutes.
    """
    found = {name.lower(): value for name, value in headers.items()}
    occurrence_id = found.get("idempotency-key", "")
    at = SystemClock().micros() if now is None else to_micros(now)
    if not key:
        raise NotAllowed("there is no key to check the signature with")
    check_signature(found.get("noonmark-signature", ""), key, occurrence_id=occurrence_id, body=body, now=at)
    return occurrence_id
