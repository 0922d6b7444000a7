"""Progress: what a function says while it runs is shown while it runs."""

import threading

import pytest

from noonmark import RunProgress, Scheduler
from noonmark.operations.serializers import run_document
from tests.embedded.waiting import NEVER, SOON, ended, eventually
from tests.targets.function import worker_functions


@pytest.fixture
def scheduler():
    with Scheduler(max_processes=1) as scheduler:
        yield scheduler


def progress_of(scheduler, job):
    return next((run.progress for run in scheduler.runs(job)), None)


def test_it_is_in_the_run_while_that_goes_on(scheduler):
    later, go_on = threading.Event(), threading.Event()

    def work(context):
        context.progress(0.25)
        later.wait(SOON)
        for row in range(1_000):  # of many, the newest counts
            context.progress(0.25 + row / 2_000, f"row {row}")
        go_on.wait(SOON)
        return "done"

    job = scheduler.schedule(work)
    assert eventually(lambda: progress_of(scheduler, job)) == RunProgress(fraction=0.25)
    later.set()
    eventually(lambda: progress_of(scheduler, job) == RunProgress(fraction=0.7495, message="row 999"))
    assert run_document(scheduler.runs(job)[0], job)["progress"] == {"fraction": 0.7495, "message": "row 999"}
    go_on.set()
    assert ended(scheduler, job) == ["completed"]
    assert (scheduler.runs(job)[0].result, progress_of(scheduler, job)) == ("done", None)


def test_a_process_says_it_too(scheduler, tmp_path):
    job = scheduler.schedule(worker_functions.says_progress, args=[str(tmp_path / "go")], executor="process")
    eventually(lambda: progress_of(scheduler, job) == RunProgress(fraction=0.5, message="half"))
    (tmp_path / "go").touch()
    assert ended(scheduler, job) == ["completed"]


def test_what_was_cut_off_keeps_it(scheduler):
    go_on = threading.Event()

    def work(context):
        context.progress(0.5, "half")
        go_on.wait(SOON)

    job = scheduler.schedule(work, trigger=NEVER)
    scheduler.run_now(job, wait=False)
    eventually(lambda: progress_of(scheduler, job))
    scheduler.stop(wait=False)
    go_on.set()
    run = scheduler.runs(job)[-1]
    assert (str(run.outcome), run.progress) == ("lease_lost", RunProgress(fraction=0.5, message="half"))


@pytest.mark.parametrize("fraction", [1.5, -0.1, "half", True, float("nan")])
def test_an_invalid_fraction_is_refused(fraction):
    scheduler = Scheduler()
    job = scheduler.schedule(lambda context: context.progress(fraction), trigger=NEVER)
    with pytest.raises(ValueError, match="the fraction must be a number"):
        scheduler.run_now(job)
