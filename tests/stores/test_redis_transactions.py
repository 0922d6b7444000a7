"""A transaction on Redis sees its own writes, and commits only if nothing that it has read has changed since."""

from itertools import count

import pytest

from noonmark.core.ids import fraction
from noonmark.stores.redis.address import parse_address
from noonmark.stores.redis.transactions.client import Client
from noonmark.stores.redis.transactions.table import Index, Lookup, Table
from noonmark.stores.redis.transactions.transaction import Transaction

DATABASE = 13
PEOPLE = Table(
    "people",
    ("key", "team", "name", "age", "photo"),
    lookups=[Lookup("by_name", ("name",))],
    binary=("photo",),
    indexes=[
        Index("by_age", ("team",), ("age", "name")),
        Index("adults", (), ("age",), lambda one: one["age"] is not None and one["age"] >= 18),
        Index("by_key", (), ()),
    ],
)
TEAMS, AGES = ("red", "a/b %"), (None, -5, 0, 1, 2, 3, 2**40)
ADA, BOB, CY = (1, "red", "ada", 36, b"\x00a"), (2, "red", "bob", 12, b""), (3, "blue", "cy", None, b"c")


@pytest.fixture
def begin(redis):
    """Begins a transaction on the same database each time."""
    redis.run("FLUSHDB", database=DATABASE)
    client = Client(parse_address(redis.url(DATABASE)))
    damaged = []

    def begun():
        transaction = Transaction(client, None, lambda *damage: damaged.append(damage))
        return transaction, transaction.records(PEOPLE)

    begun.damaged = damaged
    yield begun
    client.close()


@pytest.fixture
def stored(begin):
    transaction, people = begin()
    for one in (ADA, BOB, CY):
        people.add(one)
    assert transaction.commit()


def change(begin, *values):
    transaction, people = begin()
    people.put(values)
    assert transaction.commit()


READS = {
    "a record": lambda people: people.get(1),
    "a record that is not there": lambda people: people.get(4),
    "a name": lambda people: people.look_up("by_name", "ada"),
    "a name that is not there": lambda people: people.look_up("by_name", "dan"),
    "a range": lambda people: people.find_keys("by_age", ["red"]),
    "the first of a range": lambda people: people.find_keys("by_age", ["red"], limit=1),
    "the last of a range": lambda people: people.find_keys("by_age", ["red"], limit=1, newest_first=True),
    "an empty range": lambda people: people.find_keys("by_age", ["green"]),
    "a count": lambda people: people.count("adults"),
}
CHANGES = {
    "an older name": (1, "red", "anna", 36, b""),
    "a new record": (4, "red", "dan", 99, b""),
    "a younger one": (4, "red", "dan", 1, b""),
    "another team": (4, "green", "dan", 20, b""),
}
SEEN = {
    ("a record", "an older name"),
    ("a record that is not there", "a new record"),
    ("a record that is not there", "a younger one"),
    ("a record that is not there", "another team"),
    ("a name", "an older name"),
    ("a name that is not there", "a new record"),
    ("a name that is not there", "a younger one"),
    ("a name that is not there", "another team"),
    ("a range", "an older name"),
    ("a range", "a new record"),
    ("a range", "a younger one"),
    ("the first of a range", "a younger one"),
    ("the last of a range", "an older name"),
    ("the last of a range", "a new record"),
    ("an empty range", "another team"),
    ("a count", "a new record"),
    ("a count", "another team"),
}
"""Which changes are in the way of a transaction that has read something."""


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("change_name", CHANGES)
@pytest.mark.parametrize("read_name", READS)
def test_a_transaction_is_refused_if_what_it_has_read_has_changed(begin, read_name, change_name):
    transaction, people = begin()
    READS[read_name](people)
    people.add((9, "black", "zoe", 1, b""))
    change(begin, *CHANGES[change_name])
    assert transaction.commit() == ((read_name, change_name) not in SEEN)
    _, after = begin()
    assert (after.get(9) is None) == ((read_name, change_name) in SEEN), "all of it is written, or nothing"


@pytest.mark.usefixtures("stored")
def test_a_hint_is_not_read_again_unless_it_is_written(begin):
    transaction, people = begin()
    people.find_keys("by_age", ["red"], hint=True)
    people.read([(1,), (2,)], hint=True)
    change(begin, *CHANGES["an older name"])
    assert transaction.is_current()
    people.put((1, "red", "ada", 37, b""))
    assert not transaction.commit()


