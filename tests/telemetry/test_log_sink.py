"""The log sink."""

import logging

import pytest

from noonmark import Scheduler
from noonmark.telemetry.logs import LogSink
from tests.embedded.waiting import ended

LOGGER = "noonmark.work"


def nothing():
    pass


def events(caplog):
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_run_is_logged_with_its_ids(caplog, level):
    caplog.set_level(level, LOGGER)
    with Scheduler(sink=LogSink()) as scheduler:
        job = scheduler.schedule(nothing)
        ended(scheduler, job)
        (occurrence,) = scheduler.occurrences(job)
    told = events(caplog)
    assert told[0] == "worker started"
    assert told[-1] == "worker stopped, 0 handed back"
    assert ("started" in told) == ("claimed from phase pending" in told) == (level == logging.DEBUG)
    about = [record for record in caplog.records if record.getMessage() == "started"]
    assert {(one.occurrence_id, one.schedule_id) for one in about} <= {(occurrence.id, job)}
