"""How Alembic runs our migrations: on the connection it is given, in that connection's transaction."""

from __future__ import annotations

from alembic import context

from noonmark.stores.sql.schema.tables import metadata

# SQLite changes a table by copying it.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
