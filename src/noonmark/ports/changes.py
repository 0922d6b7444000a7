"""Changes: hints that something was written, for those who show it live. They never say what it is now."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Topic(StrEnum):
    """What changed."""

    SCHEDULES = "schedules"
    OCCURRENCES = "occurrences"
    RUNS = "runs"
    EVENTS = "events"
    NODES = "nodes"
    APPROVALS = "approvals"
    """Also proposals, which wait for an approval too."""
    SESSIONS = "sessions"
    USAGE = "usage"
    KEYS = "keys"


@frozen(kw_only=True)
class Change:
    """Something changed."""

    topics: frozenset[Topic]
    tenant: str | None
    """None: it belongs to no tenant, as nodes do."""
    user: str | None = None
    """Whose it is, for callers who see their own only; None if all of the tenant may see it."""
    schedule_ids: tuple[str, ...] = ()


@frozen(kw_only=True)
class StoredChange:
    """What a store says of the changes of one kind."""

    kind: str
    """A topic, or the name of the operation that the audit log has."""
    tenant: str
    user: str | None
    schedule_id: str | None
    at: Micros
    """When the last of them was made."""
