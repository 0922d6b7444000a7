"""The SQLite store does what every store does, in a real file."""

import tempfile
from pathlib import Path

import pytest

from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import CASES, try_case

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder of the case's own is made in it
"""A disk that need not be waited for: what survives a power failure is tried elsewhere."""


@pytest.fixture
def folder(tmp_path):
    if not MEMORY_DISK.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="noonmark-", dir=MEMORY_DISK) as made:
        yield Path(made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sqlite_store(case, folder):
    try_case(case, lambda clock: SqliteStore(folder / "noonmark.db", clock))
