"""Turns: who is served when several owners have something due."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.fair_queue import FairQueue, Places, rounds


def filled(*things):
    """Things named by their owner and their time, as `a5`."""
    turns = FairQueue()
    for thing in things:
        turns.put(thing[0], int(thing[1:]), thing)
    return turns


@pytest.mark.parametrize(
    ("things", "now", "limit", "taken"),
    [
        ("", 9, 9, ""),
        ("a1 a2 a3", 9, 2, "a1 a2"),
        ("a3 a1 a2", 9, 9, "a1 a2 a3"),
        ("a1 a2 a3", 2, 9, "a1 a2"),
        ("a1 a2 a3 a4 b5", 9, 2, "a1 b5"),
        ("a1 a2 a3 a4 b5", 9, 4, "a1 b5 a2 a3"),
        ("a1 a2 a3 a4 b5 c6 b7", 9, 5, "a1 b5 c6 a2 b7"),
        ("a1 a2 a3 b5", 9, 4, "a1 a2 a3 b5"),
        ("a1 a3 b2 b4", 9, 9, "a1 b2 a3 b4"),
        ("b2 a1 b1", 9, 2, "a1 b1"),
        ("a1 a2 b8", 7, 1, "a1"),
        ("a1 a2", 9, 0, ""),
    ],
    ids=[
        "nothing",
        "of one owner, the earliest",
        "of one owner, in order",
        "only what is due",
        "the late owner is next",
        "in turn until only one owner is left",
        "three owners",
        "all that is due, by time",
        "all that is due, of two",
        "the owner with the earliest has the first turn",
        "an owner with nothing due has no turn",
        "none",
    ],
)
def test_who_is_taken(things, now, limit, taken):
    assert filled(*things.split()).take(now, limit) == taken.split()


@pytest.mark.parametrize(
    ("lines", "limit", "taken"),
    [
        ([], 9, ""),
        (["abc"], 9, "abc"),
        (["abc", "x", "pq"], 9, "axpbqc"),
        (["abc", "x", "pq"], 4, "axpb"),
        (["abc", "", "pq"], 2, "ap"),
        (["abc"], 0, ""),
    ],
)
def test_rounds(lines, limit, taken):
    assert "".join(rounds(lines, limit)) == taken


def test_a_served_owner_goes_to_the_end():
    turns = filled("a1", "a2", "a3", "a4", "b1", "b2", "b3")
    assert [turns.take_one(9) for _ in range(3)] == ["a1", "b1", "a2"]
    turns.put("c", 1, "c1")
    assert turns.next_time == 2
    assert [turns.take_one(9) for _ in range(6)] == ["b2", "a3", "c1", "b3", "a4", None]


def test_an_owner_whose_next_is_not_due_leaves_the_ring_and_comes_back():
    turns = filled("a1", "a8", "b1", "b2", "b3")
    assert [turns.take_one(3) for _ in range(5)] == ["a1", "b1", "b2", "b3", None]
    assert turns.next_time == 8
    assert [turns.take_one(8) for _ in range(2)] == ["a8", None]
    assert turns.next_time is None


def test_of_equal_times_the_first_that_came():
    turns = FairQueue()
    for thing in "xyz":
        turns.put("a", 1, thing)
    assert turns.take(1, 9) == ["x", "y", "z"]


def test_an_earlier_thing_moves_its_owner_forward():
    turns = filled("a9", "b5")
    turns.put("a", 3, "a3")
    assert turns.next_time == 3
    assert turns.take(4, 9) == ["a3"]
    assert turns.next_time == 5
    assert turns.take(9, 9) == ["b5", "a9"]


def test_an_earlier_thing_of_an_owner_who_is_being_served_is_next_and_gives_no_second_turn():
    turns = filled("a5", "a6", "a7", "b5", "b6")
    assert turns.take_one(9) == "a5"
    turns.put("a", 1, "a1")
    assert [turns.take_one(9) for _ in range(5)] == ["b5", "a1", "b6", "a6", "a7"]


def test_a_clock_that_was_set_back_begins_nothing_early():
    turns = filled("a5", "a6", "b5", "b6")
    assert turns.take_one(6) == "a5"
    assert turns.take_one(5) == "b5"
    assert turns.take_one(5) is None
    assert turns.next_time == 6
    assert turns.take(6, 9) == ["a6", "b6"]


def test_things_are_counted_removed_and_forgotten():
    turns = filled("a1", "a2", "b1", "b9", "c3")
    assert turns.take_one(2) == "a1"
    assert len(turns) == 4
    assert turns.remove(lambda thing: thing in ("b9", "a2", "x")) == ["a2", "b9"]
    assert len(turns) == 2
    assert turns.take(9, 9) == ["b1", "c3"]
    turns = filled("a1", "b2")
    turns.clear()
    assert (len(turns), turns.next_time, turns.take(9, 9)) == (0, None, [])


def test_owners_who_may_not_are_passed_over_and_wait():
    turns = filled("a1", "a2", "b1", "c9")
    assert turns.take_one(5, lambda owner: owner != "a") == "b1"
    assert turns.take_one(5, lambda owner: owner != "a") is None
    assert (turns.later_time, len(turns)) == (9, 3)
    assert [turns.take_one(5, lambda _: True) for _ in range(3)] == ["a1", "a2", None]
    assert turns.take_one(9) == "c9"
    assert turns.later_time is None


def taken_by(places, *owners):
    """Places that greedy owners have taken, each in turn as many as he may have."""
    taken = Counter()
    for owner in owners:
        while places.may_have_one(owner):
            places.take(owner)
            taken[owner] += 1
    return "".join(f"{owner}{count}" for owner, count in taken.items())


def test_no_one_has_more_places_than_are_free():
    places = Places(256)
    assert taken_by(places, *"abcdefghi") == "a128b64c32d16e8f4g2h1i1"
    assert (places.free, places.may_have_one("j")) == (0, False)
    for _ in range(100):
        places.give_back("a")
    assert taken_by(places, *"aj") == "a36j32"
    alone = Places(1)
    alone.take("a")
    assert not alone.may_have_one("b")
    alone.give_back("a")
    assert alone.may_have_one("b")


def test_owners_of_whom_each_wants_everything_come_to_have_the_same():
    places, held = Places(90), Counter()
    for _ in range(200):
        for owner in "ab":  # what ends is given back, and taken by whoever may
            if held[owner]:
                places.give_back(owner)
                held[owner] -= 1
        for owner in "ba":
            while places.may_have_one(owner):
                places.take(owner)
                held[owner] += 1
    assert sorted(held.values()) == [30, 31]


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.integers(0, 20), st.integers(1, 4)),
    ),
    max_size=60,
)


@given(ACTS)
def test_everything_is_taken_once_in_the_order_of_its_owner_and_nobody_has_two_turns_while_another_waits(acts):
    turns, waiting = FairQueue(), []
    for number, (act, first, second) in enumerate(acts):
        if act == "put":
            waiting.append((second, number, first))
            turns.put(first, second, waiting[-1])
            continue
        due = sorted(one for one in waiting if one[0] <= first)
        taken = turns.take(first, second)
        assert len(taken) == min(second, len(due))
        for owner in "abc":
            theirs = [one for one in due if one[2] == owner]
            had = [one for one in taken if one[2] == owner]
            assert had == theirs[: len(had)]
            others = [sum(one[2] == other for one in taken) for other in "abc" if other != owner]
            assert len(had) == len(theirs) or all(count <= len(had) + 1 for count in others)
        waiting = [one for one in waiting if one not in taken]
        assert len(turns) == len(waiting)
        if len(taken) < second:
            assert turns.next_time == min((one[0] for one in waiting), default=None)
    assert sorted(turns.take(20, 99)) == sorted(waiting)
