"""What was counted for the expected rate of a schedule."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make a place for it."""
    op.add_column("schedule_states", sa.Column("rate_window", TEXT, nullable=True))
