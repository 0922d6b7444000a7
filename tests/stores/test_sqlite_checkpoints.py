"""Checkpoints of a SQLite file: no write happens meanwhile, and the file is current unless a reader holds the log."""

import logging
import shutil
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from noonmark.core.instants import SECOND
from noonmark.stores.sqlite import SqliteStore, backup, checkpoint, connections
from noonmark.testing.conformance import HandClock
from tests.stores.test_sqlite_file import plans

FIRST = Path(__file__).parent / "data" / "first.sql"
SMALL = 256 * 1024


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "noonmark.db"


@pytest.fixture
def store(path, clock):
    store = SqliteStore(path, clock, busy_seconds=0.1)
    store.open()
    yield store
    store.close()


@pytest.fixture
def small_log(monkeypatch):
    for module in (checkpoint, connections):
        monkeypatch.setattr(module, "LOG_BYTES", SMALL)


@contextmanager
def reading(path):
    """Somebody who reads, and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM schedules").fetchone()
        yield


def schedules_in_file_alone(path):
    """How many schedules a copy of the file has, without its log."""
    copy = shutil.copy(path, path.with_name("copy.db"))  # in a test: no other process uses the file
    with closing(sqlite3.connect(copy)) as connection:
        return connection.execute("SELECT count(*) FROM schedules").fetchone()[0]


def log_size(path):
    return path.with_name(f"{path.name}-wal").stat().st_size


def test_no_connection_of_ours_checkpoints_by_itself(path, clock, monkeypatch, tmp_path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST.read_text("utf-8"))
    seen = []

    class Watched(sqlite3.Connection):
        def close(self):
            seen.append(self.execute("PRAGMA wal_autocheckpoint").fetchone()[0])
            super().close()

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=Watched, **options))
    store = SqliteStore(path, clock)
    store.open()
    assert len(seen) == 1, "the connection of the upgrade"
    store.create(plans(1))
    store.find("acme", "schedule-of-uid-0")
    store.close()
    assert seen == [0] * 4, "and those that read, write and checkpoint"
    source = connections.Connections(str(path), clock, busy_seconds=1).connect()
    source.close()
    assert seen == [0] * 5, "and that of a backup"


def test_no_one_can_write_while_a_checkpoint_runs(store, path, clock):
    store.create(plans(1))
    refused = []
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:

        def try_to_write(statement):
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                refused.append(statement)

        store._connections.checkpoints._open().set_trace_callback(try_to_write)
        clock.now += checkpoint.CURRENT_WITHIN
        store.changed_by_others()
    assert refused == ["PRAGMA wal_checkpoint(PASSIVE)"]
    assert schedules_in_file_alone(path) == 1


def test_the_log_stays_small_and_the_file_current_however_much_is_written(small_log, store, path):
    for number in range(40):
        store.create(plans(20, f"{number}"))
    assert log_size(path) < 4 * SMALL
    assert schedules_in_file_alone(path) > 600
    assert store.backlog(0, 1).log_bytes == log_size(path)


def test_so_it_does_where_the_path_is_a_link_to_the_file(small_log, path, clock, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path.symlink_to(elsewhere / "real.db")
    with closing(sqlite3.connect(elsewhere / "real.db")):
        store = SqliteStore(path, clock, busy_seconds=0.1)
        store.open()
        for number in range(40):
            store.create(plans(20, f"{number}"))
        size = log_size(elsewhere / "real.db")
        assert size < 4 * SMALL
        assert store.backlog(0, 1).log_bytes == store.condition().journal_bytes == size
        store.close()


def test_what_was_committed_is_in_the_file_soon_though_nobody_commits_any_more(store, path, clock):
    store.create(plans(1))
    store.changed_by_others()
    clock.now += checkpoint.CURRENT_WITHIN - 1
    store.changed_by_others()
    assert path.stat().st_size <= 4096
    clock.now += 1
    store.changed_by_others()
    assert schedules_in_file_alone(path) == 1
    assert checkpoint.CURRENT_WITHIN < 60 * SECOND


def test_what_another_process_committed_is_in_the_file_soon(store, path, clock):
    clock.now += checkpoint.CURRENT_WITHIN
    store.changed_by_others()
    other = SqliteStore(path, HandClock())
    other.open()
    other.create(plans(1))
    clock.now += checkpoint.CURRENT_WITHIN
    store.changed_by_others()
    assert schedules_in_file_alone(path) == 1
    other.close()


def test_the_file_is_current_where_no_node_watches_it_and_somebody_reads(store, path, clock):
    store.create(plans(1))
    clock.now += checkpoint.CURRENT_WITHIN
    assert store.find("acme", "schedule-of-uid-0")
    assert schedules_in_file_alone(path) == 1


def test_a_clock_that_was_set_back_keeps_no_file_behind(store, path, clock):
    store.create(plans(1))
    clock.now -= 3600 * SECOND
    store.changed_by_others()
    assert schedules_in_file_alone(path) == 1


def test_the_file_is_current_when_the_store_is_closed_though_others_keep_it_open(store, path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT count(*) FROM schedules").fetchone()
        store.create(plans(3))
        store.close()
        assert log_size(path), "another connection is open, so SQLite itself leaves the log alone"
        assert schedules_in_file_alone(path) == 3


def test_a_reader_that_holds_the_log_is_reported_and_does_not_block_writers(
    small_log, store, path, clock, monkeypatch, caplog
):
    monkeypatch.setattr(checkpoint, "HELD_BYTES", 4 * SMALL)
    store.create(plans(1))
    clock.now += checkpoint.CURRENT_WITHIN
    store.changed_by_others()
    with reading(path), caplog.at_level(logging.WARNING):
        for number in range(40):
            assert store.create(plans(20, f"{number}")) == [True] * 20
        assert log_size(path) > 4 * SMALL
        assert [
            record.getMessage() for record in caplog.records if "keeps a read transaction open" in record.getMessage()
        ]
        assert len(caplog.records) == 1, "and not at every commit"
        assert schedules_in_file_alone(path) < 600
    for number in range(2):  # the first finds the log copied, and the second begins it anew
        clock.now += checkpoint.RETRY
        store.create(plans(1, f"late-{number}"))
    assert log_size(path) <= SMALL
    assert schedules_in_file_alone(path) >= 801


def test_a_file_that_is_locked_puts_a_checkpoint_off(store, path, clock, caplog):
    store.create(plans(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        clock.now += checkpoint.CURRENT_WITHIN
        store.changed_by_others()
        other.execute("ROLLBACK")
    assert not caplog.records
    clock.now += checkpoint.CURRENT_WITHIN
    store.changed_by_others()
    assert schedules_in_file_alone(path) == 1


def test_a_checkpoint_that_fails_fails_no_commit(small_log, store, monkeypatch, caplog):
    def fail():
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(store._connections.checkpoints, "_open", fail)
        for number in range(8):
            assert store.create(plans(20, f"{number}")) == [True] * 20
    assert "is tried again: disk I/O error" in caplog.text
    assert store.create(plans(1, "after")) == [True]


def test_a_backup_takes_its_connection_from_the_store(monkeypatch, store, path, clock, tmp_path):
    collected = []
    connect = connections.Connections.connect
    monkeypatch.setattr(connections.Connections, "connect", lambda self: collected.append(self.path) or connect(self))
    backup.back_up(str(path), tmp_path / "copy.db", overwrite=False, now=clock)
    assert collected == [str(path)]
