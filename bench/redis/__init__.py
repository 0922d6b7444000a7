"""Noonmark and libraries of its kind on one Redis server."""