@pytest.mark.usefixtures("stored")
def test_a_transaction_sees_what_it_has_written(begin):
    transaction, people = begin()
    people.put((1, "blue", "ada", 7, b"new"))
    people.delete(2)
    people.add((4, "red", "bob", 50, b""))
    assert people.find("by_age", ["red"]) == [(4, "red", "bob", 50, b"")]
    assert people.find_keys("by_age", ["blue"]) == [(3,), (1,)]
    assert people.entries("by_age", ["blue"], after=(None,)) == [(7, "ada", 1)]
    assert people.look_up("by_name", "bob") == (4, "red", "bob", 50, b"")
    assert (people.count("adults"), people.count("by_age", ["red"], until=(40,))) == (1, 0)
    assert transaction.commit()
    _, after = begin()
    assert after.find("by_age", ["blue"]) == [CY, (1, "blue", "ada", 7, b"new")]
    assert after.look_up("by_name", "bob") == (4, "red", "bob", 50, b"")
    assert after.get(2) is None


@pytest.mark.usefixtures("stored")
def test_a_record_is_deleted_without_being_read(begin):
    chunks = Table("people", PEOPLE.columns, indexes=[Index("by_key", (), ())])
    transaction, _ = begin()
    transaction.records(chunks).discard(1)
    change(begin, *CHANGES["an older name"])
    assert transaction.commit()
    _, after = begin()
    assert (after.get(1), after.find_keys("by_key")) == (None, [(2,), (3,)])


@pytest.mark.usefixtures("stored")
def test_a_damaged_record_is_left_out_and_reported(begin, redis):
    redis.run("HSET", "noonmark:people", b"\x02\x80\x00\x00\x00\x00\x00\x00\x01", b"7:garbage", database=DATABASE)
    _, people = begin()
    assert people.find("by_age", ["red"]) == [BOB]
    [(table, key, problem)] = begin.damaged
    assert (table, key) == ("people", "1")
    assert "Expecting value" in problem


def test_ranges_are_those_of_a_sorted_list_after_any_change(begin):
    numbers, known = count(), {}

    def pick(*choices):
        return choices[int(fraction("ranges", next(numbers)) * len(choices))]

    for _ in range(30):
        transaction, people = begin()
        for _ in range(pick(0, 1, 3, 5)):
            key = pick(*range(12))
            if pick("delete", "put", "put") == "delete":
                people.delete(key)
                known.pop(key, None)
            else:
                known[key] = (key, pick(*TEAMS), f"n{pick(0, 1, 2)}\x00{key}", pick(*AGES), b"")
                people.put(known[key])
            check(people, known, pick)
        assert transaction.commit()
        check(begin()[1], known, pick)


def check(people, known, pick):
    """Compare a range of an index with the same one of a list."""
    team, low, high = pick(*TEAMS), pick(*AGES), pick(*AGES)
    limit, is_reversed = pick(None, 1, 3), pick(0, 1) == 1
    ordered = sorted((one for one in known.values() if one[1] == team), key=lambda one: (_place(one[3]), one[2]))
    within = [one for one in ordered if _place(low) < _place(one[3]) <= _place(high)]
    expected = within[::-1] if is_reversed else within
    found = people.find("by_age", [team], after=(low,), until=(high,), limit=limit, newest_first=is_reversed)
    assert found == expected[:limit]
    assert people.count("by_age", [team], after=(low,), until=(high,)) == len(within)
    assert people.count("adults") == sum(one[3] is not None and one[3] >= 18 for one in known.values())
    for value in known.values():
        assert people.look_up("by_name", value[2]) == value


def _place(age):
    return (age is not None, age or 0)


def test_number_of_a_lost_commit_that_comes_again_is_another_version(redis, begin, stored):
    transaction, people = begin()
    assert people.get(1) == ADA
    # A fail-over takes the database back by a commit, and another node writes the next one.
    redis.run("SET", "noonmark:commits", 0, database=DATABASE)
    other = Client(parse_address(redis.url(DATABASE)))
    change(lambda: ((late := Transaction(other, None, print)), late.records(PEOPLE)), 1, "red", "ada", 37, b"")
    other.close()
    people.put((1, "red", "ada", 38, b""))
    assert not transaction.commit()
