"""The key that a store draws for itself, once; the keys that receivers know, and those of tokens, follow from it."""

from __future__ import annotations

from secrets import token_bytes  # noqa: TID251 - it must not be computable

from noonmark.core.errors import StoreUnavailable

SIZE = 32
"""Bytes."""


def draw() -> bytes:
    """A new random key."""
    return token_bytes(SIZE)


def read(text: str) -> bytes:
    """One as a database keeps it, which is never repeated in an error."""
    try:
        key = bytes.fromhex(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != SIZE:
        raise StoreUnavailable("the stored record of the store's own key is damaged")
    return key
