"""Surfaces: how callers outside the process reach the operations."""
