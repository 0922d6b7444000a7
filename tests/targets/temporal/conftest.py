"""One Temporal server for all tests of a process, and a node with a worker on it."""

import pytest

from tests.servers.temporal import running
from tests.targets.temporal.rig import Rig

SETTINGS = {"limit.historyCount.suggestContinueAsNew": 40}
"""Long workflows go on with an empty history: some of those in these tests do."""


@pytest.fixture(scope="session")
def server():
    with running(SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def rig(server, tmp_path_factory):
    """A rig that runs."""
    rig = Rig(server, tmp_path_factory.mktemp("rig"))
    with rig.running() as rig.thread:
        yield rig
