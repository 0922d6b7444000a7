"""Exit codes beside 0, which is success; those of errors stand in the one table of `noonmark.operations.errors`."""

FAILED = 1
INVALID = 2
INTERRUPTED = 130
"""What shells report for a program that Ctrl-C ended."""
