"""Paging: occurrences, runs and events are read page by page, and one run by its id."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.event import Event
from noonmark.core.ids import TRIGGER, backfill, manual
from noonmark.core.lifecycle import FINAL, LIVE, Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Usage
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


def _occurrences(bench: Bench, made: Schedule, limit: int, phases: Collection[Phase] = ()) -> list[Occurrence]:
    """Page after page, until one has nothing in it."""
    found: list[Occurrence] = []
    place = None
    while page := bench.store.occurrences(made.uid, limit, before=place, phases=phases):
        assert len(page) <= limit
        found += page
        place = (page[-1].nominal, page[-1].id)
    return found


def _runs(bench: Bench, made: Schedule, limit: int) -> list[Run]:
    found: list[Run] = []
    place = None
    while page := bench.store.runs(made.uid, limit, before=place):
        assert len(page) <= limit
        found += page
        place = (page[-1].started, page[-1].id)
    return found


@case
def occurrences_are_read_in_pages(bench: Bench) -> None:
    made, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    for number in range(7):
        bench.add(made, f"{number}", number // 3)
    bench.add(other, "other")
    everything = bench.store.occurrences(made.uid)
    assert len(everything) == 7
    for limit in (1, 2, 3, 7, 8):
        assert _occurrences(bench, made, limit) == everything
    newer = [one for one in everything if one.nominal == NOW + 1]
    assert bench.store.occurrences(made.uid, 3, before=(NOW + 2, "")) == newer
    assert bench.store.occurrences(made.uid, 3, before=(NOW, "")) == []
    assert bench.store.occurrences("nothing", before=(NOW, "")) == []


@case
def occurrences_are_read_by_phase(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.advance(3)
    by_phase = {Phase.COMPLETED: bench.run(made, "done", 1)}
    assert bench.settle(by_phase[Phase.COMPLETED])
    by_phase[Phase.DISPATCHING] = bench.run(made, "runs", 2)
    by_phase[Phase.PENDING] = bench.add(made, "later", MINUTE)
    by_phase[Phase.SKIPPED] = bench.add(made, "no", 3, phase=Phase.SKIPPED, reason=Reason.OVERLAP)
    bench.add(bench.create_quiet("uid-2"), "other", MINUTE)
    for phase, one in by_phase.items():
        assert [found.id for found in bench.store.occurrences(made.uid, phases=[phase])] == [one.id]
    for phases in (LIVE, FINAL, {Phase.PENDING, Phase.SKIPPED}, {Phase.DISPATCHING, Phase.COMPLETED}):
        expected = [one for one in bench.store.occurrences(made.uid) if one.phase in phases]
        assert len(expected) == 2
        assert bench.store.occurrences(made.uid, phases=phases) == expected
        assert bench.store.occurrences(made.uid, 1, phases=phases) == expected[:1]
        assert _occurrences(bench, made, 1, phases) == expected
    assert bench.store.occurrences(made.uid, phases=[Phase.FAILED]) == []


@case
def runs_are_read_in_pages(bench: Bench) -> None:
    """Twelve runs of one occurrence and more of others, some that began together, and one that goes on."""
    made = bench.create_quiet()
    one = bench.run(made, "again")
    for number in range(11):
        bench.advance(number % 2)
        assert bench.retry(one, bench.now)
        one = bench.start(bench.claim_one())
    assert bench.settle(one)
    for key in ("a", "b"):
        assert bench.settle(bench.run(made, key))
    open_one = bench.run(made, "open")
    bench.settle(bench.run(bench.create_quiet("uid-2"), "other"))
    everything = bench.store.runs(made.uid)
    assert len(everything) == 15
    assert everything == sorted(everything, key=lambda run: (run.started, run.id), reverse=True)
    assert [run.occurrence_id for run in everything if run.ended is None] == [open_one.id]
    for limit in (1, 2, 4, 15, 16):
        assert _runs(bench, made, limit) == everything
    assert bench.store.runs(made.uid, before=(NOW, "")) == []


@case
def the_last_runs_of_several_occurrences_are_told_at_once(bench: Bench) -> None:
    made = bench.create_quiet()
    assert bench.store.last_runs([]) == {}
    failed = bench.run(made, "failed")
    assert bench.store.last_runs([failed.id]) == {}
    assert bench.retry(failed, bench.now)
    first = bench.store.last_runs([failed.id])
    assert [(one, run.id) for one, run in first.items()] == [(failed.id, f"{failed.id}-{failed.fence}")]
    for _ in range(10):  # the tenth claim has a longer number, and is the last nevertheless
        again = bench.start(bench.claim_one())
        assert bench.retry(again, bench.now)
    again = bench.start(bench.claim_one())
    settlement = bench.settlement(again)
    run = replace(settlement.run, result={"rows": 3}, error="not all of it", usage=Usage(tokens=5, cost_usd=0.5))
    assert bench.store.settle([replace(settlement, run=run)]) == [True]
    other = bench.run(made, "other")
    assert bench.settle(other)
    waits = bench.add(made, "waits", MINUTE)
    last = bench.store.last_runs([waits.id, other.id, "nothing", failed.id, other.id])
    assert last == {
        failed.id: replace(run, result=None),
        other.id: replace(bench.settlement(other).run, result=None),
    }


@case
def an_occurrence_tells_its_own_runs(bench: Bench) -> None:
    made = bench.create_quiet()
    other = bench.run(made, "other")
    assert bench.settle(other)
    bench.advance(1)
    one = bench.run(made, "one")
    assert [run.ended for run in bench.store.occurrence_runs(one.id)] == [None]
    assert bench.retry(one, bench.now)
    bench.advance(1)
    again = bench.start(bench.claim_one())
    runs = bench.store.occurrence_runs(one.id)
    assert [(run.id, run.ended) for run in runs] == [
        (f"{one.id}-{again.fence}", None),
        (f"{one.id}-{one.fence}", NOW + 1),
    ]
    assert runs == bench.store.runs(made.uid)[:2]
    assert [run.id for run in bench.store.occurrence_runs(other.id)] == [f"{other.id}-{other.fence}"]
    waits = bench.add(made, "waits", MINUTE)
    assert bench.store.occurrence_runs(waits.id) == []
    assert bench.store.occurrence_runs("nothing") == []


@case
def a_run_is_found_by_its_id(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "one")
    [going_on] = bench.store.runs(made.uid)
    assert bench.store.run(going_on.id) == (made.uid, going_on)
    assert bench.settle(one)
    [ended] = bench.store.runs(made.uid)
    assert ended.id == going_on.id
    assert bench.store.run(ended.id) == (made.uid, ended)
    for number in ("", "0", f"0{one.fence}", "99", "x", "-1", "9" * 30, "9" * 5_000, "²", "\0"):
        assert bench.store.run(f"{one.id}-{number}") is None
    assert bench.store.run(one.id) is None
    assert bench.store.run("nothing") is None


@case
def a_run_whose_lease_was_lost_is_found_beside_the_next_one(bench: Bench) -> None:
    made = bench.create_quiet()
    lost = bench.run(made, "one")
    bench.advance(LEASE)
    again = bench.start(bench.claim_one("node-b"))
    ids = [f"{again.id}-{again.fence}", f"{lost.id}-{lost.fence}"]
    assert [run.id for run in bench.store.occurrence_runs(lost.id)] == ids
    for run_id, run in zip(ids, bench.store.occurrence_runs(lost.id), strict=True):
        assert bench.store.run(run_id) == (made.uid, run)


@case
def a_forgotten_occurrence_has_no_runs(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "one")
    assert bench.settle(one)
    assert bench.store.prune(before=NOW + 1, keep=9, limit=9) == 1
    assert bench.store.occurrence_runs(one.id) == []
    assert bench.store.run(f"{one.id}-{one.fence}") is None
    assert bench.store.runs(made.uid) == []


@case
def events_are_read_in_pages_and_by_type(bench: Bench) -> None:
    events = [Event(event_type="ab"[number % 2], emitted=0, event_id=f"e{number}") for number in range(6)]
    assert all(bench.store.emit("acme", events))
    assert all(bench.store.emit("other", events[:1]))
    everything = bench.store.events("acme", 9)
    assert [one.event_id for one in everything] == ["e5", "e4", "e3", "e2", "e1", "e0"]
    assert bench.store.events("acme", 2, before=everything[1].emitted) == everything[2:4]
    assert bench.store.events("acme", 9, event_type="a") == everything[1::2]
    assert bench.store.events("acme", 1, event_type="b", before=everything[0].emitted) == everything[2:3]
    assert bench.store.events("acme", 9, before=everything[-1].emitted) == []
    assert bench.store.events("acme", 9, event_type="c") == []


@case
def what_stands_for_a_time_is_found_however_much_lies_between(bench: Bench) -> None:
    made = bench.create_quiet()
    long, short = ((NOW, NOW + 10 * MINUTE), (NOW + 3 * MINUTE, NOW + 5 * MINUTE))
    gaps = [
        replace(
            factories.occurrence(made, TRIGGER, nominal=first),
            phase=Phase.MISFIRED,
            reason=Reason.LATE,
            missed_count=3,
            missed_first=first,
            missed_last=last,
        )
        for first, last in (long, short)
    ]
    own = factories.occurrence(made, TRIGGER, nominal=NOW + 4 * MINUTE)
    again = [
        factories.occurrence(made, backfill(key), nominal=NOW + 4 * MINUTE, due=NOW + n) for n, key in enumerate("cab")
    ]
    other = factories.occurrence(made, manual("m"), nominal=NOW + 4 * MINUTE + 1)
    assert bench.store.add([*gaps, own, *again, other]) == [True] * 7

    def found(time: Micros, limit: int = 9) -> set[str]:
        return {one.id for one in bench.store.occurrences_at(made.uid, time, limit)}

    long_id, short_id = (one.id for one in gaps)
    assert found(NOW + 4 * MINUTE) == {long_id, short_id, own.id, *(one.id for one in again)}
    assert found(NOW + 4 * MINUTE, 2) == {long_id, short_id, own.id, again[2].id}
    assert found(NOW + 4 * MINUTE, 1) == {short_id, own.id}
    assert found(NOW + 5 * MINUTE) == {long_id, short_id}
    assert found(NOW + 5 * MINUTE + 1) == found(NOW + 10 * MINUTE) == {long_id}
    assert found(NOW) == {long_id}
    assert found(NOW - 1) == found(NOW + 10 * MINUTE + 1) == set()
    assert bench.store.occurrences_at("nothing", NOW, 9) == []
