"""Schedulers on both kinds of store, in real threads and by hand."""

import gc
import sys
import warnings
from datetime import UTC, datetime

import pytest

from noonmark import Scheduler
from noonmark.testing import FakeClock, ManualDriver

START = datetime(2030, 3, 17, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.store)])
def url(request, tmp_path):
    """Each kind of store in turn."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def keeper(url):
    """A scheduler on each kind of store; it is closed in the end."""
    scheduler = Scheduler(url)
    yield scheduler
    scheduler.stop(wait=False)
    scheduler.close()


@pytest.fixture
def open_on_file(tmp_path):
    """Open schedulers on one file; all of them are closed in the end."""
    collected = []

    def make(**settings):
        collected.append(Scheduler(f"sqlite:///{tmp_path / 'shared.db'}", **settings))
        return collected[-1]

    yield make
    for scheduler in collected:
        scheduler.stop(wait=False)
        scheduler.close()


@pytest.fixture
def no_noise(monkeypatch, caplog):
    """Nothing may be left for the garbage collector to complain about."""
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: complaints.append(told.exc_value))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()
    noise = [str(one.message) for one in warned if "never awaited" in str(one.message)]
    noise += [record.getMessage() for record in caplog.get_records("call") if "destroyed" in record.getMessage()]
    assert (complaints, noise) == ([], [])


class ByHand:
    """A scheduler whose time passes when the test says so."""

    def __init__(self, url):
        self.url = url
        self.clock = FakeClock(START)
        self.open()

    def open(self):
        """The program is started, perhaps again."""
        self.scheduler = Scheduler(self.url, clock=self.clock)
        self.driver = ManualDriver(self.scheduler)

    def pass_time(self, seconds):
        """Let time pass, and run what falls due at its time; gives the runs."""
        self.clock.advance(seconds)
        return self.driver.run_due()

    def job(self, job_id):
        return self.scheduler.get_job(job_id)


@pytest.fixture
def by_hand(url):
    made = ByHand(url)
    yield made
    made.scheduler.close()
