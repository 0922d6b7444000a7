"""One damaged record of Redis, or one cell of it, affects at most the schedule or record that it belongs to."""

import json
import os

import pytest

from noonmark.stores.redis.schema.tables import TABLES
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.redis.transactions.ordered import encode
from noonmark.stores.sql.row_checks import KINDS
from noonmark.testing.conformance import Bench, HandClock
from noonmark.testing.conformance.bench import ROUTE
from noonmark.testing.factories import MINUTE, NOW
from tests.stores.population import MINUTES, judged, populate, watch
from tests.stores.test_damaged_cells import NOBODYS, VALUES, batches

EVERY = "NOONMARK_SOAK" in os.environ
PREFIX = b"noonmark:"
SOUND, DAMAGED = 14, 15
"""The databases of the server in which the undamaged store and its damaged copies are."""
RECORD = "record"
GARBAGE = b"garbage"
LEFT_OUT = {"bundle_chunks"}
"""Chunks are large, and not inspected."""
JSON_VALUES = {name: value for name, value in VALUES.items() if not isinstance(value, bytes)}


class Populated:
    """A store with one of everything, of which damaged copies are made."""

    def __init__(self, server):
        self._server = server
        self.now = populate(lambda clock: RedisStore(server.url(SOUND), clock))
        self._client = server.client(SOUND)
        states = TABLES["schedule_states"]
        self._uids = {values[0]: values[1] for _, values in self._stored(states)}

    def _stored(self, table):
        found = sorted(self._client.hgetall(PREFIX + table.name.encode()).items())
        return [(field, table.from_text(text.partition(b":")[2])) for field, text in found]

    def records(self, name):
        """The records of a table: the field of each, and whose it is."""
        collected = []
        for field, values in self._stored(TABLES[name]):
            row = TABLES[name].named(values)
            owner = None
            if name == "concurrency_keys":
                owner = "keyed"
            elif name not in NOBODYS:
                owner = self._uids[row["key" if name == "schedules" else "schedule"]]
            collected.append((field, owner))
        return collected

    def tried(self, *damages):
        """What becomes of a copy in which records and cells are damaged."""
        self._server.run("FLUSHDB", database=DAMAGED)
        with self._client.pipeline(transaction=False) as pipeline:
            for key in self._client.keys("*"):
                pipeline.execute_command("COPY", key, key, "DB", DAMAGED)
            pipeline.execute()
        for damage in damages:
            self._damage(*damage)
        store = RedisStore(self._server.url(DAMAGED), lambda: self.now)
        reported = {(one.table, one.column) for one in store.inspect(limit=10_000).damaged}
        store.close()
        lines = watch(lambda clock: RedisStore(self._server.url(DAMAGED), clock), self.now)
        for table, column, _, value in damages:
            kind = KINDS[table].get(column)
            if (table, column) not in reported and (column == RECORD or (kind is not None and kind.problem(value))):
                lines.failures.append(f"{table}.{column}: the damage is not reported")
        return lines

    def _damage(self, table, column, field, value):
        with self._server.client(DAMAGED) as client:
            key = PREFIX + table.encode()
            version, _, text = client.hget(key, field).partition(b":")
            if column != RECORD:
                values = json.loads(text)
                values[TABLES[table].columns.index(column)] = value
                value = json.dumps(values).encode()
            client.hset(key, field, version + b":" + value)


@pytest.fixture(scope="module")
def populated(redis):
    made = Populated(redis)
    yield made
    for database in (SOUND, DAMAGED):
        redis.run("FLUSHDB", database=database)


@pytest.fixture(scope="module")
def undamaged(populated):
    return populated.tried()


def cases(populated, tables):
    """Every record and cell that is damaged, and how."""
    for table in tables:
        records = populated.records(table)
        assert records, f"there is no record in {table}"
        for place, (field, owner) in enumerate(records):
            if EVERY or place == len(table) % len(records):
                yield table, RECORD, field, owner, GARBAGE
        for place, column in enumerate(KINDS[table] if EVERY else ()):
            for name, value in JSON_VALUES.items():
                yield table, column, *records[(place + len(name)) % len(records)], value


def test_an_undamaged_store_works(undamaged):
    assert undamaged.failures == []
    assert {undamaged.fires[one] for one in ("one", "two", "three", "up", "down", "gated")} == {MINUTES}
    assert {undamaged.fires[one] for one in ("ears", "picky", "abroad")} == {MINUTES}


@pytest.mark.parametrize("tables", [[one] for one in TABLES] if EVERY else [list(TABLES)], ids=lambda one: one[-1])
def test_a_damaged_record_costs_at_most_its_own_schedule(populated, undamaged, tables):
    def problems_of(*damaged):
        told = populated.tried(*((table, column, field, value) for table, column, field, _, value in damaged))
        return judged(undamaged, told, *(owner for *_, owner, _ in damaged))

    wrong = {}
    for batch in batches(cases(populated, [one for one in tables if one not in LEFT_OUT])):
        if problems_of(*batch):
            for case in batch:
                table, column, field, owner, value = case
                if problems := problems_of(case):
                    wrong[f"{table}.{column} = {value!r} of {owner or field}"] = problems[:3]
    assert not wrong, "\n".join(f"{one}: {problems}" for one, problems in wrong.items())


def test_an_index_entry_of_a_record_that_is_gone_does_no_harm(redis):
    redis.run("FLUSHDB", database=DAMAGED)
    clock = HandClock()
    store = RedisStore(redis.url(DAMAGED), clock)
    bench = Bench(store, clock)
    schedule = bench.create()
    gone = encode([NOW - MINUTE, NOW - MINUTE, 999])
    redis.run("ZADD", f"noonmark:occurrences:ready:{ROUTE}", 0, gone, database=DAMAGED)
    redis.run("ZADD", "noonmark:schedule_states:to_plan:", 0, encode([NOW - MINUTE, "gone", 999]), database=DAMAGED)
    assert store.next_time([ROUTE]) == NOW - MINUTE
    assert bench.claim() == []
    assert store.plannable(NOW - 1, 9) == []
    assert store.next_time([ROUTE]) > NOW
    bench.advance(MINUTE)
    assert [one.occurrence.uid for one in bench.claim()] == [schedule.uid]
    assert store.damage() == {"occurrences": 1, "schedule_states": 1}
    store.close()
