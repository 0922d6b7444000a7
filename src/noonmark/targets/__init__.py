"""Targets: what executes the work of an occurrence, by kind."""

MAX_THREADS = 256
