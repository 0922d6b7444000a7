"""Where a chain of events ends: how deep it is, how many facts and events of a type it has, and who took part in it."""

from dataclasses import replace

import pytest

from noonmark.core.causation import (
    MAX_DEPTH,
    chain_after,
    chain_behind,
    chain_of,
    chain_of_emitted,
    chain_of_reported,
    chain_of_requested,
    chain_of_system_event,
    concerns,
    match,
    why_not_emitted,
    why_not_requested,
)
from noonmark.core.event import NOONMARK, Chain, Event, mark
from noonmark.core.ids import TRIGGER, event, manual
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import Overrides
from noonmark.core.policies import overlap
from noonmark.core.reasons import Reason
from noonmark.core.system_events import SystemEvent, of_lost_node, of_occurrence
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.factories import NOW

JOB = factories.schedule("job")
TOO_MANY = "2 of the events that led to it are of type 'x' themselves, and no more may be"


def ended(schedule=JOB, origin=TRIGGER, **changes):
    return factories.occurrence(schedule, origin, phase=Phase.FAILED, reason=Reason.FAILED, attempt=1, **changes)


def heard(told, schedule=JOB):
    """An occurrence that an event has set off."""
    return ended(schedule, event(told.event_id), payload=told.to_envelope())


def caused_by(event_id, source=NOONMARK, payload=None):
    return heard(Event(event_type="x", emitted=NOW, event_id=event_id, source=source, payload=payload or {}))


def emitted(one, event_type):
    """The event that it is the work of an occurrence to emit."""
    event_id = chain_of_emitted(one).event_id(one.id)
    return Event(event_type=event_type, emitted=NOW, event_id=event_id, source=f"schedule:{one.schedule_id}")


def followed(one, schedule):
    """An occurrence that the end of another has set off."""
    return ended(schedule, overrides=Overrides(behind=chain_after(one)))


def listener(name, *types):
    return factories.schedule(name, trigger=EventTrigger(types or ("x",)))


@pytest.mark.parametrize(
    ("one", "depth", "facts", "chain"),
    [
        (ended(), 1, 1, []),
        (ended(origin=manual("m"), overrides=Overrides(overlap_policy=overlap.Allow())), 1, 1, []),
        (caused_by("order-7", "shop"), 1, 1, []),
        (caused_by("evt3_occ_1", "shop"), 1, 1, []),
        (caused_by("evt3.1_occ_1", "shop"), 1, 1, []),
        (caused_by("evt3_occ_1", "schedule:first", {"chain": ["no fact"]}), 4, 1, []),
        (caused_by("evt3.1_occ_1", "schedule:first"), 4, 2, []),
        (caused_by("evt3.1_fact_1", payload={"chain": ["a"]}), 4, 2, ["a"]),
        (caused_by("evt3.1_fact_1", payload={"chain": "damaged"}), 4, 2, []),
        (caused_by("evt3.1_fact_1", payload=["damaged"]), 4, 2, []),
        (caused_by("strange"), 1, 1, []),
        (ended(origin=event("evt3.1_x"), payload=None), 1, 1, []),
        (followed(ended(), listener("down")), 1, 1, []),
        (
            followed(caused_by("evt3.1_fact_1", payload={"chain": ["a"]}), listener("down")),
            4,
            2,
            ["a", "schedule-of-job"],
        ),
    ],
)
def test_a_fact_goes_on_with_the_chain_that_led_to_it(one, depth, facts, chain):
    fact, emission = chain_of_system_event(one), chain_of_emitted(one)
    assert (fact.depth, fact.facts, emission.depth, emission.facts) == (depth, facts, depth, facts - 1)
    explanation = of_occurrence(SystemEvent.FAILED, JOB, one)
    assert explanation.event_id.partition("_")[0] == f"evt{depth}.{facts}"
    assert (explanation.payload["depth"], explanation.payload["chain"]) == (depth, [*chain, "schedule-of-job"])


@pytest.mark.parametrize(
    ("trail", "is_told"),
    [
        (Chain(1, 1), True),
        (Chain(MAX_DEPTH - 1, 1), True),
        (Chain(MAX_DEPTH, 1), False),
        (Chain(MAX_DEPTH, 0), False),
        (Chain(2, 2), False),
        (Chain(3, 2), False),
    ],
)
def test_no_chain_is_without_end_and_none_has_more_than_two_facts(trail, is_told):
    for source in (NOONMARK, "schedule:first"):
        assert (of_occurrence(SystemEvent.FAILED, JOB, caused_by(trail.event_id("x"), source)) is not None) is is_told
    assert (of_occurrence(SystemEvent.FAILED, JOB, ended(overrides=Overrides(behind=trail))) is not None) is is_told


@pytest.mark.parametrize(
    ("trail", "why"),
    [
        (Chain(1), None),
        (Chain(16).then("a", "x"), None),
        (Chain(17), "it would be the last of 17 events that trigger each other, and at most 16 may"),
        (Chain(3).then("a", "y").then("b", "y").then("c", "x"), None),
        (Chain(3).then("a", "x").then("b"), None),
        (
            Chain(3).then("a", "x").then("b", "y").then("c", "x"),
            f"{TOO_MANY}: give each step a type, or a filter, of its own",
        ),
    ],
)
def test_an_event_is_emitted_while_its_chain_has_room_for_one_of_its_type(trail, why):
    assert why_not_emitted(trail, "x", repeats=True) == why
    # A step to another stage multiplies nothing: only the depth bounds it.
    assert why_not_emitted(trail, "x", repeats=False) == (why if trail.depth > MAX_DEPTH else None)


