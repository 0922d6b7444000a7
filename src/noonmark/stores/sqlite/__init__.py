"""The store in one SQLite file."""

from noonmark.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
