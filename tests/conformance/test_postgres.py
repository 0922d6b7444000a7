"""The PostgreSQL store passes the conformance suite, on a real server."""

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sql.schedule_documents import ScheduleCache
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


class KeptStore(PostgresStore):
    """A store that keeps its connections for the next case: to open them takes longer than most cases."""

    def emptied(self, clock):
        """As a new store on an empty database."""
        connection = self._pool.acquire()
        connection.run(EMPTY)
        self._pool.release(connection)
        self._clock, self._schedule_cache = clock, ScheduleCache()
        return self

    def close(self):
        self._listener.close()

    def end(self):
        super().close()


@pytest.fixture(scope="module")
def store(postgres):
    kept = KeptStore(f"{postgres.url()}?schema={SCHEMA}")
    yield kept
    kept.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_postgres_store(case, store):
    try_case(case, store.emptied)
