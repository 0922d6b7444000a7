"""Jobs: the status of schedules, their next run and their last run."""

from datetime import UTC, datetime, timedelta

import pytest

from noonmark import (
    Conflict,
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidSchedule,
    Job,
    JobStatus,
    OnceTrigger,
    Scheduler,
)
from tests.embedded.conftest import START
from tests.embedded.waiting import NEVER, Gate, ended, eventually, keep, look_far_ahead, phases, status

MINUTE = timedelta(minutes=1)


def fail():
    raise KeyError("missing")


def nothing():
    pass


class TestOneThatRunsOnce:
    def test_it_is_pending_then_completed(self, by_hand):
        job_id = keep(by_hand.scheduler, lambda: {"rows": 3})
        before = by_hand.job(job_id)
        assert (before.status, before.next_run, before.last_run) == (JobStatus.PENDING, START, None)
        assert (before.run_count, before.last_result, before.last_error) == (0, None, None)
        by_hand.driver.run_due()
        after = by_hand.job(job_id)
        assert (after.status, after.next_run, after.last_run) == (JobStatus.COMPLETED, None, START)
        assert (after.run_count, after.last_result, after.last_error) == (1, {"rows": 3}, None)

    def test_one_that_failed_is_failed_and_says_why(self, by_hand):
        job_id = keep(by_hand.scheduler, fail)
        by_hand.driver.run_due()
        job = by_hand.job(job_id)
        assert (job.status, job.run_count, job.last_result, job.next_run) == (JobStatus.FAILED, 1, None, None)
        assert job.last_error.rstrip().endswith("KeyError: 'missing'")

    def test_one_that_will_be_tried_again_is_pending_until_it_has_failed_finally(self, by_hand):
        job_id = keep(by_hand.scheduler, fail, retries=1)
        by_hand.driver.run_due()
        between = by_hand.job(job_id)
        assert (between.status, between.run_count) == (JobStatus.PENDING, 0)
        assert between.next_run > START
        assert "KeyError" in between.last_error
        by_hand.driver.run_until(between.next_run)
        assert (by_hand.job(job_id).status, by_hand.job(job_id).run_count) == (JobStatus.FAILED, 1)

    def test_one_that_came_too_late_is_failed_and_never_ran(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=OnceTrigger(START + MINUTE), misfire="skip")
        by_hand.pass_time(3_600)
        job = by_hand.job(job_id)
        assert phases(by_hand.scheduler, job_id) == ["misfired"]
        assert (job.status, job.run_count, job.last_run, job.last_error) == (JobStatus.FAILED, 0, None, None)

    def test_one_that_timed_out_is_failed(self, keeper):
        gate = Gate()
        job_id = keep(keeper, gate, timeout=0.05)
        with keeper:
            ended(keeper, job_id)
        job = keeper.get_job(job_id)
        assert (job.status, job.run_count, job.last_error) == (JobStatus.FAILED, 1, "no end within 0.05 s")

    def test_run_by_hand_after_it_failed_it_has_completed(self, by_hand):
        answers = [ValueError("not yet"), "at last"]

        def work():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        job_id = keep(by_hand.scheduler, work)
        by_hand.driver.run_due()
        by_hand.clock.advance(1)
        by_hand.scheduler.run_now(job_id, wait=False)
        by_hand.driver.run_due()
        job = by_hand.job(job_id)
        assert (job.status, job.run_count, job.last_result, job.last_error) == (
            JobStatus.COMPLETED,
            2,
            "at last",
            None,
        )


