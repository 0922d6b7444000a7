"""Repair: inspection of rows, schedules that are set aside, and what a fast clock left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.clock_rewind import rewind
from noonmark.core.clock_trust import LEAP
from noonmark.core.event import Event
from noonmark.core.instants import DAY, SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.policies.limits import Dependency
from noonmark.core.policies.overlap import Allow
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry
from noonmark.core.triggers import EventTrigger, OnceTrigger
from noonmark.ports.records import Heartbeat, KeyRecord
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case, hold
from noonmark.testing.conformance.events import react
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


@case
def a_schedule_that_is_set_aside_is_not_planned_until_it_is_edited(bench: Bench) -> None:
    broken, sound = bench.create("broken"), bench.create("sound")
    bench.advance(MINUTE)
    bench.store.set_aside(broken.uid, "it cannot be planned")
    bench.store.set_aside("nobody", "there is no such schedule")
    assert [one.schedule.uid for one in bench.store.plannable(bench.now, 9)] == [sound.uid]
    assert bench.stored(broken).schedule == broken
    renamed = replace(broken.declaration, name="Mended")
    assert bench.commit(edits.edit(bench.snapshot(broken), renamed, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(2 * MINUTE)
    assert {one.schedule.uid for one in bench.store.plannable(bench.now, 9)} == {broken.uid, sound.uid}


@case
def an_untouched_store_is_sound(bench: Bench) -> None:
    schedule = bench.create(labels={"a": "b"})
    bench.create_quiet("quiet")
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    bench.store.claim_key("acme", "key", "fingerprint", now=bench.now, lifetime=MINUTE)
    before = bench.store.occurrences(schedule.uid)
    after, rows = None, 0
    while True:
        page = bench.store.inspect(after, limit=3)
        assert page.damaged == ()
        rows, after = rows + page.rows, page.after
        if after is None:
            break
    assert rows == bench.store.inspect(limit=1_000).rows
    condition = bench.store.condition()
    assert (condition.problems, condition.schema) == ((), condition.expected_schema)
    assert not bench.store.damage()
    assert bench.store.occurrences(schedule.uid) == before
    assert bench.store.next_time([ROUTE]) is not None


YEAR: Micros = 365 * DAY


def _plan(bench: Bench, of: Schedule) -> None:
    assert bench.commit(plan(bench.snapshot(of), now=bench.now, lookahead=LOOKAHEAD))


def _ahead(bench: Bench, after: str = "", limit: int = 10) -> list[Snapshot]:
    return bench.store.planned_ahead(now=bench.now, until=bench.now + LEAP, after=after, limit=limit)


def _rewind(bench: Bench) -> list[bool]:
    plans = [rewind(one, now=bench.now, lookahead=LOOKAHEAD) for one in _ahead(bench)]
    return bench.store.commit_plans([one for one in plans if one is not None])


@case
def the_newest_time_is_that_of_an_end_a_beat_a_note_or_a_lease(bench: Bench) -> None:
    assert bench.store.newest_time() is None
    schedule = bench.create_quiet()
    assert bench.store.newest_time() is None
    bench.store.add_audit_entries("acme", [AuditEntry(at=NOW - 1, caller="ada", operation="pause")])
    assert bench.store.newest_time() == NOW - 1
    bench.store.beat(Heartbeat(node="node-a", lease=LEASE), now=NOW)
    assert bench.store.newest_time() == NOW
    bench.advance(5)
    occurrence = bench.run(schedule, "one")
    assert bench.store.newest_time() == NOW + 5 + LEASE
    bench.settle(occurrence)
    assert bench.store.newest_time() == NOW + 5
    assert [bench.store.newest_time(before=NOW + later) for later in (6, 5, 0, -1)] == [
        NOW + 5, NOW, NOW - 1, None,
    ]  # fmt: skip
    assert bench.store.prune(before=NOW + 6, keep=9, limit=9) == 1
    assert bench.store.newest_time() == NOW


@case
def a_claimable_occurrence_has_its_due_time(bench: Bench) -> None:
    assert bench.store.due_since([ROUTE]) is None
    schedule = bench.create_quiet()
    bench.add(schedule, "later", after=2 * MINUTE)
    bench.add(schedule, "first", after=MINUTE)
    assert bench.store.due_since([ROUTE, "function:other"]) == NOW + MINUTE
    assert bench.store.due_since(["function:other"]) is None
    assert bench.store.due_since([]) is None
    bench.advance(MINUTE)
    bench.claim()
    assert bench.store.due_since([ROUTE]) == NOW + MINUTE + LEASE


@case
def schedules_that_are_planned_far_ahead_are_listed_page_by_page(bench: Bench) -> None:
    far = OnceTrigger(from_micros(NOW + YEAR))
    for uid in ("uid-3", "uid-1", "uid-2"):
        bench.create(uid, trigger=far)
    bench.create("uid-4")
    assert [one.schedule.uid for one in _ahead(bench, limit=2)] == ["uid-1", "uid-2"]
    assert [one.schedule.uid for one in _ahead(bench, after="uid-2")] == ["uid-3"]
    [first] = _ahead(bench, limit=1)
    assert (first.watermark, first.beyond, first.gaps) == (NOW + YEAR, (), ())
    assert [one.nominal for one in first.projections] == [NOW + YEAR]


@case
def a_gap_that_a_clock_ahead_has_closed_is_shortened_and_counted_as_it_is(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(YEAR)
    _plan(bench, schedule)
    missed = YEAR // MINUTE - 1  # the last is within its grace
    assert bench.stored(schedule).counters.missed == missed
    bench.advance(5 * MINUTE - YEAR)
    assert _rewind(bench) == [True]
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.missed) == (5, 5)
    snapshot = bench.snapshot(schedule)
    assert (snapshot.watermark, snapshot.admitted, snapshot.beyond) == (NOW + 6 * MINUTE, NOW + 5 * MINUTE, ())
    assert [one.nominal for one in snapshot.projections] == [NOW + 6 * MINUTE]
    rows = {row.nominal: row for row in bench.store.occurrences(schedule.uid)}
    gap = rows[NOW + MINUTE]
    assert (gap.missed_count, gap.missed_first, gap.missed_last) == (5, NOW + MINUTE, NOW + 5 * MINUTE)
    assert _rewind(bench) == []
    bench.advance(MINUTE)
    claim = bench.claim_one()
    assert claim.occurrence.nominal == NOW + 6 * MINUTE


@case
def a_gap_of_which_nothing_has_come_vanishes_and_its_fires_run(bench: Bench) -> None:
    schedule = bench.create(trigger=OnceTrigger(from_micros(NOW + DAY)))
    bench.advance(YEAR)
    _plan(bench, schedule)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.counters.missed) == (SchedulePhase.COMPLETED, 1)
    [before] = bench.store.occurrences(schedule.uid)
    bench.advance(MINUTE - YEAR)
    assert _rewind(bench) == [True]
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.counters.missed, stored.counters.total) == (SchedulePhase.ACTIVE, 0, 0)
    [row] = bench.store.occurrences(schedule.uid)
    assert (row.id, row.phase, row.fence > before.fence) == (before.id, Phase.PENDING, True)
    bench.advance(DAY)
    assert bench.settle(bench.start(bench.claim_one()))
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.counters.successful, stored.counters.total) == (SchedulePhase.COMPLETED, 1, 1)


@case
def a_schedule_that_was_planned_meanwhile_is_not_rewound(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(YEAR)
    _plan(bench, schedule)
    bench.advance(-YEAR)
    [snapshot] = _ahead(bench)
    late = rewind(snapshot, now=bench.now, lookahead=LOOKAHEAD)
    assert late is not None
    assert _rewind(bench) == [True]
    assert not bench.commit(late)


@case
def times_that_lie_ahead_are_set_back(bench: Bench) -> None:
    schedule = bench.create_quiet()
    ended, held = [bench.add(schedule, key) for key in ("ended", "held")]
    bench.advance(YEAR)
    bench.store.beat(Heartbeat(node="lost", lease=LEASE, routes=(ROUTE,)), now=bench.now)
    bench.store.lead("lost", now=bench.now, lease=LEASE)
    bench.store.add_audit_entries("acme", [AuditEntry(at=bench.now, caller="ada", operation="pause")])
    bench.store.claim_key("acme", "key", "body", now=bench.now, lifetime=MINUTE)
    for claim in bench.claim("lost"):
        if claim.occurrence.id == ended.id:
            bench.settle(bench.start(claim))
    bench.advance(MINUTE - YEAR)
    now = bench.now
    assert bench.claim() == []
    # The end, the lease, the lead, the node, its route, the note and the key.
    assert bench.store.repair(now=now, after=now + LEAP, lease=LEASE) == 7
    assert bench.store.repair(now=now, after=now + LEAP, lease=LEASE) == 0
    assert bench.store.newest_time() == now + LEASE
    assert bench.row(ended).ended == now
    [node] = bench.store.nodes()
    assert (node.seen, node.is_alive, node.is_leader) == (now, True, True)
    assert [one.at for one in bench.store.audit_entries("acme", 9)] == [now]
    assert bench.store.prune_keys(before=now, limit=9) == 0
    assert bench.store.prune_keys(before=now + 1, limit=9) == 1
    bench.advance(LEASE)
    assert bench.store.lead("node-a", now=bench.now, lease=LEASE).leader == "node-a"
    assert bench.claim_one().occurrence.id == held.id


@case
def what_waits_for_a_false_time_gets_another(bench: Bench) -> None:
    schedule = bench.create_quiet()
    first = bench.run(schedule, "first")
    retried = bench.run(bench.create_quiet("uid-2"), "retried")
    waiting = bench.add(schedule, "waiting")
    claim = bench.claim_one()
    bench.decide(Wait(claim=claim, waiting_for=Reason.QUEUED))
    follower = bench.create("uid-3", trigger=None, depends_on=(Dependency(schedule_id=schedule.schedule_id),))
    bench.advance(YEAR)
    bench.settle(first)
    bench.retry(retried, bench.now + MINUTE)
    manual = bench.add(schedule, "asked", after=YEAR)
    bench.advance(MINUTE - YEAR)
    now = bench.now
    assert bench.claim() == []
    assert bench.store.repair(now=now, after=now + LEAP, lease=LEASE) > 0
    assert {one.occurrence.id for one in bench.claim()} == {waiting.id, retried.id, manual.id}
    assert [one.schedule.uid for one in bench.store.plannable(now, 9)] == [follower.uid]
    assert bench.store.repair(now=now, after=now + LEAP, lease=LEASE) == 0


@case
def events_dated_by_a_fast_clock_are_set_back_and_matched_in_order(bench: Bench) -> None:
    schedule = bench.create(trigger=EventTrigger("seen"), overlap_policy=Allow())
    assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id="before")])
    bench.advance(YEAR)
    for name in ("first", "second"):
        assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id=name)])
    for audience in bench.store.unmatched(2):
        assert bench.store.commit_reactions([react(bench, audience)]) == [True]
    bench.advance(MINUTE - YEAR)
    late = bench.store.unmatched(1)
    assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id="after")])
    assert [(one.event_id, one.emitted) for one in bench.store.events("acme", 9)] == [
        ("after", bench.now), ("second", bench.now - 1), ("first", bench.now - 2), ("before", NOW),
    ]  # fmt: skip
    assert bench.store.commit_reactions([react(bench, one) for one in late]) == [False], "it has another moment"
    left = bench.store.unmatched(9)
    assert [one.event.event_id for one in left] == ["second", "after"]
    assert bench.store.commit_reactions([react(bench, one) for one in left]) == [True, True]
    assert bench.store.unmatched(9) == []
    assert {one.due for one in bench.store.occurrences(schedule.uid)} == {
        NOW, NOW + YEAR, bench.now - 1, bench.now,
    }  # fmt: skip
    bench.advance(SECOND)
    assert bench.store.prune_events(before=bench.now, keep=9, limit=9) == 4
    assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id="last")])
    assert [one.emitted for one in bench.store.events("acme", 9)] == [bench.now]


@case
def a_fully_pruned_stream_is_set_back_as_well(bench: Bench) -> None:
    bench.advance(YEAR)
    assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id="first")])
    assert bench.store.commit_reactions([react(bench, one) for one in bench.store.unmatched(9)]) == [True]
    assert bench.store.prune_events(before=bench.now + 1, keep=9, limit=9) == 1
    bench.advance(-YEAR)
    assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id="after")])
    assert [one.event.emitted for one in bench.store.unmatched(9)] == [bench.now]


@case
def times_that_are_as_they_should_be_stay(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.store.beat(Heartbeat(node="node-a", lease=LEASE, routes=(ROUTE,)), now=NOW)
    bench.store.claim_key("acme", "key", "body", now=NOW, lifetime=MINUTE)
    bench.store.lead("node-a", now=NOW, lease=LEASE)
    occurrence = bench.run(schedule, "one")
    assert bench.store.repair(now=NOW - MINUTE, after=NOW - MINUTE + LEAP, lease=LEASE) == 0
    renewal = bench.store.renew([hold(occurrence)], now=NOW, lease=LEASE)
    assert not renewal.lost
    owner = bench.store.claim_key("acme", "key", "other", now=NOW, lifetime=MINUTE)
    assert owner == KeyRecord(fingerprint="body", created=NOW)
