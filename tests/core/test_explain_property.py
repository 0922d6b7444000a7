"""Explaining never fails, and never tells of something that is stored as if it were not."""

import json
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from noonmark.core.explain import explain_instant, explain_occurrence
from noonmark.core.ids import TRIGGER, backfill, event, manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence
from noonmark.core.planner import in_force_after, plan, timed_trigger
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.core.schedule import Declaration, Owner, Schedule
from noonmark.core.targets.work import FunctionTarget
from noonmark.core.triggers import CalendarTrigger, CronTrigger
from tests.core.explained import check, step
from tests.core.ledger_model import LOOKAHEAD, Ledger
from tests.core.test_ledger_property import (
    NOON,
    declarations,
    misfires,
    overlaps,
    schedule,
    steps,
    take,
    tidying,
    triggers,
    windows,
)
from tests.soak import examples

offsets = st.integers(-4_000, 4_000).map(lambda seconds: NOON + seconds * SECOND)
# Around a change of the clock, half an hour from it at most, and the ends of time.
changes = [datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2027, 3, 28, 1, tzinfo=UTC)]
awkward = st.sampled_from([int(one.timestamp()) for one in changes]).flatmap(
    lambda second: st.integers(-3, 4).map(lambda quarters: (second + 900 * quarters) * SECOND)
)
instants = offsets | awkward
origins = st.sampled_from([TRIGGER, TRIGGER, manual("m"), event("e"), backfill("b")])
reasons = st.none() | st.sampled_from(Reason)
details = st.sampled_from(
    [
        {"upstream": "extract", "phase": "failed"},
        {"upstream": "extract", "waits_until": "2026-11-16T12:00:00Z"},
        {"waiting": 2, "queue_limit": 2},
        {"losses": 6, "max_losses": 5},
        {"closes_at": "2026-11-15T12:01:00Z", "remaining_seconds": 0},
    ]
)
walls = st.builds(
    CronTrigger,
    st.sampled_from(["*/15 * * * *", "30 2 * * *", "15,45 1-3 * * *", ["0 3 * * *", "30 2 * * *"]]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    dst=st.sampled_from([None, {"gap": "skip"}, {"fold": "second"}, {"fold": "both", "gap": "after"}]),
) | st.builds(CalendarTrigger, hour=st.just([2]), minute=st.just([0, 30]), timezone=st.just("Europe/Berlin"))
upstreams = (Dependency(schedule_id="extract"),)
anything = st.builds(
    Declaration,
    target=st.just(FunctionTarget(function="tidy")),
    trigger=st.none() | triggers | walls | walls,
    overlap_policy=overlaps,
    misfire_policy=misfires,
    window=st.none() | st.builds(Window, duration=windows),
    concurrency=st.sampled_from([None, Concurrency(key="k", limit=1)]),
    max_runs=st.sampled_from([None, 1, 3]),
    depends_on=st.sampled_from([(), upstreams]),
)
schedules = st.builds(
    Schedule,
    uid=st.just("u1"),
    schedule_id=st.just("s1"),
    owner=st.just(Owner(tenant="t", user="u")),
    declaration=anything,
    revision=st.integers(1, 3),
    phase=st.sampled_from(SchedulePhase),
    source=st.just("test"),
    created=offsets,
    updated=offsets,
    deleted=st.none() | offsets,
    anchored=st.none() | offsets,
)
occurrences = st.builds(
    Occurrence,
    id=st.sampled_from(["occ_1", "occ_2"]),
    uid=st.just("u1"),
    schedule_id=st.just("s1"),
    revision=st.integers(1, 3),
    origin=origins,
    phase=st.sampled_from(Phase),
    route=st.just("function:tidy"),
    nominal=instants,
    due=instants,
    first_due=instants,
    attempt=st.integers(0, 3),
    fence=st.integers(0, 3),
    reason=reasons,
    detail=st.just("") | details.map(json.dumps) | st.text(max_size=5),
    missed_count=st.sampled_from([0, 1, 12]),
    missed_first=st.none() | instants,
    missed_last=st.none() | instants,
    caught_up=st.none() | instants,
    losses=st.integers(0, 2),
    waiting_for=reasons,
    node=st.none() | st.just("n1"),
    started=st.none() | instants,
    stop=reasons,
    deadline=st.none() | instants,
    payload=st.sampled_from([None, {"event_type": "uploaded"}, [1]]),
)
runs = st.builds(
    Run,
    id=st.just("run"),
    occurrence_id=st.sampled_from(["occ_1", "occ_2"]),
    attempt=st.integers(1, 3),
    node=st.just("n1"),
    started=instants,
    ended=st.none() | instants,
    outcome=st.none() | st.sampled_from(Outcome),
    error=st.none() | st.text(max_size=20),
)
outages = st.sampled_from([3, 70, 500, 5_000])


@settings(max_examples=examples(150))
@given(schedules, st.lists(occurrences, min_size=1, max_size=4), st.lists(runs, max_size=4), instants, instants)
def test_any_stored_occurrence_can_be_explained(schedule, rows, tried, at, now):
    check(explain_occurrence(schedule, rows[0], tried, now=now, gap=rows[-1]))
    check(explain_instant(schedule, at, now=now, rows=rows, runs=tried))


def fires(ledger, count=20):
    """The newest times that the trigger in force has named so far.

    A longer grace, set by an edit, does not name the start of an interval that had passed before it was created.
    """
    trigger, anchor = timed_trigger(ledger.schedule), ledger.schedule.anchored
    after = in_force_after(ledger.schedule, ledger.schedule.created - 1 if anchor is None else anchor)
    fire = None if trigger is None else trigger.previous_micros(ledger.now + 1)
    while fire is not None and fire > after and count:
        if ledger.named(fire - 1, fire):
            yield fire
        fire, count = trigger.previous_micros(fire), count - 1


@settings(max_examples=examples(60))
@given(declarations, st.lists(steps, min_size=3, max_size=20))
@example(tidying(-2, grace=1), [("edit", tidying(-2, grace=30))])
def test_a_ledger_that_forgets_nothing_has_an_answer_for_every_fire(declaration, history):
    ledger = Ledger.create(schedule(declaration))
    for one, value in history:
        take(ledger, one, value)
    rows = sorted(ledger.rows.values(), key=lambda row: (row.nominal, row.id), reverse=True)
    for row in rows:
        check(explain_occurrence(ledger.schedule, row, now=ledger.now))
        if row.phase is not Phase.SUPERSEDED:
            assert explain_instant(ledger.schedule, row.nominal, now=ledger.now, rows=rows).occurrence_id == row.id
    # While `max_runs` is used up nothing is named; once an edit has lifted it, nobody can tell.
    edits = [value for one, value in history if one == "edit"]
    is_certain = all(one.max_runs is None for one in [declaration, *edits])
    for fire in fires(ledger):
        explanation = explain_instant(ledger.schedule, fire, now=ledger.now, rows=rows)
        check(explanation)
        assert step(explanation, "runs").decision != "forgotten" or not is_certain


@settings(max_examples=examples(100))
@given(declarations, st.lists(steps.filter(lambda one: one[0] not in ("delete", "pause")), max_size=8), outages)
def test_an_overdue_one_is_explained_as_the_planner_decides(declaration, history, outage):
    ledger = Ledger.create(schedule(declaration))
    for one, value in history:
        take(ledger, one, value)
    ledger.now += outage * SECOND
    told = {row.id: explain_occurrence(ledger.schedule, row, now=ledger.now) for row in ledger.rows.values()}
    gone = plan(ledger.snapshot(), now=ledger.now, lookahead=LOOKAHEAD).gone
    for one, explanation in told.items():
        assert one in gone or " drops it as soon as " not in explanation.summary
