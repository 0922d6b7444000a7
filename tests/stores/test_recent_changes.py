"""Recent changes are read from the ends of indexes, at a cost that does not depend on the size of the store."""

import re
import sqlite3
from importlib.resources import files

import pytest

from noonmark.stores.sql.reads.changes import QUERIES

SMALL = ("occurrences_leased", "approvals_pending")
"""Indexes of what runs or waits now: all of it is read."""


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: re.search(r"FROM \(?(?:SELECT.*FROM )?(\w+)", query)[1])
def test_nothing_is_read_that_is_old(query):
    connection = sqlite3.connect(":memory:")
    connection.executescript(files("noonmark.stores.sqlite").joinpath("schema.sql").read_text())
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", (1, 5))]
    connection.close()
    scans = [one for one in steps if one.startswith("SCAN")]
    assert all(one.endswith(SMALL) or one == "SCAN newest" for one in scans), steps
