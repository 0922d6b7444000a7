"""Bundles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from noonmark.core.errors import NotFound
from noonmark.stores.rules import bundles as rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.ports.bundles import Bundle
    from noonmark.stores.rules.bundles import Users


@dataclass(slots=True)
class _Content:
    created: Micros
    chunks: dict[int, bytes] = field(default_factory=dict)
    bundle: Bundle | None = None
    """Once it is kept."""


class Bundles:
    """The archives of all tenants."""

    def __init__(self, users: Users) -> None:
        """`users` finds what uses a bundle of a tenant, or one of some archives of it."""
        self._contents: dict[tuple[str, str], _Content] = {}
        self._users = users

    def add_chunk(
        self, tenant: str, content_id: str, number: int, data: bytes, limits: Sequence[Quota], now: Micros
    ) -> None:
        """Store a chunk of a push; the first begins it."""
        rules.check_bytes(limits, self.bytes(tenant), len(data))
        content = self._contents.get((tenant, content_id))
        if number == 0 and content is None:
            content = self._contents[tenant, content_id] = _Content(now)
        if content is None or content.bundle is not None:
            raise NotFound("the push of this bundle was dropped; push it again")
        content.chunks[number] = data

    def chunk(self, tenant: str, content_id: str, number: int) -> bytes | None:
        """One chunk of an archive."""
        content = self._contents.get((tenant, content_id))
        return None if content is None else content.chunks.get(number)

    def keep(self, bundle: Bundle, now: Micros) -> Bundle | None:
        """Make a push the newest archive of its id; None if it is unknown."""
        content = self._contents.get((bundle.tenant, bundle.content_id))
        if content is None or content.bundle is not None:
            return None
        others = self.versions(bundle.tenant, bundle.bundle_id)
        pushed = max([now, *(one.pushed + 1 for one in others)])
        stored = replace(bundle, created=content.created, pushed=pushed)
        same = next((one for one in others if one.digest == bundle.digest), None)
        if same is not None:
            del self._contents[bundle.tenant, bundle.content_id]
            stored = replace(stored, content_id=same.content_id, created=same.created)
        self._contents[bundle.tenant, stored.content_id].bundle = stored
        return stored

    def drop(self, tenant: str, content_id: str) -> None:
        """Forget a push that is not kept."""
        content = self._contents.get((tenant, content_id))
        if content is not None and content.bundle is None:
            del self._contents[tenant, content_id]

    def find(self, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
        """The newest archive of an id, or with a digest."""
        bundles = [one for one in self.versions(tenant, bundle_id) if digest in (None, one.digest)]
        return bundles[0] if bundles else None

    def page(self, tenant: str, limit: int, after: str | None) -> list[Bundle]:
        """The newest archive of each id."""
        newest: dict[str, Bundle] = {}
        for one in self.versions(tenant):
            newest.setdefault(one.bundle_id, one)
        return [newest[bundle_id] for bundle_id in sorted(newest) if bundle_id > (after or "")][:limit]

    def versions(self, tenant: str, bundle_id: str | None = None) -> list[Bundle]:
        """The archives of an id, or of all, newest first."""
        bundles = [
            one.bundle for (owner, _), one in self._contents.items() if owner == tenant and one.bundle is not None
        ]
        matching = [one for one in bundles if bundle_id in (None, one.bundle_id)]
        return sorted(matching, key=lambda one: one.pushed, reverse=True)

    def delete(self, tenant: str, bundle_id: str) -> list[str] | None:
        """Delete the archives of an id, unless something uses one; returns the ids of what does."""
        versions = self.versions(tenant, bundle_id)
        if not versions:
            return None
        if used := self._users(tenant, bundle_id, {one.digest for one in versions}):
            return used
        for one in versions:
            del self._contents[tenant, one.content_id]
        return []

    def bytes(self, tenant: str) -> int:
        """The bytes of a tenant's archives."""
        contents = [one for (owner, _), one in self._contents.items() if owner == tenant]
        return sum(len(data) for one in contents for data in one.chunks.values())

    def prune(self, *, before: Micros, unfinished_before: Micros, limit: int) -> int:
        """Delete replaced archives that nothing uses, and unfinished pushes."""
        keys = [key for key, one in self._contents.items() if self._is_old(key[0], one, before, unfinished_before)]
        for key in keys[:limit]:
            del self._contents[key]
        return len(keys[:limit])

    def _is_old(self, tenant: str, content: _Content, before: Micros, unfinished_before: Micros) -> bool:
        bundle = content.bundle
        if bundle is None:
            return content.created < unfinished_before
        newest = self.versions(tenant, bundle.bundle_id)[0]
        if bundle.pushed >= before or newest.content_id == bundle.content_id:
            return False
        return not self._users(tenant, None, {bundle.digest})
