"""System events: schedules that listen for what becomes of others, and never forever."""

import re

import pytest

from noonmark import EventTrigger, IntervalTrigger, InvalidSchedule, Scheduler
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START
from tests.embedded.waiting import FINAL, NEVER, ended, eventually, keep, phases

GO = EventTrigger("go")


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
    return list(reversed(scheduler._store.events("default", 1_000)))


def places(scheduler):
    """Where each of them stands in its chain."""
    return [re.match(r"evt[\d.]+", one.event_id)[0] for one in told(scheduler)]


def is_quiet(scheduler):
    """Whether everything that was told has been heard, and everything that it set off has ended."""
    before = told(scheduler)
    if not before or scheduler._store.unmatched(1):
        return False
    under_way = {phase for job in scheduler.list_jobs() for phase in phases(scheduler, job.id)} - FINAL
    return not under_way and told(scheduler) == before


def test_an_alert_runs_once_per_failure_and_for_nothing_else(keeper):
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


def test_nothing_is_kept_without_subscribers(keeper):
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

    job = keep(keeper, fail, trigger=GO)
    alerts = [keep(keeper, alert, trigger=EventTrigger("occurrence.failed"), name=name) for name in ("one", "two")]
    with keeper:
        keeper.run_now(job, wait=False)
        eventually(lambda: is_quiet(keeper))
    assert len(told(keeper)) == 3
    one, two = alerts
    assert sorted(runs) == sorted([[job], [job], [job, one], [job, two]])


def listening_to(scheduler, previous):
    trigger = EventTrigger("occurrence.completed", {"schedule_id": previous})
    return keep(scheduler, lambda: None, trigger=trigger, function_name="work")


def test_no_chain_has_more_than_two_facts(by_hand, caplog):
    scheduler, driver = by_hand
    caplog.set_level("INFO", "noonmark")
    jobs = [keep(scheduler, lambda: None, trigger=GO, function_name="work")]
    for _ in range(4):
        jobs.append(listening_to(scheduler, jobs[-1]))
    scheduler.run_now(jobs[0], wait=False)
    driver.run_due()
    assert [len(scheduler.occurrences(job)) for job in jobs] == [1, 1, 1, 0, 0]
    assert [one.payload["chain"] for one in told(scheduler)] == [jobs[:1], jobs[:2]]
    [last] = scheduler.occurrences(jobs[2])
    assert f"occurrence.completed of occurrence {last.id} is not emitted: a chain has at most 16 events" in caplog.text


@pytest.mark.parametrize("listeners", [1, 6])
def test_many_subscribers_of_all_ends_each_run_once_per_end(keeper, listeners):
    job = keep(keeper, lambda: None, trigger=GO)
    hearing = [keep(keeper, lambda: None, trigger=EventTrigger("occurrence.completed")) for _ in range(listeners)]
    with keeper:
        keeper.run_now(job, wait=False)
        eventually(lambda: is_quiet(keeper))
    assert [len(keeper.occurrences(one)) for one in hearing] == [listeners] * listeners
    assert len(told(keeper)) == 1 + listeners


def test_to_answer_a_fact_with_an_event_is_no_way_round(keeper):
    job = keep(keeper, lambda: None, trigger=GO)
    emitter = keeper.schedule_event("answered", trigger=EventTrigger("occurrence.completed"))
    hearing = keep(keeper, lambda: None, trigger=EventTrigger("answered"))
    with keeper:
        keeper.run_now(job, wait=False)
        eventually(lambda: is_quiet(keeper))
    assert (len(keeper.occurrences(emitter)), len(keeper.occurrences(hearing))) == (1, 1)
    assert sorted(places(keeper)) == ["evt1.1", "evt2.1", "evt2.2", "evt3.2"]


def test_what_was_missed_or_late_is_shown_with_the_number(by_hand):
    scheduler, driver = by_hand
    keep(scheduler, lambda: None, trigger=EventTrigger("occurrence.misfired"), function_name="note")
    keep(scheduler, lambda: None, trigger=EventTrigger("occurrence.late", {"late_seconds": {"gt": 20}}))
    keep(scheduler, lambda: None, trigger=IntervalTrigger(every_seconds=60), function_name="work")
    driver.run_due()
    scheduler._runtime.clock.advance(3_600 + 30)
    driver.run_due()
    missed, late = told(scheduler)
    assert (missed.event_type, missed.payload["missed_count"]) == ("occurrence.misfired", 59)
    assert (late.event_type, late.payload["late_seconds"]) == ("occurrence.late", 30)


def test_the_source_noonmark_is_reserved(keeper):
    with pytest.raises(InvalidSchedule, match="source"):
        keeper.emit("occurrence.failed", {}, source="noonmark")
    assert told(keeper) == []
