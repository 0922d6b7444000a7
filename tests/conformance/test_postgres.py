"""The PostgreSQL store does what every store does, on a real server."""

from itertools import count

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance import CASES, try_case

SCHEMAS = count(1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_postgres_store(case, postgres):
    try_case(case, lambda clock: PostgresStore(f"{postgres.url()}?schema=case_{next(SCHEMAS)}", clock))
