"""The log sink."""

import logging

import pytest

from noonmark import Scheduler
from noonmark.telemetry.logs import MAX_SETTLED_LINES, LogSink
from tests.embedded.waiting import eventually

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
        eventually(lambda: any("completed in" in one for one in events(caplog)))
        (occurrence,) = scheduler.occurrences(job)
    told = events(caplog)
    assert told[0] == "worker started"
    assert told[-1] == "worker stopped, 0 handed back"
    assert ("started" in told) == ("claimed from phase pending" in told) == (level == logging.DEBUG)
    (ended,) = [record for record in caplog.records if record.getMessage().startswith("completed in")]
    assert (ended.occurrence_id, ended.schedule_id) == (occurrence.id, job)


def test_many_completions_share_a_line(caplog):
    class Kept:
        def __init__(self):
            self.settled = []

        def tell(self, events):
            self.settled += [one for one in events if type(one).__name__ == "Settled"]

    kept = Kept()
    with Scheduler(sink=kept) as scheduler:
        scheduler.create_many([{"func": nothing}] * (MAX_SETTLED_LINES + 1))
        eventually(lambda: len(kept.settled) == MAX_SETTLED_LINES + 1)
    caplog.set_level(logging.INFO, LOGGER)
    LogSink().tell(kept.settled)
    assert events(caplog) == [f"{MAX_SETTLED_LINES + 1} completed"]
    caplog.clear()
    LogSink().tell(kept.settled[1:])
    assert len(events(caplog)) == MAX_SETTLED_LINES
    caplog.clear()
    caplog.set_level(logging.DEBUG, LOGGER)
    LogSink().tell(kept.settled)
    assert len(events(caplog)) == MAX_SETTLED_LINES + 1
    caplog.clear()
    caplog.set_level(logging.WARNING, LOGGER)
    LogSink().tell(kept.settled)
    assert events(caplog) == []
