"""The SQLite store passes the conformance suite, in a real file."""

import shutil

import pytest

from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import CASES, HandClock, try_case


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("conformance") / "noonmark.db"


@pytest.fixture(scope="module")
def empty(path):
    """A store without rows: a copy of it takes a fraction of the time of making its tables again."""
    made = path.with_name("empty.db")
    store = SqliteStore(made, HandClock())
    store.open()
    store.close()
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sqlite_store(case, path, empty):
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    shutil.copyfile(empty, path)
    try_case(case, lambda clock: SqliteStore(path, clock))
