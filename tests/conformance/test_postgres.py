"""The PostgreSQL store does what every store does, on a real server."""

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance import CASES, try_case

SCHEMA = "conformance"
EMPTY = f"""
    DO $$ DECLARE name text; BEGIN
        SET LOCAL session_replication_role = replica;  -- in any order, whatever refers to whatever
        FOR name IN
            SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}' AND tablename <> 'alembic_version'
        LOOP
            EXECUTE format('DELETE FROM {SCHEMA}.%I', name);
        END LOOP;
    END $$
"""  # noqa: S608 - our own name
"""Deleting the rows takes a hundredth of the time of making the tables again, or of truncating them."""


@pytest.fixture
def url(postgres):
    """The address of an empty store."""
    postgres.sql(EMPTY)
    return f"{postgres.url()}?schema={SCHEMA}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_postgres_store(case, url):
    try_case(case, lambda clock: PostgresStore(url, clock))
