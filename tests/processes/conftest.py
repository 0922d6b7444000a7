"""A fleet for each test, and a line for its figure."""

import sys

import pytest

from tests.processes.fleet import PostgresFleet, RedisFleet, SqliteFleet


@pytest.fixture
def fleet(request):
    """On a file, unless a test asks for another store."""
    return request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_fleet")


@pytest.fixture
def sqlite_fleet(tmp_path):
    """Whatever was done to its processes, none of the others may have had an accident."""
    fleet = SqliteFleet(tmp_path)
    yield fleet
    fleet.close()
    assert fleet.may_complain or not fleet.complaints()


@pytest.fixture
def postgres_fleet(tmp_path, database):
    """Whatever was done to its processes, or to the server, nodes only tell that they had to try again."""
    fleet = PostgresFleet(tmp_path, database)
    yield fleet
    fleet.close()
    if accidents := fleet.accidents():
        pytest.fail("\n".join(accidents))


@pytest.fixture
def redis_fleet(tmp_path):
    """On a server of its own, which waits for the disk before it acknowledges; nodes only tell that they try again."""
    from tests.servers.redis import running  # noqa: PLC0415 - few tests need the library

    with running(appendonly="yes", appendfsync="always", save="") as server:
        fleet = RedisFleet(tmp_path, server)
        yield fleet
        fleet.close()
    if accidents := fleet.accidents():
        pytest.fail("\n".join(accidents))


@pytest.fixture
def figure(record_property):
    """Say what was seen: shown by `pytest -s`, and by `-rP` under several workers."""

    def tell(text):
        record_property("figure", text)
        sys.stdout.write(f"\n{text}\n")

    return tell
