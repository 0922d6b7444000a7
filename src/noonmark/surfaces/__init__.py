"""Surfaces: how callers reach the operations."""
