"""The PostgreSQL store: one database for any number of nodes."""

from noonmark.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
