"""A SQLite store answers two nodes as the memory store does, after every step of the state machine."""

import tempfile
from pathlib import Path

from hypothesis import settings

from noonmark.stores.sqlite import SqliteStore
from tests.conformance.paired_stores import TwoNodesOnTwoStores
from tests.soak import SCALE


class TwoNodesAndAFile(TwoNodesOnTwoStores):
    def make_twin(self):
        self.folder = tempfile.TemporaryDirectory(prefix="noonmark-")
        return SqliteStore(Path(self.folder.name) / "noonmark.db", self.clock)

    def teardown(self):
        super().teardown()
        self.folder.cleanup()


TwoNodesAndAFile.TestCase.settings = settings(max_examples=12 * SCALE, stateful_step_count=40)
TestTwoNodesAndAFile = TwoNodesAndAFile.TestCase
