"""A pause holds the occurrences of the trigger, and releases them when it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.ids import backfill
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import backfill_pause
from noonmark.core.planner import occurrence
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Concurrency, Dependency, Horizon
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Pause
from noonmark.ports.records import BackfillChange, BackfillProgress, LeaseLost
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


def _pause(bench: Bench, schedule: Schedule) -> None:
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))


def _resume(bench: Bench, schedule: Schedule) -> None:
    assert bench.commit(edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))


@case
def a_pause_holds_a_retry_and_resuming_frees_it(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    occurrence = bench.start(bench.claim_one())
    assert bench.retry(occurrence, bench.now + 10)
    _pause(bench, schedule)
    bench.advance(20)
    assert bench.claim() == []
    assert bench.store.next_time([ROUTE]) is None
    assert bench.stored(schedule).next_due is None
    _resume(bench, schedule)
    claim = bench.claim_one()
    assert (claim.occurrence.id, claim.occurrence.attempt) == (occurrence.id, 1)


@case
def a_retry_that_is_asked_for_during_a_pause_is_held(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add_event(schedule, "a")
    occurrence = bench.start(bench.claim_one())
    _pause(bench, schedule)
    assert bench.retry(occurrence, bench.now)
    assert bench.claim() == []
    _resume(bench, schedule)
    bench.claim_one()


@case
def an_occurrence_that_a_pause_holds_is_lost_to_its_node(bench: Bench) -> None:
    schedule = bench.create_quiet()
    event = bench.add_event(schedule, "a")
    claim = bench.claim_one()
    _pause(bench, schedule)
    assert bench.admit(start(claim)) == LeaseLost(occurrence_id=event.id)
    row = bench.row(event)
    assert row.phase is Phase.PENDING
    assert row.fence > claim.occurrence.fence
    bench.advance(LEASE)
    assert bench.claim() == []
    _resume(bench, schedule)
    bench.start(bench.claim_one())


@case
def a_requested_run_continues_during_a_pause(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    claim = bench.claim_one()
    _pause(bench, schedule)
    running = bench.start(claim)
    assert bench.retry(running, bench.now)
    again = bench.start(bench.claim_one())
    assert bench.settle(again)
    bench.run(schedule, "b")


@case
def what_is_being_delivered_is_taken_over_during_a_pause(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add_event(schedule, "a")
    bench.start(bench.claim_one())
    _pause(bench, schedule)
    bench.advance(LEASE)
    assert bench.settle(bench.start(bench.claim_one("node-b")))


@case
def a_slot_that_becomes_free_passes_by_what_is_held(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    held = bench.add_event(schedule, "b", 1)
    manual = bench.add(schedule, "c", 2)
    bench.advance(2)
    for claim in bench.claim():
        bench.decide(Wait(claim=claim, waiting_for=Reason.QUEUED))
    _pause(bench, schedule)
    assert bench.settle(running)
    claim = bench.claim_one()
    assert claim.occurrence.id == manual.id
    assert bench.settle(bench.start(claim))
    assert bench.claim() == []
    _resume(bench, schedule)
    claim = bench.claim_one()
    assert (claim.occurrence.id, claim.occurrence.waiting_for) == (held.id, Reason.QUEUED)
    bench.start(claim)


@case
def a_place_that_becomes_free_passes_by_what_is_held(bench: Bench) -> None:
    limit = Concurrency(key="db")
    running = bench.run(bench.create_quiet("uid-1", concurrency=limit), "a")
    schedule = bench.create_quiet("uid-2", concurrency=limit)
    held = bench.add_event(schedule, "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    _pause(bench, schedule)
    assert bench.settle(running)
    assert bench.claim() == []
    passing = bench.run(bench.create_quiet("uid-3", concurrency=limit), "c")
    _resume(bench, schedule)
    assert bench.claim() == []
    assert bench.settle(passing)
    claim = bench.claim_one()
    assert claim.occurrence.id == held.id
    bench.start(claim)


@case
def resuming_hands_a_place_that_is_free_to_what_was_held(bench: Bench) -> None:
    limit = Concurrency(key="db")
    running = bench.run(bench.create_quiet("uid-1", concurrency=limit), "a")
    schedule = bench.create_quiet("uid-2", concurrency=limit)
    bench.add_event(schedule, "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    _pause(bench, schedule)
    assert bench.settle(running)
    _resume(bench, schedule)
    bench.start(bench.claim_one())


@case
def a_pause_counts_what_was_due_and_withdraws_what_was_not(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    [claim] = bench.claim()
    _pause(bench, schedule)
    [skipped] = bench.store.occurrences(schedule.uid)
    assert (skipped.nominal, skipped.phase, skipped.reason) == (NOW + MINUTE, Phase.SKIPPED, Reason.PAUSED)
    assert bench.store.renew([hold(claim)], now=bench.now, lease=LEASE).lost == {skipped.id}
    bench.advance(3 * MINUTE)
    _resume(bench, schedule)
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.skipped) == (4, 4)
    assert bench.stored(schedule).next_due == NOW + 5 * MINUTE


@case
def what_is_given_back_during_a_pause_keeps_no_place_from_others(bench: Bench) -> None:
    limit = Concurrency(key="db")
    schedule = bench.create_quiet("uid-1", concurrency=limit)
    bench.add_event(schedule, "a")
    bench.start(bench.claim_one())
    waiting = bench.add(bench.create_quiet("uid-2", concurrency=limit), "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    _pause(bench, schedule)
    bench.advance(LEASE)
    lost = bench.claim_one("node-b")
    assert lost.schedule.uid == schedule.uid
    bench.store.release([hold(lost)])
    claim = bench.claim_one("node-b")
    assert claim.occurrence.id == waiting.id
    bench.start(claim)


@case
def of_a_gap_within_what_a_pause_withdrew_the_gap_counts_for_others(bench: Bench) -> None:
    up = bench.create("up", misfire_policy=misfire.CatchUpOne(grace=SECOND))
    on_up = (Dependency(schedule_id=up.schedule_id),)
    bench.create("down", depends_on=on_up, horizon=Horizon(occurrences=3))
    bench.advance(MINUTE)
    bench.claim()
    bench.advance(4 * MINUTE)
    _pause(bench, up)
    rows = {row.nominal: (row.phase, row.missed_last) for row in bench.store.occurrences(up.uid)}
    first, second = NOW + MINUTE, NOW + 2 * MINUTE
    assert rows == {first: (Phase.SKIPPED, NOW + 5 * MINUTE), second: (Phase.MISFIRED, NOW + 4 * MINUTE)}
    [down] = [claim for claim in bench.claim() if claim.occurrence.nominal == NOW + 3 * MINUTE]
    [standings] = bench.store.upstreams([down])
    assert standings.each[0].newest == (NOW + 3 * MINUTE, Phase.MISFIRED)


def _backfill(bench: Bench, schedule: Schedule, count: int = 3) -> list[Occurrence]:
    rows = [occurrence(schedule, NOW - MINUTE + n, NOW + n, origin=backfill("b1")) for n in range(count)]
    assert all(bench.store.add(rows))
    return rows


@case
def a_backfill_has_its_progress(bench: Bench) -> None:
    schedule = bench.create_quiet()
    assert bench.store.backfills(schedule.uid) == []
    bench.add(schedule, "asked for")
    rows = _backfill(bench, schedule)
    bench.advance(9)
    claims = {claim.occurrence.id: claim for claim in bench.claim()}
    assert bench.settle(bench.start(claims[rows[0].id]))
    bench.start(claims[rows[1].id])
    [backfill] = bench.store.backfills(schedule.uid)
    assert backfill == BackfillProgress(
        backfill_id="b1",
        requested=NOW,
        first=NOW - MINUTE,
        last=NOW - MINUTE + 2,
        phases={Phase.COMPLETED: 1, Phase.DISPATCHING: 1, Phase.CLAIMED: 1},
    )


@case
def a_paused_backfill_starts_nothing_and_keeps_nothing_from_others(bench: Bench) -> None:
    schedule = bench.create_quiet()
    rows = _backfill(bench, schedule)
    bench.advance(9)
    first, second, third = bench.claim()
    running = bench.start(first)
    bench.decide(Wait(claim=second, waiting_for=Reason.QUEUED))
    since, other = Pause(at=bench.now, by="ada", reason="load"), Pause(at=bench.now + 1, by="eve")
    assert bench.store.change_backfill(schedule.uid, "b1", BackfillChange.HOLD, since) == 2
    assert backfill_pause(bench.row(rows[1])) == backfill_pause(bench.row(rows[2])) == since.to_document()
    assert bench.store.change_backfill(schedule.uid, "b1", BackfillChange.HOLD, other) == 0
    assert backfill_pause(bench.row(rows[1])) == since.to_document()
    again = replace(other, reason="incident")
    assert bench.store.change_backfill(schedule.uid, "b1", BackfillChange.HOLD, again) == 0
    assert backfill_pause(bench.row(rows[1])) == replace(again, at=since.at).to_document()
    assert bench.store.backfills(schedule.uid)[0].held == 2
    assert bench.admit(start(third)) == LeaseLost(occurrence_id=rows[2].id)
    assert bench.settle(running)
    assert bench.claim() == []
    assert bench.settle(bench.run(schedule, "another"))
    _pause(bench, schedule)
    _resume(bench, schedule)
    assert bench.claim() == []
    assert bench.store.change_backfill(schedule.uid, "b1", BackfillChange.RELEASE) == 2
    assert (bench.row(rows[1]).detail, backfill_pause(bench.row(rows[1]))) == ("", None)
    bench.advance(9)
    claims = {claim.occurrence.id: claim for claim in bench.claim()}
    assert bench.settle(bench.start(claims[rows[1].id]))
    assert bench.settle(bench.start(claims[rows[2].id]))
    assert bench.store.backfills(schedule.uid)[0].phases == {Phase.COMPLETED: 3}


@case
def a_turn_that_a_backfill_has_is_free_while_it_is_paused(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    _backfill(bench, schedule, 1)
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    assert bench.settle(running)
    assert bench.store.change_backfill(schedule.uid, "b1", BackfillChange.HOLD) == 1
    bench.run(schedule, "another")


@case
def a_cancelled_backfill_ends(bench: Bench) -> None:
    schedule = bench.create_quiet()
    rows = _backfill(bench, schedule)
    bench.advance(9)
    running = bench.start(bench.claim()[0])
    assert bench.store.change_backfill(schedule.uid, "other", BackfillChange.CANCEL) == 0
    assert bench.store.change_backfill("unknown", "b1", BackfillChange.CANCEL) == 0
    assert bench.store.change_backfill(schedule.uid, "b1", BackfillChange.CANCEL) == 3
    assert bench.store.renew([hold(running)], now=bench.now, lease=LEASE).stop == {running.id: Reason.CANCELLED}
    assert {(bench.row(one).phase, bench.row(one).reason) for one in rows[1:]} == {(Phase.CANCELLED, Reason.CANCELLED)}
    assert bench.claim() == []


@case
def a_pause_is_stored_with_its_reason_its_author_and_its_end(bench: Bench) -> None:
    schedule = bench.create()
    why = Pause(at=bench.now, by="ada", reason="maintenance", until=bench.now + 3 * MINUTE)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now, why=why))
    assert bench.stored(schedule).schedule.pause == why
    assert bench.store.next_time([ROUTE]) == why.until
    later = replace(why, until=bench.now + 4 * MINUTE)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now, why=later))
    assert bench.stored(schedule).schedule.pause == later
    assert bench.store.next_time([ROUTE]) == later.until
    _resume(bench, schedule)
    assert bench.stored(schedule).schedule.pause is None


@case
def a_pause_that_has_ended_is_plannable(bench: Bench) -> None:
    schedule = bench.create()
    why = Pause(at=bench.now, by="ada", until=bench.now + 3 * MINUTE)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now, why=why))
    bench.advance(3 * MINUTE - 1)
    assert bench.store.plannable(bench.now, 10) == []
    bench.advance(1)
    [snapshot] = bench.store.plannable(bench.now, 10)
    assert bench.commit(edits.plan_or_resume(snapshot, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    [note] = bench.store.audit_entries(schedule.owner.tenant, 10)
    assert (note.caller, note.operation) == ("noonmark", "schedule/resume")


@case
def an_automatic_pause_has_its_reason(bench: Bench) -> None:
    schedule = bench.create(pause_on_failure=1)
    bench.advance(MINUTE)
    assert bench.fail(bench.start(bench.claim_one()), pause_after=1)
    pause = bench.stored(schedule).schedule.pause
    assert pause is not None
    assert (pause.at, pause.by, pause.until) == (bench.now, "noonmark", None)
    assert pause.reason == "pause_on_failure is 1, and 1 in a row did not complete"
    [note] = bench.store.audit_entries(schedule.owner.tenant, 10)
    assert (note.caller, note.operation, note.reason) == ("noonmark", "schedule/pause", pause.reason)
