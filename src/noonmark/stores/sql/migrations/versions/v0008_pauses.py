"""Why a schedule is paused, and until when: one that resumes by itself is planned at that time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT, index

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make a place for it, and let planning find paused schedules."""
    op.add_column("schedules", sa.Column("pause", TEXT, nullable=True))
    op.drop_index("schedules_to_plan", "schedule_states")
    index(
        "schedules_to_plan",
        "schedule_states",
        ["plan_at", "uid"],
        "phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL",
    )
