"""Whatever two nodes do with a PostgreSQL store, it answers as the memory store does."""

from itertools import count

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from noonmark.stores.postgres import PostgresStore
from tests.conformance.twins import TwoNodesAndATwin

SCHEMAS = count(1)


class TwoNodesAndADatabase(TwoNodesAndATwin):
    def __init__(self, server):
        self.server = server
        super().__init__()

    def make_twin(self):
        return PostgresStore(f"{self.server.url()}?schema=model_{next(SCHEMAS)}", self.clock)


def test_two_nodes_and_a_database(postgres):
    few = settings(max_examples=5, stateful_step_count=40)
    run_state_machine_as_test(lambda: TwoNodesAndADatabase(postgres), settings=few)
