"""Targets: what executes the work of an occurrence, by kind."""
