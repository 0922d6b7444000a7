"""A run that takes longer than its schedule expects is reported once, and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.settlement import Accepted, expire, settle
from noonmark.core.triggers import EventTrigger
from noonmark.testing.conformance.bench import case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

EXPECTED = 10 * SECOND
OVERDUE = "occurrence.overdue"


def _create(bench: Bench) -> Schedule:
    bench.create("listener", trigger=EventTrigger(OVERDUE))
    return bench.create_quiet(expected=EXPECTED)


def _report(bench: Bench, made: Schedule) -> list[bool]:
    found = bench.store.overdue(now=bench.now, limit=9)
    return bench.store.settle([expire(one, made, now=bench.now) for one in found])


def _reported(bench: Bench, made: Schedule) -> int:
    return len(bench.store.events(made.owner.tenant, 9, event_type=OVERDUE))


@case
def a_run_that_takes_longer_than_expected_is_reported_once(bench: Bench) -> None:
    made = _create(bench)
    one = bench.run(made, "a")
    bench.advance(EXPECTED - SECOND)
    assert _report(bench, made) == []
    bench.advance(SECOND)
    assert _report(bench, made) == [True]
    assert _report(bench, made) == []
    assert (_reported(bench, made), bench.row(one).phase) == (1, Phase.DISPATCHING)
    assert bench.settle(one)
    assert bench.row(one).phase is Phase.COMPLETED


@case
def what_ends_in_time_is_not_reported(bench: Bench) -> None:
    made = _create(bench)
    one = bench.run(made, "a")
    [late] = [expire(bench.row(one), made, now=NOW + EXPECTED)]
    assert bench.settle(one)
    bench.advance(EXPECTED)
    assert (bench.store.settle([late]), _report(bench, made)) == ([False], [])


@case
def what_awaits_completion_is_reported_and_then_ends_at_its_deadline(bench: Bench) -> None:
    made = _create(bench)
    one = bench.run(made, "a")
    waits = settle(one, made, Accepted(started=NOW, accepted=NOW, deadline=NOW + 3 * EXPECTED), node="node-1")
    assert bench.store.settle([waits]) == [True]
    bench.advance(EXPECTED)
    assert _report(bench, made) == [True]
    row = bench.row(one)
    assert (row.phase, row.deadline, _reported(bench, made)) == (Phase.AWAITING_COMPLETION, NOW + 3 * EXPECTED, 1)
    bench.advance(2 * EXPECTED)
    assert _report(bench, made) == [True]
    row = bench.row(one)
    assert (row.phase, row.reason) == (Phase.TIMED_OUT, Reason.COMPLETION_TIMED_OUT)


@case
def what_is_asked_to_stop_is_not_cut_off_when_it_is_overdue(bench: Bench) -> None:
    made = _create(bench)
    one = bench.run(made, "a")
    late = expire(bench.row(one), made, now=NOW + EXPECTED)
    assert bench.store.request_stop(one.id)
    bench.advance(EXPECTED)
    assert bench.store.overdue(now=bench.now, limit=9) == []
    assert bench.store.settle([late]) == [False]


@case
def the_next_attempt_has_its_own_time(bench: Bench) -> None:
    made = _create(bench)
    one = bench.run(made, "a")
    bench.advance(EXPECTED - SECOND)
    assert bench.retry(one, bench.now)
    again = bench.start(bench.claim_one())
    bench.advance(SECOND)
    assert _report(bench, made) == []
    bench.advance(EXPECTED - SECOND)
    assert _report(bench, made) == [True]
    assert bench.settle(again)
