"""The event target: each occurrence emits one event, once, and chains of events are limited."""

import threading
from dataclasses import replace

import pytest

from noonmark.core.causation import MAX_DEPTH
from noonmark.core.event import Event
from noonmark.core.ids import event, manual
from noonmark.core.targets import EventTarget, FunctionTarget
from noonmark.core.triggers import EventTrigger
from noonmark.ports.target import Assignment
from noonmark.stores.memory import MemoryStore
from noonmark.targets.store_targets import EventEmitter
from noonmark.testing import factories
from tests.targets.assignments import SOON, now

TENANT = "acme"


class Emitter:
    """An emitter with its own store."""

    def __init__(self):
        self.store = MemoryStore(now)
        self.store.open()
        self.emitter = EventEmitter(self.store)
        self._reported, self._news = {}, threading.Condition()
        self.emitter.open(self._report, now)

    def _report(self, assignment, delivered):
        with self._news:
            self._reported[assignment] = delivered
            self._news.notify_all()

    def deliver(self, assignment):
        self.emitter.deliver([assignment])
        with self._news:
            assert self._news.wait_for(lambda: assignment in self._reported, SOON)
        return self._reported[assignment]

    def kept(self):
        return [one.to_envelope() for one in self.store.events(TENANT, 100)]


@pytest.fixture
def emitter():
    made = Emitter()
    yield made
    made.emitter.close()


def emitting(payload=None, *, origin=None, brought=None, after=0, target=None, event_type="report.made", **declared):
    target = target or EventTarget(event_type=event_type, payload={} if payload is None else payload)
    schedule = factories.schedule(target=target, **declared)
    occurrence = factories.occurrence(
        schedule, origin or manual("one"), nominal=now() + after, attempt=1, payload=brought
    )
    return Assignment(occurrence, schedule, begins=occurrence.nominal)


def heard(**fields):
    """The envelope of a triggering event."""
    return Event(emitted=0, **{"event_type": "x", "event_id": "e1", **fields}).to_envelope()


def test_event_is_emitted_for_its_tenant(emitter):
    one = emitting({"rows": 3})
    done = emitter.deliver(one)
    [kept] = emitter.kept()
    assert (done.outcome, done.result) == ("completed", {"event_id": kept["event_id"]})
    assert (kept["event_type"], kept["payload"]) == ("report.made", {"rows": 3})
    assert kept["source"] == f"schedule:{one.schedule.schedule_id}"


def test_redelivery_emits_no_second_event(emitter):
    one = emitting()
    again = Assignment(replace(one.occurrence, fence=2, attempt=2), one.schedule, begins=one.begins)
    assert emitter.deliver(one).result == emitter.deliver(again).result
    assert len(emitter.kept()) == 1


@pytest.mark.parametrize(
    ("declared", "origin", "brought", "emitted"),
    [
        ({"a": 1}, manual("m"), None, {"a": 1}),
        ({"a": 1}, manual("m"), {"b": 2}, {"b": 2}),
        ({"a": 1}, event("e1"), heard(payload={"c": 3}), {"a": 1}),
        (None, event("e1"), heard(payload={"c": 3}), {"c": 3}),
    ],
)
def test_payload_is_requested_declared_or_from_the_event(emitter, declared, origin, brought, emitted):
    emitter.deliver(emitting(declared, origin=origin, brought=brought))
    assert [one["payload"] for one in emitter.kept()] == [emitted]


def test_chain_of_events_is_limited(emitter):
    done = emitter.deliver(emitting())
    for depth in range(1, MAX_DEPTH + 1):
        assert (done.outcome, len(emitter.kept())) == ("completed", depth)
        [brought] = [one for one in emitter.kept() if one["event_id"] == done.result["event_id"]]
        next_one = emitting(origin=event(brought["event_id"]), brought=brought, event_type=f"step.{depth}")
        done = emitter.deliver(next_one)
    assert (done.outcome, done.error) == (
        "delivery_failed",
        "it would be the last of 17 events that trigger each other, and at most 16 may",
    )
    assert len(emitter.kept()) == MAX_DEPTH


def test_third_event_of_a_type_in_a_chain_is_refused(emitter):
    brought = heard(event_type="report.made", event_id="order-7", source="shop")
    hearing = EventTrigger("report.made")
    done = emitter.deliver(emitting(origin=event("order-7"), brought=brought, trigger=hearing))
    [brought] = emitter.kept()
    refused = emitter.deliver(emitting(origin=event(brought["event_id"]), brought=brought, trigger=hearing))
    assert (done.outcome, refused.outcome, len(emitter.kept())) == ("completed", "delivery_failed", 1)
    assert refused.error == (
        "2 of the events that led to it are of type 'report.made' themselves, and no more may be: "
        "give each step a type, or a filter, of its own"
    )


def test_third_event_is_allowed_if_the_schedule_does_not_match_it(emitter):
    brought, stage = heard(event_type="report.made", event_id="order-7", source="shop", payload={"stage": 1}), 1
    while stage < 5:
        hearing = EventTrigger("report.made", {"stage": stage})
        stage += 1
        made = emitting({"stage": stage}, origin=event(brought["event_id"]), brought=brought, trigger=hearing)
        assert emitter.deliver(made).outcome == "completed"
        brought = max(emitter.kept(), key=lambda one: one["payload"]["stage"])
    assert len(emitter.kept()) == 4


@pytest.mark.parametrize(
    "brought", [heard(event_id="evt16_occ_1", source="me"), heard(event_id="e16", source="schedule:x")]
)
def test_external_event_starts_a_chain(emitter, brought):
    assert emitter.deliver(emitting(origin=event("e"), brought=brought)).outcome == "completed"


def test_failed_emission_says_why(emitter):
    done = emitter.deliver(emitting(target=FunctionTarget(function="work")))
    assert (done.outcome, done.error) == ("delivery_failed", "a function target is not an event")


def test_queued_events_can_be_stopped_or_withdrawn(emitter):
    one, other = emitting(), emitting(after=3_600_000_000)
    one.stop("cancelled")
    assert emitter.deliver(one).outcome == "cancelled"
    emitter.emitter.deliver([other])
    assert emitter.emitter.withdraw() == [other]
    assert emitter.kept() == []
    assert not emitter.emitter.adopt(["event"])
