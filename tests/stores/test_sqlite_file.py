"""The file of a SQLite store: permissions, several processes and threads, and a disk that is full or locked."""

import json
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from noonmark.core import edits
from noonmark.core.causation import Reaction, match
from noonmark.core.errors import StoreUnavailable
from noonmark.core.event import Event
from noonmark.core.planner import first_plan, plan
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Heartbeat
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, Bench, hold, start
from noonmark.testing.factories import MINUTE, NOW
from tests.servers import forked

CREATE_MANY = """
import json, sys
from noonmark.core.planner import first_plan
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, ROUTE
from noonmark.testing.factories import MINUTE, NOW

path, name = sys.argv[1:]
clock = HandClock()
store = SqliteStore(path, clock)
store.open()
for number in range(25):
    made = factories.schedule(f"{name}-{number}")
    assert store.create([first_plan(made, lookahead=0)]) == [True]
clock.now += MINUTE
claimed = []
while claims := store.claim(name, [ROUTE], now=clock.now, until=clock.now, limit=3, lease=LEASE):
    claimed += [claim.occurrence.id for claim in claims]
store.close()
print(json.dumps(claimed))
"""


def plans(count, prefix="uid"):
    return [first_plan(factories.schedule(f"{prefix}-{n}"), lookahead=LOOKAHEAD) for n in range(count)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "noonmark.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path, HandClock(), busy_seconds=0.1)
    store.open()
    yield store
    store.close()


def test_only_its_owner_may_read_the_files(path):
    before = os.umask(0)
    try:
        store = SqliteStore(path, HandClock())
        store.open()
        store.create(plans(1))
    finally:
        os.umask(before)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert modes == dict.fromkeys(["noonmark.db", "noonmark.db-wal", "noonmark.db-shm"], 0o600)
    store.close()
    store.close()


def test_what_was_created_is_there_after_the_process_was_killed(path):
    script = CREATE_MANY.partition("clock.now")[0] + "import os; os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", script, path, "killed"], check=False)
    assert killed.returncode == -9
    store = SqliteStore(path, HandClock())
    store.open()
    assert all(store.find("acme", f"schedule-of-killed-{n}") for n in range(25))
    store.close()


def test_eight_processes_share_a_file(path):
    program = path.with_name("create_many.py")
    program.write_text(CREATE_MANY, encoding="utf-8")
    commands = [forked.script(program, path, f"node-{n}") for n in range(8)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    claimed = [one for process in running for one in json.loads(process.communicate()[0])]
    assert all(process.returncode == 0 for process in running)
    assert len(claimed) == len(set(claimed))
    store = SqliteStore(path, HandClock())
    store.open()
    late = NOW + MINUTE
    claimed += [one.occurrence.id for one in store.claim("x", [ROUTE], now=late, until=late, limit=999, lease=1)]
    assert len(set(claimed)) == 8 * 25
    store.close()


def test_threads_share_a_store(store):
    def work(thread):
        for number in range(20):
            assert store.create(plans(1, f"{thread}-{number}")) == [True]
            assert store.find("acme", f"schedule-of-{thread}-{number}-0") is not None
            store.next_time([ROUTE])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    late = NOW + MINUTE
    assert len(store.claim("a", [ROUTE], now=late, until=late, limit=999, lease=LEASE)) == 160


def test_what_others_write_is_noticed_and_what_the_store_writes_is_not(store, path):
    assert not store.changed_by_others()
    store.create(plans(1))
    assert not store.changed_by_others()
    other = SqliteStore(path, HandClock())
    other.open()
    other.create(plans(1, "other"))
    assert store.changed_by_others()
    assert not store.changed_by_others()
    other.close()


def _in_child(store, answers):
    answers.put(store.create(plans(1, "child")))
    answers.put(store.find("acme", "schedule-of-uid-0") is not None)
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_opens_the_file_anew(store):
    store.create(plans(1))
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(store, answers))
    child.start()
    assert [answers.get(timeout=60), answers.get(timeout=60)] == [[True], True]
    child.join()
    assert store.find("acme", "schedule-of-child-0") is not None
    assert store.create(plans(1, "parent")) == [True]


def test_a_file_that_stays_locked_is_unavailable_and_works_again(store, path):
    locking = sqlite3.connect(path, isolation_level=None)
    locking.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
        store.create(plans(1))
    assert store.find("acme", "schedule-of-uid-0") is None
    locking.execute("ROLLBACK")
    locking.close()
    assert store.create(plans(1)) == [True]


def test_a_full_disk_loses_nothing_and_works_again_when_there_is_space(store):
    assert store.create(plans(10, "before")) == [True] * 10
    with store._connections.bare() as connection:
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreUnavailable, match="no space left"):
        store.create(plans(500))
    assert store.find("acme", "schedule-of-uid-0") is None
    assert store.find("acme", "schedule-of-before-9") is not None
    with store._connections.bare() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert store.create(plans(500)) == [True] * 500


