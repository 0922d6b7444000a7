"""Failures across schedules, and how a program runs them again."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import AsyncScheduler, Conflict, CronTrigger, InvalidRequest, NotFound, Scheduler
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import SOON

START = datetime(2030, 5, 1, 11, 59, tzinfo=UTC)
NOON = START + timedelta(minutes=1)
DAILY = CronTrigger("0 12 * * *")


class Rig:
    """Jobs that fail until they are mended, and return the time that they ran for."""

    def __init__(self):
        self.is_broken = True
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(clock=self.clock)
        self.driver = ManualDriver(self.scheduler)
        self.jobs = {team: self.job(team) for team in ("a", "b")}
        self.driver.run_until(NOON + timedelta(days=1))

    def job(self, team):
        def work(context):
            if self.is_broken:
                raise OSError("disk full")
            return context.nominal_at.day

        return self.scheduler.schedule(work, name=team, trigger=DAILY, labels={"team": team})

    def failed(self, **filters):
        return [(row.schedule_id, row.nominal_at) for row in self.scheduler.failures(**filters)]


@pytest.fixture
def rig():
    return Rig()


def test_failures_of_all_schedules_are_found(rig):
    a, b = rig.jobs.values()
    tomorrow = NOON + timedelta(days=1)
    assert sorted(rig.failed()) == sorted([(a, NOON), (b, NOON), (a, tomorrow), (b, tomorrow)])
    assert {nominal for _, nominal in rig.failed(limit=2)} == {tomorrow}
    assert rig.failed(job_id="a") == [(a, tomorrow), (a, NOON)]
    assert rig.failed(labels={"team": "b"}, since=timedelta(hours=1)) == [(b, tomorrow)]
    assert rig.failed(job_id=b, until=NOON + timedelta(hours=1)) == [(b, NOON)]
    assert rig.failed(since=tomorrow + timedelta(hours=1)) == rig.failed(reason="timed_out") == []


def test_one_runs_again_for_its_own_time(rig):
    old = rig.scheduler.failures("a")[-1]
    rig.is_broken = False
    answer = rig.scheduler.redrive(old)
    assert ([row.nominal_at for row in answer.occurrences], answer.refused) == ([NOON], {})
    assert [run.result for run in rig.driver.run_due()] == [1]
    # Again, it is the same one.
    assert [row.id for row in rig.scheduler.redrive(old.id).occurrences] == [answer.occurrences[0].id]
    with pytest.raises(Conflict, match="it is completed"):
        rig.scheduler.redrive(answer.occurrences[0])


def test_a_selection_runs_again_once(rig):
    rig.is_broken = False
    tried = rig.scheduler.redrive(since=timedelta(days=2), labels={"team": "a"}, dry_run=True)
    assert len(tried.occurrences) == 2
    assert rig.driver.run_due() == []
    rig.scheduler.redrive(job_id="a")
    runs = rig.driver.run_until(rig.clock.now() + timedelta(seconds=1))
    assert [run.result for run in runs] == [1, 2]
    again = rig.scheduler.redrive(job_id="a")
    assert again.occurrences == ()
    assert sorted(again.refused) == sorted(row.id for row in rig.scheduler.failures("a"))
    assert all("it ran again before" in problem for problem in again.refused.values())


@pytest.mark.parametrize(
    ("arguments", "error", "field"),
    [
        ({}, InvalidRequest, None),
        ({"since": timedelta(days=9), "limit": 3}, InvalidRequest, "limit"),
        ({"phase": "completed"}, InvalidRequest, "phase"),
        ({"job_id": "nobody"}, NotFound, None),
        ({"occurrence": "nothing"}, NotFound, "occurrence_id"),
    ],
)
def test_what_is_refused(rig, arguments, error, field):
    with pytest.raises(error) as refused:
        rig.scheduler.redrive(**arguments)
    assert field is None or refused.value.field == field
    assert rig.driver.run_due() == []


def test_an_event_loop_awaits_them():
    async def main():
        async with AsyncScheduler() as scheduler:
            attempts, is_done = iter(range(2)), asyncio.Event()

            async def work():
                if next(attempts) == 0:
                    raise OSError("disk full")
                is_done.set()

            job = await scheduler.schedule(work, trigger=CronTrigger("0 0 1 1 *"))
            with pytest.raises(OSError, match="disk full"):
                await scheduler.run_now(job)
            [failure] = await scheduler.failures(since=timedelta(hours=1))
            [again] = (await scheduler.redrive(failure)).occurrences
            await asyncio.wait_for(is_done.wait(), SOON)
            return failure.nominal == again.nominal

    assert asyncio.run(main())
