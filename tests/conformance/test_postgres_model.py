"""A PostgreSQL store answers two nodes as the memory store does, after every step of the state machine."""

from itertools import count

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from noonmark.stores.postgres import PostgresStore
from tests.conformance.paired_stores import TwoNodesOnTwoStores

SCHEMAS = count(1)


class TwoNodesAndADatabase(TwoNodesOnTwoStores):
    def __init__(self, server):
        self.server = server
        super().__init__()

    def make_twin(self):
        return PostgresStore(f"{self.server.url()}?schema=model_{next(SCHEMAS)}", self.clock)


def test_two_nodes_and_a_database(postgres):
    few = settings(max_examples=5, stateful_step_count=40)
    run_state_machine_as_test(lambda: TwoNodesAndADatabase(postgres), settings=few)
