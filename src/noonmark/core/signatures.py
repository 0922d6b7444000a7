"""Signatures: how a receiver knows that a request is ours, and how we know that it speaks of one that we sent.

A request is signed over the time, the occurrence and the body, with a key that only the two sides have. Whoever takes
work over is given a token that ends this one delivery and no other. It is computed, so that nobody has to keep it.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING

from noonmark.core.errors import NotAllowed
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros

MAX_AGE: Micros = 300 * SECOND
"""A signature is good for so long, and a clock may be so wrong."""
MIN_KEY, MAX_KEY = 16, 500
_SIGNATURE = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})", re.ASCII)


def read_signing_key(value: object) -> str:
    """What requests are signed with; a ValueError says what is allowed, and does not repeat what was given."""
    if isinstance(value, str) and MIN_KEY <= len(value) <= MAX_KEY and value.isascii() and value.isprintable():
        return value
    raise ValueError(f"must be {MIN_KEY} to {MAX_KEY} printable ASCII characters")


def signature(key: str, *, at: Micros, occurrence_id: str, body: bytes) -> str:
    """What proves that whoever has the key sent this, at that time."""
    seconds = at // SECOND
    return f"t={seconds},v1={_digest(key, f'{seconds}.{occurrence_id}.'.encode() + body)}"


def check_signature(text: str, key: str, *, occurrence_id: str, body: bytes, now: Micros) -> None:
    """NotAllowed unless it was signed with this key, of late."""
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        raise NotAllowed("the signature is missing, or is not one of ours")
    seconds = int(found[1])
    expected = _digest(key, f"{seconds}.{occurrence_id}.".encode() + body)
    if not hmac.compare_digest(expected, found[2]):
        raise NotAllowed("the signature is wrong: another key, or the request was changed on its way")
    if abs(now - seconds * SECOND) > MAX_AGE:
        raise NotAllowed(f"the signature is more than {MAX_AGE // SECOND // 60} minutes old, or of the future")


def token_keys(signing_key: str | None, secret_key: str | None) -> tuple[str, ...]:
    """What tokens are made with: the first makes them, and each is good to check them. Without a signing key, none.

    Receivers have the signing key, to check signatures, and must not be able to make tokens for work that is not
    theirs: so a key that only nodes have is part of it, where there is one. Of several, all go on being good.
    """
    if signing_key is None:
        return ()
    own = _digest(signing_key, b"noonmark completion tokens")
    return tuple(_digest(own, one.strip().encode()) for one in (secret_key or "").split(","))


def completion_token(key: str, *, occurrence_id: str, fence: int) -> str:
    """What ends this delivery; the next delivery of the same occurrence has another."""
    return _digest(key, f"completion:{occurrence_id}:{fence}".encode())


def check_token(token: str, keys: Sequence[str], *, occurrence_id: str, fence: int) -> None:
    """NotAllowed unless it was made for this delivery, with one of the keys."""
    expected = [completion_token(key, occurrence_id=occurrence_id, fence=fence) for key in keys]
    if not any(hmac.compare_digest(one.encode(), token.encode()) for one in expected):
        raise NotAllowed("it is not the token of this delivery", field="token")


def _digest(key: str, message: bytes) -> str:
    return hmac.new(key.encode(), message, "sha256").hexdigest()
