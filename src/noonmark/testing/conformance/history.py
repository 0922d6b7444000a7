"""History: occurrences, runs and events in pages and in order, the next time, and pruning."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.budgets.spend import Usage
from noonmark.core.event import Event
from noonmark.core.ids import TRIGGER, backfill, manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import FAILURES, FINAL, LIVE, Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, settle
from noonmark.core.triggers import IntervalTrigger
from noonmark.ports.records import Activity, Admitted, OccurrenceFilter, OccurrenceGroup, Workload
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


USAGE = Usage(model="m-1", provider="p", input_tokens=5, output_tokens=2, model_calls=2, tool_calls=1, cost=500_000_001)


@case
def occurrences_are_listed_newest_first(bench: Bench) -> None:
    schedule, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    a, c, b = [bench.add(schedule, key, after) for key, after in (("a", 1), ("c", 3), ("b", 2))]
    twins = sorted([bench.add(schedule, f"twin-{n}", 4) for n in range(3)], key=lambda one: one.id, reverse=True)
    bench.add(other, "d")
    assert bench.store.occurrences(schedule.uid) == [*twins, c, b, a]
    assert bench.store.occurrences(schedule.uid, 4) == [*twins, c]
    assert bench.store.occurrences(schedule.uid, 0) == []


@case
def runs_are_listed_newest_first(bench: Bench) -> None:
    schedule, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    ran = []
    for key in ("a", "b", "c"):
        bench.advance(1)
        occurrence = bench.run(schedule, key)
        ran.append(occurrence.id)
        assert bench.settle(occurrence)
    assert bench.settle(bench.run(other, "d"))
    assert [run.occurrence_id for run in bench.store.runs(schedule.uid)] == ran[::-1]
    assert [run.occurrence_id for run in bench.store.runs(schedule.uid, 2)] == ran[:0:-1]
    assert bench.store.runs(schedule.uid, 0) == []


@case
def the_next_time_is_that_of_a_plan_a_row_or_a_lease(bench: Bench) -> None:
    assert bench.store.next_time([ROUTE]) is None
    schedule = bench.create()
    assert bench.store.next_time([]) == NOW + 58 * SECOND
    quiet = bench.create_quiet("uid-2")
    bench.add(quiet, "a", 40 * SECOND)
    bench.add(quiet, "b", 30 * SECOND, route="http")
    assert bench.store.next_time([ROUTE]) == NOW + 40 * SECOND
    assert bench.store.next_time([ROUTE, "http"]) == NOW + 30 * SECOND
    assert bench.store.next_time([ROUTE, "http"], lookahead=10 * SECOND) == NOW + 20 * SECOND
    [claim] = bench.claim(until=NOW + 40 * SECOND)
    assert bench.store.next_time([ROUTE]) == NOW + LEASE
    assert bench.store.next_time([ROUTE], lookahead=10 * SECOND) == NOW + LEASE
    bench.store.renew([hold(claim)], now=bench.now + 5, lease=LEASE)
    assert bench.store.next_time([ROUTE]) == NOW + LEASE + 5
    bench.decide(Wait(claim=claim, waiting_for=Reason.DEPENDENCY_PENDING))
    assert bench.store.next_time([ROUTE]) == NOW + 58 * SECOND
    assert bench.store.next_time([ROUTE], lookahead=SECOND) == NOW + 58 * SECOND
    assert bench.stored(schedule).next_due == NOW + MINUTE


def _history(bench: Bench, uid: str, count: int) -> list[Occurrence]:
    """So many ends, one microsecond apart."""
    schedule = bench.create_quiet(uid)
    ended = []
    for number in range(count):
        bench.advance(1)
        occurrence = bench.run(schedule, f"{number}", number)
        assert bench.settle(occurrence)
        ended.append(occurrence)
    return ended


@case
def old_occurrences_are_pruned_with_their_runs(bench: Bench) -> None:
    ended = _history(bench, "uid-1", 4)
    live = bench.run(bench.create_quiet("uid-2"), "live")
    assert bench.store.prune(before=NOW + 1, keep=100, limit=100) == 0
    assert bench.store.prune(before=NOW + 3, keep=100, limit=100) == 2
    assert [one.id for one in bench.store.occurrences("uid-1")] == [ended[3].id, ended[2].id]
    assert [run.occurrence_id for run in bench.store.runs("uid-1")] == [ended[3].id, ended[2].id]
    assert bench.store.prune(before=NOW + MINUTE, keep=100, limit=100) == 2
    assert bench.store.occurrences("uid-1") == []
    assert bench.row(live).phase is Phase.DISPATCHING
    stored = bench.store.find("acme", "schedule-of-uid-1")
    assert stored is not None
    assert stored.counters.total == 4


@case
def of_each_schedule_the_newest_are_kept(bench: Bench) -> None:
    many, few = _history(bench, "uid-1", 5), _history(bench, "uid-2", 2)
    assert bench.store.prune(before=NOW, keep=3, limit=100) == 2
    assert [one.id for one in bench.store.occurrences("uid-1")] == [one.id for one in many[:1:-1]]
    assert [one.id for one in bench.store.occurrences("uid-2")] == [one.id for one in few[::-1]]
    assert bench.store.prune(before=NOW, keep=0, limit=100) == 5
    assert bench.store.prune(before=NOW, keep=0, limit=100) == 0


@case
def at_most_limit_occurrences_are_pruned_at_a_time(bench: Bench) -> None:
    _history(bench, "uid-1", 5)
    assert bench.store.prune(before=NOW + MINUTE, keep=100, limit=2) == 2
    assert bench.store.prune(before=NOW, keep=1, limit=1) == 1
    assert bench.store.prune(before=NOW, keep=1, limit=100) == 1
    assert len(bench.store.occurrences("uid-1")) == 1


@case
def the_fullest_schedules_are_pruned_first(bench: Bench) -> None:
    histories = {f"uid-{count}": _history(bench, f"uid-{count}", count) for count in (3, 6, 5, 4)}

    def left() -> dict[str, list[str]]:
        return {uid: [one.id for one in bench.store.occurrences(uid)[::-1]] for uid in histories}

    def newest(**counts: int) -> dict[str, list[str]]:
        return {uid: [one.id for one in histories[uid][-counts[f"of_{uid[-1]}"] :]] for uid in histories}

    assert bench.store.prune(before=0, keep=2, limit=5) == 5
    assert left() == newest(of_3=3, of_4=4, of_5=4, of_6=2)
    assert bench.store.prune(before=0, keep=2, limit=100) == 5
    assert left() == newest(of_3=2, of_4=2, of_5=2, of_6=2)
    assert bench.store.prune(before=0, keep=2, limit=100) == 0


@case
def among_equal_times_only_the_excess_is_pruned(bench: Bench) -> None:
    schedule = bench.create_quiet()
    twins = [
        factories.occurrence(schedule, manual(f"{number}"), nominal=NOW, phase=Phase.SKIPPED, reason=Reason.PAUSED)
        for number in range(5)
    ]
    assert all(bench.store.add(twins))
    bench.add(schedule, "live", -1)
    assert bench.store.prune(before=0, keep=3, limit=100) == 2
    left = sorted(one.id for one in twins)[2:]
    assert [one.id for one in bench.store.occurrences(schedule.uid) if one.phase in FINAL] == left[::-1]


@case
def a_pruned_occurrence_can_be_added_again(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.settle(occurrence)
    assert bench.store.prune(before=NOW, keep=0, limit=1) == 1
    assert bench.store.occurrence(occurrence.id) is None
    bench.run(schedule, "a")


@case
def a_pruned_occurrence_leaves_no_runs_to_its_successor(bench: Bench) -> None:
    schedule = bench.create_quiet()
    for key in ("a", "b"):
        assert bench.settle(bench.run(schedule, key))
    assert bench.store.prune(before=NOW, keep=0, limit=9) == 2
    for key in ("c", "d"):
        bench.add(schedule, key, MINUTE)
    assert bench.store.runs(schedule.uid) == []
    assert bench.store.activities([schedule.uid]) == [Activity()]


@case
def a_deleted_schedule_is_found_on_request(bench: Bench) -> None:
    assert bench.store.find("acme", "a", deleted=True) is None
    for number in range(2):
        schedule = bench.create(f"uid-{number}", schedule_id="a")
        bench.advance(1)
        assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
        assert bench.store.find("acme", "a") is None
        stored = bench.store.find("acme", "a", deleted=True)
        assert stored is not None
        assert (stored.schedule.uid, stored.schedule.phase) == (f"uid-{number}", SchedulePhase.DELETED)
    bench.create("uid-2", schedule_id="a")
    listed = bench.store.find("acme", "a", deleted=True)
    assert listed is not None
    assert listed.schedule.uid == "uid-2"
    assert bench.store.find("other", "a", deleted=True) is None


@case
def deleted_schedules_are_listed_on_request(bench: Bench) -> None:
    schedules = [bench.create(f"uid-{number}", created=NOW + number) for number in range(4)]
    assert bench.store.schedules("acme", limit=9, deleted=True) == []
    for number in (2, 0, 3):
        assert bench.commit(edits.delete(bench.snapshot(schedules[number]), now=bench.now))
    first = bench.store.schedules("acme", limit=2, deleted=True)
    assert [kept.schedule.uid for kept in first] == ["uid-0", "uid-2"]
    second = bench.store.schedules("acme", after="uid-2", limit=2, deleted=True)
    assert [kept.schedule.uid for kept in second] == ["uid-3"]
    assert [kept.schedule.uid for kept in bench.store.schedules("acme", limit=9)] == ["uid-1"]


@case
def the_next_time_of_a_schedule_is_known_while_a_node_holds_it(bench: Bench) -> None:
    schedule = bench.create()
    assert bench.stored(schedule).next_due == NOW + MINUTE
    [claim] = bench.claim(until=NOW + MINUTE)
    assert bench.stored(schedule).next_due == NOW + MINUTE
    bench.advance(MINUTE)
    bench.start(claim)
    assert bench.stored(schedule).next_due is None


@case
def a_delivery_in_progress_is_listed_as_a_run(bench: Bench) -> None:
    schedule = bench.create_quiet()
    assert bench.settle(bench.run(schedule, "before"))
    bench.advance(1)
    occurrence = bench.run(schedule, "now", 1)
    run, before = bench.store.runs(schedule.uid)
    assert (run.id, run.occurrence_id, run.attempt, run.node) == (
        f"{occurrence.id}-{occurrence.fence}",
        occurrence.id,
        1,
        "node-a",
    )
    assert (run.started, run.ended, run.outcome) == (NOW + 1, None, None)
    assert before.outcome is Outcome.COMPLETED
    assert bench.store.runs(schedule.uid, 1) == [run]
    assert bench.settle(occurrence)
    assert [each.ended is None for each in bench.store.runs(schedule.uid)] == [False, False]


@case
def the_activity_of_a_schedule_is_listed(bench: Bench) -> None:
    quiet, busy = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    nothing = Activity()
    assert bench.store.activities([busy.uid, "nobody", quiet.uid]) == [nothing, nothing, nothing]
    first = bench.run(busy, "a")
    assert bench.settle(first)
    bench.advance(1)
    running = []
    for key in "bc":
        bench.add(busy, key, 1)
        running.append(bench.decide(replace(start(bench.claim_one()), takes_slot=False)))
    [activity] = bench.store.activities([busy.uid])
    assert activity.delivering == tuple(sorted(one.id for one in running))
    assert activity.last_run is not None
    assert (activity.last_run.occurrence_id, activity.last_run.outcome) == (first.id, Outcome.COMPLETED)
    assert bench.fail(running[0])
    _, activity = bench.store.activities([quiet.uid, busy.uid])
    assert activity.delivering == (running[1].id,)
    assert activity.last_run is not None
    assert activity.last_run.occurrence_id == running[0].id


@case
def the_last_of_several_attempts_is_listed(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.retry(occurrence, NOW + 5)
    [activity] = bench.store.activities([schedule.uid])
    assert activity.last_run is not None
    assert activity.last_run.attempt == 1
    bench.advance(5)
    assert bench.settle(bench.start(bench.claim_one()))
    [activity] = bench.store.activities([schedule.uid])
    assert activity.last_run is not None
    assert activity.last_run.attempt == 2


@case
def a_history_is_pruned_to_any_size(bench: Bench) -> None:
    schedule = bench.create_quiet()
    ended = [
        factories.occurrence(
            schedule, manual(f"{number}"), nominal=NOW + number, phase=Phase.SKIPPED, reason=Reason.PAUSED
        )
        for number in range(40)
    ]
    assert all(bench.store.add(ended))
    for keep in range(39, -1, -1):
        assert bench.store.prune(before=0, keep=keep, limit=9) == 1
        assert len(bench.store.occurrences(schedule.uid)) == keep


@case
def the_last_run_is_one_that_has_ended(bench: Bench) -> None:
    schedule = bench.create_quiet()
    first = bench.run(schedule, "a")
    assert bench.settle(first)
    bench.advance(1)
    second = bench.run(schedule, "b", 1)
    accepted = Accepted(started=bench.now, accepted=bench.now)
    assert bench.store.settle([settle(second, schedule, accepted, node="node-a")]) == [True]
    [activity] = bench.store.activities([schedule.uid])
    assert activity.delivering == (second.id,)
    assert activity.last_run is not None
    assert activity.last_run.occurrence_id == first.id


@case
def a_reopened_occurrence_is_not_part_of_the_history(bench: Bench) -> None:
    schedule = bench.create()
    hourly = replace(schedule.declaration, trigger=IntervalTrigger(3_600, start_at=from_micros(NOW + 60 * MINUTE)))
    for declared in (hourly, schedule.declaration):
        assert bench.commit(edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    ended = [one for one in bench.store.occurrences(schedule.uid) if one.phase in FINAL]
    assert bench.store.prune(before=0, keep=len(ended), limit=9) == 0
    assert bench.store.prune(before=0, keep=0, limit=9) == len(ended)


def _occurrences(bench: Bench, schedule: Schedule, limit: int, phases: Collection[Phase] = ()) -> list[Occurrence]:
    """Page after page, until one has nothing in it."""
    occurrences: list[Occurrence] = []
    place = None
    while page := bench.store.occurrences(schedule.uid, limit, before=place, phases=phases):
        assert len(page) <= limit
        occurrences += page
        place = (page[-1].nominal, page[-1].id)
    return occurrences


def _runs(bench: Bench, schedule: Schedule, limit: int) -> list[Run]:
    runs: list[Run] = []
    place = None
    while page := bench.store.runs(schedule.uid, limit, before=place):
        assert len(page) <= limit
        runs += page
        place = (page[-1].started, page[-1].id)
    return runs


@case
def occurrences_are_read_in_pages(bench: Bench) -> None:
    schedule, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    for number in range(7):
        bench.add(schedule, f"{number}", number // 3)
    bench.add(other, "other")
    everything = bench.store.occurrences(schedule.uid)
    assert len(everything) == 7
    for limit in (1, 2, 3, 7, 8):
        assert _occurrences(bench, schedule, limit) == everything
    newer = [one for one in everything if one.nominal == NOW + 1]
    assert bench.store.occurrences(schedule.uid, 3, before=(NOW + 2, "")) == newer
    assert bench.store.occurrences(schedule.uid, 3, before=(NOW, "")) == []
    assert bench.store.occurrences("nothing", before=(NOW, "")) == []


@case
def occurrences_are_read_by_phase(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.advance(3)
    by_phase = {Phase.COMPLETED: bench.run(schedule, "done", 1)}
    assert bench.settle(by_phase[Phase.COMPLETED])
    by_phase[Phase.DISPATCHING] = bench.run(schedule, "runs", 2)
    by_phase[Phase.PENDING] = bench.add(schedule, "later", MINUTE)
    by_phase[Phase.SKIPPED] = bench.add(schedule, "no", 3, phase=Phase.SKIPPED, reason=Reason.OVERLAP)
    bench.add(bench.create_quiet("uid-2"), "other", MINUTE)
    for phase, occurrence in by_phase.items():
        assert [found.id for found in bench.store.occurrences(schedule.uid, phases=[phase])] == [occurrence.id]
    for phases in (LIVE, FINAL, {Phase.PENDING, Phase.SKIPPED}, {Phase.DISPATCHING, Phase.COMPLETED}):
        expected = [one for one in bench.store.occurrences(schedule.uid) if one.phase in phases]
        assert len(expected) == 2
        assert bench.store.occurrences(schedule.uid, phases=phases) == expected
        assert bench.store.occurrences(schedule.uid, 1, phases=phases) == expected[:1]
        assert _occurrences(bench, schedule, 1, phases) == expected
    assert bench.store.occurrences(schedule.uid, phases=[Phase.FAILED]) == []


@case
def runs_are_read_in_pages(bench: Bench) -> None:
    """Twelve runs of one occurrence and more of others, some that began together, and one that goes on."""
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "again")
    for number in range(11):
        bench.advance(number % 2)
        assert bench.retry(occurrence, bench.now)
        occurrence = bench.start(bench.claim_one())
    assert bench.settle(occurrence)
    for key in ("a", "b"):
        assert bench.settle(bench.run(schedule, key))
    open_one = bench.run(schedule, "open")
    bench.settle(bench.run(bench.create_quiet("uid-2"), "other"))
    everything = bench.store.runs(schedule.uid)
    assert len(everything) == 15
    assert everything == sorted(everything, key=lambda run: (run.started, run.id), reverse=True)
    assert [run.occurrence_id for run in everything if run.ended is None] == [open_one.id]
    for limit in (1, 2, 4, 15, 16):
        assert _runs(bench, schedule, limit) == everything
    assert bench.store.runs(schedule.uid, before=(NOW, "")) == []


@case
def the_last_runs_of_several_occurrences_are_read_at_once(bench: Bench) -> None:
    schedule = bench.create_quiet()
    assert bench.store.last_runs([]) == {}
    failed = bench.run(schedule, "failed")
    assert bench.store.last_runs([failed.id]) == {}
    assert bench.retry(failed, bench.now)
    first = bench.store.last_runs([failed.id])
    assert [(one, run.id) for one, run in first.items()] == [(failed.id, f"{failed.id}-{failed.fence}")]
    for _ in range(10):  # the tenth claim has a longer number, and is the last nevertheless
        again = bench.start(bench.claim_one())
        assert bench.retry(again, bench.now)
    again = bench.start(bench.claim_one())
    settlement = bench.settlement(again)
    run = replace(settlement.run, result={"rows": 3}, error="not all of it", usage=USAGE)
    assert bench.store.settle([replace(settlement, run=run)]) == [True]
    other = bench.run(schedule, "other")
    assert bench.settle(other)
    waits = bench.add(schedule, "waits", MINUTE)
    last = bench.store.last_runs([waits.id, other.id, "nothing", failed.id, other.id])
    assert last == {
        failed.id: replace(run, result=None),
        other.id: replace(bench.settlement(other).run, result=None),
    }


@case
def the_runs_of_an_occurrence_are_listed(bench: Bench) -> None:
    schedule = bench.create_quiet()
    other = bench.run(schedule, "other")
    assert bench.settle(other)
    bench.advance(1)
    occurrence = bench.run(schedule, "one")
    assert [run.ended for run in bench.store.occurrence_runs(occurrence.id)] == [None]
    assert bench.retry(occurrence, bench.now)
    bench.advance(1)
    again = bench.start(bench.claim_one())
    runs = bench.store.occurrence_runs(occurrence.id)
    assert [(run.id, run.ended) for run in runs] == [
        (f"{occurrence.id}-{again.fence}", None),
        (f"{occurrence.id}-{occurrence.fence}", NOW + 1),
    ]
    assert runs == bench.store.runs(schedule.uid)[:2]
    assert [run.id for run in bench.store.occurrence_runs(other.id)] == [f"{other.id}-{other.fence}"]
    waits = bench.add(schedule, "waits", MINUTE)
    assert bench.store.occurrence_runs(waits.id) == []
    assert bench.store.occurrence_runs("nothing") == []


@case
def a_run_is_found_by_its_id(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "one")
    [going_on] = bench.store.runs(schedule.uid)
    assert bench.store.run(going_on.id) == (schedule.uid, going_on)
    assert bench.settle(occurrence)
    [ended] = bench.store.runs(schedule.uid)
    assert ended.id == going_on.id
    assert bench.store.run(ended.id) == (schedule.uid, ended)
    for number in ("", "0", f"0{occurrence.fence}", "99", "x", "-1", "9" * 30, "9" * 5_000, "²", "\0"):
        assert bench.store.run(f"{occurrence.id}-{number}") is None
    assert bench.store.run(occurrence.id) is None
    assert bench.store.run("nothing") is None


@case
def a_run_whose_lease_was_lost_is_found_beside_the_next_one(bench: Bench) -> None:
    schedule = bench.create_quiet()
    lost = bench.run(schedule, "one")
    bench.advance(LEASE)
    again = bench.start(bench.claim_one("node-b"))
    ids = [f"{again.id}-{again.fence}", f"{lost.id}-{lost.fence}"]
    assert [run.id for run in bench.store.occurrence_runs(lost.id)] == ids
    for run_id, run in zip(ids, bench.store.occurrence_runs(lost.id), strict=True):
        assert bench.store.run(run_id) == (schedule.uid, run)


@case
def a_pruned_occurrence_has_no_runs(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "one")
    assert bench.settle(occurrence)
    assert bench.store.prune(before=NOW + 1, keep=9, limit=9) == 1
    assert bench.store.occurrence_runs(occurrence.id) == []
    assert bench.store.run(f"{occurrence.id}-{occurrence.fence}") is None
    assert bench.store.runs(schedule.uid) == []


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
def the_row_of_a_time_is_found_at_any_distance(bench: Bench) -> None:
    schedule = bench.create_quiet()
    long, short = ((NOW, NOW + 10 * MINUTE), (NOW + 3 * MINUTE, NOW + 5 * MINUTE))
    gaps = [
        replace(
            factories.occurrence(schedule, TRIGGER, nominal=first),
            phase=Phase.MISFIRED,
            reason=Reason.LATE,
            missed_count=3,
            missed_first=first,
            missed_last=last,
        )
        for first, last in (long, short)
    ]
    own = factories.occurrence(schedule, TRIGGER, nominal=NOW + 4 * MINUTE)
    again = [
        factories.occurrence(schedule, backfill(key), nominal=NOW + 4 * MINUTE, due=NOW + n)
        for n, key in enumerate("cab")
    ]
    other = factories.occurrence(schedule, manual("m"), nominal=NOW + 4 * MINUTE + 1)
    assert bench.store.add([*gaps, own, *again, other]) == [True] * 7

    def found(time: Micros, limit: int = 9) -> set[str]:
        return {one.id for one in bench.store.occurrences_at(schedule.uid, time, limit)}

    long_id, short_id = (one.id for one in gaps)
    assert found(NOW + 4 * MINUTE) == {long_id, short_id, own.id, *(one.id for one in again)}
    assert found(NOW + 4 * MINUTE, 2) == {long_id, short_id, own.id, again[2].id}
    assert found(NOW + 4 * MINUTE, 1) == {short_id, own.id}
    assert found(NOW + 5 * MINUTE) == {long_id, short_id}
    assert found(NOW + 5 * MINUTE + 1) == found(NOW + 10 * MINUTE) == {long_id}
    assert found(NOW) == {long_id}
    assert found(NOW - 1) == found(NOW + 10 * MINUTE + 1) == set()
    assert bench.store.occurrences_at("nothing", NOW, 9) == []


@case
def occurrences_of_all_schedules_are_found_by_their_time(bench: Bench) -> None:
    a, b = (
        bench.create_quiet("uid-1", labels={"team": "a", "x": "1"}),
        bench.create_quiet("uid-2", labels={"team": "b"}),
    )
    failed = []
    for n, of in enumerate((a, b, a)):
        bench.advance(SECOND)
        occurrence = bench.run(of, f"f{n}")
        assert bench.fail(occurrence)
        failed.append(bench.row(occurrence))
    bench.advance(SECOND)
    done = bench.run(b, "done")
    assert bench.settle(done)
    later = bench.add(a, "later", 60 * SECOND)
    everything = [later.id, done.id, *(one.id for one in reversed(failed))]

    def found(limit: int = 10, before: tuple[int, str] | None = None, **filters: Any) -> list[str]:
        page = bench.store.search("acme", OccurrenceFilter(**filters), limit, before=before)
        return [one.id for one in page.occurrences]

    assert found() == everything
    assert found(phases=frozenset({Phase.FAILED, Phase.MISFIRED})) == everything[2:]
    assert found(phases=frozenset({Phase.FAILED, Phase.COMPLETED})) == everything[1:]
    assert found(phases=LIVE) == [later.id]
    assert found(reasons=frozenset({Reason.FAILED})) == everything[2:]
    assert found(reasons=frozenset({Reason.POISON})) == []
    assert found(labels={"team": "a"}, phases=frozenset({Phase.FAILED})) == [failed[2].id, failed[0].id]
    assert found(labels={"team": "a", "x": "2"}) == []
    assert found(uid=b.uid) == [done.id, failed[1].id]
    assert found(since=failed[1].ended, until=failed[2].ended) == [failed[2].id, failed[1].id]
    assert found(since=(failed[2].ended or 0) + 1) == everything[:2]
    assert bench.store.search("other", OccurrenceFilter(), 10).occurrences == []
    assert bench.store.known([done.id, "occ_unknown", later.id]) == {done.id, later.id}


@case
def a_search_continues_where_it_ended(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1")
    ended = []
    for n in range(7):
        bench.advance(n % 2)  # some end at the same moment
        occurrence = bench.run(schedule, f"f{n}")
        assert bench.fail(occurrence) if n % 3 else bench.settle(occurrence)
        ended.append(bench.row(occurrence))
    bench.add(schedule, "later", 60 * SECOND)
    for phases in (frozenset[Phase](), FAILURES, FINAL):
        fit = [
            occurrence
            for occurrence in bench.store.search("acme", OccurrenceFilter(), 10).occurrences
            if occurrence.phase in (phases or FINAL | LIVE)
        ]
        for size in (1, 2, 3):
            pages, after = [], None
            while True:
                page = bench.store.search("acme", OccurrenceFilter(phases=phases), size, before=after)
                pages += page.occurrences
                after = page.after
                if after is None:
                    break
            assert pages == fit


@case
def the_workload_has_what_runs_is_due_waits_comes_next_and_is_overdue(bench: Bench) -> None:
    assert bench.store.workload(now=bench.now, limit=5) == Workload()
    running, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    first = bench.run(running, "runs")
    waits = bench.add(running, "waits")
    [claim] = bench.claim()
    assert isinstance(bench.admit(Wait(claim=claim, waiting_for=Reason.QUEUED)), Admitted)
    bench.advance(SECOND)
    due = [bench.add(other, f"due{n}", n) for n in range(3)]
    later = [bench.add(other, f"later{n}", (60 + n) * SECOND) for n in range(3)]
    workload = bench.store.workload(now=bench.now, limit=2)
    assert [one.id for one in workload.running.occurrences] == [first.id]
    assert [one.id for one in workload.due.occurrences] == [one.id for one in due[:2]]
    assert (workload.due.count, workload.due.is_complete) == (3, True)
    assert [one.id for one in workload.waiting.occurrences] == [waits.id]
    assert [one.id for one in workload.upcoming.occurrences] == [one.id for one in later[:2]]
    assert workload.overdue == OccurrenceGroup()
    assert bench.store.workload(now=bench.now, limit=2, tenant="acme").due == workload.due
    assert bench.store.workload(now=bench.now, limit=2, tenant="other") == Workload()
    settled = bench.settlement(
        first, phase=Phase.AWAITING_COMPLETION, reason=Reason.ACCEPTED, deadline=bench.now + SECOND
    )
    assert bench.store.settle([settled]) == [True]
    bench.advance(2 * SECOND)
    workload = bench.store.workload(now=bench.now, limit=2)
    assert [one.id for one in workload.running.occurrences] == [first.id]
    assert [one.id for one in workload.overdue.occurrences] == [first.id]


@case
def a_claim_whose_lease_ended_is_due(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1")
    occurrence = bench.add(schedule, "one")
    bench.claim()
    assert bench.store.workload(now=bench.now, limit=2) == Workload()
    bench.advance(LEASE)
    assert [row.id for row in bench.store.workload(now=bench.now, limit=2).due.occurrences] == [occurrence.id]
