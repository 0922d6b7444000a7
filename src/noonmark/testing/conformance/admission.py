"""Admissions take effect while the claim holds; a start takes the places it needs, or none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Busy, End, Place, Replan, Start, Wait
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import Plan, plan
from noonmark.core.policies.limits import Concurrency
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import LeaseLost
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Admission, Claim
    from noonmark.testing.conformance.bench import Bench


def _all_kinds(claim: Claim) -> list[Admission]:
    return [
        start(claim),
        End(claim=claim, phase=Phase.SKIPPED, reason=Reason.OVERLAP),
        Wait(claim=claim, waiting_for=Reason.QUEUED),
        Replan(claim=claim),
    ]


def _is_lost(bench: Bench, claim: Claim) -> None:
    """Whatever is decided on this claim, nothing is written."""
    uid, lost = claim.schedule.uid, LeaseLost(occurrence_id=claim.occurrence.id)
    before = (bench.store.snapshot(uid), bench.stored(claim.schedule), bench.store.occurrences(uid))
    answers = bench.store.admit(_all_kinds(claim), now=bench.now, lease=LEASE)
    assert answers == [lost] * 4
    after = (bench.store.snapshot(uid), bench.stored(claim.schedule), bench.store.occurrences(uid))
    assert after == before


@case
def a_start_is_an_attempt_and_takes_the_slot(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add_event(schedule, "a")
    claim = bench.claim_one()
    started = bench.start(claim)
    assert (started.phase, started.attempt, started.holds_slot) == (Phase.DISPATCHING, 1, True)
    assert started.fence == claim.occurrence.fence
    assert bench.row(started) == started
    counters = bench.stored(schedule).counters
    assert (counters.last_started, counters.admitted, counters.total) == (NOW, 1, 0)


@case
def a_start_renews_the_lease(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    claim = bench.claim_one()
    bench.advance(10)
    bench.start(claim)
    bench.advance(LEASE - 1)
    assert bench.claim("node-b") == []
    bench.advance(1)
    bench.claim_one("node-b")


@case
def a_stale_fence_admits_nothing(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    stale = bench.claim_one("node-a")
    bench.advance(LEASE)
    bench.claim_one("node-b")
    _is_lost(bench, stale)


@case
def a_phase_other_than_claimed_admits_nothing(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    claim = bench.claim_one()
    bench.store.release([hold(claim)])
    _is_lost(bench, claim)
    claim = bench.claim_one()
    assert bench.settle(bench.start(claim))
    _is_lost(bench, claim)


@case
def an_old_revision_admits_nothing_and_is_released(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    claim = bench.claim_one()
    declared = factories.declaration(trigger=EventTrigger("seen"), max_runs=9)
    edited = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(edited)
    _is_lost(bench, claim)
    bench.store.release([hold(claim)])
    again = bench.claim_one("node-b")
    assert again.schedule.revision == 2
    assert bench.start(again).revision == 2


@case
def an_unknown_occurrence_admits_nothing(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    claim = bench.claim_one()
    strange = replace(claim, occurrence=replace(claim.occurrence, id="nothing"))
    assert bench.admit(start(strange)) == LeaseLost(occurrence_id="nothing")


@case
def an_end_is_final_and_counted(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add_event(schedule, "a")
    facts = {"waiting": 3, "queue_limit": 3}
    claim = bench.claim_one()
    ended = bench.decide(End(claim=claim, phase=Phase.SKIPPED, reason=Reason.QUEUE_FULL, facts=facts))
    assert (ended.phase, ended.reason) == (Phase.SKIPPED, Reason.QUEUE_FULL)
    assert ended.detail == '{"queue_limit": 3, "waiting": 3}'
    assert ended.attempt == 0
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.skipped, counters.admitted, counters.last_phase) == (1, 1, 0, Phase.SKIPPED)
    bench.advance(LEASE)
    assert bench.claim() == []


@case
def an_end_may_be_one_failure_too_many(bench: Bench) -> None:
    schedule = bench.create()
    bench.add(schedule, "a")
    poison = End(claim=bench.claim_one(), phase=Phase.DELIVERY_FAILED, reason=Reason.POISON, pause_after=1)
    bench.decide(poison)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.counters.failures_in_row) == (SchedulePhase.PAUSED, 1)


@case
def the_lost_delivery_that_ends_an_occurrence_was_an_attempt(bench: Bench) -> None:
    schedule = bench.create()
    bench.add(schedule, "a")
    bench.decide(Start(claim=bench.claim_one(), takes_slot=True))
    bench.advance(LEASE)
    lost = bench.claim_one()
    assert (lost.occurrence.attempt, lost.occurrence.losses) == (0, 1)
    end = End(claim=lost, phase=Phase.DELIVERY_FAILED, reason=Reason.OUTCOME_UNKNOWN, was_begun=True)
    assert bench.decide(end).attempt == 1


@case
def a_replan_waits_for_the_planner(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    bound = plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(bound)
    assert bench.store.plannable(bench.now, 10) == []
    claim = bench.claim_one()
    sent_back = bench.decide(Replan(claim=claim))
    assert (sent_back.phase, sent_back.waiting_for) == (Phase.PENDING, None)
    assert bench.claim("node-b") == []
    [snapshot] = bench.store.plannable(bench.now, 10)
    assert not snapshot.projections[0].is_claimed
    assert bench.commit(Plan(snapshot=snapshot, watermark=snapshot.watermark))
    assert bench.claim_one("node-b").occurrence.id == claim.occurrence.id


@case
def one_occurrence_holds_the_slot_of_a_schedule(bench: Bench) -> None:
    schedule, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    bench.add(schedule, "a")
    bench.add(schedule, "b", 1)
    bench.add(other, "c", 2)
    bench.advance(2)
    first, second, third = bench.claim()
    holder = bench.start(first)
    assert bench.admit(start(second)) == Busy(place=Place.SLOT, waiting=0)
    assert bench.row(second.occurrence) == second.occurrence
    assert bench.start(third).holds_slot
    assert bench.settle(holder)
    assert bench.start(second).holds_slot


@case
def one_call_sees_what_it_has_admitted_before(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    bench.add(schedule, "b", 1)
    bench.advance(1)
    first, second = [start(claim) for claim in bench.claim()]
    _, refused = bench.store.admit([first, second], now=bench.now, lease=LEASE)
    assert refused == Busy(place=Place.SLOT)


@case
def without_the_slot_occurrences_run_side_by_side(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    bench.add(schedule, "b")
    for claim in bench.claim():
        started = bench.decide(Start(claim=claim, takes_slot=False))
        assert not started.holds_slot
    bench.add(schedule, "c")
    assert bench.start(bench.claim_one()).holds_slot


@case
def a_delivery_that_was_lost_keeps_its_slot_and_place(bench: Bench) -> None:
    schedule = bench.create_quiet(concurrency=Concurrency(key="db"))
    bench.run(schedule, "a")
    bench.advance(LEASE)
    taken = bench.claim_one("node-b")
    bench.add(schedule, "b", LEASE)
    newer = bench.claim_one("node-b")
    assert bench.admit(start(newer)) == Busy(place=Place.SLOT)
    assert bench.admit(Start(claim=newer, takes_slot=False, concurrency=Concurrency(key="db"))) == Busy(
        place=Place.CONCURRENCY
    )
    started = bench.start(taken)
    assert (started.attempt, started.losses) == (1, 1)


@case
def a_concurrency_key_counts_over_the_schedules_of_a_tenant(bench: Bench) -> None:
    two = {"concurrency": Concurrency(key="db", limit=2)}
    for uid in ("uid-1", "uid-2", "uid-3"):
        bench.add(bench.create_quiet(uid, **two), uid)
    foreign = bench.create_quiet("uid-4", owner=Owner(tenant="other", user="ada"), **two)
    bench.add(foreign, "uid-4", 1)
    bench.add(bench.create_quiet("uid-5", concurrency=Concurrency(key="disk")), "uid-5", 2)
    bench.advance(2)
    *claims, elsewhere, otherwise = bench.claim()
    running = [bench.start(claim) for claim in claims[:2]]
    assert bench.admit(start(claims[2])) == Busy(place=Place.CONCURRENCY)
    refused = bench.row(claims[2].occurrence)
    assert (refused.phase, refused.holds_slot) == (Phase.CLAIMED, False)
    bench.start(elsewhere)
    bench.start(otherwise)
    assert bench.settle(running[0])
    bench.start(claims[2])


@case
def no_more_occurrences_start_than_max_runs(bench: Bench) -> None:
    schedule = bench.create_quiet(max_runs=2)
    for key in ("a", "b", "c"):
        bench.add_event(schedule, key)
    claims = bench.claim()
    ways = [Start(claim=claim, takes_slot=False, max_runs=2) for claim in claims]
    for way in ways[:2]:
        bench.decide(way)
    assert bench.admit(ways[2]) == Busy(place=Place.MAX_RUNS)
    bench.add(schedule, "asked for")
    manual = bench.claim_one()
    bench.decide(Start(claim=manual, takes_slot=False))
    assert bench.stored(schedule).counters.admitted == 2


@case
def an_occurrence_is_one_of_max_runs_however_often_it_starts(bench: Bench) -> None:
    schedule = bench.create_quiet(max_runs=1)
    bench.add_event(schedule, "a")
    started = bench.start(bench.claim_one())
    bench.advance(LEASE)
    again = bench.start(bench.claim_one("node-b"))
    assert again.fence > started.fence
    assert bench.retry(again, bench.now)
    bench.start(bench.claim_one("node-b"))
    assert bench.stored(schedule).counters.admitted == 1


@case
def max_runs_is_checked_first_then_the_slot_then_the_key(bench: Bench) -> None:
    schedule = bench.create_quiet(max_runs=1, concurrency=Concurrency(key="db"))
    bench.add_event(schedule, "a")
    running = bench.start(bench.claim_one())
    bench.add_event(schedule, "b")
    claim = bench.claim_one()
    all_three = start(claim)
    assert bench.admit(all_three) == Busy(place=Place.MAX_RUNS)
    assert bench.admit(replace(all_three, max_runs=2)) == Busy(place=Place.SLOT)
    assert bench.admit(replace(all_three, max_runs=2, takes_slot=False)) == Busy(place=Place.CONCURRENCY)
    assert bench.stored(schedule).counters.admitted == 1
    assert bench.settle(running)
    assert bench.decide(replace(all_three, max_runs=2)).holds_slot


@case
def a_start_under_another_key_frees_the_old_place(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1", concurrency=Concurrency(key="db"))
    other = bench.create_quiet("uid-2", concurrency=Concurrency(key="db"))
    bench.run(schedule, "a")
    declared = factories.declaration(trigger=EventTrigger("seen"), concurrency=Concurrency(key="disk"))
    edited = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(edited)
    bench.advance(LEASE)
    bench.start(bench.claim_one("node-b"))
    bench.run(other, "b", LEASE)
    third = bench.create_quiet("uid-3", concurrency=Concurrency(key="disk"))
    bench.add(third, "c", LEASE)
    assert bench.admit(start(bench.claim_one())) == Busy(place=Place.CONCURRENCY)


@case
def a_start_without_a_key_frees_the_old_place(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1", concurrency=Concurrency(key="db"))
    bench.run(schedule, "a")
    bench.advance(LEASE)
    taken = bench.claim_one("node-b")
    bench.decide(replace(start(taken), concurrency=None))
    bench.run(bench.create_quiet("uid-2", concurrency=Concurrency(key="db")), "b", LEASE)


@case
def a_single_misfire_is_a_gap_of_one_fire(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(2 * MINUTE)
    claim = bench.claim_one()
    ended = bench.decide(End(claim=claim, phase=Phase.MISFIRED, reason=Reason.LATE))
    assert (ended.missed_count, ended.missed_first, ended.missed_last) == (1, ended.nominal, ended.nominal)
    assert bench.row(ended) == ended
    assert bench.stored(schedule).counters.missed == 1


@case
def a_start_that_is_committed_early_counts_from_its_due_time(bench: Bench) -> None:
    plain = bench.create_quiet()
    limited = bench.create_quiet("uid-2", concurrency=Concurrency(key="db"))
    for schedule in (plain, limited):
        bench.add(schedule, "a", 5)
        [claim] = bench.claim(until=NOW + 10)
        started = bench.start(claim)
        assert started.started == NOW
        assert bench.stored(schedule).counters.last_started == NOW + 5


@case
def a_repeated_start_returns_the_first_answer(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    claim = bench.claim_one()
    started = bench.start(claim)
    bench.advance(LEASE // 2)
    assert bench.start(claim) == started
    assert bench.stored(schedule).counters.last_started == NOW
    over = End(claim=claim, phase=Phase.SKIPPED, reason=Reason.WINDOW_CLOSED)
    assert isinstance(bench.admit(over), LeaseLost), "anything else than the start comes too late"
    assert bench.settle(started)
    assert isinstance(bench.admit(start(claim)), LeaseLost), "it has ended"
