"""A disk that need not be waited for: what survives a power failure is tried elsewhere."""

import tempfile
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 - each test makes a folder of its own in it


def folder():
    """A new folder on it, or in the usual place where there is no such disk."""
    return tempfile.TemporaryDirectory(prefix="noonmark-", dir=FOLDER if FOLDER.is_dir() else None)
