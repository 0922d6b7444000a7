"""What the SQL stores share: the schema, as SQLAlchemy Core metadata, and its migrations."""
