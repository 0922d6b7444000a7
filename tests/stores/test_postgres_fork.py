"""Forks and PostgreSQL: parent and child have their own connections."""

import os
import subprocess
import sys
from contextlib import closing
from itertools import count

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance import HandClock
from tests.stores.connected import occupy
from tests.stores.test_sqlite_file import plans
from tests.stores.test_sqlite_fork import SECONDS, Child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
NAMES = count(1)
# As a server does that prepares everything, forks its workers and goes on itself; the child ends as programs do.
PROGRAM = """
import os, sys, threading
from noonmark.stores.postgres import PostgresStore

def told():
    rung.set()

rung = threading.Event()
store, other = (PostgresStore(sys.argv[1]) for _ in range(2))
store.open()
store.listen(told)
assert rung.wait(60)
rung.clear()
mine = set(store._pool.backend_pids)
child = os.fork()
if child == 0:
    store.clock()
    assert not mine & store._pool.backend_pids
    sys.exit()
_, status = os.waitpid(child, 0)
assert status == 0
store.clock()
assert mine == store._pool.backend_pids, "it had to connect again"
other.leave("nobody")
assert rung.wait(60), "it does not listen any more"
store.close()
other.close()
"""


@pytest.fixture
def store(postgres):
    store = PostgresStore(f"{postgres.url()}?schema=forked_{next(NAMES)}", HandClock())
    store.open()
    yield store
    store.close()


def test_both_go_on_with_connections_of_their_own(store):
    occupy(store, 5)
    mine = set(store._pool.backend_pids)
    child = Child(
        lambda: store.create(plans(1, "child")),
        lambda: sorted(store._pool.backend_pids),
        store.close,
    )
    with closing(child):
        assert child.next() == [True]
        assert not mine & set(child.next())
        assert store.create(plans(1, "parent")) == [True]
        child.next()
        occupy(store, 5)
    assert store._pool.backend_pids == mine
    assert all(store.find("acme", f"schedule-of-{who}-0") for who in ("child", "parent"))


def served_by(name):
    return lambda uow: uow.session.put("served_routes", ("route", "seen"), [(name, 0)])


def test_a_child_is_forked_while_the_parent_is_in_the_middle_of_a_transaction(store):
    def work(uow):
        served_by("parent")(uow)
        child = Child(lambda: store._write_unlocked(served_by("child")))
        with closing(child):
            child.next()
        return uow.session.query("SELECT route FROM served_routes ORDER BY route")

    assert store._write_unlocked(work) == [("child",), ("parent",)]


def test_a_child_that_ends_takes_nothing_from_its_parent(postgres):
    url = f"{postgres.url()}?schema=forked_{next(NAMES)}&timeout=5"
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, url]
    ended = subprocess.run(command, capture_output=True, check=False, text=True, timeout=3 * SECONDS)
    assert (ended.returncode, ended.stderr) == (0, "")
