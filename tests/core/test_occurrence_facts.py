"""What placeholders may ask of an occurrence."""

import pytest

from noonmark.core import ids
from noonmark.core.occurrence_facts import occurrence_facts
from noonmark.core.planner import occurrence
from noonmark.core.targets.placeholders import FACTS
from tests.core.scheduled import at, scheduled

EVENT = {"event_id": "e1", "event_type": "paid", "source": "shop", "payload": {"sum": 7}}


@pytest.mark.parametrize(
    ("origin", "payload", "expected"),
    [
        (ids.TRIGGER, None, (None, None)),
        (ids.manual("k"), [1], ([1], None)),
        (ids.event("e1"), EVENT, ({"sum": 7}, EVENT)),
    ],
)
def test_an_event_brings_its_payload(origin, payload, expected):
    facts = occurrence_facts(scheduled(), occurrence(scheduled(), at(1), at(2), origin=origin, payload=payload))
    assert (facts["payload"], facts["event"]) == expected
    assert set(facts) == {*FACTS, "payload", "event"}
