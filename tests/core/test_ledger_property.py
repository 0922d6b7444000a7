"""Nothing vanishes: over random schedules, outages, edits and results, every named fire is accounted for once."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from noonmark.core import edits
from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.planner import in_force_after, plan
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.limits import Concurrency, Horizon
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import Window
from noonmark.core.run import Outcome
from noonmark.core.schedule import Declaration, Owner, Schedule
from noonmark.core.settlement import Delivered
from noonmark.core.targets.work import FunctionTarget
from noonmark.core.triggers import CalendarTrigger, CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger
from tests.core.ledger_model import LOOKAHEAD, InForce, Ledger
from tests.soak import SCALE

NOON = to_micros(datetime(2026, 11, 15, 12, 0, tzinfo=UTC))


def at(seconds):
    return from_micros(NOON + seconds * SECOND)


jitters = st.sampled_from([0, 0, 5, 40, 1_000])
starts = st.integers(-600, 600).map(at)
ends = st.none() | st.none() | st.integers(1_000, 4_000).map(at)
triggers = st.one_of(
    st.builds(IntervalTrigger, st.sampled_from([20, 61.5, 300]), starts, ends, jitter_seconds=jitters),
    st.builds(CronTrigger, st.sampled_from(["* * * * *", "*/7 3-20 * * *", "5 0 * * * *"]), jitter_seconds=jitters),
    st.builds(CalendarTrigger, minute=st.sampled_from([None, [0, 10, 11, 45]]), end_at=ends, jitter_seconds=jitters),
    st.builds(OnceTrigger, st.integers(0, 3_000).map(at), jitter_seconds=jitters),
    st.just(EventTrigger("uploaded")),
)
graces = st.sampled_from([1, 30, 60, 400]).map(lambda seconds: seconds * SECOND)
windows = st.sampled_from([10, 90, 2_000]).map(lambda seconds: seconds * SECOND)
misfires = st.one_of(
    st.builds(misfire.Skip, grace=graces),
    st.builds(misfire.CatchUpOne, grace=graces),
    st.builds(misfire.CatchUpAll, grace=graces, limit=st.integers(1, 4)),
    st.builds(misfire.CatchUpWithin, grace=graces, window=windows, limit=st.integers(1, 4)),
    st.builds(misfire.Spread, grace=graces, window=windows, limit=st.integers(1, 4)),
)
overlaps = st.sampled_from(
    [overlap.Skip(), overlap.Queue(queue_limit=2), overlap.QueueOne(), overlap.Allow(), overlap.CancelRunning()]
)
declarations = st.builds(
    Declaration,
    target=st.just(FunctionTarget(function="tidy")),
    trigger=triggers,
    overlap_policy=overlaps,
    misfire_policy=misfires,
    horizon=st.builds(Horizon, days=st.just(1), occurrences=st.sampled_from([1, 1, 2, 5])),
    retry_policy=st.builds(RetryPolicy, max_attempts=st.integers(1, 3), backoff=st.just(20 * SECOND)),
    delivery=st.sampled_from(Delivery),
    window=st.none() | st.builds(Window, duration=windows),
    concurrency=st.none() | st.just(Concurrency(key="k", limit=1)),
    max_runs=st.sampled_from([None, None, 1, 3]),
)
outcomes = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.SUSPENDED])
steps = st.one_of(
    st.tuples(st.just("turn"), outcomes),
    st.tuples(st.just("turn"), outcomes),
    st.tuples(st.just("pass"), st.sampled_from([1, 1, 7, 16, 30, 59, 61, 150])),
    st.tuples(st.just("pass"), st.sampled_from([400, 3_600])),
    st.tuples(st.sampled_from(["plan", "claim", "admit", "crash", "pause", "resume", "rename"]), st.none()),
    st.tuples(st.just("finish"), outcomes),
    st.tuples(st.just("cancel"), st.integers(0, 4)),
    st.tuples(st.just("jump"), st.sampled_from([10, 100, 1_000])),
    st.tuples(st.just("edit"), declarations),
    st.tuples(st.sampled_from(["nothing", "nothing", "nothing", "delete"]), st.none()),
)


def schedule(declaration):
    return Schedule(
        uid="u1",
        schedule_id="s1",
        owner=Owner(tenant="t", user="u"),
        declaration=declaration,
        revision=1,
        phase=SchedulePhase.ACTIVE,
        source="test",
        created=NOON,
        updated=NOON,
    )


def plan_now(ledger):
    if ledger.schedule.phase is not SchedulePhase.DELETED:
        ledger.commit(plan(ledger.snapshot(), now=ledger.now, lookahead=LOOKAHEAD))
        ledger.check_planned()


def finish(ledger, outcome):
    ledger.finish(Delivered(outcome=outcome, started=ledger.now, ended=ledger.now))


def put_in_force(ledger, declaration):
    now, before = ledger.now, ledger.schedule
    due = getattr(declaration.trigger, "due", None)
    in_past = due is not None and due <= now and declaration.trigger != before.declaration.trigger
    # A row that an earlier edit superseded is reopened.
    before_rows = {row.id for row in ledger.rows.values() if row.phase is not Phase.SUPERSEDED}
    known = occurrence_id(before.uid, TRIGGER, due or 0) in before_rows
    was_paused = before.phase is SchedulePhase.PAUSED
    ledger.commit(edits.edit(ledger.snapshot(), declaration, now=now, lookahead=LOOKAHEAD))
    if ledger.schedule.revision == before.revision:
        return
    ledger.stop_naming(now)
    ledger.in_force.append(InForce(declaration.trigger, now))
    if ledger.is_used_up:
        ledger.stop_naming(max(now, ledger.watermark))
    elif in_past and not known and not was_paused and due >= now - declaration.misfire_policy.grace:
        # A single moment just past was accepted, so it runs, whatever the old rule said of it.
        ledger.repeats += 1
    elif isinstance(declaration.trigger, IntervalTrigger) and not was_paused:
        # So does the start of another interval, unless the old rule has named it.
        start = in_force_after(ledger.schedule, now) + 1
        is_known = occurrence_id(before.uid, TRIGGER, start) in before_rows or ledger.has_named(start)
        is_new = not ledger.in_force[-1].has_times_of(ledger.in_force[-2])
        if is_new and start <= now and not is_known:
            ledger.in_force[-1].after = start - 1


def take(ledger, step, value):
    """One step of a history; what the owner may not do in this phase is passed over."""
    match step:
        case "pass":
            ledger.now += value * SECOND
            ledger.renew()
        case "turn":
            plan_now(ledger)
            ledger.claim()
            ledger.admit()
            finish(ledger, value)
        case "plan":
            plan_now(ledger)
        case "jump":
            # The clock is ahead for a while, and somebody plans by it.
            ledger.now += value * SECOND
            plan_now(ledger)
            ledger.now -= value * SECOND
            ledger.jumped = True
        case "finish":
            finish(ledger, value)
        case "cancel":
            ledger.cancel(value)
        case "claim" | "admit" | "crash":
            getattr(ledger, step)()
        case _ if ledger.schedule.phase is not SchedulePhase.DELETED:
            change(ledger, step, value)
    ledger.check()


def change(ledger, step, value):
    now, phase, snapshot = ledger.now, ledger.schedule.phase, ledger.snapshot()
    match step:
        case "pause" if phase is SchedulePhase.ACTIVE:
            ledger.commit(edits.pause(snapshot, now=now))
        case "resume" if phase is SchedulePhase.PAUSED:
            ledger.commit(edits.resume(snapshot, now=now, lookahead=LOOKAHEAD))
            ledger.check_planned()
        case "delete":
            ledger.commit(edits.delete(snapshot, now=now))
            ledger.stop_naming(ledger.watermark)
        case "rename":
            renamed = replace(ledger.schedule.declaration, name=f"at {now}")
            ledger.commit(edits.edit(snapshot, renamed, now=now, lookahead=LOOKAHEAD))
        case "edit":
            # What a clock that was ahead has closed is closed, but another trigger is in force from now on.
            same_times = replace(value, trigger=ledger.schedule.declaration.trigger)
            put_in_force(ledger, same_times if ledger.jumped else value)


def work_off(ledger):
    """Everything that is due is taken up in the end: no decision sends an occurrence in circles."""
    for _ in range(60):
        take(ledger, "turn", Outcome.COMPLETED)
    times = [ledger.ready[row.id] for row in ledger.rows.values() if row.phase is Phase.PENDING]
    assert not [time for time in times if time is not None and time < ledger.now]


def tidying(start, *, every=20, grace=1, **fields):
    """Every so many seconds from a start; what is late by more than the grace is skipped."""
    usual = {
        "target": FunctionTarget(function="tidy"),
        "trigger": IntervalTrigger(every, at(start)),
        "overlap_policy": overlap.Skip(),
        "misfire_policy": misfire.Skip(grace=grace * SECOND),
    }
    return Declaration(**(usual | fields))


TURN = ("turn", Outcome.COMPLETED)
AFTER_A_JUMP = tidying(1, trigger=EventTrigger("uploaded"), horizon=Horizon(days=1, occurrences=2))


@settings(max_examples=100 * SCALE)
@given(declarations, st.lists(steps, min_size=3, max_size=25))
# A claimed fire lies before a gap that a clock was ahead to close: the edit must not plan the gap again.
@example(tidying(1), [TURN, ("jump", 100), ("edit", AFTER_A_JUMP), TURN])
# Whether an interval has fired for its start depends on the grace that it had then.
@example(tidying(-2, grace=1), [("edit", tidying(-2, grace=30)), ("edit", tidying(-2, grace=30, every=300))])
@example(tidying(-2, grace=30), [("edit", tidying(-2, grace=1)), ("edit", tidying(-2, grace=30, every=300))])
# While `max_runs` is used up, an interval names nothing, so that the start of another one is new.
@example(
    tidying(0, max_runs=1),
    [TURN, TURN, ("pass", 30), ("edit", tidying(20, grace=30, every=300, max_runs=3))],
)
# A fire that an earlier revision of the same interval has named is not named again.
@example(
    tidying(0),
    [TURN, ("pass", 59), TURN, ("edit", tidying(0, grace=30)), ("edit", tidying(40, grace=60, every=300))],
)
# A single moment that the old rule has missed is missed.
@example(tidying(1), [("pass", 30), ("edit", tidying(0, trigger=OnceTrigger(at(1)), grace=30))])
def test_every_named_fire_is_accounted_for_exactly_once(declaration, history):
    ledger = Ledger.create(schedule(declaration))
    ledger.check()
    for step, value in history:
        take(ledger, step, value)
    ledger.now += 20 * SECOND  # every lease that nobody renews has ended
    ledger.runs.clear()
    take(ledger, "resume", None)
    work_off(ledger)
    take(ledger, "delete", None)
    for _ in range(40):
        ledger.now += 30 * SECOND
        take(ledger, "turn", Outcome.COMPLETED)
    assert {row.phase for row in ledger.rows.values()} <= FINAL
    assert ledger.outcomes() == ledger.named() + ledger.repeats
