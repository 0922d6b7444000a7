"""What is logged for those who do not look into the store."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import IntervalTrigger, Scheduler
from noonmark.core.instants import SECOND
from noonmark.core.policies import misfire
from noonmark.core.run import Outcome
from noonmark.core.targets.http import HttpTarget
from noonmark.core.triggers import EventTrigger
from noonmark.testing import FakeClock, ManualDriver
from tests.driver.rig import Rig

START = datetime(2030, 5, 1, tzinfo=UTC)


class Kit:
    def __init__(self):
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(clock=self.clock)
        self.driver = ManualDriver(self.scheduler)


@pytest.fixture
def kit():
    return Kit()


def said(caplog, level):
    return [one.getMessage() for one in caplog.records if one.levelno == level and one.name.startswith("noonmark")]


def fail():
    raise ValueError("on purpose")


def test_every_missed_fire_is_told(kit, caplog):
    kit.scheduler.schedule(print, name="tick", trigger=IntervalTrigger(60))
    kit.clock.advance(3_600)
    kit.driver.run_due()
    [line] = said(caplog, logging.WARNING)
    assert line.startswith("tick: 59 fires, 2030-05-01T00:01:00Z to 2030-05-01T00:59:00Z, ended as misfired. ")


def test_one_missed_fire_is_told_with_one_time(kit, caplog):
    kit.scheduler.schedule(print, name="tick", trigger=IntervalTrigger(60))
    kit.clock.advance(175)
    kit.driver.run_due()
    [line] = said(caplog, logging.WARNING)
    assert line.startswith("tick: the fire of 2030-05-01T00:01:00Z ended as misfired. ")


def test_what_a_policy_skips_is_no_warning(kit, caplog):
    caplog.set_level(logging.INFO, "noonmark")
    job = kit.scheduler.schedule(fail, trigger=IntervalTrigger(60), retries={"max_attempts": 2, "backoff_seconds": 90})
    kit.driver.run_until(START + timedelta(seconds=121))
    [line] = said(caplog, logging.INFO)
    assert line.startswith(f"{job} (function:")
    assert ": the fire of 2030-05-01T00:02:00Z ended as skipped. An earlier occurrence was still in flight" in line


def test_a_failed_run_is_told_with_its_attempt_and_what_follows(kit, caplog):
    kit.scheduler.schedule(fail, name="fragile", retries=1)
    kit.driver.run_until(START + timedelta(seconds=10))
    first, second = said(caplog, logging.WARNING)
    assert first.startswith(
        "fragile: the run of 2030-05-01T00:00:00Z failed, attempt 1 of 2, retry at 2030-05-01T00:00:01"
    )
    assert first.endswith("ValueError: on purpose")
    assert second.startswith("fragile: the run of 2030-05-01T00:00:00Z failed, attempt 2 of 2\n")


def test_a_failure_that_noonmark_decided_on_says_why_and_repeats_nothing_else(caplog):
    rig = Rig(routes=("http",))
    made = rig.create(trigger=EventTrigger("seen"), target=HttpTarget(url="https://a.example/"))
    refused = rig.started(made)
    rig.target.end(refused, Outcome.DELIVERY_FAILED, error="MARK", own_words="it is far away")
    rig.settle_once()
    [line] = said(caplog, logging.WARNING)
    assert line.endswith(": it is far away (undeliverable)")
    assert "MARK" not in line


def test_a_target_that_no_node_serves_is_told_once_per_schedule_and_hour(caplog):
    rig = Rig(routes=["function:other"])
    made = rig.create(schedule_id="typo", misfire_policy=misfire.CatchUpAll())
    rig.reap_once()
    for number in range(3):
        rig.add(made, f"run-{number}")
        rig.advance((61 if number < 2 else 3_600) * SECOND)
        rig.reap_once()
    first, second = said(caplog, logging.WARNING)
    assert "no live node serves its target, function:work: the fire of 2030-" in first
    assert "`noonmark schedule explain typo` says more" in second


def test_a_gap_that_no_node_could_serve_is_told_as_such(caplog):
    rig = Rig(routes=["function:other"])
    rig.create(schedule_id="typo")
    for _ in range(3):
        rig.advance(60 * SECOND)
        rig.reap_once()
        rig.plan_once()
    [line] = said(caplog, logging.WARNING)
    assert "no live node serves its target, function:work" in line
