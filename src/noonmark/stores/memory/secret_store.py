"""Secrets, as they were sealed."""

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
        self._kept: defaultdict[str, dict[str, Secret]] = defaultdict(dict)

    @cached_property
    def own_key(self) -> bytes:
        """The key of the store itself."""
        return own_key.draw()

    def keep(self, tenant: str, secret: Secret, most: int) -> Secret | None:
        """Keep a secret in the place of the one of that name; None where it is new, and there are too many."""
        kept = self._kept[tenant]
        if secret.name not in kept and len(kept) >= most:
            return None
        known = kept.get(secret.name, secret)
        kept[secret.name] = replace(secret, created=known.created)
        return kept[secret.name]

    def every(self, tenant: str) -> list[Secret]:
        """The secrets of a tenant, by name."""
        return [secret for _, secret in sorted(self._kept.get(tenant, {}).items())]

    def forget(self, tenant: str, name: str) -> Secret | None:
        """Remove a secret; what it was."""
        return self._kept.get(tenant, {}).pop(name, None)
