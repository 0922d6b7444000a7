"""The ping target: an occurrence opens for pings, unless an early one has said it all."""

import threading

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import SECOND
from noonmark.core.pings import Ping, Signal, ping_fields
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.core.system_events import SystemEvent, early_ping_id, of_ping
from noonmark.core.targets import FunctionTarget
from noonmark.core.targets.ping import PingTarget
from noonmark.ports.target import Assignment
from noonmark.stores.memory import MemoryStore
from noonmark.targets.store_targets import PingReceiver
from noonmark.testing import factories
from tests.targets.assignments import SOON, now


class Receiver:
    """A receiver with its own store."""

    def __init__(self):
        self.store = MemoryStore(now)
        self.store.open()
        self.receiver = PingReceiver(self.store)
        self._reported, self._news = {}, threading.Condition()
        self.receiver.open(self._report, now)

    def _report(self, assignment, delivered):
        with self._news:
            self._reported[assignment] = delivered
            self._news.notify_all()

    def assign(self, target=None, **fields):
        schedule = factories.schedule(target=target or PingTarget(grace=60 * SECOND), **fields)
        occurrence = factories.occurrence(schedule, TRIGGER)
        return Assignment(occurrence, schedule, now())

    def deliver(self, assignment):
        self.receiver.deliver([assignment])
        with self._news:
            assert self._news.wait_for(lambda: assignment in self._reported, SOON)
        return self._reported[assignment]

    def keep(self, assignment, signal):
        one, schedule = assignment.occurrence, assignment.schedule
        key = early_ping_id(one.id, is_start=signal is Signal.START)
        event = of_ping(SystemEvent.PING_EARLY, schedule, key, ping_fields(Ping(signal=signal), one, now=now()))
        self.store.emit(schedule.owner.tenant, [event])


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.receiver.close()


def test_an_occurrence_waits_for_its_first_ping(receiver):
    opened = receiver.deliver(receiver.assign())
    assert isinstance(opened, Accepted)
    assert opened.deadline == opened.accepted + 60 * SECOND
    assert receiver.receiver.routes() == ("ping",)
    assert not receiver.receiver.adopt(["ping"])
    assert receiver.receiver.withdraw() == []


@pytest.mark.parametrize(("signal", "outcome"), [(Signal.SUCCESS, Outcome.COMPLETED), (Signal.FAIL, Outcome.FAILED)])
def test_an_early_end_ends_it_at_once(receiver, signal, outcome):
    assignment = receiver.assign()
    receiver.keep(assignment, Signal.START)
    receiver.keep(assignment, signal)
    assert receiver.deliver(assignment).outcome is outcome


def test_an_early_start_begins_its_timeout(receiver):
    assignment = receiver.assign(timeout=5 * SECOND)
    receiver.keep(assignment, Signal.START)
    begun = receiver.deliver(assignment)
    assert (begun.deadline - begun.accepted, begun.set_by) == (5 * SECOND, "start")


def test_it_is_handed_back_while_the_store_is_down(receiver, monkeypatch):
    def fails(*_):
        raise StoreUnavailable("down")

    monkeypatch.setattr(receiver.store, "event", fails)
    assert receiver.deliver(receiver.assign()).outcome is Outcome.LEASE_LOST


def test_one_that_was_asked_to_stop_is_not_opened(receiver):
    assignment = receiver.assign()
    assignment.stop(Reason.CANCELLED)
    assert receiver.deliver(assignment).outcome is Outcome.CANCELLED


def test_a_target_of_another_kind_cannot_be_delivered(receiver):
    delivered = receiver.deliver(receiver.assign(FunctionTarget(function="f")))
    assert delivered.error == "a function target is not a ping"
