"""Halts in a store: the records that admission reads in the transaction of every start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.halt import Halt
    from noonmark.core.schedule import AuditEntry


class HaltStore(Protocol):
    """Halts by tenant.

    When `set_halt` has returned, no start of what it covers is committed any more, on any node, until it is lifted:
    admission answers `Busy` with the place `halt`. Only a workflow run that was asked to stop still starts, to end.
    """

    def set_halt(self, halt: Halt, *, most: int, note: AuditEntry | None = None) -> int | None:
        """Store a halt and an audit entry, and ask what it covers and runs to stop; returns how many that are.

        None, with nothing stored, if the tenant already has `most` halts, or the id is taken.
        """

    def lift_halt(self, tenant: str, halt_id: str, *, note: AuditEntry | None = None) -> Halt | None:
        """Delete a halt and store an audit entry; returns the halt, or None if there is none with that id."""

    def halts(self, tenant: str | None = None) -> list[Halt]:
        """The halts of a tenant, or of all, oldest first."""
