"""A store whose clock is years ahead for a while: nothing is lost meanwhile, and everything fires afterwards."""

import threading
from datetime import timedelta

import pytest

from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import CronTrigger, IntervalTrigger, OnceTrigger
from tests.processes import work
from tests.processes.clocks import set_clock
from tests.processes.fleet import CLOCK
from tests.soak import SCALE

YEARS = 10 * 365 * DAY_SECONDS
LEAPT, ACCEPTED, BACK, REWOUND = "clock leapt ahead", "is trusted", "clock is back", "planning it again"
STORES = pytest.mark.parametrize("fleet", ["sqlite", "postgres"], indirect=True)
IN_TURN = pytest.mark.parametrize("fleet", ["sqlite", *(["postgres"] if SCALE > 1 else [])], indirect=True)


def occurrences(fleet):
    return "noonmark.occurrences" if fleet.url.startswith("postgres") else "occurrences"


def schedules(fleet):
    """One that fires all the time, one that does so daily, and one that does so once, tomorrow."""
    start = CLOCK.micros() + SECOND
    often = fleet.scheduler.schedule(
        work.record, trigger=IntervalTrigger(0.2, start_at=from_micros(start)), overlap="allow"
    )
    daily = fleet.scheduler.schedule(work.record, trigger=CronTrigger("0 3 * * *"))
    tomorrow = from_micros(start) + timedelta(days=1)
    once = fleet.scheduler.schedule(work.record, trigger=OnceTrigger(tomorrow), misfire="skip")
    return often, daily, once


def said(fleet, text):
    return [line for log in fleet.folder.glob("node-*.log") for line in log.read_text().splitlines() if text in line]


def rows(fleet, condition="TRUE"):
    [(count,)] = fleet.sql(f"SELECT count(*) FROM {occurrences(fleet)} WHERE {condition}")  # noqa: S608 - our own text
    return count


def begins_again(fleet, schedule):
    begun = len(fleet.journal.begins(schedule))
    fleet.until(lambda: len(fleet.journal.begins(schedule)) > begun + 3)


def sums_up(fleet, schedule):
    """Every fire up to the next has one outcome, or one to come; what ran ahead of its time has one already."""
    trigger, limit = fleet.kept(schedule).schedule.declaration.trigger, CLOCK.micros() + DAY_SECONDS * SECOND
    found = [one for one in fleet.scheduler.occurrences(schedule, limit=10_000) if one.nominal < limit]
    first, until = min(one.nominal for one in found), max(one.nominal for one in found)
    assert trigger.count_micros(first - 1, until) == sum(max(1, one.missed_count) for one in found)
    assert max(one.missed_last or one.nominal for one in found) <= until


@STORES
def test_a_false_time_of_a_few_seconds_changes_nothing(fleet, tmp_path, figure):
    file = tmp_path / "clock"
    fleet.node(6.0 if SCALE == 1 else 15.0, clock={"file": str(file), "is_stores": True})
    often, daily, once = schedules(fleet)
    begins_again(fleet, often)
    before, next_fires = rows(fleet, "ended IS NOT NULL"), [fleet.kept(one).next_due for one in (daily, once)]
    set_clock(file, YEARS)
    fleet.until(lambda: said(fleet, LEAPT))
    if SCALE > 1:
        threading.Event().wait(7)
    set_clock(file, 0)
    fleet.until(lambda: said(fleet, BACK))
    begins_again(fleet, often)
    misfired = rows(fleet, "phase = 'misfired'")
    figure(f"ahead by years for a while: {before} ended before, {rows(fleet, 'ended IS NOT NULL')} after, {misfired=}")
    assert not said(fleet, ACCEPTED)
    assert rows(fleet, "ended IS NOT NULL") > before, "nothing is pruned"
    assert [fleet.kept(one).next_due for one in (daily, once)] == next_fires
    assert fleet.phase(once) is SchedulePhase.ACTIVE
    # What was held up for longer than a moment is due at once then, and its policy runs the newest.
    assert misfired <= (SCALE > 1)
    assert rows(fleet, f"missed_last > {CLOCK.micros()}") == 0, "no gap is closed by a false time"
    sums_up(fleet, often)


@IN_TURN
def test_a_false_time_that_was_believed_is_put_right_when_it_is_over(fleet, tmp_path, figure):
    """A lease is short here, so that it is taken for right; another node, which comes later, finds what it has left."""
    file = tmp_path / "clock"
    node = fleet.node(1.0, clock={"file": str(file), "is_stores": True})
    often, daily, once = schedules(fleet)
    begins_again(fleet, often)
    before, next_fires = rows(fleet, "phase = 'completed'"), [fleet.kept(one).next_due for one in (daily, once)]
    set_clock(file, YEARS)
    # One gap of each reaches into that time. A busy machine may have made others before.
    ahead = CLOCK.micros() + DAY_SECONDS * SECOND // 2
    fleet.until(lambda: rows(fleet, f"phase = 'misfired' AND coalesce(missed_last, nominal) > {ahead}") == 3)
    fleet.until(lambda: fleet.phase(once) is SchedulePhase.COMPLETED)
    assert said(fleet, ACCEPTED)
    fleet.kill(node)
    set_clock(file, 0)
    fleet.node(1.0, clock={"file": str(file), "is_stores": True})
    fleet.until(lambda: len(said(fleet, REWOUND)) == 3)
    begins_again(fleet, often)
    figure(f"ahead by years, believed, and back: {before} completed before, {rows(fleet)} rows after")
    assert rows(fleet, "phase = 'completed'") > before, "nothing is pruned by a time that is new"
    assert [fleet.kept(one).next_due for one in (daily, once)] == next_fires
    assert fleet.phase(once) is SchedulePhase.ACTIVE
    assert rows(fleet, "phase = 'misfired'") >= 1, "what has passed is a gap"
    limit = CLOCK.micros() + DAY_SECONDS * SECOND
    assert rows(fleet, f"missed_last > {limit} OR ended > {limit} OR lease_end > {limit}") == 0, "undone"
    sums_up(fleet, often)
