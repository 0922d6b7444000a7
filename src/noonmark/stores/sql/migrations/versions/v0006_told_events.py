"""What led to an event that the work of an occurrence has told over the network."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make a place for it."""
    op.add_column("events", sa.Column("behind", TEXT, nullable=True))
