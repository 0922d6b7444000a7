"""Notes of what callers did, for those who ask later who did it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change that a caller made."""

    at: Micros
    caller: str
    operation: str
    schedule_id: str | None = None
    uid: str | None = None
    """The schedule itself: after it is deleted, another one may have its id."""
    revision_before: int | None = None
    """None where there was none, as before a schedule is created."""
    revision_after: int | None = None
    reason: str | None = None
    """What the caller gave for one; of a worker, which node it was."""
    request_id: str | None = None
    key_id: str | None = None
    """The API key that the caller used."""
    key: int | None = None
    """Its number once it is stored; later entries of a tenant have higher numbers."""
