"""The random key of a store. The keys of receivers and of tokens are derived from it."""

from __future__ import annotations

from secrets import token_bytes  # noqa: TID251 - it must not be computable

from noonmark.core.errors import StoreUnavailable

SIZE = 32
"""Bytes."""


def draw() -> bytes:
    """A new random key."""
    return token_bytes(SIZE)


def read(text: str) -> bytes:
    """Parse a stored key. Errors do not repeat it."""
    try:
        key = bytes.fromhex(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != SIZE:
        raise StoreUnavailable("the stored record of the store's own key is damaged")
    return key
