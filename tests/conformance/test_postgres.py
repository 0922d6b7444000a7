"""The PostgreSQL store does what every store does, on a real server."""

from itertools import count

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance import CASES, try_case
from tests.servers.postgres import QUICK, running

SCHEMAS = count(1)


@pytest.fixture(scope="module")
def server():
    with running(**QUICK) as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_postgres_store(case, server):
    try_case(case, lambda clock: PostgresStore(f"{server.url()}?schema=case_{next(SCHEMAS)}", clock))
