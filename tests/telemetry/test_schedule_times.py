"""Metrics of single schedules, for those with the label."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import IntervalTrigger, Scheduler
from noonmark.core.instants import to_micros
from noonmark.core.schedule import Owner
from noonmark.operations.serializers import next_run
from noonmark.telemetry import metrics
from noonmark.telemetry.metrics import LabelledSchedules, Metrics, ScheduleTimes, ScheduleTimesReader
from noonmark.testing import FakeClock, ManualDriver
from tests.operations.harness import LOCAL, REPORT, Harness

START = datetime(2030, 5, 1, tzinfo=UTC)
LABEL = {"metrics": "true"}
MINUTELY = IntervalTrigger(60)


class Kit:
    def __init__(self):
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(clock=self.clock)
        self.driver = ManualDriver(self.scheduler)
        self.is_broken = False
        store = self.scheduler._store
        self.reader = ScheduleTimesReader(store, lambda stored, now: next_run(stored, now=now))

    def work(self):
        if self.is_broken:
            raise RuntimeError("no")

    def run_minutes(self, minutes):
        self.driver.run_until(START + timedelta(minutes=minutes, seconds=1))


@pytest.fixture
def kit():
    return Kit()


def minute(number):
    return to_micros(START + timedelta(minutes=number))


def whole(time):
    """A time without its fraction of a second, in which a run takes place."""
    return None if time is None else time // 1_000_000 * 1_000_000


def times(kit):
    return [
        (one.name, whole(one.last_success), whole(one.last_failure), one.next_fire) for one in kit.reader.read().times
    ]


def test_only_schedules_with_the_label_have_metrics(kit):
    for name, labels in (("a", LABEL), ("b", {"metrics": "false"}), ("c", {}), ("d", {"team": "x", **LABEL})):
        kit.scheduler.schedule(print, name=name, trigger=MINUTELY, labels=labels)
    assert {one.name for one in kit.reader.read().times} == {"a", "d"}


def test_last_success_and_failure_follow_the_runs(kit):
    job = kit.scheduler.schedule(kit.work, name="tick", trigger=MINUTELY, labels=LABEL)
    assert times(kit) == [("tick", None, None, minute(1))]
    kit.run_minutes(2)
    assert times(kit) == [("tick", minute(2), None, minute(3))]
    kit.is_broken = True
    kit.run_minutes(4)
    assert times(kit) == [("tick", minute(2), minute(4), minute(5))]
    kit.scheduler.pause(job)
    assert times(kit) == [("tick", minute(2), minute(4), None)]
    kit.scheduler.delete(job)
    assert times(kit) == []


def test_missed_fires_are_a_failure(kit):
    kit.scheduler.schedule(kit.work, name="tick", trigger=MINUTELY, labels=LABEL, misfire="skip")
    kit.clock.advance(600)
    kit.driver.run_due()
    [(_, _, failed, _)] = times(kit)
    assert failed == minute(10)


def test_the_number_of_schedules_is_bounded(kit, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SCHEDULES", 2)
    for number in range(2):
        kit.scheduler.schedule(print, name=f"n-{number}", trigger=MINUTELY, labels=LABEL)
    assert kit.reader.read().left_out == 0
    for number in range(2, 5):
        kit.clock.advance(1)
        kit.scheduler.schedule(print, name=f"n-{number}", trigger=MINUTELY, labels=LABEL)
    found = kit.reader.read()
    assert ({one.name for one in found.times}, found.left_out) == ({"n-0", "n-1"}, 3)


def test_history_is_read_only_after_a_change(kit, monkeypatch):
    kit.scheduler.schedule(kit.work, name="tick", trigger=MINUTELY, labels=LABEL)
    kit.run_minutes(1)
    before = times(kit)
    monkeypatch.setattr(kit.scheduler._store, "occurrences", None)
    assert times(kit) == before


def test_series_are_exported_as_seconds():
    second = 1_000_000
    found = LabelledSchedules((ScheduleTimes("acme", "s-1", 'a"b', 5 * second, None, 7_500_000),), 3)
    answers = [found, None]
    metrics = Metrics(schedules=lambda: answers.pop(0))
    text = metrics.render().decode()
    labels = '{name="a\\"b",schedule_id="s-1",tenant="acme"}'
    assert f"noonmark_schedule_last_success_timestamp_seconds{labels} 5.0" in text
    assert f"noonmark_schedule_next_fire_timestamp_seconds{labels} 7.5" in text
    assert "noonmark_schedule_last_failure_timestamp_seconds{" not in text
    assert "noonmark_schedules_without_metrics 3.0" in text
    assert "noonmark_schedules_without_metrics 3" not in metrics.render().decode()


def test_schedules_of_every_tenant_have_metrics():
    harness = Harness()
    for caller in (LOCAL, replace(LOCAL, owner=Owner(tenant="acme", user="ada"))):
        trigger = {"type": "interval", "every_seconds": 60}
        harness("schedule/create", caller, trigger=trigger, target=REPORT, labels=LABEL, name="theirs")
    reader = ScheduleTimesReader(harness.service.store, lambda stored, now: next_run(stored, now=now))
    assert [(one.tenant, one.name) for one in reader.read().times] == [("acme", "theirs"), ("default", "theirs")]
