"""API keys, and which of them made a change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT, index

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make a place for them."""
    op.create_table(
        "api_keys",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("key_id", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("username", TEXT, nullable=False),
        sa.Column("scopes", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=True),
        sa.Column("is_agent", sa.SmallInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=True),
        sa.Column("revoked", sa.BigInteger, nullable=True),
        sa.Column("used", sa.BigInteger, nullable=True),
    )
    index("api_keys_by_id", "api_keys", ["key_id"], unique=True)
    index("api_keys_of_tenant", "api_keys", ["tenant", "created", "key_id"])
    index("api_keys_by_creation", "api_keys", ["created", "key_id"])
    op.add_column("notes", sa.Column("key_id", TEXT, nullable=True))