class TestOneThatRunsAgainAndAgain:
    def test_it_is_pending_between_its_runs_and_shows_the_last_one(self, by_hand):
        answers = iter([1, ValueError("two"), 3])

        def work():
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        job_id = keep(by_hand.scheduler, work, trigger=IntervalTrigger(60))
        for number, (result, has_error) in enumerate([(1, False), (None, True), (3, False)], start=1):
            by_hand.pass_time(60)
            job = by_hand.job(job_id)
            now = START + number * MINUTE
            assert (job.status, job.run_count, job.last_run) == (JobStatus.PENDING, number, now)
            assert (job.last_result, job.last_error is not None) == (result, has_error)
            assert job.next_run == now + MINUTE

    def test_it_is_running_while_it_runs_and_knows_its_next_time(self, keeper):
        gate = Gate()
        job_id = keep(keeper, gate, trigger=NEVER)
        keeper.start()
        planned = keeper.get_job(job_id).next_run
        keeper.run_now(job_id, wait=False)
        gate.wait()
        job = keeper.get_job(job_id)
        assert (job.status, job.next_run, job.run_count) == (JobStatus.RUNNING, planned, 0)
        assert job.last_run <= datetime.now(UTC)  # noqa: TID251 - it runs by that clock
        gate.opened.set()
        eventually(lambda: status(keeper, job_id) == "pending")
        assert keeper.get_job(job_id).last_result == "done"

    def test_it_is_completed_when_its_runs_are_used_up(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60), max_runs=2)
        by_hand.pass_time(60)
        assert by_hand.job(job_id).status is JobStatus.PENDING
        by_hand.pass_time(60)
        job = by_hand.job(job_id)
        assert (job.status, job.run_count, job.next_run) == (JobStatus.COMPLETED, 2, None)
        assert by_hand.pass_time(600) == []

    def test_it_is_failed_when_its_last_run_failed_and_none_follows(self, by_hand):
        job_id = keep(by_hand.scheduler, fail, trigger=IntervalTrigger(60), max_runs=1)
        by_hand.pass_time(60)
        assert by_hand.job(job_id).status is JobStatus.FAILED

    def test_a_claimed_one_still_tells_its_next_time(self, open_on_file):
        holder, reader = open_on_file(), open_on_file()
        look_far_ahead(holder)
        at = datetime.now(UTC) + 30 * MINUTE  # noqa: TID251 - it must be ahead of a real clock
        job_id = keep(holder, nothing, trigger=OnceTrigger(at))
        with holder:
            eventually(lambda: "claimed" in phases(reader, job_id))
            job = reader.get_job(job_id)
            assert (str(job.status), job.next_run) == ("pending", at)

    def test_one_that_waits_for_an_event_has_no_next_time(self, by_hand):
        job = by_hand.job(keep(by_hand.scheduler, nothing, trigger=EventTrigger("uploaded")))
        assert (job.status, job.next_run, job.trigger) == (JobStatus.PENDING, None, EventTrigger("uploaded"))

    def test_one_that_waits_for_its_turn_has_no_next_time(self, keeper):
        gate = Gate()
        job_id = keep(keeper, gate, trigger=EventTrigger("never"))  # which queues
        keeper.start()
        keeper.run_now(job_id, wait=False)
        gate.wait()
        keeper.run_now(job_id, wait=False)
        eventually(lambda: any(one.waiting_for for one in keeper.occurrences(job_id)))
        job = keeper.get_job(job_id)
        assert (job.status, job.next_run) == (JobStatus.RUNNING, None)
        gate.opened.set()
        assert ended(keeper, job_id, 2) == ["completed", "completed"]


def test_what_is_seen_of_a_job_is_of_one_moment(keeper):
    """Between running and completed it is never pending, and when it has completed there is its result."""
    keeper.start()
    for number in range(40):
        gate = Gate()
        job_id = keep(keeper, gate, labels={"n": str(number)})
        gate.wait()
        assert status(keeper, job_id) == "running"
        gate.opened.set()
        while (job := keeper.get_job(job_id)).status is JobStatus.RUNNING:
            [listed] = [one for one in keeper.list_jobs() if one.id == job_id]
            if listed.status is not JobStatus.RUNNING:
                job = listed
                break
        assert (job.status, job.last_result, job.run_count) == (JobStatus.COMPLETED, "done", 1)


class TestPaused:
    def test_it_has_no_next_time_until_it_is_resumed(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60))
        by_hand.scheduler.pause(job_id)
        assert (by_hand.job(job_id).status, by_hand.job(job_id).next_run) == (JobStatus.PAUSED, None)
        by_hand.pass_time(90)
        by_hand.scheduler.resume(job_id)
        assert (by_hand.job(job_id).status, by_hand.job(job_id).next_run) == (JobStatus.PENDING, START + 2 * MINUTE)

    def test_one_that_is_paused_while_it_runs_is_paused(self, keeper):
        gate = Gate()
        job_id = keep(keeper, gate, trigger=NEVER)
        keeper.start()
        keeper.run_now(job_id, wait=False)
        gate.wait()
        keeper.pause(job_id)
        assert status(keeper, job_id) == "paused"
        gate.opened.set()
        ended(keeper, job_id)
        assert (status(keeper, job_id), keeper.get_job(job_id).run_count, gate.stops) == ("paused", 1, 0)


