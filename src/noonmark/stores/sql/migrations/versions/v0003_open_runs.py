"""Runs that go on may be in their table: the view tells each of them once."""

from __future__ import annotations

from importlib.resources import files

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Put another view in the place of the first."""
    bind = op.get_bind()
    text = files("noonmark.stores.sql.migrations").joinpath("views", f"0003_{bind.dialect.name}.sql")
    statement = text.read_text(encoding="utf-8")
    if bind.dialect.name == "postgresql":  # views of others may be built on it
        statement = statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1)
    else:
        bind.exec_driver_sql("DROP VIEW schedule_execution_history")
    bind.exec_driver_sql(statement)
