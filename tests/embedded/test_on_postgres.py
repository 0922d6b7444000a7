"""The embedded scheduler on PostgreSQL: each part of it once, in real threads."""

import asyncio
import threading

import pytest

from noonmark import AsyncScheduler, CronTrigger, EventTrigger, IntervalTrigger, JobPipeline, OnceTrigger, Scheduler
from noonmark.core.errors import InvalidSchedule, StoreUnavailable
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START

SOON = 60
HEARD = threading.Event()


def hear():
    HEARD.set()


def tell(context):
    return context.payload


async def tell_where(context):
    return context.payload, id(asyncio.get_running_loop())


def one():
    return 1


def two():
    return 2


@pytest.fixture
def opened(database):
    """Open schedulers on one database; all of them are closed in the end."""
    collected = []

    def make(kind=Scheduler, **settings):
        collected.append(kind(database.url, **settings))
        return collected[-1]

    yield make
    for scheduler in collected:
        if isinstance(scheduler, Scheduler):
            scheduler.stop(timeout=5)
            scheduler.close()


def test_what_one_program_declares_another_runs(opened):
    HEARD.clear()
    declaring, running = opened(), opened()
    running.start()
    job = declaring.schedule(hear, name="report", trigger=IntervalTrigger(0.2))
    assert HEARD.wait(SOON)
    assert running.get_job(job).name == "report"
    declaring.cancel(job)


def test_a_run_by_hand_is_waited_for(opened):
    scheduler = opened()
    scheduler.start()
    job = scheduler.schedule(tell, trigger=CronTrigger("0 0 1 1 *"))
    assert scheduler.run_now(job, payload={"day": 1}) == {"day": 1}
    [run] = scheduler.runs(job)
    assert (run.outcome, run.result) == ("completed", {"day": 1})
    explanation = scheduler.explain(job)
    assert (explanation["occurrence_id"], explanation["phase"]) == (run.occurrence_id, "completed")


def test_an_event_triggers_what_listens_for_it(opened):
    scheduler = opened()
    HEARD.clear()
    scheduler.schedule(hear, trigger=EventTrigger("order_paid"))
    scheduler.start()
    scheduler.emit("order_paid", {"order": 7})
    assert HEARD.wait(SOON)


def test_a_pipeline_goes_through_its_stages(opened):
    scheduler = opened()
    scheduler.start()
    pipeline = JobPipeline(scheduler).add_stage(one).add_stage(one, two)
    assert pipeline.run_sync() == [[1], [1, 2]]


def test_an_async_program_shares_it(opened):
    async def main():
        async with opened(AsyncScheduler) as scheduler:
            job = await scheduler.schedule(tell_where, trigger=CronTrigger("0 0 1 1 *"))
            answer = await scheduler.run_now(job, payload=5)
        await scheduler.close()
        return answer, id(asyncio.get_running_loop())

    answer, loop = asyncio.run(main())
    assert answer == (5, loop)


def test_a_synchronous_call_inside_a_loop_is_answered(opened):
    scheduler = opened()

    async def main():
        return scheduler.get_job(scheduler.schedule(print, trigger=CronTrigger("@daily"), name="inside")).name

    assert asyncio.run(main()) == "inside"


def test_time_that_a_test_sets_is_that_of_the_store(database):
    clock = FakeClock(START)
    scheduler = Scheduler(database.url, clock=clock)
    driver = ManualDriver(scheduler)
    job = scheduler.schedule(one, trigger=OnceTrigger(delay_seconds=3_600))
    clock.advance(3_599)
    assert driver.run_due() == []
    clock.advance(1)
    assert [run.result for run in driver.run_due()] == [1]
    assert scheduler.get_job(job).status == "completed"
    scheduler.close()


def test_a_database_that_is_not_there_is_shown_without_its_password(postgres):
    url = postgres.url("nowhere").replace("noonmark@", "noonmark:secret@")
    scheduler = Scheduler(url)
    scheduler.every(hours=1)(one)
    with pytest.raises(StoreUnavailable) as caught:
        scheduler.start()
    assert "nowhere" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_option_that_makes_no_sense_is_reported():
    with pytest.raises(InvalidSchedule, match="pool '1' must be") as caught:
        Scheduler("postgresql://127.0.0.1/jobs?pool=1")
    assert caught.value.field == "store"
