"""Fixtures of the tests of stores."""

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import connect
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sqlite import SqliteStore
from tests.servers.proxy import Proxy


@pytest.fixture(scope="session")
def watcher(postgres):
    """Somebody else who is connected to the server."""
    connection = connect(parse_address(f"{postgres.url()}?application_name=watcher"))
    yield connection
    connection.close()


@pytest.fixture
def stores(postgres, watcher):
    from tests.stores.connected import Stores  # noqa: PLC0415 - it asks for the suite, which others rewrite first

    made = Stores(postgres, watcher)
    yield made
    made.close()


@pytest.fixture
def proxy(postgres):
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def make_store(request, tmp_path):
    """Makes stores on one empty database, as nodes have them: each process opens one of its own."""
    from noonmark.testing.conformance import HandClock  # noqa: PLC0415 - likewise

    if request.param == "sqlite":
        path = str(tmp_path / "noonmark.db")
        return lambda: SqliteStore(path, HandClock())
    if request.param == "postgres":
        url = request.getfixturevalue("database").url
        return lambda: PostgresStore(url, HandClock())
    url = request.getfixturevalue("redis_url")
    return lambda: RedisStore(url, HandClock())
