"""The seal: what makes the value of a secret unreadable to everybody who only has the store."""

from __future__ import annotations

from typing import Protocol


class Seal(Protocol):
    """Closes with one key, and opens with any that it has."""

    def close(self, tenant: str, name: str, value: str) -> str:
        """The value as the store keeps it; it opens for no other tenant, and under no other name."""

    def open(self, tenant: str, name: str, sealed: str) -> str | None:
        """The value again; None where no key opens it."""
