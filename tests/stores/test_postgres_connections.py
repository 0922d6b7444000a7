"""The connection pool of PostgreSQL: a fixed size, replaced when broken, with timeouts."""

import asyncio
import gc
import logging
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import Connection
from noonmark.stores.postgres.listener import make_listener
from noonmark.stores.postgres.session import CLOCK
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import ROUTE
from tests.embedded.waiting import SOON, eventually
from tests.stores.connected import ask, occupy
from tests.stores.test_sqlite_file import plans

END_MYSELF = "SELECT pg_terminate_backend(pg_backend_pid())"
LONG = "SELECT pg_sleep(60)"


def write_node(name):
    return lambda uow: uow.session.put("served_routes", ("route", "seen"), [(name, 0)])


def test_there_are_never_more_connections_than_the_pool_allows(stores):
    store = stores.open("pool=3")
    occupy(store, 12)
    # None of them was closed: these are all that there ever were.
    assert len(stores.backends()) == 3


def test_a_caller_waits_while_every_connection_is_in_use(stores):
    store = stores.open("pool=2")
    connections = [store._pool.acquire() for _ in range(2)]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, store, "SELECT 1")
        eventually(lambda: store._pool._free._waiters)
        store._pool.release(connections[0])
        assert asked.result(SOON) == [(1,)]
    store._pool.release(connections[1])


def test_a_connection_timeout_is_reported(stores):
    store = stores.open("pool=2", "timeout=0.5")
    connections = [store._pool.acquire() for _ in range(2)]
    with pytest.raises(StoreUnavailable, match=r"all 2 connections to .* are in use; set a larger pool with \?pool="):
        store.clock()
    for connection in connections:
        store._pool.release(connection)
    assert store.clock() == HandClock().now


def test_connections_that_were_ended_while_nobody_used_them_are_replaced(stores):
    store = stores.open("pool=6")
    occupy(store, 12)
    before = stores.terminate()
    assert len(before) == 6
    assert store.create(plans(1)) == [True]
    assert not before & stores.backends()
    occupy(store, 12)
    assert len(stores.backends()) == 6


def test_what_was_interrupted_is_done_again(stores):
    store, tries = stores.open(), []

    def work(uow):
        tries.append(len(tries))
        write_node(f"try-{len(tries)}")(uow)
        if len(tries) < 3:
            uow.session.query(END_MYSELF)
        return "done"

    assert store._write_locked(["acme"], work) == "done"
    assert len(tries) == 3
    assert stores.nodes() == ["try-3"]


def test_what_is_interrupted_again_and_again_is_given_up(stores):
    store, tries = stores.open(), []

    def work(uow):
        tries.append(len(tries))
        uow.session.query(END_MYSELF)

    with pytest.raises(StoreUnavailable, match=r"the database .* did not answer: .*terminating connection"):
        store._write_unlocked(work)
    assert len(tries) == 4
    store.clock()


def test_a_connection_that_breaks_while_it_commits_leaves_the_outcome_unknown(stores, proxy):
    store = stores.open(port=proxy.port)
    proxy.drop_replies()
    with pytest.raises(StoreUnavailable, match="whether the transaction was written is unknown"):
        store._write_unlocked(write_node("unknown"))
    assert stores.nodes() == ["unknown"]
    proxy.heal()
    store._write_unlocked(write_node("known"))
    assert stores.nodes() == ["known", "unknown"]


def test_a_read_is_answered_though_the_connection_breaks_at_the_end(stores, proxy):
    store = stores.open(port=proxy.port)
    store.create(plans(1))
    proxy.drop_replies(0.3)
    assert all(store.find("acme", "schedule-of-uid-0") for _ in range(30))
    assert proxy.seen["dropped"] > 0


def test_a_statement_that_takes_too_long_is_given_up_once_and_the_connection_kept(stores):
    store, tries = stores.open("timeout=0.5"), []
    before = stores.backends()

    def work(uow):
        tries.append(len(tries))
        uow.session.query(LONG)

    with pytest.raises(StoreUnavailable, match="canceling statement due to statement timeout"):
        store._write_unlocked(work)
    assert len(tries) == 1
    store.clock()
    assert stores.backends() == before


def test_a_network_that_swallows_everything_is_given_up(stores, proxy):
    store = stores.open("timeout=0.5", port=proxy.port)
    proxy.black_hole()
    with pytest.raises(StoreUnavailable):
        store.create(plans(1))
    proxy.cut()
    proxy.heal()
    assert store.create(plans(1, "later")) == [True]


def test_a_client_that_is_frozen_in_a_transaction_keeps_its_locks_for_a_while_only(stores):
    frozen, other = stores.open("timeout=1"), stores.open("timeout=10")
    inside, thaw, tries = threading.Event(), threading.Event(), []

    def work(uow):
        tries.append(len(tries))
        write_node("frozen")(uow)
        if len(tries) == 1:
            inside.set()
            thaw.wait(SOON)
        return uow.session.query("SELECT 1")

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(frozen._write_locked, ["acme"], work)
        inside.wait(SOON)
        other._write_locked(["acme"], write_node("other"))
        assert stores.nodes() == ["other"]
        thaw.set()
        assert asked.result(SOON) == [(1,)]
    assert len(tries) == 2
    assert stores.nodes() == ["frozen", "other"]


