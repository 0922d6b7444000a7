"""Sealing: the only module that knows how secrets are encrypted. AES-256-GCM, bound to the tenant and the name."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
VERSION = "v1"
"""The format of a sealed value; another format would have another name."""
MAX_KEYS = 10


class AesSeal:
    """Keys, of which the first closes and every one opens: so keys can be changed one after another."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        """Each key has 32 bytes; `read_keys` makes them of text."""
        self._keys = tuple(keys)
        self._ciphers: tuple[AESGCM, ...] | None = None

    def close(self, tenant: str, name: str, value: str) -> str:
        """The value as the store keeps it."""
        nonce = os.urandom(NONCE_BYTES)
        closed = self._opened()[0].encrypt(nonce, value.encode(), _bound(tenant, name))
        return f"{VERSION}:{b64encode(nonce + closed).decode()}"

    def open(self, tenant: str, name: str, sealed: str) -> str | None:
        """The value again; None where no key opens it."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as below

        version, _, text = sealed.partition(":")
        try:
            raw = b64decode(text, validate=True)
        except ValueError:
            return None
        if version != VERSION or len(raw) <= NONCE_BYTES:
            return None
        for cipher in self._opened():
            try:
                return cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _bound(tenant, name)).decode()
            except InvalidTag:
                continue
        return None

    def _opened(self) -> tuple[AESGCM, ...]:
        if self._ciphers is None:
            # Imported with the first secret: the library takes long to load.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see above

            self._ciphers = tuple(AESGCM(key) for key in self._keys)
        return self._ciphers


def read_keys(text: object) -> tuple[bytes, ...]:
    """Keys in Base64, with commas between them; a ValueError says what is allowed, without the value."""
    refused = ValueError(
        f"must be 1 to {MAX_KEYS} keys of {KEY_BYTES} bytes in Base64, with commas between them, the newest first;"
        " `noonmark secret key` prints a fresh one"
    )
    if not isinstance(text, str):
        raise refused
    try:
        keys = tuple(b64decode(one.strip(), validate=True) for one in text.split(","))
    except ValueError:
        raise refused from None
    if len(keys) > MAX_KEYS or any(len(key) != KEY_BYTES for key in keys):
        raise refused
    return keys


def fresh_key() -> str:
    """A new random key."""
    return b64encode(os.urandom(KEY_BYTES)).decode()


def _bound(tenant: str, name: str) -> bytes:
    """What a sealed value belongs to: it opens for nothing else."""
    return json.dumps([tenant, name]).encode()
