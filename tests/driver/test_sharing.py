"""Owners share a node: however much one of them has due, the others have their turn."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.policies import overlap
from noonmark.core.schedule import Owner
from noonmark.core.triggers import EventTrigger
from tests.driver.rig import Rig


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
