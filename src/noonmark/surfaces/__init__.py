"""Surfaces: the doors by which callers reach the operations."""