def test_the_event_from_outside_that_began_it_counts_as_one_of_its_type():
    order = Event(event_type="order", emitted=NOW, event_id="order-7", source="shop")
    first = emitted(heard(order, listener("a", "order")), "order")
    assert chain_behind(heard(first, listener("b", "order"))).count("order") == 2
    assert chain_behind(heard(first, listener("b", "order"))).depth == 1
    again = chain_of_emitted(heard(first, listener("b", "order")))
    assert why_not_emitted(again, "order", repeats=True) is not None


@pytest.mark.parametrize(
    ("source", "chain", "is_set_off"),
    [
        (NOONMARK, ["other"], True),
        (NOONMARK, ["schedule-of-alert"], False),
        (NOONMARK, ["schedule-of-alert", "other"], False),
        (NOONMARK, None, True),
        ("shop", ["schedule-of-alert"], True),
    ],
)
def test_no_schedule_is_triggered_by_a_fact_that_names_it(source, chain, is_set_off):
    alert = listener("alert", "occurrence.failed")
    payload = {} if chain is None else {"chain": chain}
    told = Event(event_type="occurrence.failed", emitted=NOW, event_id="e", source=source, payload=payload)
    assert concerns(told, alert) is not is_set_off
    assert (match(told, alert, now=NOW) is not None) is is_set_off


MARKED = f"evt2_{mark('schedule-of-turn', 'turned')}-occ_1"


@pytest.mark.parametrize(
    ("source", "event_id", "is_set_off"),
    [
        ("schedule:schedule-of-turn", "evt1_occ_1", False),
        ("schedule:schedule-of-turn", "evt5.2_occ_1", False),
        ("schedule:schedule-of-other", "evt1_occ_1", True),
        ("schedule:schedule-of-other", MARKED, False),
        (NOONMARK, MARKED, False),
        ("schedule:schedule-of-turn", "by-hand", True),
        ("shop", "evt1_occ_1", True),
        ("shop", MARKED, True),
    ],
)
def test_no_schedule_is_triggered_by_what_its_own_run_emitted_or_has_led_to(source, event_id, is_set_off):
    turn = listener("turn", "turned")
    told = Event(event_type="turned", emitted=NOW, event_id=event_id, source=source)
    assert concerns(told, turn) is not is_set_off
    assert (match(told, turn, now=NOW) is not None) is is_set_off
    assert not concerns(replace(told, event_id=None), turn)


def test_who_took_part_is_known_however_the_chain_went_on():
    """By an event, by a dependency, by a fact, and once more by an event."""
    first, second, third, fourth = (listener(name) for name in ("first", "second", "third", "fourth"))
    down = followed(heard(emitted(ended(first), "x"), second), third)
    explanation = of_occurrence(SystemEvent.FAILED, third, down)
    assert explanation.payload["chain"] == ["schedule-of-second", "schedule-of-third"]
    last = emitted(heard(explanation, fourth), "y")
    for one in (explanation, last):
        assert [concerns(one, taking_part) for taking_part in (first, second, third)] == [True] * 3
    assert [concerns(explanation, fourth), concerns(last, fourth), concerns(last, JOB)] == [False, True, False]
    assert last.event_id.startswith("evt3.1_")


def test_what_follows_from_a_lost_node_follows_from_no_schedule():
    lost = of_lost_node("n1", seen=NOW, started=NOW, version="1.0", load=0, routes=())
    answer = emitted(heard(lost, listener("a", "node.lost")), "x")
    assert chain_behind(heard(answer)) == Chain(2, 1, (mark("", "node.lost"), mark("schedule-of-a", "x")))


def test_a_payload_of_any_kind_has_no_chain():
    assert [chain_of(NOONMARK, one) for one in (None, 7, ["x"], {"chain": {}})] == [[]] * 4


def told_over_the_network(one, event_type):
    """An event that the work of an occurrence has told, under an id and a source of its own choice."""
    behind = chain_of_reported(one, event_type)
    return Event(event_type=event_type, emitted=NOW, event_id="mine", source="rest", behind=behind)


def test_what_work_tells_over_the_network_leads_as_far_as_what_it_emits():
    outside = Event(event_type="x", emitted=NOW, event_id="a")
    one, two = listener("one"), listener("two", "y")
    first = match(outside, one, now=NOW)
    told, sent = told_over_the_network(first, "y"), emitted(first, "y")
    second, same = match(told, two, now=NOW), match(sent, two, now=NOW)
    assert chain_behind(second).marks == chain_behind(same).marks
    assert (chain_behind(second).depth, chain_behind(same).depth) == (1, 1)
    assert chain_behind(second).schedules == (one.schedule_id,)
    back = told_over_the_network(second, "x")
    assert match(back, one, now=NOW) is None
    assert match(back, listener("three"), now=NOW) is not None
    assert chain_of_emitted(second).count("x") == chain_of_emitted(same).count("x") == 1


def test_what_work_asks_for_over_the_network_is_a_step_deeper():
    occurrence = ended()
    for depth in range(1, MAX_DEPTH + 1):
        trail = chain_of_requested(occurrence)
        assert (trail.depth, why_not_requested(trail)) == (depth, None)
        assert trail.leads_through(JOB.schedule_id)
        occurrence = ended(origin=manual(str(depth)), overrides=Overrides(behind=trail))
    assert why_not_requested(chain_of_requested(occurrence)) == (
        "it would be the last of 17 steps that trigger each other, and at most 16 may"
    )
