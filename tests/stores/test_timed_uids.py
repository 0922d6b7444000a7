"""Timed uids: by them, the ids of occurrences begin with the time. No old node may be left that computes others."""

from functools import partial

import pytest

from noonmark import OnceTrigger, Scheduler
from noonmark.core.ids import TIMED
from noonmark.core.instants import DAY, HOUR, from_micros
from noonmark.ports.records import Heartbeat
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import HandClock
from noonmark.testing.factories import NOW
from tests.operations.harness import Harness

OF_OLD = "UPDATE nodes SET schema_version = NULL WHERE name = 'old'"


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture(params=["sqlite", "postgres"])
def make_store(request, tmp_path, clock):
    """Opens another store on the same database, as another process does."""
    if request.param == "sqlite":
        make = partial(SqliteStore, str(tmp_path / "noonmark.db"), clock)
    else:
        make = partial(PostgresStore, request.getfixturevalue("database").url, clock)
    made = []

    def make_another():
        made.append(make())
        made[-1].open()
        return made[-1]

    yield make_another
    for store in made:
        store.close()


def beat(store, node="new", now=NOW):
    store.beat(Heartbeat(node=node, lease=now + 1), now=now)


def beat_of_old(store, now=NOW):
    """The heartbeat of a version that does not know timed uids, nor the column that says so."""
    beat(store, "old", now)
    store._write_unlocked(lambda uow: uow.session.execute(OF_OLD))


def test_a_new_store_wants_them(make_store):
    store = make_store()
    assert store.wants_timed_uids()
    beat(store)
    assert make_store().wants_timed_uids()


def test_not_while_an_old_node_runs(make_store):
    store = make_store()
    beat(store)
    beat_of_old(store)
    waiting, later = make_store(), make_store()
    assert not waiting.wants_timed_uids()
    store.leave("old")
    assert waiting.wants_timed_uids()
    assert later.wants_timed_uids()


def test_an_old_node_that_was_silent_for_a_day_is_gone(make_store, clock):
    store = make_store()
    beat_of_old(store)
    clock.now = NOW + DAY
    assert not store.wants_timed_uids()
    clock.now += 1
    assert store.wants_timed_uids()


def test_no_old_node_can_start_later_so_nobody_asks_again(make_store):
    store = make_store()
    assert store.wants_timed_uids()
    beat_of_old(store)
    assert store.wants_timed_uids()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/noonmark.db"


def test_ids_of_jobs_are_in_the_order_of_their_times(url):
    with Scheduler(url) as scheduler:
        store, now = scheduler._store, scheduler._store.clock()
        times = [now + hours * HOUR for hours in (3, 1, 4, 2)]
        jobs = [scheduler.schedule(print, trigger=OnceTrigger(from_micros(time))) for time in times]
        uids = [store.find("default", str(job)).schedule.uid for job in jobs]
        ids = [row.id for uid in uids for row in store.occurrences(uid, 1)]
    assert all(uid.startswith(TIMED) for uid in uids)
    assert [times[ids.index(one)] for one in sorted(ids)] == sorted(times)


@pytest.mark.parametrize("is_old_first", [False, True])
def test_copies_of_a_request_create_one_schedule_whatever_nodes_run_meanwhile(url, is_old_first):
    harness = Harness(url)
    store = harness.service.store
    if is_old_first:
        beat_of_old(store, store.clock())
    first = harness.create(idempotency_key="k")
    if is_old_first:
        store.leave("old")
    else:
        store._wants_timed_uids = False
        beat_of_old(store, store.clock())
    harness.clock.advance(60)
    again = harness.create(idempotency_key="k")
    assert again["schedule_id"] == first["schedule_id"]
    [uid] = [one.schedule.uid for one in store.schedules("default", limit=9)]
    assert uid.startswith(TIMED) is not is_old_first
    assert store.wants_timed_uids() is is_old_first


def test_the_uid_of_a_request_with_a_key_begins_with_the_time_of_its_first_copy(url):
    harness = Harness(url)
    claimed = harness.service.store.clock()
    harness.create(idempotency_key="k")
    [stored] = harness.service.store.schedules("default", limit=9)
    assert stored.schedule.uid.startswith(f"{TIMED}{claimed:014x}")
    assert len(stored.schedule.uid) == 27
