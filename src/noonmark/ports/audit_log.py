"""What a store remembers of its callers: who changed what, and which keys they have used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.audit import AuditEntry
    from noonmark.core.instants import Micros
    from noonmark.ports.records import KeyRecord


class AuditLog(Protocol):
    """Notes are kept in the order in which they were made; a plan brings its own."""

    def note(self, tenant: str, notes: Sequence[AuditEntry]) -> None:
        """Keep notes that come with no plan."""

    def notes(
        self, tenant: str, limit: int, *, before: int | None = None, schedule_id: str | None = None
    ) -> list[AuditEntry]:
        """The tenant's notes, newest first, each with its number.

        With `before`, those with a lower number; with `schedule_id`, those about the schedules that have had that id.
        """

    def prune_notes(self, *, before: Micros, limit: int) -> int:
        """Forget notes from before `before`; at most `limit` in one call. Says how many."""

    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        """Keep who used a key of the tenant, with the fingerprint of what was asked under it; tells what is kept.

        That is ours if nobody has used it since now - lifetime; otherwise it is theirs, and stays as it is.
        """

    def prune_keys(self, *, before: Micros, limit: int) -> int:
        """Forget keys that were first used before `before`; at most `limit` in one call. Says how many."""
