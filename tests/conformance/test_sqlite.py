"""The SQLite store does what every store does, in a real file."""

import pytest

from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import CASES, try_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sqlite_store(case, tmp_path):
    try_case(case, lambda clock: SqliteStore(tmp_path / "noonmark.db", clock))