class TestLeaving:
    @pytest.mark.parametrize("how", ["cancel", "delete"])
    def test_it_is_cancelled_and_keeps_what_it_did(self, by_hand, how):
        job_id = keep(by_hand.scheduler, lambda: 7, trigger=IntervalTrigger(60))
        by_hand.pass_time(60)
        getattr(by_hand.scheduler, how)(job_id)
        job = by_hand.job(job_id)
        assert (job.status, job.next_run, job.run_count, job.last_result) == (JobStatus.CANCELLED, None, 1, 7)
        assert by_hand.pass_time(600) == []

    def test_one_that_was_declared_anew_under_its_name_is_found_instead(self, by_hand):
        first = keep(by_hand.scheduler, nothing, name="report", trigger=IntervalTrigger(60))
        by_hand.pass_time(60)
        assert by_hand.scheduler.cancel(first)
        assert by_hand.job(first).run_count == 1
        by_hand.clock.advance(1)
        again = keep(by_hand.scheduler, nothing, name="report", trigger=IntervalTrigger(60))
        assert again == first
        job = by_hand.job(again)
        assert (job.status, job.run_count, job.next_run) == (JobStatus.PENDING, 0, by_hand.clock.now() + MINUTE)
        assert [one.id for one in by_hand.scheduler.list_jobs()] == [first]
        assert len(by_hand.scheduler.list_jobs("cancelled")) == 1


class TestListing:
    def test_every_status_is_listed_apart_oldest_first(self, by_hand):
        scheduler, collected = by_hand.scheduler, {}
        plans = {
            "completed": lambda: keep(scheduler, nothing),
            "failed": lambda: keep(scheduler, fail),
            "paused": lambda: keep(scheduler, nothing, trigger=NEVER),
            "cancelled": lambda: keep(scheduler, nothing, trigger=NEVER),
            "pending": lambda: keep(scheduler, nothing, trigger=NEVER),
        }
        for each in range(2):
            for name, make in plans.items():
                collected.setdefault(name, []).append(make())
                by_hand.clock.advance(1 + each)
        for paused in collected["paused"]:
            scheduler.pause(paused)
        for cancelled in collected["cancelled"]:
            scheduler.cancel(cancelled)
        by_hand.driver.run_due()
        for name, ids in collected.items():
            assert [job.id for job in scheduler.list_jobs(name)] == ids
            assert [job.id for job in scheduler.list_jobs(JobStatus(name))] == ids
        assert scheduler.list_jobs("running") == []
        everyone = [job.id for job in scheduler.list_jobs()]
        assert everyone == [ids[each] for each in range(2) for name, ids in collected.items() if name != "cancelled"]

    def test_those_that_left_are_in_the_order_of_their_making_too(self, keeper):
        jobs = [keep(keeper, nothing, trigger=NEVER) for _ in range(3)]
        gate = Gate()
        running = keep(keeper, gate)
        later = keep(keeper, nothing, trigger=NEVER)
        with keeper:
            gate.wait()
            keeper.delete(later)
            keeper.cancel(running)
            keeper.delete(jobs[1])
        assert [job.id for job in keeper.list_jobs("cancelled")] == [jobs[1], running, later]

    def test_running_ones_are_listed_while_they_run(self, keeper):
        gate = Gate()
        jobs = [keep(keeper, gate, name=f"job {number}") for number in range(3)]
        with keeper:
            for _ in jobs:
                gate.wait()
            assert [job.name for job in keeper.list_jobs("running")] == ["job 0", "job 1", "job 2"]
            gate.opened.set()
        assert keeper.list_jobs("running") == []
        assert [job.id for job in keeper.list_jobs("completed")] == jobs

    def test_more_than_two_pages_are_listed_each_once(self, keeper, monkeypatch):
        monkeypatch.setattr("noonmark.embedded.jobs.PAGE", 100)
        jobs = keeper.create_many({"func": nothing, "trigger": NEVER, "labels": {"n": str(n)}} for n in range(210))
        ends = (0, 99, 100, 199, 200, 209)
        for number in ends:
            keeper.pause(jobs[number])
        listed = keeper.list_jobs()
        assert [job.id for job in listed] == jobs
        assert [job.labels["n"] for job in listed] == [str(n) for n in range(210)]
        assert [job.id for job in keeper.list_jobs("paused")] == [jobs[n] for n in ends]

    def test_listing_changes_nothing(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60))
        before = by_hand.scheduler.occurrences(job_id)
        by_hand.clock.advance(3_600)
        by_hand.scheduler.list_jobs()
        by_hand.scheduler.get_job(job_id)
        by_hand.scheduler.preview(job_id)
        assert by_hand.scheduler.occurrences(job_id) == before


