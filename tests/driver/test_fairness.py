"""Owners share a node: however much one of them has due, the others have their turn."""

import pytest

from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.policies import overlap
from noonmark.core.schedule import Owner
from noonmark.core.triggers import EventTrigger
from noonmark.driver.steps.reports import ClaimReport
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from tests.driver.rig import Rig

BURST = 10_500
CHUNK = 5_000


@pytest.fixture(params=["memory", "SQLite"])
def rigs(request, tmp_path):
    """Make rigs on a store of either kind, which is closed in the end."""
    stores = []

    def make_store(clock):
        stores.append(MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "noonmark.db", clock))
        stores[-1].open()
        return stores[-1]

    yield lambda **timing: Rig(make_store=make_store, **timing)
    for store in stores:
        store.close()


def burst(rig, of, count):
    """So many occurrences due now."""
    now = rig.world.now
    for first in range(0, count, CHUNK):
        numbers = range(first, min(first + CHUNK, count))
        rows = [factories.occurrence(of, manual(f"{of.owner.user}{number}"), nominal=now) for number in numbers]
        assert all(rig.store.store.add(rows))


def round_of(rig):
    """What a node does again and again; gives what it handed over."""
    before = len(rig.target.given)
    rig.claim_once()
    rig.admit_once()
    return keys(rig.target.given[before:])


def owned(rig, user, **changes):
    """A schedule of a user, which has no occurrences but those that a test adds."""
    owner = Owner(tenant="acme", user=user)
    return rig.create(user, owner=owner, trigger=EventTrigger("seen"), overlap_policy=overlap.Allow(), **changes)


def keys(assignments):
    return [one.occurrence.origin.removeprefix("manual:") for one in assignments]


@pytest.mark.parametrize(
    ("batch", "started"),
    [
        (4, ["a0", "b0", "a1", "b1", "a2", "a3", "a4", "a5"]),
        (9, ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]),
    ],
    ids=["in turn when there is too much for a batch", "by time when everything fits"],
)
def test_the_order_in_which_claims_are_decided(batch, started):
    rig = Rig(batch=batch)
    ada, bob = owned(rig, "ada"), owned(rig, "bob")
    for number in range(6):
        rig.add(ada, f"a{number}", number)
    for number in range(2):
        rig.add(bob, f"b{number}", 20 + number)
    while rig.claim_once().claimed:
        pass
    rig.advance(SECOND)
    while rig.admit_once().started:
        pass
    assert keys(rig.target.given) == started


def test_a_burst_of_one_owner_does_not_delay_another(rigs):
    rig = rigs(batch=300)
    ada, bob = owned(rig, "ada"), owned(rig, "bob")
    burst(rig, ada, BURST)
    for _ in range(3):
        assert round_of(rig)
    rig.add(bob, "single", SECOND // 2)
    assert "single" not in round_of(rig)
    rig.advance(SECOND // 2)
    assert "single" in [*round_of(rig), *round_of(rig)]
    assert len(rig.target.given) < BURST // 5


def test_a_node_that_is_full_of_one_owners_work_has_room_for_others(rigs):
    rig = rigs(capacity=1_000, batch=400)
    ada, bob = owned(rig, "ada"), owned(rig, "bob")
    burst(rig, ada, 1_500)
    while round_of(rig):
        pass
    assert len(rig.target.given) == 900  # and none of them ends
    assert rig.claim_once() == ClaimReport()
    burst(rig, bob, 30)
    assert len(round_of(rig)) == 10
    assert round_of(rig) == []
    burst(rig, owned(rig, "carol"), 1)
    assert round_of(rig) == ["carol0"]
    assert {one.schedule.owner.user for one in rig.target.given[900:]} == {"bob", "carol"}


def test_an_end_on_a_full_node_makes_room_for_more(rigs):
    rig = rigs(capacity=10, batch=10)
    burst(rig, owned(rig, "ada"), 20)
    while round_of(rig):
        pass
    assert len(rig.target.given) == 9
    rig.target.end(rig.target.given[0])
    assert rig.settle_once().frees_others
    assert len(round_of(rig)) == 1
    rig.target.end(rig.target.given[1])
    assert rig.settle_once().frees_others


def test_an_owner_with_some_of_a_full_batch_gets_a_share_beside_it(rigs):
    rig = rigs(batch=40)
    ada, bob = owned(rig, "ada"), owned(rig, "bob")
    burst(rig, bob, 2)
    rig.advance(1)
    burst(rig, ada, 100)
    rig.advance(1)
    rig.add(bob, "late")
    given = round_of(rig)
    assert sum(key.startswith("ada") for key in given) == 37
    assert {"bob0", "bob1", "late"} < set(given)


def test_owners_who_wait_for_the_last_places_have_them_in_turn(rigs):
    rig = rigs(capacity=40, batch=40)
    burst(rig, owned(rig, "ada"), 100)
    while round_of(rig):
        pass
    others = [owned(rig, f"user-{number}-") for number in range(12)]
    for other in others:
        burst(rig, other, 3)
    served = []
    for _ in range(3):
        given = round_of(rig)
        served += [key.rpartition("-")[0] for key in given]
        for assignment in rig.target.given[-len(given) :]:
            rig.target.end(assignment)
        rig.settle_once()
    assert sorted(served) == sorted(one.owner.user.removesuffix("-") for one in others)


def test_a_run_that_somebody_waits_for_finds_a_place_on_a_full_node():
    rig = Rig(capacity=10, batch=10)
    ada = owned(rig, "ada")
    burst(rig, ada, 20)
    while round_of(rig):
        pass
    occurrence = rig.add(ada, "asked")
    assert rig.claim_once(only=occurrence.id) == ClaimReport(claimed=1)


def test_one_owner_alone_is_asked_about_once_more_for_each_full_batch_and_never_besides():
    rig = Rig(batch=40)
    burst(rig, owned(rig, "ada"), 60)
    assert rig.claim_once() == ClaimReport(claimed=40, more=True)
    assert rig.store.calls["claim"] == 2
    assert rig.claim_once() == ClaimReport(claimed=20)
    assert rig.store.calls["claim"] == 3
