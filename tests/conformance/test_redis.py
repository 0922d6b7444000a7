"""The Redis store passes the conformance suite, on a real server."""

import pytest

from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sql.schedule_documents import ScheduleCache
from noonmark.testing.conformance import CASES, try_case


class KeptStore(RedisStore):
    """A store that keeps its connections for the next case."""

    def emptied(self, clock):
        """As a new store on an empty database."""
        self._client.run("FLUSHDB")
        self._clock, self._schedule_cache = clock, ScheduleCache()
        return self

    def close(self):
        self._listener.close()

    def end(self):
        super().close()


@pytest.fixture(scope="module")
def store(redis):
    kept = KeptStore(redis.url(1))
    yield kept
    kept.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_redis_store(case, store):
    try_case(case, store.emptied)