class TestAsking:
    @pytest.mark.parametrize("bad", ["done", "Pending!", 5, b"pending", ["pending"]])
    def test_a_status_that_is_none_is_refused_with_those_there_are(self, keeper, bad):
        with pytest.raises(InvalidSchedule, match=r"pending.*running.*completed.*failed.*cancelled.*paused") as refused:
            keeper.list_jobs(bad)
        assert refused.value.field == "status"

    def test_an_unknown_id_is_not_a_job(self, keeper):
        assert keeper.get_job("job_unknown") is None

    @pytest.mark.parametrize("bad", [None, 5, "", "a\0b"])
    def test_what_cannot_be_an_id_is_refused(self, keeper, bad):
        with pytest.raises(InvalidSchedule) as refused:
            keeper.get_job(bad)
        assert refused.value.field == "job_id"

    def test_a_closed_scheduler_says_so(self, url):
        scheduler = Scheduler(url)
        job_id = keep(scheduler, nothing, trigger=NEVER)
        scheduler.close()
        for ask in (
            lambda: scheduler.get_job(job_id),
            scheduler.list_jobs,
            lambda: scheduler.cancel(job_id),
            lambda: scheduler.update(job_id, retries=1),
            lambda: scheduler.add_dependency(job_id, []),
            lambda: scheduler.preview(job_id),
            lambda: scheduler.preview(NEVER),
            lambda: scheduler.every(5)(nothing),
            scheduler.start,
        ):
            with pytest.raises(Conflict, match="closed"):
                ask()

    def test_it_has_what_is_promised(self, by_hand):
        trigger = CronTrigger("0 9 * * MON")
        job_id = keep(by_hand.scheduler, nothing, name="report", trigger=trigger, labels={"team": "a"})
        job = by_hand.job(job_id)
        assert (job.id, job.name, job.trigger, job.labels) == (job_id, "report", trigger, {"team": "a"})
        assert job.next_run == datetime(2030, 3, 18, 9, tzinfo=UTC)
        assert job.next_run.tzinfo is UTC

    def test_what_is_done_to_one_reaches_no_other(self, by_hand):
        job_id = keep(by_hand.scheduler, lambda: [1], labels={"team": "a"})
        by_hand.driver.run_due()
        by_hand.job(job_id).labels["team"] = "b"
        by_hand.job(job_id).last_result.append(2)
        assert (by_hand.job(job_id).labels, by_hand.job(job_id).last_result) == ({"team": "a"}, [1])

    def test_jobs_can_be_compared_and_put_in_a_set(self, by_hand):
        job_id = keep(by_hand.scheduler, lambda: {"rows": [1]}, labels={"team": "a"})
        by_hand.driver.run_due()
        assert {by_hand.job(job_id), by_hand.job(job_id)} == {by_hand.job(job_id)}

    def test_it_can_be_asked_for_from_the_job_itself(self, keeper):
        collected = []
        job_id = keep(keeper, lambda context: collected.append(keeper.get_job(context.schedule_id)))
        with keeper:
            ended(keeper, job_id)
        [job] = collected
        assert isinstance(job, Job)
        assert (job.id, job.status) == (job_id, JobStatus.RUNNING)


def test_what_is_shown_of_jobs_occurrences_and_runs_fits_a_line(by_hand):
    job_id = keep(by_hand.scheduler, fail, name="report", trigger=IntervalTrigger(60))
    by_hand.pass_time(60)
    scheduler = by_hand.scheduler
    [planned, gone], [run] = scheduler.occurrences(job_id), scheduler.runs(job_id)
    assert repr(gone) == (
        f"Occurrence(phase='failed', nominal_at='2030-03-17T12:01:00Z', attempt=1, reason='failed', id='{gone.id}')"
    )
    assert repr(planned) == (
        f"Occurrence(phase='pending', nominal_at='2030-03-17T12:02:00Z', attempt=0, id='{planned.id}')"
    )
    assert repr(run) == (
        "Run(outcome='failed', started_at='2030-03-17T12:01:00Z', attempt=1, "
        f"error=\"KeyError: 'missing'\", id='{run.id}')"
    )
    assert repr(by_hand.job(job_id)) == (
        f"Job(status='pending', name='report', next_run='2030-03-17T12:02:00Z', run_count=1, id='{job_id}')"
    )
