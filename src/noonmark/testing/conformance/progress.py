"""What goes on is told of: its run, still open, with what it has put out so far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Underway, interim
from noonmark.testing.conformance.bench import LEASE, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Interim
    from noonmark.testing.conformance.bench import Bench

SAID = {"output": "one\n"}
MORE = {"output": "one\ntwo \u00fc\n", "output_dropped": 3}


def _said(one: Occurrence, result: Any, started: int = NOW) -> Interim:  # noqa: ANN401 - JSON
    return interim(one, Underway(started=started, result=result), node="node-a")


@case
def what_goes_on_is_told_as_its_open_run(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    first, second = _said(one, SAID, NOW + 1), _said(one, MORE, NOW + 1)
    for told in (first, second):
        assert bench.store.progress([told]) == [True]
        assert bench.store.runs(made.uid) == [told.run]
        assert bench.store.occurrence_runs(one.id) == [told.run]
        assert bench.store.run(told.run.id) == (made.uid, told.run)
    assert (second.run.ended, second.run.outcome, second.run.result) == (None, None, MORE)
    assert bench.row(one) == one


@case
def an_open_run_is_told_once_in_pages(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    assert bench.retry(one, bench.now)
    again = bench.start(bench.claim_one())
    told = _said(again, SAID, NOW + 5)
    assert bench.store.progress([told]) == [True]
    [newest] = bench.store.runs(made.uid, 1)
    assert newest == told.run
    rest = bench.store.runs(made.uid, before=(newest.started, newest.id))
    assert [run.attempt for run in rest] == [1]


@case
def the_end_takes_the_place_of_what_was_told(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    assert bench.store.progress([_said(one, SAID)]) == [True]
    settlement = bench.settlement(one)
    ended = replace(settlement, run=replace(settlement.run, result={"exit_code": 0, **MORE}))
    assert bench.store.settle([ended]) == [True]
    assert bench.store.runs(made.uid) == [ended.run]
    assert bench.store.progress([_said(one, SAID)]) == [False]
    assert bench.store.runs(made.uid) == [ended.run]


@case
def an_end_of_its_own_that_says_nothing_has_nothing(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    assert bench.store.progress([_said(one, SAID)]) == [True]
    assert bench.settle(one)
    assert [run.result for run in bench.store.runs(made.uid)] == [None]


@case
def a_run_that_was_lost_keeps_what_it_had_put_out(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    assert bench.store.progress([_said(one, MORE)]) == [True]
    bench.advance(LEASE)
    claim = bench.claim_one("node-b")
    [lost] = bench.store.runs(made.uid)
    assert (lost.outcome, lost.result, lost.ended) == (Outcome.LEASE_LOST, MORE, bench.now)
    assert bench.store.progress([_said(one, SAID)]) == [False]
    current = bench.start(claim)
    assert bench.store.progress([_said(one, SAID), _said(current, SAID, bench.now)]) == [False, True]
    assert [run.result for run in bench.store.runs(made.uid)] == [SAID, MORE]


@case
def a_run_that_was_handed_back_or_stopped_keeps_it_too(bench: Bench) -> None:
    made = bench.create_quiet()
    first = bench.run(made, "a")
    assert bench.store.progress([_said(first, SAID)]) == [True]
    back = bench.settlement(first, phase=Phase.PENDING, reason=Reason.LEASE_LOST, retry_at=bench.now)
    assert bench.store.settle([replace(back, run=replace(back.run, outcome=Outcome.LEASE_LOST))]) == [True]
    bench.advance(1)
    second = bench.start(bench.claim_one())
    assert bench.store.progress([_said(second, MORE, bench.now)]) == [True]
    end = bench.settlement(second, phase=Phase.CANCELLED, reason=Reason.CANCELLED)
    assert bench.store.settle([replace(end, run=replace(end.run, outcome=Outcome.CANCELLED))]) == [True]
    runs = bench.store.runs(made.uid)
    assert [(run.outcome, run.result) for run in runs] == [(Outcome.CANCELLED, MORE), (Outcome.LEASE_LOST, SAID)]


@case
def many_are_told_of_at_once_each_under_its_own_fence(bench: Bench) -> None:
    made = [bench.create_quiet(f"uid-{number}") for number in range(3)]
    ones = [bench.run(one, "a") for one in made]
    stale = replace(ones[1], fence=ones[1].fence + 1)
    unknown = replace(ones[1], id="occ_unknown")
    told = [_said(ones[0], SAID), _said(stale, SAID), _said(unknown, SAID), _said(ones[2], MORE)]
    assert bench.store.progress(told) == [True, False, False, True]
    assert bench.store.progress([]) == []
    results = [[run.result for run in bench.store.runs(one.uid)] for one in made]
    assert results == [[SAID], [None], [MORE]]


@case
def what_goes_on_is_not_its_last_run(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    assert bench.store.progress([_said(one, SAID)]) == [True]
    assert bench.store.last_runs([one.id]) == {}
    [activity] = bench.store.activities([made.uid])
    assert (activity.delivering, activity.last_run) == ((one.id,), None)
    assert bench.retry(one, bench.now)
    again = bench.start(bench.claim_one())
    assert bench.store.progress([_said(again, SAID)]) == [True]
    assert [run.attempt for run in bench.store.last_runs([one.id]).values()] == [1]


@case
def what_has_not_begun_or_is_awaited_is_not_told_of(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.add(made, "a")
    claim = bench.claim_one()
    assert bench.store.progress([_said(claim.occurrence, SAID)]) == [False]
    one = bench.start(claim)
    accepted = bench.settlement(one, phase=Phase.AWAITING_COMPLETION, reason=Reason.ACCEPTED, deadline=NOW + MINUTE)
    open_run = replace(accepted.run, ended=None, outcome=None)
    assert bench.store.settle([replace(accepted, run=open_run)]) == [True]
    assert bench.store.progress([_said(one, SAID)]) == [False]
    assert bench.store.runs(made.uid) == [open_run]


@case
def what_was_told_is_forgotten_with_its_occurrence(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    assert bench.store.progress([_said(one, SAID)]) == [True]
    bench.advance(1)
    assert bench.settle(one)
    bench.advance(MINUTE)
    assert bench.store.prune(before=bench.now, keep=100, limit=10) == 1
    assert bench.store.runs(made.uid) == []
