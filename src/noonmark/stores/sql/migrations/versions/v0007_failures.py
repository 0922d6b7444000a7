"""Failures are found across schedules, newest first, without reading the rest of the history."""

from __future__ import annotations

from noonmark.stores.sql.migrations.parts import index

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Index them."""
    index(
        "occurrences_failed",
        "occurrences",
        ["phase", "ended", "id"],
        "phase IN ('delivery_failed', 'failed', 'misfired', 'timed_out')",
    )
