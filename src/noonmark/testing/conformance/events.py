"""Events are stored once, in order, and matched page by page with the schedules whose filters may match."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.causation import Reaction, chain_behind, match
from noonmark.core.event import Chain, Event
from noonmark.core.filters.match import matches
from noonmark.core.ids import event, occurrence_id
from noonmark.core.instants import MIN_INSTANT, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Overrides
from noonmark.core.planner import plan
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, ROUTE, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.causation import UnmatchedEvent
    from noonmark.core.planner import Plan
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


OTHER = Owner(tenant="other", user="ada")


def _event(event_id: str, event_type: str = "seen", **changes: Any) -> Event:
    return replace(Event(event_type=event_type, emitted=0, event_id=event_id), **changes)


def _emit(bench: Bench, *ids: str, event_type: str = "seen", tenant: str = "acme") -> None:
    assert all(bench.store.emit(tenant, [_event(one, event_type) for one in ids]))


def _listen(bench: Bench, uid: str, *types: str, **changes: Any) -> Schedule:
    return bench.create(uid, trigger=EventTrigger(types or "seen"), **changes)


def react(bench: Bench, audience: UnmatchedEvent) -> Reaction:
    """What every listener makes of an event."""
    rows = [match(audience.event, one, now=bench.now) for one in audience.listeners]
    return Reaction(audience=audience, occurrences=tuple(row for row in rows if row is not None))


def _match(bench: Bench, limit: int = 100) -> list[bool]:
    """Match one batch of events."""
    return bench.store.commit_reactions([react(bench, one) for one in bench.store.unmatched(limit)])


def heard(audiences: list[UnmatchedEvent]) -> list[tuple[str | None, list[str]]]:
    """Who is to be asked about each event."""
    return [(one.event.event_id, sorted(listener.uid for listener in one.listeners)) for one in audiences]


@case
def an_event_is_stored_once_for_its_tenant(bench: Bench) -> None:
    assert bench.store.emit("acme", [_event("a"), _event("b"), _event("a")]) == [True, True, False]
    assert bench.store.emit("acme", [_event("b", "other", payload={"x": 1}), _event("c")]) == [False, True]
    assert bench.store.emit("other", [_event("a")]) == [True]
    assert bench.store.emit("acme", []) == []
    assert [one.event_id for one in bench.store.events("acme", 9)] == ["c", "b", "a"]
    assert [one.event_id for one in bench.store.events("other", 9)] == ["a"]
    assert bench.store.events("nobody", 9) == []
    known = bench.store.event("acme", "b")
    assert known == bench.store.events("acme", 9)[1]
    assert bench.store.event("acme", "z") is None
    assert bench.store.event("nobody", "a") is None


@case
def the_chain_of_an_event_continues_in_what_it_triggers(bench: Bench) -> None:
    behind = Chain(3, 1, ("abcdefghi", "123456789"), ("first", "second"))
    listener = _listen(bench, "listener")
    bench.advance(1)
    assert bench.store.emit("acme", [_event("a", behind=behind), _event("b")]) == [True, True]
    assert [one.behind for one in bench.store.events("acme", 9)] == [None, behind]
    assert _match(bench) == [True, True]
    rows = bench.store.occurrences(listener.uid)
    assert {row.origin: row.overrides for row in rows} == {event("a"): Overrides(behind=behind), event("b"): None}
    claimed = bench.claim()
    assert {one.occurrence.origin: chain_behind(one.occurrence).depth for one in claimed} == {
        event("a"): 3,
        event("b"): 0,
    }


@case
def an_event_is_read_as_it_was_emitted(bench: Bench) -> None:
    payloads: list[object] = [{"path": "a", "n": [1, 2.5, None, True]}, "text", 7, [], None, "é\n"]
    sent = [_event(f"e{n}", f"type-{n}", source="api", payload=one) for n, one in enumerate(payloads)]
    bench.store.emit("acme", sent)
    expected = [replace(one, emitted=NOW + n) for n, one in enumerate(sent)]
    assert bench.store.events("acme", 9) == expected[::-1]
    assert bench.store.events("acme", 2) == expected[:-3:-1]
    assert bench.store.events("acme", 0) == []
    assert [one.event for one in bench.store.unmatched(9)] == expected


@case
def events_of_a_tenant_have_moments_that_rise(bench: Bench) -> None:
    _emit(bench, "a", "b")
    _emit(bench, "theirs", tenant="other")
    bench.advance(-MINUTE)
    _emit(bench, "c")
    bench.advance(2 * MINUTE)
    _emit(bench, "d")
    assert [one.emitted for one in bench.store.events("acme", 9)] == [NOW + MINUTE, NOW + 2, NOW + 1, NOW]
    assert [one.emitted for one in bench.store.events("other", 9)] == [NOW]


@case
def an_event_is_offered_to_subscribers_of_its_tenant_and_type(bench: Bench) -> None:
    _listen(bench, "seen")
    _listen(bench, "both", "gone", "seen")
    _listen(bench, "gone", "gone")
    _listen(bench, "theirs", owner=OTHER)
    bench.create("timed")
    _emit(bench, "a")
    _emit(bench, "b", event_type="gone")
    _emit(bench, "c", event_type="unheard")
    unmatched = bench.store.unmatched(100)
    assert heard(unmatched) == [("a", ["both", "seen"]), ("b", ["both", "gone"]), ("c", [])]
    assert [one.next_cursor for one in unmatched] == [None, None, None]
    assert bench.store.unmatched(100) == unmatched


@case
def subscriptions_follow_every_change_of_a_schedule(bench: Bench) -> None:
    schedule = _listen(bench, "uid-1")
    paused = _listen(bench, "uid-2", phase=SchedulePhase.PAUSED)
    gone = _listen(bench, "uid-3")
    bench.create("uid-4")
    _emit(bench, "a")
    _emit(bench, "b", event_type="other")
    other = replace(schedule.declaration, trigger=EventTrigger(["other", "third"]))
    assert bench.commit(edits.edit(bench.snapshot(schedule), other, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.commit(edits.delete(bench.snapshot(gone), now=bench.now))
    assert heard(bench.store.unmatched(100)) == [("a", [paused.uid]), ("b", [schedule.uid])]
    timed = replace(schedule.declaration, trigger=factories.declaration().trigger)
    assert bench.commit(edits.edit(bench.snapshot(schedule), timed, now=bench.now, lookahead=LOOKAHEAD))
    assert heard(bench.store.unmatched(100)) == [("a", [paused.uid]), ("b", [])]


@case
def a_match_is_an_occurrence_that_can_be_claimed(bench: Bench) -> None:
    schedule = _listen(bench, "uid-1")
    _emit(bench, "a", "b")
    assert _match(bench) == [True, True]
    assert bench.store.unmatched(100) == []
    claims = bench.claim(until=bench.now)
    assert [claim.occurrence.origin for claim in claims] == ["event:a", "event:b"]
    assert claims[0].occurrence.id == occurrence_id(schedule.uid, event("a"), NOW)
    assert [claim.occurrence.nominal for claim in claims] == [NOW, NOW + 1]
    assert claims[1].occurrence.payload["event_id"] == "b"


@case
def an_event_for_a_paused_schedule_is_counted_as_skipped(bench: Bench) -> None:
    schedule = _listen(bench, "uid-1", phase=SchedulePhase.PAUSED)
    _emit(bench, "a")
    assert _match(bench) == [True]
    [row] = bench.store.occurrences(schedule.uid)
    assert (row.phase, row.reason) == (Phase.SKIPPED, Reason.PAUSED)
    assert bench.stored(schedule).counters.skipped == 1


@case
def an_event_with_many_subscribers_is_matched_page_by_page(bench: Bench) -> None:
    schedules = [_listen(bench, f"uid-{number}") for number in range(5)]
    _emit(bench, "a", "b")
    pages = []
    while audiences := bench.store.unmatched(2):
        assert sum(len(one.listeners) for one in audiences) <= 2
        pages += [(one.event.event_id, len(one.listeners), one.next_cursor is None) for one in audiences]
        assert all(bench.store.commit_reactions([react(bench, one) for one in audiences]))
    first = [("a", 2, False), ("a", 2, False), ("a", 1, True)]
    assert pages == [*first, ("b", 1, False), ("b", 2, False), ("b", 2, True)]
    for schedule in schedules:
        assert [row.origin for row in bench.store.occurrences(schedule.uid)] == ["event:b", "event:a"]


@case
def an_event_is_matched_after_those_before_it(bench: Bench) -> None:
    _listen(bench, "uid-1")
    _listen(bench, "uid-2", owner=OTHER)
    _emit(bench, "a", "b")
    _emit(bench, "theirs", tenant="other")
    first, second, theirs = [react(bench, one) for one in bench.store.unmatched(9)]
    assert bench.store.commit_reactions([second]) == [False]
    assert bench.store.commit_reactions([second, theirs, first]) == [False, True, True]
    assert bench.store.commit_reactions([first, second]) == [False, True]
    assert len(bench.store.occurrences("uid-1")) == 2
    assert len(bench.store.occurrences("uid-2")) == 1


@case
def the_tenant_that_waits_longest_comes_first(bench: Bench) -> None:
    _emit(bench, "a", "b", "c")
    bench.advance(1)
    _emit(bench, "theirs", tenant="other")
    unmatched = [(one.tenant, one.event.event_id) for one in bench.store.unmatched(2)]
    assert unmatched == [("acme", "a"), ("acme", "b")]
    assert _match(bench, 2) == [True, True]
    unmatched = [(one.tenant, one.event.event_id) for one in bench.store.unmatched(2)]
    assert unmatched == [("other", "theirs"), ("acme", "c")]


@case
def of_two_nodes_that_match_an_event_one_writes(bench: Bench) -> None:
    _listen(bench, "uid-1")
    _listen(bench, "uid-2")
    _emit(bench, "a")
    [page] = [react(bench, one) for one in bench.store.unmatched(1)]
    assert bench.store.commit_reactions([page, page]) == [True, False]
    [rest] = [react(bench, one) for one in bench.store.unmatched(9)]
    assert bench.store.commit_reactions([page]) == [False]
    assert bench.store.commit_reactions([rest]) == [True]
    assert bench.store.commit_reactions([rest, page]) == [False, False]
    assert [len(bench.store.occurrences(uid)) for uid in ("uid-1", "uid-2")] == [1, 1]
    strange = replace(page, audience=replace(page.audience, tenant="nobody"))
    assert bench.store.commit_reactions([strange]) == [False]


@case
def what_was_decided_about_a_schedule_that_changed_is_not_written(bench: Bench) -> None:
    for number, change in enumerate(("pause", "edit", "delete")):
        changed = _listen(bench, f"{change}-a")
        _listen(bench, f"{change}-b")
        bench.advance(1)
        _emit(bench, f"e{number}")
        [reaction] = [react(bench, one) for one in bench.store.unmatched(9)]
        snapshot, now = bench.snapshot(changed), bench.now
        tried = replace(changed.declaration, max_runs=5)
        plans = {
            "pause": edits.pause(snapshot, now=now),
            "edit": edits.edit(snapshot, tried, now=now, lookahead=LOOKAHEAD),
            "delete": edits.delete(snapshot, now=now),
        }
        assert bench.commit(plans[change])
        assert bench.store.commit_reactions([reaction]) == [False]
        assert bench.store.occurrences(f"{change}-b") == []
        assert _match(bench) == [True]
        assert len(bench.store.occurrences(f"{change}-b")) == 1
    [skipped] = [row for row in bench.store.occurrences("pause-a") if row.origin == "event:e0"]
    assert (skipped.phase, skipped.reason) == (Phase.SKIPPED, Reason.PAUSED)
    [pending] = [row for row in bench.store.occurrences("edit-a") if row.origin == "event:e1"]
    assert (pending.phase, pending.revision) == (Phase.PENDING, 2)
    assert bench.store.occurrences("delete-a") == []


@case
def an_occurrence_that_an_event_triggered_before_is_unchanged(bench: Bench) -> None:
    schedule = _listen(bench, "uid-1")
    bench.add_event(schedule, "a", payload={"kept": True})
    _emit(bench, "a")
    assert _match(bench) == [True]
    [row] = bench.store.occurrences(schedule.uid)
    assert row.payload == {"kept": True}


@case
def while_an_event_waits_the_next_time_is_past(bench: Bench) -> None:
    _listen(bench, "uid-1")
    assert bench.store.next_time([ROUTE]) is None
    _emit(bench, "a")
    bench.advance(5)
    assert bench.store.next_time([]) == MIN_INSTANT  # past by every clock
    [audience] = bench.store.unmatched(9)
    assert bench.store.commit_reactions([Reaction(audience=audience)]) == [True]
    assert bench.store.next_time([ROUTE]) is None


@case
def a_schedule_whose_events_are_over_is_completed(bench: Bench) -> None:
    ends = from_micros(NOW + MINUTE)
    schedule = bench.create(trigger=EventTrigger("seen", end_at=ends))
    _emit(bench, "a")
    assert _match(bench) == [True]
    assert bench.store.next_time([]) == NOW + MINUTE + 1
    bench.advance(MINUTE + 1)
    [snapshot] = bench.store.plannable(bench.now, 9)
    assert bench.commit(plan(snapshot, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED


@case
def old_events_are_pruned_when_they_are_matched(bench: Bench) -> None:
    _emit(bench, "a", "b")
    assert bench.store.prune_events(before=NOW + MINUTE, keep=9, limit=9) == 0
    assert _match(bench) == [True, True]
    bench.advance(5)
    _emit(bench, "c")
    assert bench.store.prune_events(before=NOW + 1, keep=9, limit=9) == 1
    assert bench.store.prune_events(before=NOW + MINUTE, keep=9, limit=9) == 1
    assert [one.event_id for one in bench.store.events("acme", 9)] == ["c"]
    assert _match(bench) == [True]
    _emit(bench, "a")
    assert [one.emitted for one in bench.store.events("acme", 9)] == [NOW + 6, NOW + 5]


@case
def of_each_tenant_the_newest_matched_events_are_kept(bench: Bench) -> None:
    _emit(bench, "a", "b", "c", "d")
    _emit(bench, "e", "f", tenant="other")
    while _match(bench):
        pass
    _emit(bench, "waits")
    assert bench.store.prune_events(before=NOW, keep=3, limit=9) == 1
    assert [one.event_id for one in bench.store.events("acme", 9)] == ["waits", "d", "c", "b"]
    assert bench.store.prune_events(before=NOW, keep=0, limit=3) == 3
    assert bench.store.prune_events(before=NOW, keep=0, limit=9) == 2
    assert bench.store.prune_events(before=NOW, keep=0, limit=9) == 0
    assert [one.event_id for one in bench.store.events("acme", 9)] == ["waits"]


@case
def at_most_limit_events_are_listed_matched_or_not(bench: Bench) -> None:
    _emit(bench, "a", "b")
    assert _match(bench) == [True, True]
    _emit(bench, "c")
    listed = [[one.event_id for one in bench.store.events("acme", limit)] for limit in range(5)]
    assert listed == [[], ["c"], ["c", "b"], ["c", "b", "a"], ["c", "b", "a"]]


def _listen_filtered(bench: Bench, uid: str, filters: dict[str, Any], *types: str, **changes: Any) -> Schedule:
    return bench.create(uid, trigger=EventTrigger(types or "seen", filters), **changes)


def _shown(bench: Bench, payload: object, event_type: str = "seen", source: str = "tests") -> list[str]:
    """Who is asked about one more event, which is matched then."""
    number = len(bench.store.events("acme", 1_000))
    event = Event(event_type=event_type, emitted=0, event_id=f"e{number}", payload=payload, source=source)
    assert bench.store.emit("acme", [event]) == [True]
    unmatched = bench.store.unmatched(100)
    assert all(bench.store.commit_reactions([react(bench, one) for one in unmatched]))
    [(_, uids)] = heard(unmatched)
    return uids


@case
def an_event_is_offered_to_filters_that_may_match(bench: Bench) -> None:
    _listen_filtered(bench, "any", {})
    _listen_filtered(bench, "big", {"n": {"gte": 100}})
    for number in range(3):
        _listen_filtered(bench, f"one-{number}", {"n": number})
    _listen_filtered(bench, "same", {"n": 1.0, "size": {"not": 1}})
    _listen_filtered(bench, "text", {"n": "1"})
    _listen_filtered(bench, "true", {"n": True})
    _listen_filtered(bench, "null", {"n": {"equals": None}})
    _listen_filtered(bench, "deep", {"user.name": "Ünal"})
    _listen_filtered(bench, "both", {"n": 1, "user.name": "Ünal"})
    _listen_filtered(bench, "either", {"n": [1, 2]})
    _listen_filtered(bench, "source", {"source": "desk"})
    _listen_filtered(bench, "types", {"n": 1}, "seen", "gone")
    _listen_filtered(bench, "theirs", {"n": 1}, owner=Owner(tenant="other", user="ada"))
    always = ["any", "either"]
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
    assert _shown(bench, {"n": 100}) == sorted([*always, "big"])


@case
def an_event_is_offered_to_ranges_and_prefixes_that_it_may_be_in(bench: Bench) -> None:
    filters: dict[str, dict[str, Any]] = {
        "any": {},
        "high": {"n": {"gte": 64}},
        "low": {"n": {"lt": -64}},
        **{f"ten-{n}": {"n": {"gte": 10 * n, "lt": 10 * n + 10}} for n in range(-3, 4)},
        "ours": {"kind": "order", "n": {"gte": 0, "lt": 8}},
        "third": {"rate": {"gt": 0.3, "lte": 0.4}},
        **{f"path-{n}": {"path": {"prefix": f"/{n}/"}} for n in (1, 2, 11)},
        "image": {"path": {"suffix": ".png"}},
        "day": {"at": {"gte": "2026-05-01", "lt": "2026-05-02"}},
    }
    for uid, wanted in filters.items():
        _listen_filtered(bench, uid, wanted)
    payloads: list[dict[str, Any]] = [
        *({"n": n, "kind": kind} for n in (-100, -21, 0, 9.5, 10, 31, 100) for kind in ("order", "bill")),
        *({"n": n} for n in ("5", True, None)),
        *({"rate": rate} for rate in (0.3, 0.35, 0.4, 40)),
        *({"path": path} for path in ("/1/a.png", "/11/b", "/2/", "/2", "x.png")),
        *({"at": at} for at in ("2026-05-01T10", "2026-05-02", "2026-06-01", 5)),
    ]
    for payload in payloads:
        shown = _shown(bench, payload)
        matching = {uid for uid, wanted in filters.items() if matches(wanted, payload)}
        assert matching <= set(shown)
        assert len(shown) <= len(matching) + 3
    assert _shown(bench, {"path": "/11/b"}) == ["any", "path-11"]
    assert _shown(bench, {"n": 100, "kind": "order"}) == ["any", "high"]


@case
def the_filter_index_follows_every_change_of_the_filters(bench: Bench) -> None:
    schedule = _listen_filtered(bench, "uid-1", {"n": 1})

    def changed(plan: Plan, *payloads: object) -> list[bool]:
        assert bench.commit(plan)
        return [_shown(bench, one) == [schedule.uid] for one in payloads]

    def edited(trigger: Any, *payloads: object) -> list[bool]:
        bench.advance(1)
        declared = replace(schedule.declaration, trigger=trigger)
        plan = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)
        return changed(plan, *payloads)

    first, second = {"n": 1}, {"n": 2}
    assert edited(EventTrigger("seen", {"n": 2}), first, second) == [False, True]
    # What tells it apart is the same, and yet the trigger is another.
    assert edited(EventTrigger("seen", {"n": 2, "m": {"not": 3}}), first, second) == [False, True]
    assert edited(EventTrigger("seen", {"n": 2}, end_at=from_micros(NOW + MINUTE)), first, second) == [False, True]
    assert edited(EventTrigger("seen", {"n": True}), {"n": True}, first) == [True, False]
    assert edited(EventTrigger("seen", {"n": {"gt": 1, "lt": 3}}), {"n": 90}, second) == [False, True]
    assert edited(EventTrigger("seen", {"m": 2}), second, {"m": 2}) == [False, True]
    assert edited(EventTrigger("seen"), first, second) == [True, True]
    assert edited(factories.declaration().trigger, first, second) == [False, False]
    assert edited(EventTrigger("seen", {"n": 1}), first, second) == [True, False]
    assert changed(edits.pause(bench.snapshot(schedule), now=bench.now), first, second) == [True, False]
    resumed = edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    assert changed(resumed, first, second) == [True, False]
    assert changed(edits.delete(bench.snapshot(schedule), now=bench.now), first, second) == [False, False]
    again = _listen_filtered(bench, "uid-2", {"n": 2})
    assert [_shown(bench, payload) for payload in (first, second)] == [[], [again.uid]]


@case
def subscribers_with_different_filters_are_matched_page_by_page(bench: Bench) -> None:
    wants = [{}, {"n": 1}, {"m": 1}, {"m": 1, "n": 1}, {"n": 2}]
    schedules = [_listen_filtered(bench, f"uid-{number:02}", wants[number % 5]) for number in range(15)]
    payloads = [{"n": 1, "m": 1}, {"n": 2}, {"n": 3}]
    events = [Event(event_type="seen", emitted=0, event_id=f"e{n}", payload=one) for n, one in enumerate(payloads)]
    assert all(bench.store.emit("acme", events))
    rooms = []
    while audiences := bench.store.unmatched(5):
        rooms.append(sum(len(one.listeners) for one in audiences))
        assert all(one.next_cursor is None for one in audiences[:-1])
        assert all(bench.store.commit_reactions([react(bench, one) for one in audiences]))
    assert rooms == [5, 5, 5, 5, 1]
    for number, schedule in enumerate(schedules):
        expected = [f"event:e{n}" for n, payload in enumerate(payloads) if wants[number % 5].items() <= payload.items()]
        assert [row.origin for row in bench.store.occurrences(schedule.uid)] == expected[::-1]


@case
def each_event_of_a_burst_is_offered_to_its_subscribers(bench: Bench) -> None:
    for number in range(40):
        _listen_filtered(bench, f"uid-{number:02}", {"customer": f"c-{number:02}"})
    numbers = [number * 7 % 40 for number in range(60)]
    events = [
        Event(event_type="seen", emitted=0, event_id=f"e{place}", payload={"customer": f"c-{number:02}"})
        for place, number in enumerate(numbers)
    ]
    assert all(bench.store.emit("acme", events))
    unmatched = bench.store.unmatched(50)
    assert heard(unmatched) == [(f"e{place}", [f"uid-{number:02}"]) for place, number in enumerate(numbers[:50])]
    assert all(bench.store.commit_reactions([react(bench, one) for one in unmatched]))
    assert len(bench.store.unmatched(50)) == 10
