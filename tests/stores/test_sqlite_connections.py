"""The connections of a SQLite store: commits are durable, rollbacks leave nothing, and readers only read."""

import gc
import sqlite3
import weakref
from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.errors import StoreUnavailable
from noonmark.ports.records import Heartbeat
from noonmark.stores.sqlite import SqliteStore, connections
from noonmark.stores.sqlite.session import SqliteSession
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LOOKAHEAD, Bench

FULL = 2


@pytest.fixture
def path(tmp_path):
    return tmp_path / "noonmark.db"


def opened(path):
    store = SqliteStore(path, clock := HandClock(), busy_seconds=0.1)
    store.open()
    return Bench(store, clock)


def test_what_was_committed_is_on_the_disk_before_anybody_is_reported(path):
    # With less, SQLite answers before the journal has reached the disk, and a power cut takes the answer back.
    bench = opened(path)
    with bench.store._connections.bare() as writer:
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writer.execute("PRAGMA synchronous").fetchone() == (FULL,)
    bench.store.close()


def test_a_reader_cannot_write(path):
    bench = opened(path)

    def write_anyway():
        with bench.store._connections.reading() as reader:
            reader.execute("INSERT INTO nodes (name, seen) VALUES ('nobody', 0)")

    with pytest.raises(StoreUnavailable):
        write_anyway()
    bench.store.beat(Heartbeat(node="somebody"), now=bench.now)
    bench.store.close()


class Hindered(connections.Connections):
    """Its first connection asks for the journal just when another process has the file locked."""

    def __init__(self, path, **options):
        super().__init__(path, HandClock(), **options)
        self.other = sqlite3.connect(path, isolation_level=None)
        self.other.execute("CREATE TABLE begun (by_another)")
        self.other.execute("BEGIN IMMEDIATE")
        self.refusals = 0

    def connect(self):
        def execute(connection, *args):
            try:
                return sqlite3.Connection.execute(connection, *args)
            except sqlite3.OperationalError:
                self.refusals += 1
                if self.other.in_transaction:
                    self.other.execute("ROLLBACK")  # it is done
                raise

        hindered = type("HinderedConnection", (sqlite3.Connection,), {"execute": execute})
        return sqlite3.connect(self.path, timeout=0, isolation_level=None, factory=hindered)


def test_a_file_that_another_process_is_just_making_ready_is_waited_for(path):
    hindered = Hindered(str(path), busy_seconds=0)
    with hindered.bare() as writer:
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert hindered.refusals == 1
    hindered.close()
    hindered.other.close()


def test_an_edit_that_could_not_be_written_is_forgotten(path):
    here, elsewhere = opened(path), opened(path)
    made = here.create_quiet()

    def edited(bench, **changes):
        snapshot = bench.snapshot(made)
        declared = replace(snapshot.schedule.declaration, **changes)
        return bench.commit(edits.edit(snapshot, declared, now=bench.now, lookahead=LOOKAHEAD))

    with here.store._connections.bare() as writer:
        [pages] = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="no space left"):
        edited(here, name="Lost", description="x" * 100_000)
    assert elsewhere.stored(made).schedule == made
    assert edited(elsewhere, name="Kept")  # under the number that the other one would have had
    assert here.stored(made).schedule.declaration.name == "Kept"
    for bench in (here, elsewhere):
        bench.store.close()


def test_a_forgotten_occurrence_leaves_nothing_in_the_file(path):
    bench = opened(path)
    schedule = bench.create_quiet()
    for key in ("a", "b"):
        assert bench.settle(bench.run(schedule, key))
    assert bench.store.prune(before=bench.now + 1, keep=0, limit=9) == 2
    with bench.store._connections.reading() as reader:
        for table in ("occurrences", "runs"):
            assert reader.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608 - a test's own text
    bench.store.close()


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SELECT c0, c1, c2 FROM ROWS(bigint, text, text) AS j", (), ()),
        ("SELECT c0, c1, c2, ? FROM ROWS(bigint, text, text) AS j WHERE c0 IN EACH(bigint)", ("one",), ([1, 2, 3],)),
        ("SELECT j.c0, k.c0 FROM ROWS(bigint, text, text) AS j CROSS JOIN ROWS(text) AS k", (), ([("a",), ("b",)],)),
    ],
    ids=["alone", "among other parameters", "beside several rows"],
)
def test_one_row_as_parameters_reads_as_it_does_among_several(path, text, before, after):
    store = SqliteStore(path, HandClock())
    store.open()
    row, other = (1, 'a "quoted" \N{SNOWMAN} name', None), (7, "other", "set")
    with store._connections.reading() as connection:
        session = SqliteSession(connection, store.clock)
        alone = session.query(text, *before, [row], *after)
        assert alone == [found for found in session.query(text, *before, [row, other], *after) if found[0] == 1] != []
        assert session.gather("*", f"({text})", *before, [row], *after) == alone
    store.close()


def test_a_transaction_leaves_nothing_to_the_garbage_collector(path):
    store = SqliteStore(path, HandClock())
    store.open()
    gc.disable()
    try:
        units = [transaction(weakref.ref) for transaction in (store._read, store._write_unlocked)]
        assert [unit() for unit in units] == [None, None]
    finally:
        gc.enable()
        store.close()
