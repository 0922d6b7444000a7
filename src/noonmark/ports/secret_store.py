"""What a store keeps of secrets: their names, their hosts, and their values, which it cannot read; and its own key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.audit import AuditEntry
    from noonmark.core.secret import Secret


class SecretStore(Protocol):
    """Secrets belong to a tenant, and have a name of their own there."""

    def keep_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        """Keep a secret, and a note of who asked; tells it as it is kept.

        It takes the place of the one of that name, which it leaves its time of creation. None, and nothing is kept,
        where the name is new and the tenant has `most` secrets already.
        """

    def secrets(self, tenant: str) -> list[Secret]:
        """The tenant's secrets, by name."""

    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        """Those of the tenant's secrets that have one of the names, by name."""

    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        """Remove a secret, and keep a note of who asked; what it was, or None where there is none of that name."""

    def own_key(self) -> bytes:
        """The key of the store itself: 32 random bytes, drawn when it is first asked for, and the same ever after.

        Whoever asks, from whichever process, is told the same one. It is among the secrets of no tenant.
        """
