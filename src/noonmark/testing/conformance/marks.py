"""Marks: occurrences on timelines, counts of them, and how far fires are stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.budgets.spend import Usage
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.triggers import IntervalTrigger
from noonmark.ports.budgets import UsageRecord
from noonmark.ports.records import MarkScope, ScheduleFilter, Span, TrendPoint
from noonmark.testing import factories
from noonmark.testing.conformance.bench import case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.outcomes import Mark
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

ACME = MarkScope(tenant="acme")


def _span(bench: Bench, since: Micros = NOW, until: Micros = NOW + 60 * MINUTE) -> Span:
    return Span(since=since, until=until, now=bench.now)


def _marks(bench: Bench, scope: MarkScope = ACME, span: Span | None = None, limit: int = 100) -> list[Mark]:
    """The marks of a span; the counts in buckets of a minute must agree with them."""
    span = span or _span(bench)
    marks = bench.store.marks(scope, span, limit)
    if limit == 100:
        expected = Counter(
            (
                mark.uid if scope.uids is not None else None,
                (max(mark.at, span.since) - span.since) // MINUTE,
                mark.state,
                None if mark.lag is None else mark.late is not None,
            )
            for mark in marks
        )
        counted = bench.store.count_marks(scope, span, MINUTE)
        assert {(one.uid, one.bucket, one.state, one.is_late): one.count for one in counted} == expected
        assert len(counted) == len(expected)
    return marks


def _all_states(bench: Bench) -> tuple[Schedule, dict[str, str]]:
    """A schedule with an occurrence in every state; their states by id."""
    schedule, other = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    states = {}
    for phase, reason in (
        (Phase.COMPLETED, Reason.SUCCEEDED),
        (Phase.FAILED, Reason.FAILED),
        (Phase.TIMED_OUT, Reason.TIMED_OUT),
        (Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE),
        (Phase.CANCELLED, Reason.CANCELLED),
    ):
        done = bench.run(schedule, str(phase))
        assert bench.settle(done, phase=phase, reason=reason)
        state = "completed" if phase is Phase.COMPLETED else "skipped" if phase is Phase.CANCELLED else "failed"
        states[done.id] = state
    late = bench.add(schedule, "late", SECOND)
    bench.advance(10 * SECOND)
    late = bench.start(bench.claim_one())
    assert bench.settle(late)
    states[late.id] = "completed"
    retried = bench.run(schedule, "retried", 10 * SECOND)
    assert bench.retry(retried, bench.now + 5 * MINUTE)
    states[retried.id] = "queued"
    dropped = bench.add(schedule, "dropped", 11 * SECOND)
    assert bench.store.cancel(dropped.id)
    states[dropped.id] = "skipped"
    running = bench.run(other, "running", 10 * SECOND)
    states[running.id] = "running"
    waits = bench.add(other, "waits", 10 * SECOND)
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    states[waits.id] = "queued"
    states[bench.add(other, "later", 30 * MINUTE).id] = "planned"
    states[bench.add(schedule, "due", 10 * SECOND).id] = "queued"
    return schedule, states


@case
def marks_have_the_state_of_their_occurrences(bench: Bench) -> None:
    _, states = _all_states(bench)
    marks = _marks(bench)
    assert {mark.occurrence_id: str(mark.state) for mark in marks} == states
    assert marks == sorted(marks, key=lambda mark: (mark.at, mark.occurrence_id or ""))
    for mark in marks:
        row = bench.store.occurrence(mark.occurrence_id or "")
        assert row is not None
        assert (mark.at, mark.due, mark.first_due) == (row.nominal, row.due, row.first_due)
        assert (mark.ended, mark.phase) == (row.ended, row.phase)
        assert mark.reason is (row.reason or row.waiting_for)
        assert (mark.uid, mark.origin, mark.detail) == (row.uid, row.origin, row.detail)
    assert _marks(bench, limit=3) == marks[:3]
    assert [mark.late for mark in marks if mark.late is not None] == [9 * SECOND]


@case
def marks_are_those_of_the_schedules_and_the_span(bench: Bench) -> None:
    schedule, states = _all_states(bench)
    own = _marks(bench, MarkScope(tenant="acme", uids=("uid-1", "uid-unknown")))
    assert {mark.uid for mark in own} == {schedule.uid}
    assert len(own) == len(states) - 3
    both = _marks(bench, MarkScope(tenant="acme", uids=("uid-1", "uid-2")))
    assert both == _marks(bench)
    # What has not ended belongs to a span that has now in it, and nothing else that was due before.
    bench.advance(MINUTE)
    around_now = _marks(bench, span=_span(bench, bench.now, bench.now + MINUTE))
    assert around_now == [mark for mark in _marks(bench) if mark.ended is None and mark.at < bench.now]
    assert len(around_now) == 4
    assert _marks(bench, span=_span(bench, bench.now + 1, bench.now + MINUTE)) == []
    assert _marks(bench, span=_span(bench, NOW - MINUTE, NOW)) == []
    assert _marks(bench, MarkScope(tenant="other")) == []


@case
def marks_of_a_tenant_are_filtered_by_its_schedules(bench: Bench) -> None:
    ada = bench.create_quiet("uid-1", labels={"team": "a"}, name="Nightly report")
    eve = bench.create_quiet("uid-2", owner=Owner(tenant="acme", user="eve"))
    strange = bench.create_quiet("uid-3", owner=Owner(tenant="other", user="ada"))
    first, second, third = [bench.add(one, "k") for one in (ada, eve, strange)]

    def found(wanted: ScheduleFilter | None, tenant: str = "acme") -> set[str | None]:
        return {mark.occurrence_id for mark in _marks(bench, MarkScope(tenant=tenant, wanted=wanted))}

    assert found(None) == {first.id, second.id}
    assert found(None, "other") == {third.id}
    assert found(ScheduleFilter(user="eve")) == {second.id}
    assert found(ScheduleFilter(labels={"team": "a"})) == {first.id}
    assert found(ScheduleFilter(text="NIGHT")) == {first.id}
    assert found(ScheduleFilter(kinds=frozenset({"cron"}))) == set()
    assert found(ScheduleFilter(phases=frozenset({SchedulePhase.PAUSED}))) == set()
    assert found(ScheduleFilter(text="\ud800")) == set()


@case
def lateness_is_that_of_first_starts(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1")
    assert bench.store.lateness(ACME, _span(bench), 99) is None
    bench.advance(100 * SECOND)
    for n in range(10):  # 100 s late, 99 s, ..
        assert bench.settle(bench.run(schedule, f"k{n}", n * SECOND))
    retried = bench.run(schedule, "again", 100 * SECOND)
    assert bench.retry(retried, bench.now + MINUTE)
    bench.advance(MINUTE)
    bench.start(bench.claim_one())  # its first start was on time
    span = _span(bench)
    assert bench.store.lateness(ACME, span, 99) == 100 * SECOND
    assert bench.store.lateness(ACME, span, 50) == 95 * SECOND
    assert bench.store.lateness(ACME, span, 1) == 0
    assert [mark.late for mark in _marks(bench) if mark.occurrence_id == retried.id] == [None]
    assert bench.store.lateness(MarkScope(tenant="other"), span, 99) is None


@case
def horizons_say_how_far_fires_are_stored(bench: Bench) -> None:
    def read(scope: MarkScope = ACME, limit: int = 10, until: Micros = NOW + 600 * MINUTE) -> list[tuple[str, Micros]]:
        horizons = bench.store.horizons(scope, until=until, limit=limit)
        return [(one.schedule.uid, one.watermark) for one in horizons.horizons]

    assert read() == []
    bench.create("uid-1", max_runs=5)
    bench.create("uid-2", trigger=IntervalTrigger(3_600, start_at=from_micros(NOW + 60 * MINUTE)))
    bench.create_quiet("uid-3")
    bench.create("uid-4", owner=Owner(tenant="other", user="ada"))
    every = read()
    assert [uid for uid, _ in every] == ["uid-1", "uid-2"]
    assert all(NOW < watermark <= NOW + 60 * MINUTE for _, watermark in every)
    assert read(MarkScope(tenant="acme", uids=("uid-2",))) == every[1:]
    assert read(until=NOW) == []
    assert read(MarkScope(tenant="acme", wanted=ScheduleFilter(kinds=frozenset({"cron"})))) == []
    first = bench.store.horizons(ACME, until=NOW + 600 * MINUTE, limit=1)
    assert [one.runs_left for one in first.horizons] == [5 - len(bench.store.occurrences("uid-1"))]
    # Whatever was not read has no fire up to there that is not stored.
    assert first.complete_until is not None
    assert first.complete_until <= every[1][1]


@case
def a_superseded_occurrence_takes_no_place_on_a_timeline(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1")
    ends = [(Phase.SUPERSEDED, Reason.EDITED)] * 3 + [(Phase.SKIPPED, Reason.REPLACED)] * 2
    for number, (phase, reason) in enumerate([*ends, *ends[:3]]):
        at = NOW + number * SECOND
        ended = factories.occurrence(
            schedule, manual(str(number)), nominal=at, phase=phase, reason=reason, ended=NOW + MINUTE
        )
        assert bench.store.add([ended]) == [True]
    bench.advance(MINUTE)
    shown = [NOW + 3 * SECOND, NOW + 4 * SECOND]
    named = MarkScope(tenant="acme", uids=(schedule.uid,))
    for scope in (ACME, named):
        assert [mark.at for mark in _marks(bench, scope)] == shown
        assert [mark.at for mark in _marks(bench, scope, limit=1)] == shown[:1]
    for limit in (1, 2, 3):
        [marks] = bench.store.last_marks([schedule.uid], limit, now=bench.now).values()
        assert [mark.at for mark in marks] == shown[-limit:]
    [point] = bench.store.trend(schedule.uid, [NOW, bench.now], now=bench.now)
    assert point.counts == {"skipped": 2}


@case
def schedules_are_counted_by_phase(bench: Bench) -> None:
    assert bench.store.count_phases("acme") == {}
    bench.create_quiet("uid-1")
    bench.create_quiet("uid-2", owner=Owner(tenant="acme", user="eve"))
    paused = bench.create_quiet("uid-3")
    bench.create_quiet("uid-4", owner=Owner(tenant="other", user="ada"))
    assert bench.commit(edits.pause(bench.snapshot(paused), now=bench.now))
    assert bench.store.count_phases("acme") == {SchedulePhase.ACTIVE: 2, SchedulePhase.PAUSED: 1}
    assert bench.store.count_phases("acme", "eve") == {SchedulePhase.ACTIVE: 1}
    found = bench.store.find_uids(["uid-1", "uid-3", "unknown"])
    assert {uid: stored.schedule.phase for uid, stored in found.items()} == {
        "uid-1": SchedulePhase.ACTIVE,
        "uid-3": SchedulePhase.PAUSED,
    }
    assert found["uid-1"] == bench.store.find_uid("uid-1")


@case
def the_last_marks_of_each_schedule(bench: Bench) -> None:
    schedule, _ = _all_states(bench)
    due = [mark for mark in _marks(bench) if mark.at <= bench.now]
    own, other = ([mark for mark in due if mark.uid == uid] for uid in ("uid-1", "uid-2"))
    for limit in (1, 3, 30):
        found = bench.store.last_marks(["uid-1", "uid-2", "unknown"], limit, now=bench.now)
        assert found == {"uid-1": own[-limit:], "uid-2": other[-limit:]}
    assert bench.store.last_marks([], 3, now=bench.now) == {}
    assert bench.store.last_marks([schedule.uid], 3, now=NOW - 1) == {schedule.uid: []}


@case
def trends_are_counted_between_edges(bench: Bench) -> None:
    schedule = bench.create_quiet("uid-1")
    # Edges at uneven distances, as where a clock changes.
    edges = [NOW, NOW + MINUTE, NOW + 3 * MINUTE, NOW + 4 * MINUTE, NOW + 10 * MINUTE]
    tokens = 0
    for n, seconds in enumerate((1, 2, 3, 4, 100)):
        bench.clock.now = max(bench.now, NOW + n * 30 * SECOND)
        occurrence = bench.run(schedule, f"k{n}", n * 30 * SECOND)
        begun = bench.now
        bench.advance(seconds * SECOND)
        run = bench.settlement(occurrence).run
        usage = Usage(model="m", input_tokens=10 + n, output_tokens=n, model_calls=1, cost=1_000 + n)
        tokens += usage.input_tokens
        record = UsageRecord(
            call_id=f"c{n}", tenant="acme", user="ada", usage=usage, schedule_id=schedule.schedule_id, at=begun
        )
        assert bench.store.record_usage([record]) == [True]
        assert bench.settle(occurrence, run=replace(run, started=begun))
    bench.clock.now = NOW + 4 * MINUTE - 1
    failed = bench.run(schedule, "f", 4 * MINUTE - 1)
    run = replace(bench.settlement(failed).run, outcome=Outcome.FAILED)
    assert bench.settle(failed, phase=Phase.FAILED, reason=Reason.FAILED, run=run)
    bench.add(schedule, "later", 9 * MINUTE)
    points = bench.store.trend("uid-1", edges, now=bench.now)
    assert [dict(point.counts) for point in points] == [
        {"completed": 2},
        {"completed": 3},
        {"failed": 1},
        {"planned": 1},
    ]
    assert [(point.duration_p50, point.duration_p95) for point in points] == [
        (SECOND, 2 * SECOND),
        (4 * SECOND, 100 * SECOND),
        (None, None),
        (None, None),
    ]
    assert [point.cost for point in points] == [2_001, 3_009, 0, 0]
    assert sum(point.input_tokens for point in points) == tokens
    assert [point.output_tokens for point in points] == [1, 9, 0, 0]
    assert bench.store.trend("unknown", edges, now=bench.now) == [TrendPoint()] * 4


@case
def schedules_are_found_by_their_next_fire_and_their_last_end(bench: Bench) -> None:
    minutely, hourly = (
        bench.create(f"uid-{seconds}", trigger=IntervalTrigger(seconds, start_at=from_micros(NOW + seconds * SECOND)))
        for seconds in (60, 3_600)
    )
    failed, quiet = bench.create_quiet("uid-f"), bench.create_quiet("uid-q")
    assert bench.fail(bench.run(failed, "k"))
    assert bench.settle(bench.run(quiet, "k"))

    def found(**wanted: Any) -> set[str]:
        chosen = ScheduleFilter(**wanted)
        listed = bench.store.schedules("acme", limit=10, wanted=chosen)
        assert bench.store.count_schedules("acme", chosen) == len(listed)
        return {stored.schedule.uid for stored in listed}

    assert found(next_until=NOW + 120 * SECOND) == {minutely.uid}
    assert found(next_until=NOW + 60 * SECOND) == set()
    assert found(next_since=NOW + 60 * SECOND) == {minutely.uid, hourly.uid}
    assert found(next_since=NOW + 61 * SECOND, next_until=NOW + 7_200 * SECOND) == {hourly.uid}
    assert found(last_phases=frozenset({Phase.FAILED})) == {failed.uid}
    assert found(last_phases=frozenset({Phase.FAILED, Phase.COMPLETED})) == {failed.uid, quiet.uid}
    assert found(last_phases=frozenset({Phase.FAILED}), next_since=NOW) == set()