@pytest.mark.parametrize("place", ["an empty one", "none"])
def test_reopening_leaves_the_journal_of_a_moved_file(store, path, place):
    """SQLite would make a file where there is none, and remove the journal beside an empty one."""
    plan = first_plan(factories.schedule(), lookahead=LOOKAHEAD)
    assert store.create([plan]) == [True]
    away, journal = path.with_name("away.db"), path.with_name(path.name + "-wal")
    path.rename(away)
    if place != "none":
        path.touch()
    written = journal.read_bytes()
    with pytest.raises(StoreUnavailable, match="while it was open"):
        store.condition()
    if place == "none":
        other = SqliteStore(path, lambda: NOW)
        with pytest.raises(StoreUnavailable, match="is not there, but its journal is"):
            other.open()
        assert not path.exists()
    assert journal.read_bytes() == written
    away.replace(path)
    assert store.find_uid(plan.snapshot.schedule.uid) is not None
    assert store.condition().problems == ()


def test_nothing_is_written_while_the_journal_is_away(store, path):
    """A create that was refused would be there when the journal is back."""
    plans = [first_plan(factories.schedule(f"uid-{number}"), lookahead=LOOKAHEAD) for number in range(2)]
    assert store.create(plans[:1]) == [True]
    away, journal = path.with_name("away"), path.with_name(path.name + "-wal")
    journal.rename(away)
    with pytest.raises(StoreUnavailable, match=r"-wal was removed while it was open\. Nothing is written"):
        store.create(plans[1:])
    away.rename(journal)
    assert store.find_uid("uid-0") is not None
    assert store.find_uid("uid-1") is None


def test_a_link_may_lead_to_where_no_file_is_yet_and_its_journal_is_watched(tmp_path):
    file, link = tmp_path / "there" / "noonmark.db", tmp_path / "link.db"
    file.parent.mkdir()
    link.symlink_to(file)
    store = SqliteStore(link, lambda: NOW)
    store.open()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert store.create([first_plan(factories.schedule(), lookahead=LOOKAHEAD)]) == [True]
    journal = file.with_name("noonmark.db-wal")
    journal.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable, match=r"noonmark\.db-wal was removed"):
        store.newest_time()
    (tmp_path / "away").rename(journal)
    store.newest_time()
    store.close()


def test_a_folder_that_is_not_there_is_reported(tmp_path):
    store = SqliteStore(tmp_path / "nowhere" / "noonmark.db", HandClock())
    with pytest.raises(StoreUnavailable, match=r"cannot be opened: there is no folder .*nowhere$"):
        store.open()


def test_an_sqlite_that_is_too_old_is_refused_with_its_version_and_a_way_out(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(StoreUnavailable, match=r"has SQLite 3\.34\.1, and Noonmark needs 3\.35 or newer; use a Python"):
        SqliteStore(path, HandClock()).open()
    assert not path.exists()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not tell its locks")
def test_a_second_store_in_the_process_leaves_the_locks_of_the_first_alone(store, path):
    store.create(plans(1))

    def locks():
        beside = [one.stat().st_ino for one in path.parent.iterdir()]
        held = Path("/proc/locks").read_text("utf-8").splitlines()
        return sorted(one.split()[1:4] for one in held if one.split()[4] == str(os.getpid()) and _inode(one) in beside)

    before = locks()
    assert before, "the first one holds a lock as long as it is open"
    second = SqliteStore(path, HandClock())
    second.open()
    assert len(locks()) >= len(before)
    second.close()


def _inode(lock):
    return int(lock.split()[5].rpartition(":")[2])


def test_only_what_nodes_would_decide_again_does_not_wait_for_the_disk(tmp_path):
    bench = Bench(SqliteStore(tmp_path / "noonmark.db", HandClock()), HandClock())
    bench.store.open()
    store, waited = bench.store, {}

    def note(call):
        with store._connections.bare() as writer:
            [level] = writer.execute("PRAGMA synchronous").fetchone()
        waited[call] = {2: True, 1: False}[level]

    bench.create("uid-1")
    note("create")
    bench.create("uid-2", trigger=EventTrigger("seen"))
    assert store.emit("acme", [Event(event_type="seen", emitted=0, event_id="e")])
    note("emit")
    [unmatched] = store.unmatched(9)
    occurrence = match(unmatched.event, unmatched.listeners[0], now=bench.now)
    assert store.commit_reactions([Reaction(audience=unmatched, occurrences=(occurrence,))]) == [True]
    note("commit_reactions")
    bench.advance(MINUTE)
    claims = bench.claim()
    note("claim")
    [answer, *_] = store.admit([start(claim) for claim in claims], now=bench.now, lease=LEASE)
    note("admit")
    store.renew([hold(answer.occurrence)], now=bench.now, lease=LEASE)
    note("renew")
    assert store.settle([bench.settlement(answer.occurrence)]) == [True]
    note("settle")
    store.beat(Heartbeat(node="node-a", routes=(ROUTE,)), now=bench.now)
    note("beat")
    assert all(store.commit_plans([plan(one, now=bench.now, lookahead=0) for one in store.plannable(bench.now, 9)]))
    note("commit_plans")
    assert store.change("uid-2", lambda snapshot, now: edits.pause(snapshot, now=now))
    note("change")
    assert waited == {
        **dict.fromkeys(["create", "emit", "admit", "settle", "change"], True),
        **dict.fromkeys(["commit_reactions", "claim", "renew", "beat", "commit_plans"], False),
    }
    store.close()