def test_a_mistake_of_ours_is_shown_as_it_is_and_breaks_nothing(stores):
    store, tries = stores.open(), []
    occupy(store, 5)
    before = stores.backends()

    def work(uow):
        tries.append(len(tries))
        uow.session.query("SELECT ?::integer", 2**40)

    with pytest.raises(psycopg.DataError):
        store._write_unlocked(work)
    with pytest.raises(ZeroDivisionError):
        store._write_unlocked(lambda uow: 1 // 0)
    with pytest.raises(psycopg.errors.UndefinedTable):
        ask(store, "SELECT * FROM nowhere")
    assert len(tries) == 1
    store.clock()
    assert stores.backends() == before


def test_statements_of_a_pipeline_do_not_wait_for_each_other(stores, watcher):
    store = stores.open()
    watcher.fetch("SELECT pg_advisory_lock(7)")

    def work(uow):
        with uow.session.pipelined():
            write_node("one")(uow)
            uow.session.execute("SELECT pg_advisory_xact_lock(7)")
            watcher.fetch("SELECT pg_advisory_unlock(7)")  # else it would never be granted
            assert uow.session.query("SELECT route FROM served_routes") == [("one",)]
            write_node("two")(uow)

    store._write_unlocked(work)
    assert stores.nodes() == ["one", "two"]


def test_a_write_has_the_time_at_which_it_got_its_locks_without_asking_for_it(stores, watcher, monkeypatch):
    store, begun, opened, texts = stores.open(), threading.Event(), threading.Event(), []
    store._clock, fetch = None, Connection.fetch

    def occupy(uow):
        begun.set()
        assert opened.wait(SOON)

    def note(connection, text, parameters=()):
        if connection is not watcher:
            texts.append(text)
        return fetch(connection, text, parameters)

    monkeypatch.setattr(Connection, "fetch", note)
    with ThreadPoolExecutor(2) as threads:
        busy = threads.submit(store._write_locked, {"acme"}, occupy)
        assert begun.wait(SOON)
        waiting = threads.submit(store._write_locked, {"acme"}, lambda uow: uow.now())
        eventually(lambda: watcher.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        [(before,)] = watcher.fetch(CLOCK)
        opened.set()
        busy.result(SOON)
        assert waiting.result(SOON) >= before
    assert texts == []


def test_a_pipeline_that_was_interrupted_is_done_again(stores):
    store, tries = stores.open(), []

    def work(uow):
        tries.append(len(tries))
        with uow.session.pipelined():
            write_node(f"try-{len(tries)}")(uow)
            if len(tries) < 3:
                uow.session.execute(END_MYSELF)

    store._write_unlocked(work)
    assert stores.nodes() == ["try-3"]


@pytest.mark.parametrize(
    ("text", "parameters", "error"),
    [("SELECT ?::integer", [2**40], psycopg.DataError), (LONG, [], StoreUnavailable)],
    ids=["a mistake", "too long"],
)
def test_an_error_in_a_pipeline_undoes_all_of_it_and_the_connection_is_kept(stores, text, parameters, error):
    store = stores.open("timeout=0.5")
    before = stores.backends()

    def work(uow):
        with uow.session.pipelined():
            write_node("before")(uow)
            uow.session.execute(text, *parameters)
            write_node("after")(uow)

    with pytest.raises(error):
        store._write_unlocked(work)
    assert stores.nodes() == []
    store._write_unlocked(write_node("later"))
    assert stores.nodes() == ["later"]
    assert stores.backends() == before


def test_a_network_that_swallows_a_pipeline_is_given_up(stores, proxy):
    store = stores.open("timeout=0.5", port=proxy.port)

    def work(uow):
        with uow.session.pipelined():
            proxy.black_hole()
            write_node("lost")(uow)

    with pytest.raises(StoreUnavailable):
        store._write_unlocked(work)
    proxy.cut()
    proxy.heal()
    assert stores.nodes() == []
    store._write_unlocked(write_node("later"))
    assert stores.nodes() == ["later"]


def test_a_statement_that_was_prepared_before_a_table_changed_is_prepared_again(stores, watcher):
    store = stores.open()
    looks = "SELECT seen FROM served_routes"
    store._write_unlocked(write_node("one"))
    assert store._read(lambda uow: uow.session.query(looks)) == [(0,)]
    watcher.run(f"ALTER TABLE {stores.name}.served_routes ALTER seen TYPE numeric")
    assert store._read(lambda uow: uow.session.query(looks)) == [(0,)]


def test_verbs_are_called_where_an_event_loop_is_running(stores):
    store = stores.open("pool=3")

    async def work():
        store.create(plans(3))
        asked = [asyncio.to_thread(store.find, "acme", f"schedule-of-uid-{n}") for n in range(3)]
        found = [store.find("acme", f"schedule-of-uid-{n}") for n in range(3)]
        assert found == await asyncio.gather(*asked)
        with pytest.raises(psycopg.errors.UndefinedTable):
            ask(store, "SELECT * FROM nowhere")
        store.close()
        return store.next_time([ROUTE])

    assert asyncio.run(work()) is not None


def test_a_store_that_was_closed_is_used_again(stores):
    store = stores.open()
    store.create(plans(1))
    for _ in range(2):
        store.close()
        assert eventually(lambda: not stores.backends())
    assert store.find("acme", "schedule-of-uid-0") is not None
    assert len(stores.backends()) == 1


@pytest.mark.parametrize("last", ["store.close()", "store.clock()"])
def test_nothing_is_left_open_when_a_program_ends(stores, last):
    script = (
        "import sys; from noonmark.stores.postgres import PostgresStore; store = PostgresStore(sys.argv[1])\n"
        "store.open()\n"
        "store.listen(print)\n"
        "store.clock()\n"
        f"{last}\n"
    )
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script, stores.postgres.url() + "?schema=left_open"]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_attempt_to_connect_that_is_interrupted_leaves_nothing_behind(caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = parse_address(f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/anything")
        for steps in range(20):
            listener = make_listener(address, ())
            listener.listen(print)
            threading.Event().wait(steps * 200e-6)  # so that it is interrupted at any point
            listener.close()
    gc.collect()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
