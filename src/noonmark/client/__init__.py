"""The client: a Noonmark server as an object, its documents as values, its errors as errors."""

from noonmark.client.clients import AsyncClient, Client
from noonmark.client.values import (
    AuditEntry,
    Backfill,
    Counters,
    Event,
    Explanation,
    Matched,
    MatchedEvent,
    Node,
    Occurrence,
    Owner,
    Preview,
    Run,
    Schedule,
    Secret,
    Step,
    Upload,
    Usage,
    WorkerStatus,
)
from noonmark.client.verifying import verify

__all__ = [
    "AsyncClient",
    "AuditEntry",
    "Backfill",
    "Client",
    "Counters",
    "Event",
    "Explanation",
    "Matched",
    "MatchedEvent",
    "Node",
    "Occurrence",
    "Owner",
    "Preview",
    "Run",
    "Schedule",
    "Secret",
    "Step",
    "Upload",
    "Usage",
    "WorkerStatus",
    "verify",
]
