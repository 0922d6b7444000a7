"""Deliveries in progress: their output so far, and completion by a callback."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.admission import Busy, Place
from noonmark.core.budgets.budget import Refused, Reservation, Reserved
from noonmark.core.budgets.spend import Amount
from noonmark.core.engine import TEMPORAL as ENGINE
from noonmark.core.halt import Halt
from noonmark.core.instants import SECOND
from noonmark.core.interruption import STOP_GRACE, engine_of
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered, RunInProgress, expire, interim, settle
from noonmark.core.targets import TaskTarget
from noonmark.core.triggers import EventTrigger
from noonmark.testing.conformance.bench import LEASE, ROUTE, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Interim
    from noonmark.testing.conformance.bench import Bench


EXPECTED = 10 * SECOND
OVERDUE = "occurrence.overdue"


def _create(bench: Bench) -> Schedule:
    bench.create("listener", trigger=EventTrigger(OVERDUE))
    return bench.create_quiet(expected=EXPECTED)


def _report(bench: Bench, schedule: Schedule) -> list[bool]:
    overdue = bench.store.overdue(now=bench.now, limit=9)
    return bench.store.settle([expire(one, schedule, now=bench.now) for one in overdue])


def _reported(bench: Bench, schedule: Schedule) -> int:
    return len(bench.store.events(schedule.owner.tenant, 9, event_type=OVERDUE))


@case
def a_run_that_takes_longer_than_expected_is_reported_once(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = bench.run(schedule, "a")
    bench.advance(EXPECTED - SECOND)
    assert _report(bench, schedule) == []
    bench.advance(SECOND)
    assert _report(bench, schedule) == [True]
    assert _report(bench, schedule) == []
    assert (_reported(bench, schedule), bench.row(occurrence).phase) == (1, Phase.DISPATCHING)
    assert bench.settle(occurrence)
    assert bench.row(occurrence).phase is Phase.COMPLETED


@case
def a_run_of_an_agent_is_reported_at_the_next_fire(bench: Bench) -> None:
    bench.create("listener", trigger=EventTrigger(OVERDUE))
    schedule = bench.create(target=TaskTarget(query="look"))
    [claim] = bench.claim(routes=("task",), until=bench.now + MINUTE)
    bench.advance(MINUTE)
    running = bench.start(claim)
    assert bench.row(running).deadline == bench.now + MINUTE
    bench.advance(MINUTE)
    assert (_report(bench, schedule), _reported(bench, schedule)) == ([True], 1)
    assert bench.row(running).phase is Phase.DISPATCHING


@case
def a_run_that_ends_in_time_is_not_reported(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = bench.run(schedule, "a")
    [late] = [expire(bench.row(occurrence), schedule, now=NOW + EXPECTED)]
    assert bench.settle(occurrence)
    bench.advance(EXPECTED)
    assert (bench.store.settle([late]), _report(bench, schedule)) == ([False], [])


@case
def what_awaits_completion_is_reported_and_then_ends_at_its_deadline(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = bench.run(schedule, "a")
    waits = settle(
        occurrence, schedule, Accepted(started=NOW, accepted=NOW, deadline=NOW + 3 * EXPECTED), node="node-1"
    )
    assert bench.store.settle([waits]) == [True]
    bench.advance(EXPECTED)
    assert _report(bench, schedule) == [True]
    row = bench.row(occurrence)
    assert (row.phase, row.deadline, _reported(bench, schedule)) == (Phase.AWAITING_COMPLETION, NOW + 3 * EXPECTED, 1)
    bench.advance(2 * EXPECTED)
    assert _report(bench, schedule) == [True]
    row = bench.row(occurrence)
    assert (row.phase, row.reason) == (Phase.TIMED_OUT, Reason.COMPLETION_TIMED_OUT)


@case
def what_is_asked_to_stop_is_not_cut_off_when_it_is_overdue(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = bench.run(schedule, "a")
    late = expire(bench.row(occurrence), schedule, now=NOW + EXPECTED)
    assert bench.store.request_stop(occurrence.id)
    bench.advance(EXPECTED)
    assert bench.store.overdue(now=bench.now, limit=9) == []
    assert bench.store.settle([late]) == [False]


@case
def the_next_attempt_has_its_own_time(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = bench.run(schedule, "a")
    bench.advance(EXPECTED - SECOND)
    assert bench.retry(occurrence, bench.now)
    again = bench.start(bench.claim_one())
    bench.advance(SECOND)
    assert _report(bench, schedule) == []
    bench.advance(EXPECTED - SECOND)
    assert _report(bench, schedule) == [True]
    assert bench.settle(again)


SAID = {"output": "one\n"}
MORE = {"output": "one\ntwo \u00fc\n", "output_dropped": 3}


def _interim(occurrence: Occurrence, result: Any, started: int = NOW) -> Interim:
    return interim(occurrence, RunInProgress(started=started, result=result), node="node-a")


@case
def a_delivery_in_progress_is_read_as_an_open_run(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    first, second = _interim(occurrence, SAID, NOW + 1), _interim(occurrence, MORE, NOW + 1)
    for progress in (first, second):
        assert bench.store.progress([progress]) == [True]
        assert bench.store.runs(schedule.uid) == [progress.run]
        assert bench.store.occurrence_runs(occurrence.id) == [progress.run]
        assert bench.store.run(progress.run.id) == (schedule.uid, progress.run)
    assert (second.run.ended, second.run.outcome, second.run.result) == (None, None, MORE)
    assert bench.row(occurrence) == occurrence


@case
def an_open_run_is_listed_once_in_pages(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.retry(occurrence, bench.now)
    again = bench.start(bench.claim_one())
    progress = _interim(again, SAID, NOW + 5)
    assert bench.store.progress([progress]) == [True]
    [newest] = bench.store.runs(schedule.uid, 1)
    assert newest == progress.run
    rest = bench.store.runs(schedule.uid, before=(newest.started, newest.id))
    assert [run.attempt for run in rest] == [1]


@case
def the_end_replaces_the_reported_progress(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.store.progress([_interim(occurrence, SAID)]) == [True]
    settlement = bench.settlement(occurrence)
    ended = replace(settlement, run=replace(settlement.run, result={"exit_code": 0, **MORE}))
    assert bench.store.settle([ended]) == [True]
    assert bench.store.runs(schedule.uid) == [ended.run]
    assert bench.store.progress([_interim(occurrence, SAID)]) == [False]
    assert bench.store.runs(schedule.uid) == [ended.run]


@case
def an_end_without_output_has_no_output(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.store.progress([_interim(occurrence, SAID)]) == [True]
    assert bench.settle(occurrence)
    assert [run.result for run in bench.store.runs(schedule.uid)] == [None]


@case
def a_lost_run_keeps_its_output(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.store.progress([_interim(occurrence, MORE)]) == [True]
    bench.advance(LEASE)
    claim = bench.claim_one("node-b")
    [lost] = bench.store.runs(schedule.uid)
    assert (lost.outcome, lost.result, lost.ended) == (Outcome.LEASE_LOST, MORE, bench.now)
    assert bench.store.progress([_interim(occurrence, SAID)]) == [False]
    current = bench.start(claim)
    assert bench.store.progress([_interim(occurrence, SAID), _interim(current, SAID, bench.now)]) == [False, True]
    assert [run.result for run in bench.store.runs(schedule.uid)] == [SAID, MORE]


@case
def a_run_that_was_handed_back_or_stopped_keeps_its_output(bench: Bench) -> None:
    schedule = bench.create_quiet()
    first = bench.run(schedule, "a")
    assert bench.store.progress([_interim(first, SAID)]) == [True]
    back = bench.settlement(first, phase=Phase.PENDING, reason=Reason.LEASE_LOST, retry_at=bench.now)
    assert bench.store.settle([replace(back, run=replace(back.run, outcome=Outcome.LEASE_LOST))]) == [True]
    bench.advance(1)
    second = bench.start(bench.claim_one())
    assert bench.store.progress([_interim(second, MORE, bench.now)]) == [True]
    end = bench.settlement(second, phase=Phase.CANCELLED, reason=Reason.CANCELLED)
    assert bench.store.settle([replace(end, run=replace(end.run, outcome=Outcome.CANCELLED))]) == [True]
    runs = bench.store.runs(schedule.uid)
    assert [(run.outcome, run.result) for run in runs] == [(Outcome.CANCELLED, MORE), (Outcome.LEASE_LOST, SAID)]


@case
def progress_of_many_runs_is_written_at_once_each_under_its_fence(bench: Bench) -> None:
    schedules = [bench.create_quiet(f"uid-{number}") for number in range(3)]
    ones = [bench.run(one, "a") for one in schedules]
    stale = replace(ones[1], fence=ones[1].fence + 1)
    unknown = replace(ones[1], id="occ_unknown")
    progress = [_interim(ones[0], SAID), _interim(stale, SAID), _interim(unknown, SAID), _interim(ones[2], MORE)]
    assert bench.store.progress(progress) == [True, False, False, True]
    assert bench.store.progress([]) == []
    results = [[run.result for run in bench.store.runs(one.uid)] for one in schedules]
    assert results == [[SAID], [None], [MORE]]


@case
def an_open_run_is_not_the_last_run(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.store.progress([_interim(occurrence, SAID)]) == [True]
    assert bench.store.last_runs([occurrence.id]) == {}
    [activity] = bench.store.activities([schedule.uid])
    assert (activity.delivering, activity.last_run) == ((occurrence.id,), None)
    assert bench.retry(occurrence, bench.now)
    again = bench.start(bench.claim_one())
    assert bench.store.progress([_interim(again, SAID)]) == [True]
    assert [run.attempt for run in bench.store.last_runs([occurrence.id]).values()] == [1]


@case
def progress_is_not_written_before_the_start_or_while_awaiting_completion(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    claim = bench.claim_one()
    assert bench.store.progress([_interim(claim.occurrence, SAID)]) == [False]
    occurrence = bench.start(claim)
    accepted = bench.settlement(
        occurrence, phase=Phase.AWAITING_COMPLETION, reason=Reason.ACCEPTED, deadline=NOW + MINUTE
    )
    open_run = replace(accepted.run, ended=None, outcome=None)
    assert bench.store.settle([replace(accepted, run=open_run)]) == [True]
    assert bench.store.progress([_interim(occurrence, SAID)]) == [False]
    assert bench.store.runs(schedule.uid) == [open_run]


@case
def progress_is_pruned_with_its_occurrence(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.store.progress([_interim(occurrence, SAID)]) == [True]
    bench.advance(1)
    assert bench.settle(occurrence)
    bench.advance(MINUTE)
    assert bench.store.prune(before=bench.now, keep=100, limit=10) == 1
    assert bench.store.runs(schedule.uid) == []


def _accept(
    bench: Bench, schedule: Schedule, occurrence: Occurrence, within: int = MINUTE, engine: str | None = None
) -> Occurrence:
    """The target, or an engine, takes the work over, and has so long to say how it ended."""
    accepted = Accepted(started=bench.now, accepted=bench.now, deadline=bench.now + within, engine=engine)
    settlement = settle(occurrence, schedule, accepted, node="node-a")
    assert bench.store.settle([settlement]) == [True]
    return bench.row(occurrence)


def _accepted(
    bench: Bench, schedule: Schedule, key: str = "a", within: int = MINUTE, engine: str | None = None
) -> Occurrence:
    bench.add(schedule, key, bench.now - NOW)
    return _accept(bench, schedule, bench.start(bench.claim_one()), within, engine)


@case
def an_accepted_delivery_awaits_completion_with_an_open_run(bench: Bench) -> None:
    schedule = bench.create_quiet()
    row = _accepted(bench, schedule)
    assert (row.phase, row.reason) == (Phase.AWAITING_COMPLETION, Reason.ACCEPTED)
    assert (row.deadline, row.node, row.started, row.holds_slot) == (NOW + MINUTE, "node-a", NOW, True)
    assert "deadline" in row.detail
    [run] = bench.store.runs(schedule.uid)
    assert (run.started, run.ended, run.outcome) == (NOW, None, None)
    assert bench.stored(schedule).counters.total == 0


@case
def an_accepted_delivery_has_no_lease(bench: Bench) -> None:
    row = _accepted(bench, bench.create_quiet(), within=10 * LEASE)
    assert bench.store.next_time([ROUTE]) == NOW + 10 * LEASE
    bench.advance(LEASE)
    assert bench.claim("node-b") == []
    assert bench.store.renew([hold(row)], now=bench.now, lease=LEASE).lost == {row.id}
    bench.store.release([hold(row)])
    assert bench.row(row) == row


@case
def an_accepted_delivery_that_is_asked_to_stop_is_overdue_at_once(bench: Bench) -> None:
    row = _accepted(bench, bench.create_quiet(), within=10 * LEASE)
    bench.advance(1)
    assert bench.store.request_stop(row.id)
    asked = bench.row(row)
    assert (asked.phase, asked.stop, asked.deadline) == (Phase.AWAITING_COMPLETION, Reason.CANCELLED, bench.now)
    assert [one.id for one in bench.store.overdue(now=bench.now, limit=10)] == [row.id]


@case
def what_an_engine_has_accepted_is_asked_to_stop_and_ends_later(bench: Bench) -> None:
    schedule = bench.create_quiet()
    ones = [
        _accepted(bench, one, within=within, engine=ENGINE)
        for one, within in ((schedule, MINUTE), (bench.create_quiet("uid-2"), SECOND))
    ]
    assert all(bench.store.request_stop(one.id) for one in ones)
    asked = [bench.row(one) for one in ones]
    assert [(one.phase, one.stop) for one in asked] == [(Phase.AWAITING_COMPLETION, Reason.CANCELLED)] * 2
    assert [one.deadline for one in asked] == [NOW + STOP_GRACE, NOW + SECOND]
    assert all(bench.store.request_stop(one.id) for one in ones), "asking again changes nothing"
    assert [bench.row(one) for one in ones] == asked
    bench.advance(STOP_GRACE)
    assert [one.id for one in bench.store.overdue(now=bench.now, limit=9)] == [ones[1].id, ones[0].id]
    ended = expire(asked[0], schedule, now=bench.now)
    assert bench.store.settle([ended]) == [True]
    assert (bench.row(ones[0]).phase, bench.row(ones[0]).reason) == (Phase.CANCELLED, Reason.CANCELLED)


@case
def a_halt_stops_what_an_engine_has_accepted(bench: Bench) -> None:
    first, second = bench.create_quiet(), bench.create_quiet("uid-2")
    mine, theirs = _accepted(bench, first, engine=ENGINE), _accepted(bench, second)
    halt = Halt(halt_id="h", tenant=first.owner.tenant, by="me", at=bench.now)
    assert bench.store.set_halt(halt, most=9) == 2
    asked = [bench.row(one) for one in (mine, theirs)]
    assert [one.stop for one in asked] == [Reason.HALTED] * 2
    assert [one.deadline for one in asked] == [NOW + STOP_GRACE, NOW]
    assert [engine_of(one) for one in asked] == [ENGINE, None]


@case
def what_an_engine_has_accepted_reserves_calls_under_its_fence(bench: Bench) -> None:
    row = _accepted(bench, bench.create_quiet())
    call = Reservation(
        call_id="call",
        tenant="default",
        user="default",
        schedule_id=row.schedule_id,
        session_id=None,
        occurrence_id=row.id,
        fence=row.fence,
        model="m",
        provider=None,
        most=Amount(tokens=1),
    )
    assert isinstance(bench.store.reserve([call])[0], Reserved)
    assert isinstance(bench.store.reserve([replace(call, call_id="other", fence=row.fence - 1)])[0], Refused)


@case
def an_accepted_delivery_keeps_its_places(bench: Bench) -> None:
    schedule = bench.create_quiet(concurrency=Concurrency(key="db"))
    row = _accepted(bench, schedule)
    bench.add(schedule, "b")
    other = bench.create_quiet("uid-2", concurrency=Concurrency(key="db"))
    bench.add(other, "c", 1)
    bench.advance(1)
    same, elsewhere = bench.claim()
    assert bench.admit(start(same)) == Busy(place=Place.SLOT)
    assert bench.admit(start(elsewhere)) == Busy(place=Place.CONCURRENCY)
    assert bench.settle(row)
    bench.start(same)


@case
def its_end_completes_the_run_in_place(bench: Bench) -> None:
    schedule = bench.create_quiet()
    row = _accepted(bench, schedule)
    bench.advance(MINUTE)
    delivered = Delivered(outcome=Outcome.COMPLETED, started=row.started or 0, ended=bench.now, result={"n": 1})
    end = settle(row, schedule, delivered, node=row.node or "")
    assert bench.store.settle([end, end]) == [True, False]
    ended = bench.row(row)
    assert (ended.phase, ended.reason, ended.holds_slot) == (Phase.COMPLETED, Reason.SUCCEEDED, False)
    assert (ended.node, ended.started, ended.deadline) == (None, None, None)
    [run] = bench.store.runs(schedule.uid)
    assert (run.started, run.ended, run.outcome, run.result) == (NOW, NOW + MINUTE, Outcome.COMPLETED, {"n": 1})
    assert bench.stored(schedule).counters.successful == 1
    assert bench.store.overdue(now=bench.now, limit=10) == []


@case
def a_delivery_is_accepted_once(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    started = bench.start(bench.claim_one())
    row = _accept(bench, schedule, started)
    later = Accepted(started=NOW, accepted=NOW, deadline=NOW + 9 * MINUTE)
    assert bench.store.settle([settle(started, schedule, later, node="node-a")]) == [False]
    assert bench.row(row) == row
    assert bench.settle(started)  # the holder of the fence may report the end


@case
def a_delivery_is_overdue_from_its_deadline(bench: Bench) -> None:
    rows = [
        _accepted(bench, bench.create_quiet(uid), uid, within)
        for uid, within in (("uid-1", 3 * MINUTE), ("uid-2", MINUTE), ("uid-3", 2 * MINUTE))
    ]
    bench.advance(MINUTE - 1)
    assert bench.store.overdue(now=bench.now, limit=10) == []
    bench.advance(1)
    assert bench.store.overdue(now=bench.now, limit=10) == [rows[1]]
    bench.advance(2 * MINUTE)
    assert bench.store.overdue(now=bench.now, limit=10) == [rows[1], rows[2], rows[0]]
    assert bench.store.overdue(now=bench.now, limit=2) == [rows[1], rows[2]]
    assert bench.store.next_time([]) == NOW + MINUTE


@case
def a_completion_timeout_ends_it_or_is_retried(bench: Bench) -> None:
    schedule = bench.create_quiet(retry_policy=RetryPolicy(max_attempts=2))
    _accepted(bench, schedule)
    bench.advance(MINUTE)
    [overdue] = bench.store.overdue(now=bench.now, limit=10)
    expired = expire(overdue, schedule, now=bench.now)
    assert bench.store.settle([expired]) == [True]
    row = bench.row(overdue)
    assert (row.phase, row.reason, row.deadline, row.holds_slot) == (
        Phase.PENDING,
        Reason.RETRY_SCHEDULED,
        None,
        True,
    )
    assert not bench.settle(overdue)
    bench.advance(row.due - bench.now)
    again = _accept(bench, schedule, bench.start(bench.claim_one()))
    bench.advance(MINUTE)
    assert bench.store.settle([expire(again, schedule, now=bench.now)]) == [True]
    ended = bench.row(again)
    assert (ended.phase, ended.reason) == (Phase.TIMED_OUT, Reason.ATTEMPTS_EXHAUSTED)
    assert [run.outcome for run in bench.store.runs(schedule.uid)] == [Outcome.TIMED_OUT, Outcome.TIMED_OUT]


@case
def an_accepted_delivery_outlives_a_pause_and_a_delete(bench: Bench) -> None:
    schedule = bench.create_quiet()
    row = _accepted(bench, schedule)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    assert bench.row(row) == row
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert bench.row(row) == row
    assert bench.settle(row)
    snapshot = bench.snapshot(schedule)
    assert snapshot.schedule.phase is SchedulePhase.DELETED


@case
def an_ended_delivery_has_no_deadline(bench: Bench) -> None:
    row = _accepted(bench, bench.create_quiet())
    assert bench.settle(row)
    assert bench.row(row).deadline is None
    assert bench.store.next_time([ROUTE]) is None
