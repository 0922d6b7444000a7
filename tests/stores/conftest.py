"""What the tests of the PostgreSQL store share."""

import pytest

from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.lines import Line
from tests.servers.proxy import Proxy


@pytest.fixture(scope="session")
def watcher(postgres):
    """Somebody else who is connected to the server."""
    line = Line(parse_address(f"{postgres.url()}?application_name=watcher"))
    yield line
    line.close()


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
