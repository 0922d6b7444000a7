"""Trails: what they remember of each step, how they are handed on, and how several become one."""

import re

import pytest

from noonmark.core.event import MAX_STEPS, Chain, chain_in, joined, mark, read_chain
from noonmark.core.ids import MAX_ORIGIN_KEY, event, fact_id
from noonmark.core.json_values import identifier

A, B = mark("a", "x"), mark("b", "y")


def test_a_mark_is_short_and_never_changes():
    """It is stored in the ids of events, and compared across releases."""
    assert (mark(), mark("job-1", "occurrence.failed")) == ("20R7X920R", "7V9y8HeWY")
    assert mark("a", "x")[:6] == mark("a", "y")[:6] != mark("b", "x")[:6]


@pytest.mark.parametrize(
    ("trail", "event_id"),
    [
        (Chain(3), "evt3_occ_1"),
        (Chain(3, 2), "evt3.2_occ_1"),
        (Chain(3, 0, (A,)), f"evt3_{A}-occ_1"),
        (Chain(16, 2, (A, B)), f"evt16.2_{A}{B}-occ_1"),
    ],
)
def test_it_is_read_from_the_id_of_an_event(trail, event_id):
    assert trail.event_id("occ_1") == event_id
    assert chain_in(event_id) == trail


@pytest.mark.parametrize(
    "strange", ["", "None", "evt_1", "order-7", "evt1", "evt12345_occ_1", f"evt1-{A}_occ_1", "evt1_", "evt-_"]
)
def test_any_other_id_tells_nothing(strange):
    assert chain_in(strange) is None


def test_what_is_no_mark_is_part_of_the_key():
    assert chain_in(f"evt1_{A}x-occ_1") == chain_in("evt1_occ_1") == Chain(1)


@pytest.mark.parametrize(
    ("trail", "depth", "facts"), [(Chain(3, 0, (A,)), "3", None), (Chain(16, 2, (A, B)), "16", "2")]
)
def test_nodes_of_the_version_before_read_how_deep_it_is(trail, depth, facts):
    found = re.fullmatch(r"evt(\d{1,4})(?:\.(\d{1,4}))?_.+", trail.event_id("occ_1"))
    assert (found[1], found[2]) == (depth, facts)


def test_it_goes_on_step_by_step():
    trail = Chain(2, 1).then("a", "x").then("b").then("c", "x")
    assert (trail.depth, trail.facts, trail.schedules) == (2, 1, ("a", "b", "c"))
    assert [trail.leads_through(one) for one in ("a", "b", "c", "d", "")] == [True, True, True, False, False]
    assert [trail.count(one) for one in ("x", "y")] == [2, 0]
    read = chain_in(trail.event_id("occ_1"))
    assert [read.leads_through(one) for one in "abcd"] == [True, True, True, False]
    assert (read.count("x"), read.schedules) == (2, ())


def test_schedules_that_are_known_by_their_ids_alone_count_too():
    assert Chain(schedules=("a",)).leads_through("a")
    assert Chain(marks=(B,), schedules=("a",)).leads_through("a")


def test_a_long_one_remembers_its_newest_steps_and_fits_into_an_id():
    trail = Chain(16, 2)
    for number in range(40):
        trail = trail.then(f"job-{number}", "x")
    assert trail.schedules == tuple(f"job-{number}" for number in range(40 - MAX_STEPS, 40))
    assert not trail.leads_through("job-0")
    event_id = trail.event_id(fact_id("occurrence.failed", "occ_1"))
    assert len(event_id) <= MAX_ORIGIN_KEY
    assert identifier(event_id) == event_id, "it may be emitted again, to try something"
    assert event(event_id) == f"event:{event_id}"


@pytest.mark.parametrize("trail", [Chain(), Chain(3, 1, (A, B), ("a", "b"))])
def test_it_is_read_as_it_was_written(trail):
    assert read_chain(trail.to_document()) == trail


@pytest.mark.parametrize(
    "damaged",
    [None, 7, {}, {"depth": 1}, Chain().to_document() | {"facts": "1"}, Chain().to_document() | {"marks": "~"}],
)
def test_what_is_damaged_is_refused(damaged):
    with pytest.raises(ValueError, match="not a chain"):
        read_chain(damaged)


def test_several_are_one_where_the_deepest_is_that_came_through_all():
    shallow, deep = Chain(1, 1).then("a", "x").then("b", "x"), Chain(2, 1).then("b", "x").then("c", "x")
    for trails in ([shallow, deep], [deep, shallow]):
        one = joined(trails)
        assert (one.depth, one.facts) == (2, 1)
        assert [name for name in "abcd" if one.leads_through(name)] == ["a", "b", "c"]
        assert sorted(one.schedules) == ["a", "b", "c"]
        assert one.count("x") == 2  # what was beside them was not before
    assert joined([shallow]) == shallow


def test_of_equally_deep_ones_that_with_more_facts_counts():
    assert joined([Chain(2, 1), Chain(2, 2)]) == Chain(2, 2)
