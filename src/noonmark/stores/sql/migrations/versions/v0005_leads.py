"""What led to the last end of a schedule, for those that follow it, and what led to each of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make a place for it."""
    op.add_column("schedule_states", sa.Column("leads", TEXT, nullable=True))
    op.add_column("occurrences", sa.Column("behind", TEXT, nullable=True))
