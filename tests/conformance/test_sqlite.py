"""The SQLite store does what every store does, in a real file."""

from pathlib import Path

import pytest

from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import CASES, try_case
from tests.conformance import memory_disk


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sqlite_store(case):
    with memory_disk.folder() as folder:
        try_case(case, lambda clock: SqliteStore(Path(folder) / "noonmark.db", clock))
