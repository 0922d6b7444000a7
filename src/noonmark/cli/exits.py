"""Exit codes: 0 is success, and every error has its own kind of failure."""

FAILED = 1
INVALID = 2
INTERRUPTED = 130
"""What shells report for a program that Ctrl-C ended."""

OF_ERRORS = {
    "error": FAILED,
    "invalid_schedule": INVALID,
    "invalid_trigger": INVALID,
    "trigger_never_fires": INVALID,
    "not_found": 3,
    "conflict": 4,
    "overlap": 4,
    "revision_conflict": 4,
    "quota_exceeded": 5,
    "store_unavailable": 6,
    "pipeline_failed": FAILED,
}
"""By the code of the error."""
