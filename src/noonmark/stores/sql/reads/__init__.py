"""What callers read of an SQL store."""
