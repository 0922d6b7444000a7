"""Discerning: an event is shown to those whose filters may hold, and what waits for other values costs nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.event import Event
from noonmark.core.instants import from_micros
from noonmark.core.schedule import Owner
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.conformance.events import heard, react
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.plans import Plan
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


def _listen(bench: Bench, uid: str, filters: dict[str, Any], *types: str, **changes: Any) -> Schedule:  # noqa: ANN401 - as create takes them
    return bench.create(uid, trigger=EventTrigger(types or "seen", filters), **changes)


def _shown(bench: Bench, payload: object, event_type: str = "seen", source: str = "tests") -> list[str]:
    """Who is asked about one more event, which is matched then."""
    number = len(bench.store.events("acme", 1_000))
    event = Event(event_type=event_type, emitted=0, event_id=f"e{number}", payload=payload, source=source)
    assert bench.store.emit("acme", [event]) == [True]
    found = bench.store.unmatched(100)
    assert all(bench.store.commit_reactions([react(bench, one) for one in found]))
    [(_, uids)] = heard(found)
    return uids


@case
def an_event_is_offered_to_those_who_want_its_values_or_any(bench: Bench) -> None:
    _listen(bench, "any", {})
    _listen(bench, "big", {"n": {"gte": 100}})
    for number in range(3):
        _listen(bench, f"one-{number}", {"n": number})
    _listen(bench, "same", {"n": 1.0, "size": {"gt": 1}})
    _listen(bench, "text", {"n": "1"})
    _listen(bench, "true", {"n": True})
    _listen(bench, "null", {"n": {"equals": None}})
    _listen(bench, "deep", {"user.name": "Ünal"})
    _listen(bench, "both", {"n": 1, "user.name": "Ünal"})
    _listen(bench, "either", {"n": [1, 2]})
    _listen(bench, "source", {"source": "desk"})
    _listen(bench, "types", {"n": 1}, "seen", "gone")
    _listen(bench, "theirs", {"n": 1}, owner=Owner(tenant="other", user="ada"))
    always = ["any", "big", "either"]
    assert _shown(bench, {"n": 1}) == sorted([*always, "one-1", "same", "types"])
    assert _shown(bench, {"n": "1"}) == sorted([*always, "text"])
    assert _shown(bench, {"n": True}) == sorted([*always, "true"])
    assert _shown(bench, {"n": None}) == sorted([*always, "null"])
    assert _shown(bench, {"n": [1]}) == always
    assert _shown(bench, {"user": {"name": "Ünal"}}) == sorted([*always, "deep"])
    both = [*always, "one-1", "same", "types", "deep", "both"]
    assert _shown(bench, {"n": 1, "user.name": "Ünal"}) == sorted(both)
    assert _shown(bench, None, source="desk") == sorted([*always, "source"])
    assert _shown(bench, {"n": 1.0}, "gone") == ["types"]
    assert _shown(bench, {"n": 2}, "gone") == []


@case
def who_is_asked_follows_every_change_of_the_filters(bench: Bench) -> None:
    made = _listen(bench, "uid-1", {"n": 1})

    def changed(plan: Plan, *payloads: object) -> list[bool]:
        assert bench.commit(plan)
        return [_shown(bench, one) == [made.uid] for one in payloads]

    def edited(trigger: Any, *payloads: object) -> list[bool]:  # noqa: ANN401 - of any type
        bench.advance(1)
        declared = replace(made.declaration, trigger=trigger)
        plan = edits.edit(bench.snapshot(made), declared, now=bench.now, lookahead=LOOKAHEAD)
        return changed(plan, *payloads)

    one, two = {"n": 1}, {"n": 2}
    assert edited(EventTrigger("seen", {"n": 2}), one, two) == [False, True]
    # What tells it apart is the same, and yet the trigger is another.
    assert edited(EventTrigger("seen", {"n": 2, "m": {"not": 3}}), one, two) == [False, True]
    assert edited(EventTrigger("seen", {"n": 2}, end_at=from_micros(NOW + MINUTE)), one, two) == [False, True]
    assert edited(EventTrigger("seen", {"n": True}), {"n": True}, one) == [True, False]
    assert edited(EventTrigger("seen", {"m": 2}), two, {"m": 2}) == [False, True]
    assert edited(EventTrigger("seen"), one, two) == [True, True]
    assert edited(factories.declaration().trigger, one, two) == [False, False]
    assert edited(EventTrigger("seen", {"n": 1}), one, two) == [True, False]
    assert changed(edits.pause(bench.snapshot(made), now=bench.now), one, two) == [True, False]
    resumed = edits.resume(bench.snapshot(made), now=bench.now, lookahead=LOOKAHEAD)
    assert changed(resumed, one, two) == [True, False]
    assert changed(edits.delete(bench.snapshot(made), now=bench.now), one, two) == [False, False]
    again = _listen(bench, "uid-2", {"n": 2})
    assert [_shown(bench, payload) for payload in (one, two)] == [[], [again.uid]]


@case
def those_who_want_different_values_are_asked_page_by_page(bench: Bench) -> None:
    wants = [{}, {"n": 1}, {"m": 1}, {"m": 1, "n": 1}, {"n": 2}]
    made = [_listen(bench, f"uid-{number:02}", wants[number % 5]) for number in range(15)]
    payloads = [{"n": 1, "m": 1}, {"n": 2}, {"n": 3}]
    events = [Event(event_type="seen", emitted=0, event_id=f"e{n}", payload=one) for n, one in enumerate(payloads)]
    assert all(bench.store.emit("acme", events))
    rooms = []
    while audiences := bench.store.unmatched(5):
        rooms.append(sum(len(one.listeners) for one in audiences))
        assert all(one.next_cursor is None for one in audiences[:-1])
        assert all(bench.store.commit_reactions([react(bench, one) for one in audiences]))
    assert rooms == [5, 5, 5, 5, 1]
    for number, one in enumerate(made):
        expected = [f"event:e{n}" for n, payload in enumerate(payloads) if wants[number % 5].items() <= payload.items()]
        assert [row.origin for row in bench.store.occurrences(one.uid)] == expected[::-1]


@case
def of_a_burst_each_event_is_offered_to_its_own(bench: Bench) -> None:
    for number in range(40):
        _listen(bench, f"uid-{number:02}", {"customer": f"c-{number:02}"})
    numbers = [number * 7 % 40 for number in range(60)]
    events = [
        Event(event_type="seen", emitted=0, event_id=f"e{place}", payload={"customer": f"c-{number:02}"})
        for place, number in enumerate(numbers)
    ]
    assert all(bench.store.emit("acme", events))
    found = bench.store.unmatched(50)
    assert heard(found) == [(f"e{place}", [f"uid-{number:02}"]) for place, number in enumerate(numbers[:50])]
    assert all(bench.store.commit_reactions([react(bench, one) for one in found]))
    assert len(bench.store.unmatched(50)) == 10
