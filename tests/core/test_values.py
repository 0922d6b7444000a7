from dataclasses import FrozenInstanceError, replace

import pytest

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.values import altered
from noonmark.testing import factories


@pytest.mark.parametrize("changes", [{}, {"phase": Phase.CLAIMED}, {"fence": 7, "holds_slot": True, "payload": [1]}])
def test_it_is_what_replace_gives(changes):
    one = factories.occurrence(factories.schedule(), TRIGGER)
    assert altered(one, **changes) == replace(one, **changes)
    assert one == factories.occurrence(factories.schedule(), TRIGGER)


def test_the_copy_is_frozen_too():
    copy = altered(factories.occurrence(factories.schedule(), TRIGGER), attempt=2)
    with pytest.raises(FrozenInstanceError):
        copy.attempt = 3


def test_an_unknown_field_is_an_error():
    with pytest.raises(AttributeError):
        altered(factories.schedule(), colour="red")
