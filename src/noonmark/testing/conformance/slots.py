"""Waiting occurrences form a queue. The transaction that frees a slot or a place hands it to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Busy, End, Place, Start, Wait, admit, refused
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import Plan, occurrence, plan
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.jitter import due_at
from noonmark.core.policies.limits import Concurrency, Horizon
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

DB = Concurrency(key="db")


def _queue(claim: Claim, *, replaces: bool = False, cancel_grace: Micros | None = None) -> Wait:
    return Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=replaces, cancel_grace=cancel_grace)


def _edit(bench: Bench, schedule: Schedule, **changes: object) -> None:
    declared = factories.declaration(**changes)
    edited = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(edited)


@case
def a_waiting_row_has_no_time(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add(schedule, "b", 1)
    bench.advance(1)
    waiting = bench.decide(_queue(bench.claim_one()))
    assert (waiting.phase, waiting.waiting_for, waiting.holds_slot) == (Phase.PENDING, Reason.QUEUED, False)
    bench.store.renew([hold(running)], now=bench.now, lease=10 * LEASE)
    bench.advance(LEASE)
    assert bench.claim() == []
    assert bench.stored(schedule).next_due is None
    bench.add(schedule, "c", 2)
    assert bench.admit(start(bench.claim_one())) == Busy(place=Place.SLOT, waiting=1)


@case
def an_end_hands_the_slot_to_the_first_in_the_queue(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    for key, after in (("d", 3), ("b", 1), ("c", 2)):
        bench.add(schedule, key, after)
    bench.advance(5)
    for claim in reversed(bench.claim()):
        bench.decide(_queue(claim))
    order = []
    for _ in range(3):
        assert bench.settle(running)
        bench.advance(1)
        claim = bench.claim_one()
        assert (claim.occurrence.waiting_for, claim.occurrence.holds_slot) == (Reason.QUEUED, True)
        order.append(claim.occurrence.origin)
        running = bench.start(claim)
        assert running.waiting_for is None
    assert order == ["manual:b", "manual:c", "manual:d"]


@case
def the_queue_is_not_overtaken(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add(schedule, "b")
    bench.decide(_queue(bench.claim_one()))
    assert bench.settle(running)
    bench.add(schedule, "c", -1)
    quick = next(claim for claim in bench.claim() if claim.occurrence.origin == "manual:c")
    assert bench.admit(start(quick)) == Busy(place=Place.SLOT, waiting=0)


@case
def waiting_for_something_free_ends_at_once(bench: Bench) -> None:
    schedule = bench.create_quiet(concurrency=DB)
    running = bench.run(schedule, "a")
    bench.add(schedule, "b")
    claim = bench.claim_one()
    assert isinstance(bench.admit(start(claim)), Busy)
    assert bench.settle(running)
    turn = bench.decide(_queue(claim))
    assert turn.holds_slot
    claim = bench.claim_one()
    bench.decide(Wait(claim=claim, waiting_for=Reason.CONCURRENCY_LIMIT))
    bench.start(bench.claim_one())


@case
def a_turn_that_is_not_taken_goes_to_the_next(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    for key, after in (("b", 1), ("c", 2)):
        bench.add(schedule, key, after)
    bench.advance(2)
    for claim in bench.claim():
        bench.decide(_queue(claim))
    assert bench.settle(running)
    first = bench.claim_one()
    bench.decide(End(claim=first, phase=Phase.SKIPPED, reason=Reason.WINDOW_CLOSED))
    second = bench.claim_one()
    assert second.occurrence.origin == "manual:c"
    bench.start(second)


@case
def a_turn_survives_a_release_and_a_lost_lease(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add(schedule, "b", 1)
    bench.advance(1)
    bench.decide(_queue(bench.claim_one()))
    assert bench.settle(running)
    bench.store.release([hold(bench.claim_one())])
    bench.claim_one("node-b")
    bench.advance(LEASE)
    claim = bench.claim_one("node-c")
    assert claim.occurrence.waiting_for is Reason.QUEUED
    bench.start(claim)


@case
def a_newer_one_replaces_what_waits(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.run(schedule, "a")
    older, newer = bench.add_event(schedule, "b", 1), bench.add_event(schedule, "c", 2)
    manual = bench.add(schedule, "asked for", 0)
    bench.advance(2)
    claims = {claim.occurrence.id: claim for claim in bench.claim()}
    bench.decide(_queue(claims[manual.id]))
    bench.decide(_queue(claims[older.id], replaces=True))
    bench.decide(_queue(claims[newer.id], replaces=True))
    replaced = bench.row(older)
    assert (replaced.phase, replaced.reason, replaced.waiting_for) == (Phase.SKIPPED, Reason.REPLACED, None)
    assert bench.row(newer).waiting_for is Reason.QUEUED
    assert bench.row(manual).waiting_for is Reason.QUEUED
    assert bench.stored(schedule).counters.skipped == 1


def _catch_up(bench: Bench, policy: overlap.OverlapPolicy) -> Schedule:
    """Create a schedule whose first fires are missed and caught up; the last of them is in grace."""
    schedule = bench.create(f"uid-{policy.kind}", misfire_policy=misfire.CatchUpAll(), overlap_policy=policy)
    bench.advance(2 * MINUTE + MINUTE // 2)
    bound = plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    assert bound.catch_up is not None
    assert bound.catch_up.is_line
    assert bench.commit(bound)
    return schedule


def _decide(bench: Bench, claim: Claim) -> Occurrence:
    """Admit a claim as a node does."""
    decision = admit(claim, now=bench.now, lease=LEASE)
    answer = bench.admit(decision)
    return bench.decide(refused(claim, answer)) if isinstance(answer, Busy) else bench.row(claim.occurrence)


@case
def what_is_caught_up_runs_in_line_under_every_policy(bench: Bench) -> None:
    for policy in (overlap.Skip(), overlap.Queue(queue_limit=9), overlap.QueueOne(), overlap.CancelRunning()):
        schedule = _catch_up(bench, policy)
        line = [_decide(bench, claim) for claim in bench.claim()]
        assert [row.phase for row in line] == [Phase.DISPATCHING, *[Phase.PENDING] * (len(line) - 1)]
        order, running = [], line[0]
        bench.store.renew([hold(running)], now=bench.now, lease=100 * LEASE)
        bench.advance(MINUTE)
        bound = plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
        assert bench.commit(bound)
        later = [_decide(bench, claim) for claim in bench.claim()]
        while True:
            order.append(running.id)
            assert bench.settle(running)
            claims = bench.claim()
            if not claims:
                break
            [claim] = claims
            running = bench.start(claim)
        assert order[: len(line)] == [row.id for row in line]
        assert {row.phase for row in later} == {Phase.SKIPPED if policy == overlap.Skip() else Phase.PENDING}
        assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))


def _line(bench: Bench, schedule: Schedule) -> list[Occurrence]:
    """The fires of a schedule that are caught up and have not begun, by their nominal times."""
    rows = (bench.row(one.id) for one in bench.snapshot(schedule).projections if one.caught_up is not None)
    return sorted(rows, key=lambda row: row.nominal)


@case
def a_line_keeps_its_order_when_two_nodes_claim_parts_of_it(bench: Bench) -> None:
    for policy in (overlap.Skip(), overlap.Queue(queue_limit=1), overlap.QueueOne(), overlap.CancelRunning()):
        schedule = _catch_up(bench, policy)
        [first] = bench.claim("node-a", limit=1)
        second, *others = bench.claim("node-b")
        waiting = [_decide(bench, claim) for claim in (*others, second)]
        assert {(row.phase, row.waiting_for) for row in waiting} == {(Phase.PENDING, Reason.QUEUED)}
        bench.advance(LEASE)  # the first node is lost with its claim
        claims = {claim.occurrence.id: claim for claim in bench.claim("node-c")}
        assert claims.keys().isdisjoint(row.id for row in waiting)
        running = _decide(bench, claims[first.occurrence.id])
        assert running.phase is Phase.DISPATCHING
        assert bench.settle(running)
        assert bench.claim_one("node-c").occurrence.id == second.occurrence.id
        assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))


@case
def what_ends_a_fire_without_a_start_gives_the_turn_to_the_next(bench: Bench) -> None:
    schedule = _catch_up(bench, overlap.Skip())
    [first] = bench.claim("node-a", limit=1)
    [second] = bench.claim("node-b", limit=1)
    assert _decide(bench, second).phase is Phase.PENDING
    assert bench.claim("node-b") == []
    assert bench.store.cancel(first.occurrence.id)
    assert bench.row(second.occurrence).holds_slot
    assert bench.claim_one("node-b").occurrence.id == second.occurrence.id
    assert [row.id for row in _line(bench, schedule)] == [second.occurrence.id]


@case
def a_line_keeps_its_order_through_an_edit(bench: Bench) -> None:
    schedule = _catch_up(bench, overlap.Skip())
    before = [row.id for row in _line(bench, schedule)]
    [_, second] = [*bench.claim("node-a", limit=1), *bench.claim("node-b", limit=1)]
    assert _decide(bench, second).phase is Phase.PENDING
    _edit(bench, schedule, misfire_policy=misfire.CatchUpAll(), overlap_policy=overlap.QueueOne(), timeout=SECOND)
    assert [row.id for row in _line(bench, schedule)] == before
    claims = bench.claim("node-b")
    assert {claim.occurrence.id for claim in claims} == set(before)  # another overlap policy: each is decided anew
    decided = {row.id: row for row in (_decide(bench, claim) for claim in reversed(claims))}
    assert [decided[one].phase for one in before] == [Phase.DISPATCHING, Phase.PENDING]
    assert bench.settle(bench.row(before[0]))
    assert bench.claim_one("node-b").occurrence.id == before[1]


@case
def a_line_waits_for_the_retries_of_a_fire_in_it(bench: Bench) -> None:
    schedule = _catch_up(bench, overlap.Skip())
    first, second = bench.claim()
    running = _decide(bench, first)
    _decide(bench, second)
    assert bench.retry(running, bench.now + LEASE)
    assert bench.claim() == []
    bench.advance(LEASE)
    again = bench.start(bench.claim_one())
    assert again.id == running.id
    assert bench.settle(again)
    assert bench.claim_one().occurrence.id == second.occurrence.id
    assert len(_line(bench, schedule)) == 1


@case
def fires_that_were_planned_ahead_join_the_line_of_their_gap(bench: Bench) -> None:
    declared = {"misfire_policy": misfire.CatchUpAll(), "horizon": Horizon(occurrences=5)}
    bench.create("uid-1", trigger=IntervalTrigger(10, from_micros(NOW + MINUTE)), **declared)
    bench.advance(MINUTE + 35 * SECOND)  # each of them is in grace
    claims = bench.claim()
    assert len(claims) == len(range(0, 36, 10))
    newest = claims.pop()
    waiting = _decide(bench, newest)  # another node is quicker
    assert (waiting.phase, waiting.waiting_for, waiting.caught_up) == (Phase.PENDING, Reason.QUEUED, bench.now)
    rows = [_decide(bench, claim) for claim in claims]
    assert [row.phase for row in rows] == [Phase.DISPATCHING, Phase.PENDING, Phase.PENDING]
    order, running = [], rows[0]
    while True:
        order.append(running.id)
        assert bench.settle(running)
        if not (next_ones := bench.claim()):
            break
        [claim] = next_ones
        running = bench.start(claim)
    assert order == [*(claim.occurrence.id for claim in claims), newest.occurrence.id]


@case
def a_fire_that_comes_due_after_the_gap_was_decided_is_in_no_line(bench: Bench) -> None:
    schedule = _catch_up(bench, overlap.Skip())
    running, waiting = [_decide(bench, claim) for claim in bench.claim()]
    bench.store.renew([hold(running)], now=bench.now, lease=100 * LEASE)
    bench.advance(MINUTE)
    assert bench.commit(plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    later = _decide(bench, bench.claim_one())
    assert (later.phase, later.reason) == (Phase.SKIPPED, Reason.OVERLAP)
    assert bench.row(waiting).waiting_for is Reason.QUEUED


@case
def what_is_asked_for_does_not_wait_for_a_line(bench: Bench) -> None:
    schedule = _catch_up(bench, overlap.Skip())
    first, second = bench.claim()
    _decide(bench, second)
    manual = bench.add(schedule, "asked for")
    running = _decide(bench, bench.claim_one())
    assert (running.id, running.phase) == (manual.id, Phase.DISPATCHING)
    assert _decide(bench, first).phase is Phase.PENDING
    assert bench.settle(running)
    assert bench.claim_one().occurrence.id == first.occurrence.id


@case
def cancel_running_does_not_overtake_a_catch_up(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    line = bench.add(schedule, "b", 1, caught_up=NOW)
    bench.advance(1)
    bench.decide(_queue(bench.claim_one()))
    assert bench.settle(running)
    bench.add_event(schedule, "c")
    claims = {claim.occurrence.id: claim for claim in bench.claim()}
    del claims[line.id]
    [newer] = claims.values()
    bench.decide(_queue(newer, replaces=True, cancel_grace=10 * SECOND))
    assert bench.row(line).phase is Phase.CLAIMED


@case
def an_older_one_that_comes_late_is_the_one_replaced(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    older, newer = bench.add_event(schedule, "b", 1), bench.add_event(schedule, "c", 2)
    bench.advance(2)
    first, second = bench.claim()
    bench.decide(_queue(second, replaces=True))
    replaced = bench.decide(_queue(first, replaces=True))
    assert (replaced.id, replaced.phase, replaced.reason) == (older.id, Phase.SKIPPED, Reason.REPLACED)
    assert bench.settle(running)
    assert bench.claim_one().occurrence.id == newer.id


@case
def cancel_running_asks_the_holder_to_stop(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add_event(schedule, "b")
    bench.decide(_queue(bench.claim_one(), replaces=True, cancel_grace=10 * SECOND))
    assert bench.store.renew([hold(running)], now=bench.now, lease=LEASE).stop == {running.id: Reason.REPLACED}
    assert bench.settle(running, phase=Phase.CANCELLED, reason=Reason.REPLACED)
    bench.start(bench.claim_one())


@case
def what_waits_for_others_is_in_no_line_for_a_place(bench: Bench) -> None:
    running = bench.run(bench.create_quiet("uid-1", concurrency=DB), "a")
    bench.add(bench.create_quiet("uid-2", concurrency=DB), "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.DEPENDENCY_PENDING))
    assert bench.settle(running)
    assert bench.claim() == []
    bench.run(bench.create_quiet("uid-3", concurrency=DB), "c")


@case
def cancel_running_takes_the_turn_of_an_idle_holder(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    assert bench.retry(running, bench.now + MINUTE)
    bench.add_event(schedule, "b")
    turn = bench.decide(_queue(bench.claim_one(), replaces=True, cancel_grace=10 * SECOND))
    assert turn.holds_slot
    cancelled = bench.row(running)
    assert (cancelled.phase, cancelled.reason) == (Phase.CANCELLED, Reason.REPLACED)
    assert cancelled.fence > running.fence
    bench.start(bench.claim_one())


@case
def a_place_under_a_key_goes_to_the_first_in_line_of_all_schedules(bench: Bench) -> None:
    running = bench.run(bench.create_quiet("uid-1", concurrency=DB), "a")
    for uid, after in (("uid-3", 2), ("uid-2", 1)):
        bench.add(bench.create_quiet(uid, concurrency=DB), uid, after)
    bench.advance(2)
    for claim in bench.claim():
        bench.decide(Wait(claim=claim, waiting_for=Reason.CONCURRENCY_LIMIT))
    assert bench.claim() == []
    assert bench.settle(running)
    first = bench.claim_one()
    assert first.occurrence.uid == "uid-2"
    bench.add(bench.create_quiet("uid-4", concurrency=DB), "late")
    assert bench.admit(start(bench.claim_one())) == Busy(place=Place.CONCURRENCY)
    assert bench.settle(bench.start(first))
    assert bench.claim_one().occurrence.uid == "uid-3"


@case
def a_retry_gives_its_place_back_and_keeps_its_slot(bench: Bench) -> None:
    schedule, other = bench.create_quiet("uid-1", concurrency=DB), bench.create_quiet("uid-2", concurrency=DB)
    running = bench.run(schedule, "a")
    bench.add(other, "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    assert bench.retry(running, bench.now + 5)
    second = bench.start(bench.claim_one())
    assert second.uid == "uid-2"
    bench.advance(5)
    again = bench.claim_one()
    assert again.occurrence.holds_slot
    assert bench.admit(start(again)) == Busy(place=Place.CONCURRENCY)
    waiting = bench.decide(Wait(claim=again, waiting_for=Reason.CONCURRENCY_LIMIT))
    assert waiting.holds_slot
    assert bench.settle(second)
    assert bench.start(bench.claim_one()).attempt == 2


@case
def waiting_for_the_slot_holds_no_concurrency_place(bench: Bench) -> None:
    schedule, other = bench.create_quiet("uid-1", concurrency=DB), bench.create_quiet("uid-2", concurrency=DB)
    holder = bench.run(other, "a")
    for of, key, after in ((schedule, "b", 1), (schedule, "c", 2), (other, "d", 3)):
        bench.add(of, key, after)
        bench.advance(1)
        bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    assert bench.settle(holder)
    blocked = bench.claim_one()
    bench.add(schedule, "free", 4, route="http")
    [free] = bench.claim(until=NOW + 4, routes=["http"])
    bench.decide(Start(claim=free, takes_slot=True))
    assert bench.admit(start(blocked)) == Busy(place=Place.SLOT)
    bench.decide(_queue(blocked))
    assert bench.claim_one().occurrence.origin == "manual:c"


@case
def with_different_limits_the_first_in_line_decides(bench: Bench) -> None:
    wide = Concurrency(key="db", limit=2)
    running = bench.run(bench.create_quiet("uid-1", concurrency=wide), "a")
    bench.add(bench.create_quiet("uid-2", concurrency=DB), "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    bench.advance(1)
    bench.add(bench.create_quiet("uid-3", concurrency=wide), "c", 1)
    third = bench.claim_one()
    assert bench.admit(start(third)) == Busy(place=Place.CONCURRENCY)
    bench.decide(Wait(claim=third, waiting_for=Reason.CONCURRENCY_LIMIT))
    assert bench.claim() == []
    assert bench.settle(running)
    assert {claim.occurrence.uid for claim in bench.claim()} == {"uid-2", "uid-3"}


@case
def what_waits_for_something_else_waits(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    waiting = bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.DEPENDENCY_PENDING))
    assert waiting.waiting_for is Reason.DEPENDENCY_PENDING
    assert bench.claim() == []
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert bench.row(waiting).phase is Phase.CANCELLED


@case
def a_projection_that_waits_goes_on_waiting_after_an_edit(bench: Bench) -> None:
    schedule = bench.create(overlap_policy=overlap.Queue(), horizon=Horizon(occurrences=2))
    running = bench.run(schedule, "a")
    bench.advance(2 * MINUTE)
    bench.store.renew([hold(running)], now=bench.now, lease=LEASE)
    first, second = bench.claim()
    waiting = bench.decide(_queue(first))
    bench.decide(_queue(second))
    snapshot = bench.snapshot(schedule)
    bound = occurrence(schedule, NOW + MINUTE, NOW + MINUTE, waiting_for=Reason.QUEUED)
    assert bench.commit(Plan(snapshot=snapshot, watermark=snapshot.watermark, planned=(bound,)))
    row = bench.row(waiting)
    assert (row.phase, row.waiting_for) == (Phase.PENDING, Reason.QUEUED)
    assert row.fence > waiting.fence
    assert bench.claim() == []
    assert bench.settle(running)
    turn = bench.claim_one()
    assert turn.occurrence.id == waiting.id
    snapshot = bench.snapshot(schedule)
    assert bench.commit(Plan(snapshot=snapshot, watermark=snapshot.watermark, planned=(bound,)))
    again = bench.claim_one("node-b")
    assert (again.occurrence.id, again.occurrence.holds_slot) == (waiting.id, True)


@case
def a_removed_projection_leaves_the_line_and_its_turn(bench: Bench) -> None:
    schedule = bench.create(overlap_policy=overlap.Queue(), horizon=Horizon(occurrences=2))
    running = bench.run(schedule, "a")
    bench.advance(2 * MINUTE)
    bench.store.renew([hold(running)], now=bench.now, lease=LEASE)
    for claim in bench.claim():
        bench.decide(_queue(claim))
    manual = bench.add(schedule, "b", 3 * MINUTE)
    bench.advance(MINUTE)
    bench.store.renew([hold(running)], now=bench.now, lease=LEASE)
    bench.decide(_queue(bench.claim_one()))
    assert bench.settle(running)
    for _ in range(2):  # first the one whose turn it is, then the next
        snapshot = bench.snapshot(schedule)
        removed = (snapshot.projections[0].id,)
        assert bench.commit(Plan(snapshot=snapshot, watermark=snapshot.watermark, removed=removed))
    assert bench.claim_one().occurrence.id == manual.id


@case
def another_rule_makes_waiting_ones_be_decided_again(bench: Bench) -> None:
    schedule = bench.create_quiet(overlap_policy=overlap.Queue())
    bench.run(schedule, "a")
    for key in ("b", "c"):
        bench.add(schedule, key)
    for claim in bench.claim():
        bench.decide(_queue(claim))
    _edit(bench, schedule, trigger=EventTrigger("seen"), overlap_policy=overlap.Queue(), timeout=MINUTE)
    assert bench.claim() == []
    _edit(bench, schedule, trigger=EventTrigger("seen"), overlap_policy=overlap.Allow())
    claims = bench.claim()
    assert len(claims) == 2
    for claim in claims:
        bench.decide(Start(claim=claim, takes_slot=False))


@case
def what_has_begun_goes_on_waiting_when_a_newer_one_comes(bench: Bench) -> None:
    schedule = bench.create_quiet()
    begun = bench.add_event(schedule, "begun")
    running = bench.decide(Start(claim=bench.claim_one(), takes_slot=False))
    bench.run(schedule, "holder")
    assert bench.retry(running, bench.now)
    bench.decide(_queue(bench.claim_one()))
    bench.advance(1)
    newer = bench.add_event(schedule, "newer", 1)
    bench.decide(_queue(bench.claim_one(), replaces=True))
    assert [bench.row(one).phase for one in (begun, newer)] == [Phase.PENDING, Phase.PENDING]


@case
def what_waits_keeps_its_place_when_its_jitter_is_changed(bench: Bench) -> None:
    schedule = bench.create()
    [claim] = bench.claim(until=NOW + MINUTE)
    waiting = bench.decide(_queue(claim))
    jittered = IntervalTrigger(60, start_at=from_micros(NOW + MINUTE), jitter_seconds=50)
    _edit(bench, schedule, trigger=jittered)
    row = bench.row(waiting)
    assert due_at(jittered, schedule.uid, row.nominal) > row.nominal
    assert (row.due, row.waiting_for) == (waiting.due, Reason.QUEUED)
