"""System events are emitted in the transaction of the change, if a schedule of the tenant subscribes to their type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.admission import End
from noonmark.core.causation import MAX_DEPTH
from noonmark.core.event import Chain
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies.misfire import Skip
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.system_events import SystemEvent, of_lost_node, of_occurrence, of_schedule
from noonmark.core.triggers import EventTrigger, OnceTrigger
from noonmark.ports.records import Heartbeat
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

OTHER = Owner(tenant="other", user="ada")


def _listen(bench: Bench, *types: SystemEvent, uid: str = "listener", **changes: Any) -> Schedule:
    return bench.create(uid, trigger=EventTrigger([str(one) for one in types]), **changes)


def _events(bench: Bench, tenant: str = "acme") -> list[Event]:
    """The events of a tenant, oldest first, without the moment that the store has given them."""
    return [replace(one, emitted=0) for one in reversed(bench.store.events(tenant, 99))]


def _types(bench: Bench, tenant: str = "acme") -> list[str]:
    return [one.event_type for one in _events(bench, tenant)]


def _failed(bench: Bench, occurrence: Occurrence, **changes: Any) -> Run:
    run = Run(
        id=f"{occurrence.id}-{occurrence.fence}",
        occurrence_id=occurrence.id,
        attempt=occurrence.attempt,
        node="node-a",
        started=bench.now,
        ended=bench.now,
        outcome=Outcome.FAILED,
        error="Traceback\nValueError: no such table",
    )
    return replace(run, **changes)


@case
def an_end_emits_an_event_if_a_schedule_subscribes(bench: Bench) -> None:
    _listen(bench, SystemEvent.FAILED)
    schedule = bench.create_quiet("job", name="nightly", labels={"team": "data"})
    assert bench.settle(bench.run(schedule, "good"))
    assert bench.store.events("acme", 9) == []
    bad = bench.run(schedule, "bad")
    run = _failed(bench, bad)
    bench.advance(5)
    assert bench.settle(bad, phase=Phase.FAILED, reason=Reason.FAILED, run=run)
    [event] = bench.store.events("acme", 9)
    assert event.emitted == bench.now
    assert replace(event, emitted=0) == of_occurrence(SystemEvent.FAILED, schedule, bench.row(bad), run=run)
    assert (event.payload["schedule_name"], event.payload["error"]) == ("nightly", "ValueError: no such table")
    [audience] = bench.store.unmatched(9)
    assert [one.uid for one in audience.listeners] == ["listener"]


@case
def an_end_that_was_not_written_emits_no_event(bench: Bench) -> None:
    _listen(bench, SystemEvent.FAILED, SystemEvent.COMPLETED)
    schedule = bench.create_quiet("job")
    occurrence = bench.run(schedule, "one")
    assert not bench.fail(replace(occurrence, fence=occurrence.fence + 1))
    assert bench.fail(occurrence)
    assert not bench.fail(occurrence)
    assert not bench.settle(occurrence)
    assert _types(bench) == [SystemEvent.FAILED]


@case
def each_tenant_gets_its_own_events(bench: Bench) -> None:
    _listen(bench, SystemEvent.COMPLETED)
    ours, theirs = bench.create_quiet("job"), bench.create_quiet("theirs", owner=OTHER)
    settlements = []
    for schedule in (ours, theirs):
        occurrence = bench.run(schedule, "one")
        settlements.append(bench.settlement(occurrence, tenant=schedule.owner.tenant))
    assert bench.store.settle(settlements) == [True, True]
    assert [one.payload["schedule_id"] for one in _events(bench)] == [ours.schedule_id]
    assert _events(bench, "other") == []


@case
def each_of_many_ends_emits_one_event(bench: Bench) -> None:
    _listen(bench, SystemEvent.COMPLETED, SystemEvent.TIMED_OUT)
    ends = []
    for number in range(6):
        occurrence = bench.run(bench.create_quiet(f"job-{number}"), "one")
        phase, reason = [
            (Phase.COMPLETED, Reason.SUCCEEDED),
            (Phase.FAILED, Reason.FAILED),
            (Phase.TIMED_OUT, Reason.TIMED_OUT),
        ][number % 3]
        ends.append(bench.settlement(occurrence, phase=phase, reason=reason))
    assert bench.store.settle(ends) == [True] * 6
    events = [(one.event_type, one.payload["schedule_id"]) for one in _events(bench)]
    assert events == [
        (fact, f"schedule-of-job-{number}")
        for number, fact in enumerate([SystemEvent.COMPLETED, None, SystemEvent.TIMED_OUT] * 2)
        if fact is not None
    ]


@case
def a_retry_emits_an_event_and_so_does_the_end_after_it(bench: Bench) -> None:
    _listen(bench, SystemEvent.RETRYING, SystemEvent.COMPLETED)
    schedule = bench.create_quiet("job")
    occurrence = bench.run(schedule, "one")
    run = _failed(bench, occurrence)
    again = {"phase": Phase.PENDING, "reason": Reason.RETRY_SCHEDULED, "retry_at": bench.now + MINUTE, "run": run}
    assert bench.settle(occurrence, **again)
    [event] = _events(bench)
    assert event == of_occurrence(SystemEvent.RETRYING, schedule, bench.row(occurrence), run=run)
    bench.advance(MINUTE)
    occurrence = bench.start(bench.claim_one())
    handed_back = {"phase": Phase.PENDING, "reason": Reason.LEASE_LOST, "retry_at": bench.now, "attempt": 1}
    assert bench.settle(occurrence, **handed_back)
    assert bench.settle(bench.start(bench.claim_one()))
    assert _types(bench) == [SystemEvent.RETRYING, SystemEvent.COMPLETED]


@case
def a_late_first_start_emits_an_event(bench: Bench) -> None:
    _listen(bench, SystemEvent.STARTED_LATE)
    schedule = bench.create_quiet("job")
    bench.add(schedule, "late")
    bench.advance(SECOND + 1)
    claim = bench.claim_one()
    [answer, again] = bench.store.admit([start(claim), start(claim)], now=bench.now, lease=LEASE)
    assert answer == again
    occurrence = bench.row(claim.occurrence)
    [event] = _events(bench)
    assert event == of_occurrence(SystemEvent.STARTED_LATE, schedule, occurrence)
    assert event.payload["late_seconds"] == 1.000001
    assert bench.retry(occurrence, bench.now + MINUTE)
    bench.advance(2 * MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    bench.add(schedule, "on time", after=bench.now - NOW)
    bench.advance(SECOND)
    assert bench.settle(bench.start(bench.claim_one()))
    assert _types(bench) == [SystemEvent.STARTED_LATE]


@case
def an_occurrence_that_never_starts_emits_an_event(bench: Bench) -> None:
    _listen(bench, SystemEvent.SKIPPED, SystemEvent.CANCELLED, SystemEvent.MISFIRED)
    schedule = bench.create_quiet("job")
    bench.add(schedule, "skipped")
    bench.decide(End(claim=bench.claim_one(), phase=Phase.SKIPPED, reason=Reason.OVERLAP))
    bench.add(schedule, "missed")
    bench.decide(End(claim=bench.claim_one(), phase=Phase.MISFIRED, reason=Reason.LATE))
    cancelled = bench.add(schedule, "cancelled")
    assert bench.store.cancel(cancelled.id)
    events = _events(bench)
    assert [one.event_type for one in events] == [SystemEvent.SKIPPED, SystemEvent.MISFIRED, SystemEvent.CANCELLED]
    assert events[1].payload["missed_count"] == 1
    assert events[2] == of_occurrence(SystemEvent.CANCELLED, schedule, bench.row(cancelled))


@case
def a_gap_emits_an_event_with_its_count(bench: Bench) -> None:
    _listen(bench, SystemEvent.MISFIRED)
    schedule = bench.create("job", misfire_policy=Skip())
    bench.advance(100 * MINUTE + MINUTE // 2)
    assert bench.commit(plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    [event] = _events(bench)
    [gap] = [one for one in bench.store.occurrences(schedule.uid) if one.phase is Phase.MISFIRED]
    assert event == of_occurrence(SystemEvent.MISFIRED, schedule, gap)
    assert event.payload["missed_count"] == gap.missed_count > 90


@case
def what_an_edit_moved_has_not_ended(bench: Bench) -> None:
    _listen(bench, *(fact for fact in SystemEvent if fact.startswith("occurrence.")))
    schedule = bench.create("job")
    moved = replace(schedule.declaration, trigger=EventTrigger("seen"))
    assert bench.commit(edits.edit(bench.snapshot(schedule), moved, now=bench.now, lookahead=LOOKAHEAD))
    assert [one.phase for one in bench.store.occurrences(schedule.uid)] == [Phase.SUPERSEDED]
    assert _events(bench) == []


@case
def a_change_of_a_schedule_emits_an_event(bench: Bench) -> None:
    listener = _listen(bench, *(fact for fact in SystemEvent if fact.startswith("schedule.")))
    note = AuditEntry(at=NOW, caller="ada", operation="schedule/create", reason="as agreed")
    schedule = factories.schedule("job", created=bench.now)
    assert bench.store.create([replace(first_plan(schedule, lookahead=LOOKAHEAD), note=note)]) == [True]
    assert bench.store.create([first_plan(replace(schedule, uid="again"), lookahead=LOOKAHEAD)]) == [False]
    expected = [
        of_schedule(SystemEvent.SCHEDULE_CREATED, one, note=by) for one, by in ((listener, None), (schedule, note))
    ]
    named = replace(schedule.declaration, name="nightly")
    changes: tuple[tuple[SystemEvent, Callable[[Snapshot, Micros], Plan]], ...] = (
        (SystemEvent.SCHEDULE_UPDATED, lambda of, now: edits.edit(of, named, now=now, lookahead=LOOKAHEAD)),
        (SystemEvent.SCHEDULE_PAUSED, lambda of, now: edits.pause(of, now=now)),
        (SystemEvent.SCHEDULE_RESUMED, lambda of, now: edits.resume(of, now=now, lookahead=LOOKAHEAD)),
        (SystemEvent.SCHEDULE_DELETED, lambda of, now: edits.delete(of, now=now)),
    )
    for fact, change in changes:
        bench.advance(1)
        changed = change(bench.snapshot(schedule), bench.now)
        assert changed.schedule is not None
        assert bench.commit(changed)
        expected.append(of_schedule(fact, changed.schedule))
    assert _events(bench) == expected


@case
def a_schedule_hears_of_those_that_are_created_with_it(bench: Bench) -> None:
    listener = factories.schedule(trigger=EventTrigger(str(SystemEvent.SCHEDULE_CREATED)), created=bench.now)
    schedules = [listener, factories.schedule("other", created=bench.now)]
    assert all(bench.store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
    assert _events(bench) == [of_schedule(SystemEvent.SCHEDULE_CREATED, one) for one in schedules]


@case
def a_completed_schedule_emits_an_event(bench: Bench) -> None:
    _listen(bench, SystemEvent.SCHEDULE_COMPLETED)
    expected = []
    for uid, phase in (("one", Phase.COMPLETED), ("two", Phase.FAILED)):
        schedule = bench.create(uid, trigger=OnceTrigger(from_micros(bench.now)))
        occurrence = bench.start(bench.claim_one())
        bench.advance(3)
        assert bench.settle(occurrence, phase=phase)
        stored = bench.stored(schedule).schedule
        assert stored.phase is SchedulePhase.COMPLETED
        expected.append(of_schedule(SystemEvent.SCHEDULE_COMPLETED, stored))
    assert _events(bench) == expected


@case
def an_automatic_pause_emits_an_event_with_the_reason(bench: Bench) -> None:
    _listen(bench, SystemEvent.SCHEDULE_PAUSED, SystemEvent.FAILED)
    schedule = bench.create_quiet("job")
    for number in range(2):
        assert bench.fail(bench.run(schedule, f"run-{number}"), pause_after=2)
    events = _events(bench)
    assert [one.event_type for one in events] == [SystemEvent.FAILED, SystemEvent.FAILED, SystemEvent.SCHEDULE_PAUSED]
    paused = bench.stored(schedule).schedule
    assert events[-1] == of_schedule(SystemEvent.SCHEDULE_PAUSED, paused, failures=2)


@case
def a_chain_of_events_ends(bench: Bench) -> None:
    _listen(bench, SystemEvent.FAILED)
    schedule = bench.create_quiet("job")
    for chain in (Chain(MAX_DEPTH - 1, 1), Chain(MAX_DEPTH, 1), Chain(2, 2)):
        event_id = chain.event_id("x")
        cause = {"event_id": event_id, "source": "noonmark", "payload": {"chain": ["first"]}}
        bench.add_event(schedule, event_id, payload=cause)
        assert bench.fail(bench.start(bench.claim_one()))
    [event] = _events(bench)
    assert (event.payload["depth"], event.payload["chain"]) == (MAX_DEPTH, ["first", schedule.schedule_id])


@case
def a_lost_node_emits_one_event_per_subscribed_tenant(bench: Bench) -> None:
    _listen(bench, SystemEvent.NODE_LOST)
    _listen(bench, SystemEvent.NODE_LOST, uid="listener-2")
    _listen(bench, SystemEvent.NODE_LOST, uid="listener-3", owner=OTHER)
    _listen(bench, SystemEvent.FAILED, uid="listener-4", owner=Owner(tenant="third", user="ada"))
    beat = Heartbeat(node="node-a", routes=("http",), lease=LEASE)
    bench.store.beat(beat, now=bench.now)
    event = of_lost_node("node-a", seen=bench.now, started=0, version="", load=0, routes=("http",))
    [node] = bench.store.nodes()
    assert (node.is_alive, node.is_lost) == (True, False)
    bench.advance(2 * LEASE)
    [node] = bench.store.nodes()
    assert (node.is_alive, node.is_lost) == (False, True)
    assert not bench.store.lose("node-b", NOW, event)
    assert not bench.store.lose("node-a", NOW - 1, event)
    assert [bench.store.lose("node-a", NOW, event) for _ in range(2)] == [True, False]
    [node] = bench.store.nodes()
    assert (node.is_alive, node.is_lost) == (False, False)
    assert [_events(bench, tenant) for tenant in ("acme", "other", "third")] == [[event], [event], []]
    bench.store.beat(beat, now=bench.now)
    [node] = bench.store.nodes()
    assert (node.is_alive, node.is_lost) == (True, False)
    bench.store.leave("node-a")
    bench.advance(2 * LEASE)
    [node] = bench.store.nodes()
    assert (node.is_alive, node.is_lost) == (False, False)
    assert not bench.store.lose("node-a", node.seen, event)
