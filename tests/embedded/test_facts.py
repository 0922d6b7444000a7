"""Noonmark's own facts as events: jobs that listen for what becomes of others, and never for ever."""

import pytest

from noonmark import EventTrigger, IntervalTrigger, InvalidSchedule, Scheduler
from noonmark.core.chains import MAX_DEPTH
from noonmark.driver.drive import drive
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START
from tests.embedded.waiting import NEVER, ended, eventually, keep


def fail():
    raise ValueError("no such table")


@pytest.fixture
def by_hand(url):
    """A scheduler whose time stands still, and its driver."""
    scheduler = Scheduler(url, clock=FakeClock(START))
    yield scheduler, ManualDriver(scheduler)
    scheduler.close()


def told(scheduler):
    """The events that are on record, oldest first."""
    return list(reversed(drive(scheduler.runtime.store.events("default", 1_000))))


def test_an_alert_hears_of_a_failure_once_and_of_nothing_else(keeper):
    heard = []

    def alert(context):
        heard.append(context.event)

    job = keep(keeper, fail, name="nightly", trigger=NEVER, labels={"team": "data"}, retries=1)
    fine = keep(keeper, lambda: None, trigger=NEVER)
    listening = keep(keeper, alert, trigger=EventTrigger("occurrence.failed", {"labels.team": "data"}))
    with keeper:
        keeper.run_now(fine)
        with pytest.raises(ValueError, match="no such table"):
            keeper.run_now(job)
        assert ended(keeper, listening) == ["completed"]
    [event] = heard
    assert (event["event_type"], event["source"]) == ("occurrence.failed", "noonmark")
    payload = event["payload"]
    assert (payload["schedule_id"], payload["schedule_name"], payload["attempt"]) == (job, "nightly", 2)
    assert payload["error"] == "ValueError: no such table"
    [one] = told(keeper)
    assert one.event_id == event["event_id"]


def test_nothing_is_kept_where_nobody_listens(keeper):
    job = keep(keeper, fail)
    with keeper:
        assert ended(keeper, job) == ["failed"]
    assert told(keeper) == []


def test_what_becomes_of_a_schedule_is_heard_soon(keeper):
    heard = []
    keep(keeper, lambda context: heard.append(context.event["event_type"]), trigger=EventTrigger("schedule.paused"))
    with keeper:
        job = keep(keeper, fail, trigger=NEVER)
        keeper.pause(job)
        assert eventually(lambda: heard) == ["schedule.paused"]


def test_two_alerts_that_fail_tell_each_other_of_it_and_no_more(keeper):
    runs = []

    def alert(context):
        runs.append(context.payload["chain"])
        raise ConnectionError("the chat is down")

    job = keep(keeper, fail, trigger=NEVER)
    alerts = [keep(keeper, alert, trigger=EventTrigger("occurrence.failed"), name=name) for name in ("one", "two")]
    with keeper:
        keeper.run_now(job, wait=False)
        for one in alerts:
            assert ended(keeper, one, 2) == ["failed", "failed"]
        eventually(lambda: drive(keeper.runtime.store.unmatched(9)) == [] and len(told(keeper)) == 5)
    one, two = alerts
    assert sorted(runs) == sorted([[job], [job], [job, one], [job, two]])


def test_no_chain_of_facts_is_without_end(by_hand):
    scheduler, driver = by_hand
    first = previous = keep(scheduler, lambda: None, trigger=EventTrigger("go"), function_name="work")
    jobs = [first]
    for _ in range(MAX_DEPTH + 3):
        trigger = EventTrigger("occurrence.completed", {"schedule_id": previous})
        previous = keep(scheduler, lambda: None, trigger=trigger, function_name="work")
        jobs.append(previous)
    scheduler.run_now(first, wait=False)
    driver.run_due()
    ran = [len(scheduler.occurrences(job)) for job in jobs]
    assert ran == [1] * (MAX_DEPTH + 1) + [0] * 3
    assert [one.payload["depth"] for one in told(scheduler)] == list(range(1, MAX_DEPTH + 1))


def test_what_was_missed_or_late_is_told_with_the_number(by_hand):
    scheduler, driver = by_hand
    keep(scheduler, lambda: None, trigger=EventTrigger("occurrence.misfired"), function_name="note")
    keep(scheduler, lambda: None, trigger=EventTrigger("occurrence.late", {"late_seconds": {"gt": 20}}))
    keep(scheduler, lambda: None, trigger=IntervalTrigger(every_seconds=60), function_name="work")
    driver.run_due()
    scheduler.runtime.clock.advance(3_600 + 30)
    driver.run_due()
    missed, late = told(scheduler)
    assert (missed.event_type, missed.payload["missed_count"]) == ("occurrence.misfired", 59)
    assert (late.event_type, late.payload["late_seconds"]) == ("occurrence.late", 30)


def test_nobody_speaks_for_noonmark(keeper):
    with pytest.raises(InvalidSchedule, match="source"):
        keeper.emit("occurrence.failed", {}, source="noonmark")
    assert told(keeper) == []
