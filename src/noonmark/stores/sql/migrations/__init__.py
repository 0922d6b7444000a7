"""The migrations: for each version of the schema, the statements for SQLite and for PostgreSQL.

`NNNN_name.sqlite.sql` and `NNNN_name.postgres.sql` end each statement with a semicolon at the end of a line. A version
that also converts data has a function in `upgrade.CONVERSIONS`. What is released is never changed.
"""
