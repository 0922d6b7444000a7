"""The seal: encrypts the values of secrets, so that the store alone cannot reveal them."""

from __future__ import annotations

from typing import Protocol


class Seal(Protocol):
    """Encrypts with one key and decrypts with any of its keys."""

    def close(self, tenant: str, name: str, value: str) -> str:
        """The encrypted value; it decrypts only for this tenant and name."""

    def open(self, tenant: str, name: str, sealed: str) -> str | None:
        """The decrypted value; None if no key fits."""
