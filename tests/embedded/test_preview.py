"""Preview: the times at which a schedule really fires."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonmark import (
    CalendarTrigger,
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidSchedule,
    NotFound,
    OnceTrigger,
    Scheduler,
)
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START
from tests.embedded.waiting import keep
from tests.soak import examples

MINUTE = timedelta(minutes=1)
HOURLY = CronTrigger("0 * * * *")


def nothing():
    pass


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
MOMENTS = [START, datetime(2030, 3, 30, 21, tzinfo=UTC), datetime(2030, 10, 26, 21, tzinfo=UTC)]
"""An ordinary day, and the evenings before the clocks change."""


@st.composite
def _triggers(draw, now):
    """A trigger of any kind that names times, declared now."""
    ahead = st.integers(1, 50_000).map(lambda seconds: now + timedelta(seconds=seconds))
    match draw(st.sampled_from(["once", "interval", "cron", "calendar"])):
        case "once":
            return OnceTrigger(draw(ahead))
        case "interval":
            start, end = draw(st.none() | ahead), draw(st.none() | ahead)
            end = None if end is None else end + timedelta(seconds=60_000)
            return IntervalTrigger(draw(st.floats(60, 7_200)), start_at=start, end_at=end)
        case "cron":
            minute = draw(st.sampled_from(["0", "*/20", "7", "30,45", "H"]))
            hour = draw(st.sampled_from(["*", "2", "*/2", "1-5/2", "9-17", "0,12"]))
            day = draw(st.sampled_from(["*", "1-5", "0", "7", "SUN"]))
            return CronTrigger(f"{minute} {hour} * * {day}", draw(st.sampled_from(ZONES)))
    hours = draw(st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True))
    return CalendarTrigger(timezone=draw(st.sampled_from(ZONES)), minute=[15], hour=hours)


@settings(max_examples=examples(60))
@given(data=st.data(), jitter=st.none() | st.integers(0, 600), max_runs=st.none() | st.integers(1, 4))
def test_it_is_what_really_fires(data, jitter, max_runs):
    clock = FakeClock(data.draw(st.sampled_from(MOMENTS)))
    trigger = data.draw(_triggers(clock.now()))
    scheduler = Scheduler(clock=clock)
    driver = ManualDriver(scheduler)
    job_id = scheduler.schedule(nothing, trigger=trigger, jitter=jitter, max_runs=max_runs)
    driver.run_until(clock.now() + timedelta(seconds=data.draw(st.integers(0, 10_000))))
    before, shown = len(scheduler.runs(job_id)), scheduler.preview(job_id, count=6)
    driver.run_until((shown[-1] if shown else clock.now()) + timedelta(hours=4))
    fired = sorted(one.nominal_at for one in scheduler.occurrences(job_id) if str(one.phase) == "completed")[before:]
    if len(shown) == 6:
        assert fired[:6] == shown
    else:  # that was all
        assert (fired, scheduler.get_job(job_id).next_run) == (shown, None)


class TestJobs:
    def test_the_next_five_unless_more_are_asked_for(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=HOURLY)
        assert by_hand.scheduler.preview(job_id) == [START + n * timedelta(hours=1) for n in range(5)]
        by_hand.driver.run_due()
        assert by_hand.scheduler.preview(job_id) == [START + n * timedelta(hours=1) for n in range(1, 6)]
        assert len(by_hand.scheduler.preview(job_id, 24)) == 24
        assert by_hand.scheduler.preview(job_id, count=1, after=START + timedelta(days=1)) == [
            START + timedelta(hours=25)
        ]

    def test_it_begins_where_the_job_stands(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60))
        by_hand.pass_time(90)
        assert by_hand.scheduler.preview(job_id, 2) == [START + 2 * MINUTE, START + 3 * MINUTE]

    def test_no_more_than_the_runs_that_are_left(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60), max_runs=3)
        for left in (3, 2, 1):
            assert len(by_hand.scheduler.preview(job_id)) == left
            by_hand.pass_time(60)
        assert by_hand.scheduler.preview(job_id) == []

    def test_runs_by_hand_use_up_none_of_them(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60), max_runs=2)
        by_hand.scheduler.run_now(job_id, wait=False)
        by_hand.driver.run_due()
        assert len(by_hand.scheduler.preview(job_id)) == 2

    def test_what_is_due_but_has_not_run_yet_comes_first(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60), max_runs=2)
        by_hand.clock.advance(61)
        shown = by_hand.scheduler.preview(job_id)
        later = by_hand.scheduler.preview(job_id, after=by_hand.clock.now())
        by_hand.driver.run_until(START + timedelta(hours=1))
        ran = [one.nominal_at for one in by_hand.scheduler.occurrences(job_id) if str(one.phase) == "completed"]
        assert (shown, later) == ([START + MINUTE, START + 2 * MINUTE], [START + 2 * MINUTE])
        assert sorted(ran) == shown

    def test_what_runs_at_once_is_due_now(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing)
        assert by_hand.scheduler.preview(job_id) == [START]

    def test_what_came_too_late_to_run_is_not_shown(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=HOURLY)
        by_hand.clock.advance(2.5 * 3_600)
        assert by_hand.scheduler.preview(job_id, 1) == [START + timedelta(hours=3)]

    def test_a_paused_one_shows_when_it_would_run_if_it_were_resumed(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=HOURLY)
        by_hand.driver.run_due()
        before = by_hand.scheduler.preview(job_id)
        by_hand.scheduler.pause(job_id)
        assert by_hand.scheduler.preview(job_id) == before
        by_hand.scheduler.resume(job_id)
        assert by_hand.job(job_id).next_run == before[0]

    def test_a_completed_one_shows_nothing(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing)
        by_hand.driver.run_due()
        assert by_hand.scheduler.preview(job_id, after=START - timedelta(days=1)) == []

    @pytest.mark.parametrize("how", ["cancel", "delete"])
    def test_one_that_is_gone_is_not_found(self, by_hand, how):
        job_id = keep(by_hand.scheduler, nothing, trigger=HOURLY)
        getattr(by_hand.scheduler, how)(job_id)
        for unknown in (job_id, "job_unknown"):
            with pytest.raises(NotFound):
                by_hand.scheduler.preview(unknown)

    def test_what_waits_for_events_or_others_has_no_times(self, by_hand):
        head = keep(by_hand.scheduler, nothing, trigger=EventTrigger("uploaded"))
        follower = keep(by_hand.scheduler, nothing, depends_on=[head])
        assert by_hand.scheduler.preview(head) == by_hand.scheduler.preview(follower) == []

    def test_hashed_fields_are_those_of_the_job(self, by_hand):
        jobs = [keep(by_hand.scheduler, nothing, name=f"job {n}", trigger=CronTrigger("H H * * *")) for n in range(8)]
        shown = [by_hand.scheduler.preview(job_id, 1)[0] for job_id in jobs]
        assert len(set(shown)) > 4
        assert [by_hand.job(job_id).next_run for job_id in jobs] == shown


class TestBareTriggers:
    def test_its_times_are_those_it_would_have_if_it_were_declared_now(self, by_hand):
        scheduler = by_hand.scheduler
        for trigger in (HOURLY, IntervalTrigger(60), OnceTrigger(START + MINUTE)):
            shown = scheduler.preview(trigger, 3)
            assert shown[0] == by_hand.job(keep(scheduler, nothing, trigger=trigger)).next_run
        assert scheduler.preview(IntervalTrigger(60), 2) == [START + MINUTE, START + 2 * MINUTE]
        assert scheduler.preview(EventTrigger("uploaded")) == []
        assert len(scheduler.list_jobs()) == 3

    def test_after_any_instant_in_any_zone(self, by_hand):
        after = datetime(2031, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))
        [shown] = by_hand.scheduler.preview(HOURLY, 1, after)
        assert (shown, shown.tzinfo) == (datetime(2031, 6, 1, 11, tzinfo=UTC), UTC)

    @pytest.mark.parametrize("bad", [5, None, "", b"0 9 * * *", ["0 9 * * *"], CronTrigger])
    def test_what_is_neither_a_job_nor_a_trigger_is_refused(self, by_hand, bad):
        with pytest.raises(InvalidSchedule) as refused:
            by_hand.scheduler.preview(bad)
        assert refused.value.field in {"job", "job_id"}


@pytest.mark.parametrize("count", [0, -1, 1_001, 1.5, "5", True, None])
def test_a_count_is_a_whole_number_within_reason(by_hand, count):
    with pytest.raises(InvalidSchedule, match="from 1 to 1,000") as refused:
        by_hand.scheduler.preview(HOURLY, count)
    assert refused.value.field == "count"


def test_a_thousand_can_be_asked_for(by_hand):
    assert len(by_hand.scheduler.preview(CronTrigger("* * * * * *"), 1_000)) == 1_000


@pytest.mark.parametrize("after", [datetime(2030, 1, 1), "2030-01-01T00:00:00Z", 5, START.date()])  # noqa: DTZ001
def test_an_instant_is_an_aware_datetime(by_hand, after):
    with pytest.raises(InvalidSchedule) as refused:
        by_hand.scheduler.preview(HOURLY, 1, after)
    assert refused.value.field == "after"


def test_runs_that_are_used_up_before_the_instant_are_not_named_after_it():
    scheduler = Scheduler(clock=FakeClock(START))
    job_id = scheduler.schedule(print, trigger=IntervalTrigger(3_600), max_runs=3)
    assert len(scheduler.preview(job_id, after=START)) == 3
    assert len(scheduler.preview(job_id, after=START + timedelta(hours=1))) == 2
    assert scheduler.preview(job_id, after=START + timedelta(hours=10)) == []
