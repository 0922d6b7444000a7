"""Optimistic transactions on Redis: tables, their indexes, and the script that commits."""
