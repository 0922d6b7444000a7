"""API keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.api_key import ApiKey
    from noonmark.core.instants import Micros


class ApiKeys:
    """The keys of all tenants, by id."""

    def __init__(self) -> None:
        """There are none yet."""
        self._keys: dict[str, ApiKey] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: ApiKey, most: int) -> bool:
        """Store a key; False if its id is taken, or its tenant has too many."""
        active = sum(one.tenant == key.tenant and one.revoked is None for one in self._keys.values())
        if key.key_id in self._keys or active >= most:
            return False
        self._keys[key.key_id] = key
        return True

    def find(self, key_id: str) -> ApiKey | None:
        """The key with that id."""
        return self._keys.get(key_id)

    def page(self, tenant: str | None, limit: int, after: tuple[Micros, str] | None) -> list[ApiKey]:
        """The keys of a tenant, or of all, by creation time and id."""
        keys = [one for one in self._keys.values() if tenant in (None, one.tenant)]
        ordered = sorted(keys, key=lambda one: (one.created, one.key_id))
        return [one for one in ordered if after is None or (one.created, one.key_id) > after][:limit]

    def revoke(self, key_id: str, at: Micros, successor: ApiKey | None) -> ApiKey | None:
        """Revoke a key, and store the one that replaces it; None if that is impossible."""
        key = self._keys.get(key_id)
        if key is None:
            return None
        if successor is not None:
            if key.revoked is not None or successor.key_id in self._keys:
                return None
            self._keys[successor.key_id] = successor
        self._keys[key_id] = key.revoke(at)
        return self._keys[key_id]

    def use(self, used: Mapping[str, Micros]) -> None:
        """Store when keys were last used."""
        for key_id, at in used.items():
            key = self._keys.get(key_id)
            if key is not None and (key.used is None or key.used < at):
                self._keys[key_id] = replace(key, used=at)
