"""The runaway guard: what a store counts, which starts it stops, and that a resumption counts anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Busy, Place, refused
from noonmark.core.budgets.budget import Reservation, Reserved
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.ids import HIDDEN, backfill
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.runaway import HOUR, Breach, RunawayPolicy, RunawayRule
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger
from noonmark.ports.budgets import UsageRecord
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case, start

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

TWO = RunawayPolicy(max_fires_per_hour=2)
RUNAWAY = "schedule.runaway"


def _create(bench: Bench, policy: RunawayPolicy = TWO) -> Schedule:
    bench.create("listener", schedule_id="listener", trigger=EventTrigger(RUNAWAY))
    return bench.create_quiet(runaway=policy)


def _run(bench: Bench, schedule: Schedule, keys: str) -> None:
    for key in keys:
        bench.advance(SECOND)
        assert bench.settle(bench.run(schedule, key))


def _stopped(bench: Bench, schedule: Schedule, key: str) -> Occurrence:
    """A start that the guard stops, and what is decided about it."""
    bench.add(schedule, key)
    claim = bench.claim_one()
    busy = bench.admit(start(claim))
    assert isinstance(busy, Busy), busy
    assert busy.place is Place.RUNAWAY
    return bench.decide(refused(claim, busy))


def _reported(bench: Bench, schedule: Schedule) -> list[tuple[str, float, float]]:
    events = bench.store.events(schedule.owner.tenant, 9, event_type=RUNAWAY)
    return [(one.payload["rule"], one.payload["seen"], one.payload["limit"]) for one in events]


def _phase(bench: Bench, schedule: Schedule) -> SchedulePhase:
    return bench.stored(schedule).schedule.phase


@case
def one_start_too_many_does_not_happen_and_pauses_its_schedule(bench: Bench) -> None:
    schedule = _create(bench)
    _run(bench, schedule, "ab")
    skipped = _stopped(bench, schedule, "c")
    assert (skipped.phase, skipped.reason, skipped.attempt) == (Phase.SKIPPED, Reason.PAUSED, 0)
    assert '"paused_by": "noonmark"' in skipped.detail
    pause = bench.stored(schedule).schedule.pause
    assert pause is not None
    assert (pause.by, (pause.reason or "").split(" on; ")[1]) == (
        "noonmark",
        "at most 2 are allowed, and its trigger plans 0",
    )
    [note] = bench.store.audit_entries("acme", 9)
    assert (note.caller, note.operation, note.reason) == ("noonmark", "schedule/pause", pause.reason)
    assert _stopped(bench, schedule, "d").reason is Reason.PAUSED  # until it is resumed, not even a manual run starts
    bench.advance(2 * HOUR)
    assert _stopped(bench, schedule, "e").reason is Reason.PAUSED
    assert _reported(bench, schedule) == [("fires_per_hour", 3, 2)]


@case
def a_resumption_counts_anew(bench: Bench) -> None:
    schedule = _create(bench)
    _run(bench, schedule, "ab")
    _stopped(bench, schedule, "c")
    assert bench.commit(edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    _run(bench, schedule, "de")
    _stopped(bench, schedule, "f")
    assert _phase(bench, schedule) is SchedulePhase.PAUSED
    assert len(_reported(bench, schedule)) == 2


@case
def each_hour_is_counted_by_itself(bench: Bench) -> None:
    schedule = _create(bench)
    _run(bench, schedule, "ab")
    bench.advance(HOUR)
    _run(bench, schedule, "cd")
    assert _phase(bench, schedule) is SchedulePhase.ACTIVE
    assert _stopped(bench, schedule, "e").phase is Phase.SKIPPED


@case
def retries_and_backfills_are_no_starts(bench: Bench) -> None:
    schedule = _create(bench)
    assert bench.retry(bench.run(schedule, "a"), bench.now)
    assert bench.settle(bench.start(bench.claim_one()))
    for key in ("x", "y"):
        assert bench.store.add([factories.occurrence(schedule, backfill(key))]) == [True]
        assert bench.settle(bench.start(bench.claim_one()))
    _run(bench, schedule, "b")
    assert _stopped(bench, schedule, "c").phase is Phase.SKIPPED


@case
def a_schedule_without_the_rule_is_not_counted(bench: Bench) -> None:
    schedule = bench.create_quiet()
    hidden = bench.create_quiet("uid-2", schedule_id=f"{HIDDEN}turns:s1", runaway=TWO)  # of turns that people ask for
    for one in (schedule, hidden):
        _run(bench, one, "abc")
        assert bench.snapshot(one).runaway is None


@case
def several_starts_of_one_call_are_counted_one_by_one(bench: Bench) -> None:
    schedule = _create(bench)
    for key in "abc":
        bench.add(schedule, key)
    starts = [replace(start(one), takes_slot=False) for one in bench.claim()]
    answers = bench.store.admit(starts, now=bench.now, lease=HOUR)
    assert [isinstance(one, Busy) for one in answers] == [False, False, True]


@case
def identical_results_in_a_row_pause_their_schedule(bench: Bench) -> None:
    schedule = _create(bench, RunawayPolicy(max_identical_results=2))

    def settle(key: str, result: object) -> None:
        occurrence = bench.run(schedule, key)
        run = replace(bench.settlement(occurrence).run, result=result)
        assert bench.settle(occurrence, run=run, max_identical=2)

    for key, result in zip("abcdef", ("done", "done", "other", "done", None, "done"), strict=True):
        settle(key, result)
        assert _phase(bench, schedule) is SchedulePhase.ACTIVE
    settle("g", "done")
    pause = bench.stored(schedule).schedule.pause
    assert pause is not None
    assert pause.reason == "its last 3 results were the same; at most 2 in a row are allowed"
    assert _reported(bench, schedule) == [("identical_results", 3, 2)]
    assert _stopped(bench, schedule, "h").phase is Phase.SKIPPED
    assert bench.commit(edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    settle("i", "done")
    assert _phase(bench, schedule) is SchedulePhase.ACTIVE


@case
def spend_is_added_up_by_schedule_and_hour(bench: Bench) -> None:
    bench.advance(10 * HOUR)
    numbers = count()

    def spend(cost: int | None, ago: int, schedule_id: str | None = "digest", tenant: str = "acme") -> None:
        record = UsageRecord(
            call_id=f"call-{next(numbers)}",
            tenant=tenant,
            user="ada",
            usage=Usage(input_tokens=1, cost=cost),
            schedule_id=schedule_id,
            at=bench.now - ago,
        )
        assert bench.store.record_usage([record]) == [True]

    for cost, ago in ((40, 0), (30, HOUR - 1), (20, HOUR), (7, 3 * HOUR), (0, 4 * HOUR), (None, 0), (9, 6 * HOUR)):
        spend(cost, ago)
    spend(90, 0, tenant="other")
    spend(80, 0, "cheap")
    spend(20, 0, "news")
    spend(500, 0, None)
    reserved = Reservation(
        call_id="reserved", tenant="acme", user="ada", schedule_id="news", session_id=None, occurrence_id="occ_1",
        fence=None, model="m", provider=None, most=Amount(tokens=1, cost=900),
    )  # fmt: skip
    assert isinstance(bench.store.reserve([reserved])[0], Reserved)
    expensive = [("other", "digest"), ("acme", "cheap"), ("acme", "digest")]
    assert bench.store.spenders(since=bench.now - HOUR, above=69, limit=9) == expensive
    assert bench.store.spenders(since=bench.now - HOUR, above=70, limit=9) == expensive[:2]
    assert bench.store.spenders(since=bench.now - HOUR, above=0, limit=1) == expensive[:1]
    by_hour = bench.store.spend_by_hour
    assert by_hour("acme", "digest", since=bench.now - 6 * HOUR, until=bench.now) == [70, 20, 7]
    assert by_hour("acme", "digest", since=bench.now - 9 * HOUR, until=bench.now - HOUR) == [20, 7, 9]


@case
def a_schedule_that_spends_too_much_is_paused_once(bench: Bench) -> None:
    schedule = _create(bench)
    breach = Breach(rule=RunawayRule.SPEND, seen=9, limit=5, since=bench.now - HOUR, text="it spent $9.00")

    def stop() -> bool:
        return bench.store.change(schedule.uid, lambda of, now: edits.stop_runaway(of, breach, now=now))

    assert stop()
    assert not stop()
    assert _reported(bench, schedule) == [("spend_per_hour", 9, 5)]
    assert _stopped(bench, schedule, "a").reason is Reason.PAUSED
    bench.advance(SECOND)
    assert bench.commit(edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    counted = bench.snapshot(schedule).runaway
    assert counted is not None
    assert (counted.since, counted.stopped) == (bench.now, None)
