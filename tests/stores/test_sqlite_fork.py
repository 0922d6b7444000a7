"""Forks and a SQLite file: parent and child lose nothing that was acknowledged."""

import multiprocessing
import os
import sqlite3
import threading
from contextlib import closing

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import HandClock
from tests.stores.test_sqlite_file import plans

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SECONDS = 60


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "forked.db", HandClock())
    store.open()
    yield store
    store.close()


class Child:
    """A forked process that does one thing after another, each when it is told to."""

    def __init__(self, *steps):
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=self._run, args=(steps, theirs))
        self._process.start()

    @staticmethod
    def _run(steps, told):
        for step in steps:
            told.recv()
            try:
                told.send(step())
            except StoreUnavailable as error:
                told.send(str(error))

    def next(self):
        self._ours.send(None)
        assert self._ours.poll(SECONDS), "the child hangs"
        return self._ours.recv()

    def close(self):
        self._process.join(SECONDS)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        assert self._process.exitcode == 0


def found(path, uid):
    """Whether a process that has nothing to do with the others finds a schedule."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM schedules WHERE schedule_id LIKE ?", (f"%{uid}",)).fetchone()


def test_what_a_child_wrote_after_its_parent_let_go_is_kept(store, tmp_path):
    store.create(plans(1))
    child = Child(lambda: store.create(plans(1, "early")), lambda: store.create(plans(1, "late")))
    with closing(child):
        assert child.next() == [True]
        store.close()
        assert child.next() == [True]
    assert found(tmp_path / "forked.db", "late-0") == (1,)


def test_what_the_parent_wrote_after_its_child_let_go_is_kept(store, tmp_path):
    child = Child(lambda: store.create(plans(1, "child")), store.close)
    with closing(child):
        assert child.next() == [True]
        assert store.create(plans(1, "parent")) == [True]
        child.next()
        assert store.create(plans(1, "late")) == [True]
    assert found(tmp_path / "forked.db", "late-0") == (1,)


def test_a_fork_waits_for_threads_inside(store):
    inside, leave = threading.Event(), threading.Event()

    def write():
        with store._connections.writing() as connection:
            connection.execute("DELETE FROM nodes")
            inside.set()
            leave.wait(SECONDS)

    writer = threading.Thread(target=write)
    writer.start()
    inside.wait(SECONDS)
    threading.Timer(0.2, leave.set).start()  # noqa: TID251 - long enough for the fork to wait
    child = Child(lambda: store.create(plans(1, "child")))
    assert leave.is_set()
    writer.join()
    with closing(child):
        assert child.next() == [True]
    assert store.create(plans(1, "parent")) == [True]


def test_both_go_on_while_many_threads_are_inside(store):
    stopping = threading.Event()
    written = []

    def write(name):
        for n in range(10_000):
            if stopping.is_set():
                return
            written.extend(store.create(plans(1, f"{name}-{n}")))

    writers = [threading.Thread(target=write, args=(name,)) for name in ("first", "second")]
    for writer in writers:
        writer.start()
    for n in range(5):
        child = Child(lambda n=n: store.create(plans(1, f"child-{n}")))
        with closing(child):
            assert child.next() == [True]
    stopping.set()
    for writer in writers:
        writer.join()
    assert all(written)
    assert found(store._connections.path, "-0") == (len(written) + 5,)


def test_a_change_while_the_file_was_closed_is_noticed(store):
    store.create(plans(1))
    assert not store.changed_by_others()
    child = Child(lambda: store.create(plans(1, "child")))
    with closing(child):
        child.next()
    assert store.changed_by_others()
    assert not store.changed_by_others()


def test_a_relative_path_stays_what_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("relative.db", HandClock())
    store.open()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    child = Child(lambda: store.create(plans(1, "child")))
    with closing(child):
        assert child.next() == [True]
    assert store.find("acme", "schedule-of-child-0") is not None
    assert list((tmp_path / "elsewhere").iterdir()) == []
    store.close()


def test_a_child_of_a_process_that_could_not_let_go_is_refused(tmp_path, monkeypatch):
    store = SqliteStore(tmp_path / "kept.db", HandClock())
    store.open()
    # As after a fork that Python was not told of beforehand.
    monkeypatch.setattr(store, "before_fork", lambda until: None)
    child = Child(
        lambda: store.create(plans(1, "child")),
        lambda: SqliteStore(tmp_path / "kept.db", HandClock()).open(),
    )
    with closing(child):
        assert "was in use in the process that this one was forked from" in child.next()
        assert "was in use in the process that this one was forked from" in child.next()
    assert store.create(plans(1, "parent")) == [True]
    store.close()


def test_a_child_of_a_process_with_a_connection_of_its_own_is_refused_until_that_is_closed(tmp_path):
    path = tmp_path / "watched.db"
    store = SqliteStore(path, HandClock())
    store.open()
    looking = sqlite3.connect(path)
    looking.execute("SELECT count(*) FROM schedules").fetchone()
    child = Child(
        lambda: store.create(plans(1, "early")),
        lambda: SqliteStore(path, HandClock()).open(),
        looking.close,
        lambda: store.create(plans(1, "late")),
    )
    with closing(child):
        assert "close every connection to it before the fork, also those of sqlite3 and SQLAlchemy" in child.next()
        assert "was in use in the process that this one was forked from" in child.next()
        child.next()
        assert child.next() == [True]
        assert store.create(plans(1, "parent")) == [True]
        looking.execute("SELECT count(*) FROM schedules").fetchone()
        looking.close()
        store.close()
    assert found(path, "late-0") == (1,)
    assert found(path, "parent-0") == (1,)


def test_a_child_of_a_process_that_closed_its_own_connections_works(store):
    with closing(sqlite3.connect(store._connections.path)) as looking:
        looking.execute("SELECT count(*) FROM schedules").fetchone()
    child = Child(lambda: store.create(plans(1, "child")))
    with closing(child):
        assert child.next() == [True]


def test_a_child_of_a_process_with_two_stores_on_the_file_works(store):
    second = SqliteStore(store._connections.path, HandClock())
    second.open()
    second.create(plans(1, "second"))
    store.create(plans(1, "first"))
    child = Child(lambda: second.create(plans(1, "child")))
    with closing(child):
        assert child.next() == [True]
        assert store.create(plans(1, "parent")) == [True]
    second.close()
    assert found(store._connections.path, "-0") == (4,)
