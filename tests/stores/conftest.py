"""What the tests of the PostgreSQL store share."""

import pytest

from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import connect
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
