"""Encrypted secrets."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from noonmark.stores import own_key

if TYPE_CHECKING:
    from noonmark.core.secret import Secret


class SecretStore:
    """The secrets of all tenants."""

    def __init__(self) -> None:
        """There are none yet."""
        self._secrets: defaultdict[str, dict[str, Secret]] = defaultdict(dict)

    @cached_property
    def own_key(self) -> bytes:
        """The key of the store itself."""
        return own_key.draw()

    def put(self, tenant: str, secret: Secret, most: int) -> Secret | None:
        """Store a secret, in place of one of the same name; None if it is new and there are too many."""
        stored = self._secrets[tenant]
        if secret.name not in stored and len(stored) >= most:
            return None
        known = stored.get(secret.name, secret)
        stored[secret.name] = replace(secret, created=known.created)
        return stored[secret.name]

    def every(self, tenant: str) -> list[Secret]:
        """The secrets of a tenant, by name."""
        return [secret for _, secret in sorted(self._secrets.get(tenant, {}).items())]

    def delete(self, tenant: str, name: str) -> Secret | None:
        """Delete a secret and return it."""
        return self._secrets.get(tenant, {}).pop(name, None)
