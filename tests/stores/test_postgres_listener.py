"""Notifications on PostgreSQL: a listener gets those of other processes, over any connection."""

import threading

import pytest

from noonmark.core.admission import Wait
from noonmark.core.event import Event
from noonmark.core.policies.limits import Concurrency
from noonmark.core.reasons import Reason
from noonmark.stores.postgres import listener
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import Bench
from noonmark.testing.factories import NOW
from tests.embedded.waiting import SOON, eventually
from tests.stores.connected import Stores
from tests.stores.test_sqlite_file import plans


class Bell:
    """Counts how often it was rung, and waits for it."""

    def __init__(self):
        self.count, self._rung = 0, threading.Condition()

    def ring(self):
        with self._rung:
            self.count += 1
            self._rung.notify_all()

    def wait(self, count):
        with self._rung:
            assert self._rung.wait_for(lambda: self.count >= count, SOON), f"it was rung {self.count} times"


def listeners():
    return [thread for thread in threading.enumerate() if thread.name == "noonmark-listener"]


def listening(store):
    """A bell that has been rung for the first time, since anything may have happened before."""
    bell = Bell()
    store.listen(bell.ring)
    bell.wait(1)
    return bell


def test_what_others_write_rings_and_what_one_writes_oneself_does_not(stores):
    store, other = stores.open(), stores.open()
    bell = listening(store)
    for number in range(3):
        store.create(plans(1, f"own-{number}"))
    other.create(plans(1, "other"))
    bell.wait(2)
    # They come in the order in which they were committed: our own have been heard before.
    assert bell.count == 2


def test_an_event_and_a_run_by_hand_are_news_and_nothing_is_none(stores):
    store, other = stores.open(), Bench(stores.open(), HandClock())
    bell = listening(store)
    made = other.create_quiet()
    bell.wait(2)
    other.store.emit("acme", [])
    other.store.add([])
    other.store.commit_plans([])
    one = other.add(made, "a")
    bell.wait(3)
    assert other.store.add([one]) == [False], "it is known"
    event = Event(event_type="seen", event_id="e", emitted=NOW, source="", payload=None)
    assert other.store.emit("acme", [event]) == [True]
    bell.wait(4)
    assert bell.count == 4


def test_an_end_that_frees_a_place_is_news_and_any_other_is_not(stores):
    store, other = stores.open(), Bench(stores.open(), HandClock())
    limit = Concurrency(key="press", limit=1)
    schedules = [other.create_quiet(uid, concurrency=limit) for uid in ("uid-1", "uid-2")]
    for schedule in schedules:
        other.add(schedule, schedule.uid)
    first, second = other.claim()
    running = other.start(first)
    other.decide(Wait(claim=second, waiting_for=Reason.CONCURRENCY_LIMIT))
    bell = listening(store)
    assert other.settle(running)
    bell.wait(2)
    last = other.start(other.claim_one())
    assert other.settle(last)
    other.create_quiet("uid-3")
    bell.wait(3)
    assert bell.count == 3


def test_stores_in_other_schemas_are_not_notified(stores, postgres, watcher):
    elsewhere = Stores(postgres, watcher)
    store, other = stores.open(), stores.open()
    bell = listening(store)
    elsewhere.open().create(plans(1))
    other.create(plans(1))
    bell.wait(2)
    assert bell.count == 2
    elsewhere.close()


def test_a_connection_that_was_ended_is_replaced_and_what_was_missed_made_up_for(stores, monkeypatch):
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 3_600)  # it is told that the connection has ended, and need not ask
    store, other = stores.open(), stores.open()
    bell = listening(store)
    stores.terminate()
    bell.wait(2)
    other.create(plans(1))
    bell.wait(3)
    assert bell.count == 3


def test_a_connection_on_which_nothing_arrives_is_noticed_and_replaced(stores, proxy, monkeypatch):
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 0.05)
    store, other = stores.open("timeout=0.5", port=proxy.port), stores.open()
    bell = listening(store)
    before = proxy.seen["connections"]
    proxy.black_hole()
    eventually(lambda: proxy.seen["connections"] > before)
    proxy.cut()
    proxy.heal()
    bell.wait(2)
    rings = bell.count
    other.create(plans(1))
    bell.wait(rings + 1)


def test_a_server_that_is_away_is_asked_again_until_it_is_there(stores, proxy):
    store = stores.open(port=proxy.port)
    bell = listening(store)
    proxy.refuse()
    proxy.cut()
    stores.open().create(plans(1))
    proxy.heal()
    bell.wait(2)


@pytest.mark.parametrize("trouble", ["none", "refuse", "black_hole"])
def test_closing_ends_the_thread_at_any_point(stores, proxy, trouble):
    store = stores.open("timeout=600", port=proxy.port)
    listening(store)
    before = proxy.seen["connections"]
    if trouble != "none":
        getattr(proxy, trouble)()
        proxy.cut()
    if trouble == "black_hole":  # it is let in, and then nobody answers
        eventually(lambda: proxy.seen["connections"] > before)
    store.close()
    assert not listeners()


def test_the_thread_ends_with_the_last_who_listens_and_begins_again_with_the_next(stores):
    store, other = stores.open(), stores.open()
    bells = [Bell(), Bell()]
    endings = [store.listen(bell.ring) for bell in bells]
    assert len(listeners()) == 1
    bells[0].wait(1)
    endings[0]()
    assert len(listeners()) == 1
    other.create(plans(1))
    bells[1].wait(2)
    assert bells[0].count == 1
    endings[1]()
    assert not listeners()
    endings[1]()
    bell = listening(store)
    other.create(plans(1, "later"))
    bell.wait(2)
