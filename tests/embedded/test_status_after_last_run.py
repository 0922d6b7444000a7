"""The status of a schedule that has had all its runs, while more of its fires were planned already."""

import pytest

from noonmark import IntervalTrigger, Scheduler
from noonmark.core.instants import from_micros
from noonmark.testing import FakeClock, ManualDriver
from noonmark.testing.factories import NOW


def fail():
    raise ValueError


@pytest.mark.parametrize(("func", "status"), [(dict, "completed"), (fail, "failed")])
def test_it_is_as_its_last_run_was(func, status):
    clock = FakeClock(from_micros(NOW))
    scheduler = Scheduler(clock=clock)
    job = scheduler.schedule(func, trigger=IntervalTrigger(0.1), max_runs=3, overlap="queue", misfire="catch_up_all")
    driver = ManualDriver(scheduler)
    clock.advance(1)
    driver.run_due()
    phases = {str(one.phase) for one in scheduler.occurrences(job)}
    assert phases == {status, "skipped"}
    assert scheduler.get_job(job).run_count == 3
    assert scheduler.get_job(job).status == status
