"""Workflows: steps a second beside DBOS on one PostgreSQL server, and many runs at once on SQLite."""
