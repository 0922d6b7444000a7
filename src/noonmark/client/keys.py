"""Keys that make a request safe to send again: the server does what it names once."""

from __future__ import annotations

from secrets import token_hex

KEYS = {
    "schedule/create": "idempotency_key",
    "schedule/run": "key",
    "schedule/backfill": "key",
    "event/emit": "event_id",
}
"""The operations that add something, with the argument by which the server knows the same request again."""

ONCE = frozenset(
    {
        "schedule/update",
        "occurrence/complete",
        "occurrence/fail",
        "occurrence/cancel",
        "secret/delete",
        "upload/delete",
    }
)
"""What is never sent again when it may have been done: the second time would be another change, or refused."""


def fresh_key() -> str:
    """Never the same twice."""
    return f"client-{token_hex(16)}"
