"""Bundles in a store: archives by tenant and id, in chunks, so that every node can read them without a shared disk."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import AuditEntry

CHUNK = 262_144
"""Bytes of every chunk of an archive but the last, which may have fewer."""


@frozen(kw_only=True)
class Bundle:
    """One archive under one id."""

    tenant: str
    bundle_id: str
    digest: str
    """The SHA-256 of the archive."""
    manifest: dict[str, Any] = field(hash=False, repr=False)
    size: int
    files: int
    content_id: str
    """What its chunks are stored under."""
    user: str
    source: str
    """The surface that it came by."""
    created: Micros
    """When it was first pushed."""
    pushed: Micros
    """When it was last pushed: the newest of an id is the one that runs."""
    workflow_version: int | None = None
    """The version of the workflow that was stored with it, if it has one."""

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return -(-self.size // CHUNK)


class BundleStore(Protocol):
    """The bundles of all tenants. What is pushed is invisible until it is kept."""

    def add_bundle_chunk(
        self, tenant: str, content_id: str, number: int, data: bytes, *, limits: Sequence[Quota] = ()
    ) -> None:
        """Store a chunk of an archive that is being pushed; number 0 begins the push.

        QuotaExceeded, with nothing stored, if the bytes of the tenant, unfinished pushes included, exceed a limit.
        NotFound for a later chunk if the push is unknown, because it was dropped or kept.
        """

    def bundle_chunk(self, tenant: str, content_id: str, number: int) -> bytes | None:
        """A chunk of an archive, kept or not; None if there is none."""

    def keep_bundle(self, bundle: Bundle, *, note: AuditEntry | None = None) -> Bundle | None:
        """Make an archive visible, as the newest of its id, and store an audit entry; returns it as stored.

        The moment is the store's, later than that of every other archive of the id. If the id has the same archive
        already, that becomes the newest, keeps its content and its creation, and what was pushed is dropped. None if
        the push is unknown.
        """

    def drop_bundle_push(self, tenant: str, content_id: str) -> None:
        """Forget an archive that is not kept. A second call does nothing."""

    def find_bundle(self, tenant: str, bundle_id: str | None = None, *, digest: str | None = None) -> Bundle | None:
        """The newest archive of an id, or with a digest, or with both."""

    def bundles(self, tenant: str, limit: int, *, after: str | None = None) -> list[Bundle]:
        """The newest archive of each id, by id, after an id."""

    def bundle_versions(self, tenant: str, bundle_id: str, limit: int) -> list[Bundle]:
        """The archives of an id, newest first."""

    def delete_bundle(self, tenant: str, bundle_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        """Delete all archives of an id, and store an audit entry; None if there is none.

        If schedules that are not deleted name the id, or the digest of one of its archives, nothing is deleted, and
        their ids are returned, in order, as far as they are found among the first of many. Nor is it while occurrences
        that have not ended began with one of its archives: then their ids are returned.
        """

    def bundle_bytes(self, tenant: str) -> int:
        """The bytes of a tenant's archives, unfinished pushes included."""

    def prune_bundles(self, *, before: Micros, unfinished_before: Micros, limit: int) -> int:
        """Delete archives that were last pushed before `before` and replaced by a newer one, and old unfinished pushes.

        Not those whose digest a schedule names, nor those that an occurrence which has not ended began with. At most
        `limit`; returns how many.
        """
