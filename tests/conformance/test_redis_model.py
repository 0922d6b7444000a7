"""A Redis store answers two nodes as the memory store does, after every step of the state machine."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from noonmark.stores.redis.schema.schedules import CONCURRENCY_KEYS, OCCURRENCES, STATES
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.rules.records import Row
from noonmark.stores.sql.records import ROW_COLUMNS
from tests.conformance.paired_stores import TwoNodesOnTwoStores
from tests.soak import SCALE


class TwoNodesAndAServer(TwoNodesOnTwoStores):
    def __init__(self, server):
        self.server = server
        super().__init__()

    def make_twin(self):
        self.server.run("FLUSHDB", database=2)
        return RedisStore(self.server.url(2), self.clock)

    def stored(self, table):
        """All records of a table, by name."""
        return self.twin._glance(lambda uow: [table.named(values) for _, values in uow.transaction.scan(table)])

    def rows(self):
        return [Row(*[record[name] for name in ROW_COLUMNS]) for record in self.stored(OCCURRENCES)]

    def counted(self):
        rows = self.rows()
        return [
            (
                *(state[name] for name in ("live", "history", "queued", "holder")),
                *said([row for row in rows if row.schedule == state["schedule"]]),
            )
            for state in self.stored(STATES)
        ]

    def places(self):
        rows = self.rows()
        return [
            (
                key["taken"],
                key["waiting"],
                sum(row.place is not None and (row.place == key["key"] or is_other(key, row)) for row in rows),
                sum(row.wanted == key["key"] for row in rows),
            )
            for key in self.stored(CONCURRENCY_KEYS)
        ]


def said(rows):
    """What the rows of a schedule say of its state."""
    live = sum(row.ended is None for row in rows)
    holder = next((row.key for row in rows if row.holds_slot), None)
    return live, len(rows) - live, sum(row.is_queued for row in rows), holder


def is_other(key, row):
    return f"[{key['key']}," in (row.other_keys or "")


def test_two_nodes_and_a_server(redis):
    few = settings(max_examples=5 * SCALE, stateful_step_count=40)
    run_state_machine_as_test(lambda: TwoNodesAndAServer(redis), settings=few)
