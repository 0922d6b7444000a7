"""Secrets, sealed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT, index

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make a place for them."""
    op.create_table(
        "secrets",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("hosts", TEXT, nullable=False),
        sa.Column("sealed", TEXT, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
    )
    index("secrets_by_name", "secrets", ["tenant", "name"], unique=True)
